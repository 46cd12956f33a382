"""Explains a mismatch: the lines around its position, and the line that was probably meant."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import overload

from filecheck.ops import Literal

from runner.core.matching.filecheck.directives import Directive
from runner.core.matching.filecheck.expressions import without_variables
from runner.core.matching.filecheck.matching import Matcher, Mismatch, Span
from runner.core.matching.time_limit import PatternTooSlow, time_limit


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
_SHARED, _SIMILAR, _NEAR = 0.5, 0.75, 40
"""A possible match shares this part of the pattern's pieces. Otherwise, within this many lines, its most similar place reaches this
similarity.
"""


@dataclass(frozen=True, slots=True)
class _Lines(Sequence[str]):
    """A text as displayed, with its line numbers if they are not 1, 2, 3."""

    lines: Sequence[str]
    numbers: Sequence[int]

    def __len__(self) -> int:
        return len(self.lines)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...

    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        return self.lines[index]

    def number(self, at: int) -> int:
        """Return the displayed number of a line, given its index from 1."""
        return self.numbers[at - 1] if at <= len(self.numbers) else at


def describe(mismatch: Mismatch, matcher: Matcher, text: Sequence[str], numbers: Sequence[int] = ()) -> CheckOutcome:
    """Return the outcome of a text that fails a directive; ``text`` are the lines as displayed."""
    lines = _Lines(text, numbers)
    directive = mismatch.directive
    found = mismatch.found
    start = mismatch.region.start
    return CheckOutcome(
        passed=False,
        line=directive.line,
        directive=str(directive),
        reason=mismatch.reason,
        excerpt=_excerpt(matcher.text, lines, found or Span(start, start), "matched here" if found else "searched from here"),
        possible="" if found else _possible_in_time(mismatch, matcher, lines),
    )


def _possible_in_time(mismatch: Mismatch, matcher: Matcher, lines: _Lines) -> str:
    """Search for a possible match; return nothing if the time is up. The verdict does not depend on it."""
    try:
        with time_limit(_PATIENCE):
            return _possible(mismatch, matcher, lines)
    except PatternTooSlow:
        return ""


def _excerpt(text: str, lines: _Lines, span: Span, note: str) -> str:
    number = text.count("\n", 0, span.start) + 1
    offset = span.start - (text.rfind("\n", 0, span.start) + 1)
    width = min(span.end, _end_of_line(text, span.start)) - span.start
    begin, end = (_column(_line(lines, number), count) for count in (offset, offset + width))
    shift = max(0, begin - _WIDTH // 2)
    rows = []
    for at in range(max(1, number - _BEFORE), min(max(len(lines), number), number + _AFTER) + 1):
        rows.append(f"{'>' if at == number else ' '}{lines.number(at):5} | {_line(lines, at)[shift : shift + _WIDTH]}".rstrip())
        if at == number:
            marks = "^" * max(1, min(end - begin, _WIDTH // 2))
            rows.append(f"{' ' * 6} | {' ' * (begin - shift)}{marks} {note}")
    return "\n".join(rows)


def _line(lines: Sequence[str], number: int) -> str:
    """Return a line of the text. A newline at the end of the text has an empty line after it."""
    return lines[number - 1] if number <= len(lines) else ""


def _end_of_line(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _column(line: str, offset: int) -> int:
    """Return the column in a line for ``offset`` in the same line with runs of blanks made one."""
    tokens = re.finditer(r"[ \t]+|[^ \t]", line)
    return next((token.start() for index, token in enumerate(tokens) if index == offset), len(line))


def _possible(mismatch: Mismatch, matcher: Matcher, lines: _Lines) -> str:
    """Return text that names the line that was probably meant: one that matches elsewhere, or else a similar one."""
    text, region, directive = matcher.text, mismatch.region, mismatch.directive
    elsewhere = matcher.find(directive, Span(0, len(text))) if directive.count == 1 else None
    if elsewhere is not None:
        where = "before" if elsewhere.start < region.start else "after"
        return f"{_named(lines, text.count(chr(10), 0, elsewhere.start) + 1)} ({where} the lines searched)"
    first = text.count("\n", 0, region.start) + 1
    last = min(text.count("\n", 0, region.end) + 1, len(lines))
    example = _example(directive, matcher.variables)
    if not example:
        return ""
    number = _sharing_most(example, lines, first, last) or _most_similar(example, lines, first, min(last, first + _NEAR))
    return "" if number is None else _named(lines, number)


def _named(lines: _Lines, number: int) -> str:
    return f"line {lines.number(number)}: {_line(lines, number).strip()[:_WIDTH]}"


def _example(directive: Directive, variables: Mapping[str, str]) -> str:
    """Return the literal text of a pattern, without its expressions."""
    parts = without_variables(directive.parts, variables)
    return "".join(part.content for part in parts if isinstance(part, Literal)).strip()


def _sharing_most(example: str, lines: Sequence[str], first: int, last: int) -> int | None:
    """Return the number of the line that shares most three-letter pieces with the example; None if it shares too few."""
    pieces = {example[at : at + 3] for at in range(len(example) - 2)}
    scores = ((sum(piece in lines[at - 1] for piece in pieces), -at) for at in range(first, last + 1))
    score, number = max(scores, default=(0, 0))
    return -number if score and score >= _SHARED * len(pieces) else None


def _most_similar(example: str, lines: Sequence[str], first: int, last: int) -> int | None:
    """Return the number of the line with the place most similar to the example, for typing errors in short words; None below the limit."""
    similarity = SequenceMatcher(b=example, autojunk=False)
    best, number = _SIMILAR, None
    for at in range(first, last + 1):
        similarity.set_seq1(lines[at - 1][:_WIDTH])
        common = similarity.find_longest_match()
        start = max(0, common.a - common.b)
        similarity.set_seq1(lines[at - 1][start : start + len(example)])
        if similarity.ratio() > best:
            best, number = similarity.ratio(), at
    return number
