"""Explains a mismatch: the lines around its position, and the line that was probably meant."""

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from filecheck.ops import Literal

from runner.model.matching.filecheck.directives import without_variables
from runner.model.matching.filecheck.matching import Matcher, Mismatch, Span
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
