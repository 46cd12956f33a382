"""LLVM FileCheck: which lines a text must contain, in which order, and which it must not contain.

``parse`` turns the lines of ``checks`` into directives and rejects probable typing errors; ``run`` matches them against a text. Both are
pure: they print nothing and touch no files.

The ``filecheck`` package supplies the parts of a pattern (``ops``) and compiles them to a regular expression (``compiler``). Its parser and
its matcher are not used. The parser skips unknown lines. The matcher prints, ends the region of a CHECK-NOT after the next match instead of
before it, ignores the last character, and accepts a CHECK-NEXT on the line of the previous match. None of this can be switched off.

Verdicts are LLVM's. Errors here, although LLVM accepts them: only CHECK-NOTs, patterns that match any text, variables that may be empty or
are used before their definition, numeric substitution, ``\\d`` etc., ``.*`` outside of ``{{ }}``, a ``}}`` without its ``{{``,
two directives on one line, and a line without a directive.
"""

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from filecheck.ops import Literal

from runner.model.matching.filecheck.matching import Matcher, Mismatch, Span
from runner.model.matching.filecheck.reading import CheckFile, ChecksError, Directive, Kind, canonical, parse, without_variables
from runner.model.matching.time_limit import PatternTooSlow, time_limit


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOutcome:
    """Whether a text passes the directives. All other fields describe the first directive that failed."""

    passed: bool
    line: int | None = None
    directive: str = ""
    reason: str = ""
    excerpt: str = ""
    """The lines of the text around the position of the mismatch."""
    possible: str = ""
    """The line that was probably meant."""


_BEFORE, _AFTER, _WIDTH, TAB = 2, 4, 140, 4
"""Lines of an excerpt before and after the marked line, characters of a line, columns of a tab."""
_PATIENCE = 1.0
"""The time limit of the search for a possible match, in seconds."""
_SIMILAR = 0.7
"""The least similarity of a possible match."""


def describe(mismatch: Mismatch, matcher: Matcher, lines: Sequence[str], numbers: Sequence[int]) -> CheckOutcome:
    """Return the outcome of a text that fails a directive, given its lines as displayed and their numbers if they are not 1, 2, 3."""

    def shown(number: int) -> int:
        return numbers[number - 1] if number <= len(numbers) else number

    # the lines around the mismatch
    text, match = matcher.text, mismatch.found
    start = match.start if match else mismatch.region.start
    marked = text.count("\n", 0, start) + 1
    offset = start - (text.rfind("\n", 0, start) + 1)
    line_end = text.find("\n", start)
    width = min(match.end, len(text) if line_end < 0 else line_end) - start if match else 0
    begin, end = (_column(_line(lines, marked), count) for count in (offset, offset + width))
    shift = max(0, begin - _WIDTH // 2)
    rows = []
    for number in range(max(1, marked - _BEFORE), min(max(len(lines), marked), marked + _AFTER) + 1):
        rows.append(f"{'>' if number == marked else ' '}{shown(number):5} | {_line(lines, number)[shift : shift + _WIDTH]}".rstrip())
        if number == marked:
            marks = "^" * max(1, min(end - begin, _WIDTH // 2))
            rows.append(f"{' ' * 6} | {' ' * (begin - shift)}{marks} {'matched here' if match else 'searched from here'}")
    # the line that was probably meant; the verdict does not depend on it
    possible = ""
    if not match:
        with contextlib.suppress(PatternTooSlow), time_limit(_PATIENCE):
            number, where = _possible(mismatch, matcher, lines)
            possible = f"line {shown(number)}: {_line(lines, number).strip()[:_WIDTH]}{where}" if number else ""
    return CheckOutcome(
        passed=False,
        line=mismatch.directive.line,
        directive=str(mismatch.directive),
        reason=mismatch.reason,
        excerpt="\n".join(rows),
        possible=possible,
    )


def _line(lines: Sequence[str], number: int) -> str:
    """Return a line of the text. A newline at the end of the text has an empty line after it."""
    return lines[number - 1] if number <= len(lines) else ""


def _column(line: str, offset: int) -> int:
    """Return the column in a line for ``offset`` in the same line with runs of blanks made one."""
    tokens = re.finditer(r"[ \t]+|[^ \t]", line)
    return next((token.start() for index, token in enumerate(tokens) if index == offset), len(line))


def _possible(mismatch: Mismatch, matcher: Matcher, lines: Sequence[str]) -> tuple[int, str]:
    """Return the number of the line that was probably meant, one that matches elsewhere or else a similar one, and where; 0 for none."""
    text, region, directive = matcher.text, mismatch.region, mismatch.directive
    elsewhere = matcher.find(directive, Span(0, len(text))) if directive.count == 1 else None
    if elsewhere is not None:
        where = "before" if elsewhere.start < region.start else "after"
        return text.count("\n", 0, elsewhere.start) + 1, f" ({where} the lines searched)"
    first = text.count("\n", 0, region.start) + 1
    last = min(text.count("\n", 0, region.end) + 1, len(lines))
    # the literal text of the pattern
    parts = without_variables(directive.parts, matcher.variables)
    example = "".join(part.content for part in parts if isinstance(part, Literal)).strip()
    if not example:
        return 0, ""
    similarity = SequenceMatcher(b=example, autojunk=False)
    best, number = _SIMILAR, 0
    for at in range(first, last + 1):
        # the place of the line that is most similar, as long as the example
        similarity.set_seq1(lines[at - 1][:_WIDTH])
        common = similarity.find_longest_match()
        start = max(0, common.a - common.b)
        similarity.set_seq1(lines[at - 1][start : start + len(example)])
        if similarity.ratio() > best:
            best, number = similarity.ratio(), at
    return number, ""


__all__ = ["CheckFile", "CheckOutcome", "ChecksError", "Directive", "EmptyText", "Kind", "parse", "passes", "run"]


class EmptyText(Exception):
    """The text is blank, so a verdict about it would be vacuous."""


def passes(checks: CheckFile, text: str, *, seconds: float = 5.0) -> bool:
    """Whether the directives match a text: the verdict of ``run`` alone, without the search for an explanation. The same errors."""
    return _matcher(text).run(checks, seconds) is None


def run(checks: CheckFile, text: str, *, seconds: float = 5.0, numbers: Sequence[int] = ()) -> CheckOutcome:
    """Match a text; raise ``EmptyText`` for a blank text and ``PatternTooSlow`` after ``seconds``.

    ``numbers`` are the line numbers to show, if the text is a part of another one. The time limit works only in the main thread.
    """
    matcher = _matcher(text)
    mismatch = matcher.run(checks, seconds)
    if mismatch is None:
        return CheckOutcome(passed=True)
    return describe(mismatch, matcher, text.replace("\r\n", "\n").expandtabs(TAB).rstrip("\n").split("\n"), numbers)


def _matcher(text: str) -> Matcher:
    if not text.strip():
        raise EmptyText("the text is blank")
    return Matcher(text=canonical(text.replace("\r\n", "\n")))
