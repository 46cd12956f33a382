"""Matches directives against a text, as LLVM's FileCheck does."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from filecheck.ops import Capture

from runner.model.matching.filecheck.reading import FLOATING, Directive, Kind, compile_pattern, group_name
from runner.model.matching.time_limit import time_limit


class Span(NamedTuple):
    """A part of the text."""

    start: int
    end: int


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


@dataclass(slots=True, kw_only=True)
class Matcher:
    """Matches directives against a text. All offsets refer to ``text``."""

    text: str
    variables: dict[str, str] = field(default_factory=dict)
    matched: dict[int, Span] = field(default_factory=dict)
    """The match of each directive, by its line."""
    searched: dict[int, tuple[Span, Mapping[str, str]]] = field(default_factory=dict)
    """The region of each CHECK-NOT and the variables then, by its line."""

    def run(self, directives: Sequence[Directive], seconds: float) -> Mismatch | None:
        """Match every directive; return the first failure. Raise ``PatternTooSlow`` after ``seconds``."""
        at = begin = 0
        try:
            with time_limit(seconds):
                for index, last in enumerate((*directives, None)):
                    if last is not None and last.kind is not Kind.LABEL:
                        continue
                    # a label is found before the directives that lead to it, so that none of them matches after it
                    end = len(self.text) if last is None else self.expect(last, Span(at, len(self.text))).end
                    floating: list[Directive] = []
                    for directive in (*directives[begin:index], last):
                        if directive is not None and directive.kind in FLOATING:
                            floating.append(directive)
                        else:
                            at = self.take(floating, directive, Span(at, end))
                            floating = []
                    at, begin = end, index + 1
        except Mismatch as mismatch:
            return mismatch
        return None

    def take(self, floating: Sequence[Directive], main: Directive | None, region: Span) -> int:
        """Match CHECK-DAGs and CHECK-NOTs, then the directive after them, None at the end of the text. Return the start of the next search.

        CHECK-NOTs separate groups of CHECK-DAGs. They apply from the end of one group to the first match of the next.
        """
        forbidden: list[Directive] = []
        group: list[Span] = []
        for index, directive in enumerate(floating, start=1):
            if directive.kind is Kind.NOT:
                forbidden.append(directive)
                continue
            # the first match that overlaps none of the group
            at: int | None = region.start
            while at is not None:
                span = self.expect(directive, Span(at, region.end))
                at = next((other.end for other in sorted(group) if other.start < span.end and span.start < other.end), None)
            self.matched[directive.line] = span
            group.append(span)
            if index == len(floating) or floating[index].kind is Kind.NOT:
                self.refuse(forbidden, Span(region.start, min(group).start))
                region = Span(max(span.end for span in group), region.end)
                forbidden, group = [], []
        if main is None:
            self.refuse(forbidden, region)
            return region.end
        span = self.expect(main, region)
        start = span.start
        for already in range(1, main.count):
            span = self.expect(main, Span(span.end, region.end), f"matched {already} of {main.count} times")
        span = self.matched[main.line] = Span(start, span.end)
        newlines = self.text.count("\n", region.start, start)
        match main.kind:
            case Kind.NEXT | Kind.EMPTY if newlines == 0:
                raise Mismatch(main, "matched on the same line as the previous match", region=region, found=span)
            case Kind.NEXT | Kind.EMPTY if newlines > 1:
                raise Mismatch(main, "matched, but not on the line after the previous match", region=region, found=span)
            case Kind.SAME if newlines:
                raise Mismatch(main, "matched, but not on the same line as the previous match", region=region, found=span)
        self.refuse(forbidden, Span(region.start, start))
        return span.end

    def expect(self, directive: Directive, region: Span, reason: str = "no match") -> Span:
        """Return the match; raise ``Mismatch`` when there is none."""
        span = self.find(directive, region)
        if span is None:
            raise Mismatch(directive, reason, region=region)
        return span

    def refuse(self, forbidden: Iterable[Directive], region: Span) -> None:
        """Raise ``Mismatch`` if a CHECK-NOT matches."""
        for directive in forbidden:
            self.searched[directive.line] = (region, dict(self.variables))
            span = self.find(directive, region)
            if span is not None:
                raise Mismatch(directive, "matched a forbidden line", region=region, found=span)

    def find(self, directive: Directive, region: Span) -> Span | None:
        """Return the leftmost and then longest match, and store its variables."""
        # A copy, because ^ and $ match at the ends of the remaining text, as in LLVM.
        text = self.text[region.start : region.end]
        pattern = compile_pattern(directive, self.variables)
        match = pattern.search(text)
        if match is None:
            return None
        if directive.ambiguous:
            # POSIX takes the longest match with this start, Python the first alternative
            line_end = text.find("\n", match.end())
            limit = len(text) if directive.spans_lines or line_end < 0 else line_end
            for end in range(min(limit, match.end() + _REACH), match.end(), -1):
                # In Python $ also matches at the end position of a search.
                if "$" in pattern.pattern and end != len(text) and text[end] != "\n":
                    continue
                if longer := pattern.fullmatch(text, match.start(), end):
                    match = longer
                    break
        for part in directive.parts:
            if isinstance(part, Capture):
                self.variables[part.name] = match[group_name(part.name)]
        # The newline that CHECK-EMPTY consumes belongs to the line before.
        return Span(region.start + match.start() + (directive.kind is Kind.EMPTY), region.start + match.end())
