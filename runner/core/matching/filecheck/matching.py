"""Matches directives against a text, as LLVM's FileCheck does."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from filecheck.ops import Capture

from runner.core.matching.filecheck.directives import FLOATING, Directive, Kind
from runner.core.matching.filecheck.expressions import compile_pattern, group_name


class Span(NamedTuple):
    """A part of the text."""

    start: int
    end: int


class _Step(NamedTuple):
    """A directive that moves on, with the CHECK-DAGs and CHECK-NOTs before it; ``main`` is None for the end of the text."""

    before: tuple[Directive, ...]
    main: Directive | None


class Mismatch(Exception):
    """A directive that fails. ``region`` is the searched part of the text, ``found`` the forbidden or misplaced match, if there is one."""

    def __init__(self, directive: Directive, reason: str, *, region: Span, found: Span | None = None) -> None:
        super().__init__(reason)
        self.directive = directive
        self.reason = reason
        self.region = region
        self.found = found


_REACH = 1000
"""How many characters after Python's match a longer match may end."""


def _blocks(found: Iterable[Directive]) -> Iterator[list[_Step]]:
    """Yield the steps up to each CHECK-LABEL, then those up to the end of the text."""
    block: list[_Step] = []
    before: list[Directive] = []
    for directive in found:
        if directive.kind in FLOATING:
            before.append(directive)
            continue
        block.append(_Step(tuple(before), directive))
        before = []
        if directive.kind is Kind.LABEL:
            yield block
            block = []
    yield [*block, _Step(tuple(before), None)]


@dataclass(slots=True, kw_only=True)
class Matcher:
    """Matches directives against a text. All offsets refer to ``text``."""

    text: str
    variables: dict[str, str] = field(default_factory=dict)

    def run(self, found: Iterable[Directive]) -> None:
        """Match every directive; raise ``Mismatch`` for the first one that fails."""
        at = 0
        for block in _blocks(found):
            end = self.end_of_block(block[-1].main, at)
            for step in block:
                at = self.take(step, Span(at, end))
            at = end

    def end_of_block(self, label: Directive | None, at: int) -> int:
        """Find the label before any other match, so that nothing matches after it."""
        return len(self.text) if label is None else self.expect(label, Span(at, len(self.text))).end

    def take(self, step: _Step, region: Span) -> int:
        """Match one step and return the start of the next search."""
        at, forbidden = self.unordered(step.before, region)
        region = Span(at, region.end)
        if step.main is None:
            self.refuse(forbidden, region)
            return region.end
        span = self.expect_all(step.main, region)
        self.require_adjacent(step.main, region, span)
        self.refuse(forbidden, Span(at, span.start))
        return span.end

    def find(self, directive: Directive, region: Span) -> Span | None:
        """Return the leftmost and then longest match, and store its variables."""
        # A copy, because ^ and $ match at the ends of the remaining text, as in LLVM.
        text = self.text[region.start : region.end]
        pattern = compile_pattern(directive, self.variables)
        match = pattern.search(text)
        if match is None:
            return None
        match = _longest(directive, pattern, match)
        for part in directive.parts:
            if isinstance(part, Capture):
                self.variables[part.name] = match[group_name(part.name)]
        # The newline that CHECK-EMPTY consumes belongs to the line before.
        start = match.start() + (directive.kind is Kind.EMPTY)
        return Span(region.start + start, region.start + match.end())

    def expect(self, directive: Directive, region: Span, reason: str = "no match") -> Span:
        """Return the match; raise ``Mismatch`` when there is none."""
        span = self.find(directive, region)
        if span is None:
            raise Mismatch(directive, reason, region=region)
        return span

    def expect_all(self, directive: Directive, region: Span) -> Span:
        """Match as often as CHECK-COUNT requires, one match after the other."""
        first = span = self.expect(directive, region)
        for already in range(1, directive.count):
            reason = f"matched {already} of {directive.count} times"
            span = self.expect(directive, Span(span.end, region.end), reason)
        return Span(first.start, span.end)

    def require_adjacent(self, directive: Directive, region: Span, span: Span) -> None:
        """Raise ``Mismatch`` if CHECK-NEXT, CHECK-SAME or CHECK-EMPTY matched on a wrong line."""
        newlines = self.text.count("\n", region.start, span.start)
        match directive.kind:
            case Kind.NEXT | Kind.EMPTY if newlines == 0:
                reason = "matched on the same line as the previous match"
            case Kind.NEXT | Kind.EMPTY if newlines > 1:
                reason = "matched, but not on the line after the previous match"
            case Kind.SAME if newlines:
                reason = "matched, but not on the same line as the previous match"
            case _:
                return
        raise Mismatch(directive, reason, region=region, found=span)

    def refuse(self, forbidden: Iterable[Directive], region: Span) -> None:
        """Raise ``Mismatch`` if a CHECK-NOT matches."""
        for directive in forbidden:
            span = self.find(directive, region)
            if span is not None:
                raise Mismatch(directive, "matched a forbidden line", region=region, found=span)

    def unordered(self, before: Sequence[Directive], region: Span) -> tuple[int, list[Directive]]:
        """Match the groups of CHECK-DAGs; return the end of the last match and the CHECK-NOTs after it.

        CHECK-NOTs separate the groups. They apply from the end of one group to the first match of the next.
        """
        at = region.start
        forbidden: list[Directive] = []
        group: list[Span] = []
        for index, directive in enumerate(before, start=1):
            if directive.kind is Kind.NOT:
                forbidden.append(directive)
                continue
            group.append(self.find_free(directive, group, Span(at, region.end)))
            if index == len(before) or before[index].kind is Kind.NOT:
                self.refuse(forbidden, Span(at, min(group).start))
                at = max(span.end for span in group)
                forbidden, group = [], []
        return at, forbidden

    def find_free(self, directive: Directive, taken: Sequence[Span], region: Span) -> Span:
        """Return the first match that overlaps no match in ``taken``."""
        at = region.start
        while True:
            span = self.expect(directive, Span(at, region.end))
            clash = next((old for old in sorted(taken) if old.start < span.end and span.start < old.end), None)
            if clash is None:
                return span
            at = clash.end


def _longest(directive: Directive, pattern: re.Pattern[str], match: re.Match[str]) -> re.Match[str]:
    """Return the longest match with the same start, as POSIX does; Python returns the first alternative that matches."""
    if not directive.ambiguous:
        return match
    text = match.string
    line_end = text.find("\n", match.end())
    limit = len(text) if directive.spans_lines or line_end < 0 else line_end
    for end in range(min(limit, match.end() + _REACH), match.end(), -1):
        # In Python $ also matches at the end position of a search.
        if "$" in pattern.pattern and end != len(text) and text[end] != "\n":
            continue
        if longer := pattern.fullmatch(text, match.start(), end):
            return longer
    return match
