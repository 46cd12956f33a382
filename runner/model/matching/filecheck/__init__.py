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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import NamedTuple

from filecheck.ops import Capture, Literal

from runner.model.matching.filecheck.reading import (
    FLOATING,
    CheckFile,
    ChecksError,
    Directive,
    Kind,
    canonical,
    compile_pattern,
    group_name,
    parse,
    without_variables,
)
from runner.model.matching.time_limit import PatternTooSlow, time_limit


class Span(NamedTuple):
    """A part of the text."""

    start: int
    end: int


class Mismatch(Exception):
    """A directive that fails. ``region`` is the searched part of the text, ``found`` the forbidden or misplaced match, if there is one."""

    def __init__(self, directive: Directive, reason: str, *, region: Span, matched: Span | None = None) -> None:
        super().__init__(reason)
        self.directive = directive
        self.reason = reason
        self.region = region
        self.matched = matched


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
                raise Mismatch(main, "matched on the same line as the previous match", region=region, matched=span)
            case Kind.NEXT | Kind.EMPTY if newlines > 1:
                raise Mismatch(main, "matched, but not on the line after the previous match", region=region, matched=span)
            case Kind.SAME if newlines:
                raise Mismatch(main, "matched, but not on the same line as the previous match", region=region, matched=span)
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
                raise Mismatch(directive, "matched a forbidden line", region=region, matched=span)

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
    text, match = matcher.text, mismatch.matched
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
