"""LLVM FileCheck: which lines a text must contain, in which order, and which it must not contain.

``parse`` (``directives``) turns the lines of ``checks`` into directives and rejects probable typing
errors; ``run`` matches them against a text, and ``changes`` makes texts of it that they must
reject. All are pure: they print nothing and touch no files.

Verdicts are LLVM's. Errors here, although LLVM accepts them: only CHECK-NOTs, patterns that match
any text, variables that may be empty or are used before their definition, numeric substitution,
``\\d`` etc., ``.*`` outside of ``{{ }}``, a ``}}`` without its ``{{``, two directives on one line,
and a line without a directive.
"""

import contextlib
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from enum import Enum
from typing import Any, NamedTuple

from torch_conformance.matching.filecheck.directives import (
    FLOATING,
    CheckFile,
    ChecksError,
    Directive,
    Kind,
    canonical,
    parse,
)
from torch_conformance.matching.time_limit import PatternTooSlow, time_limit
from torch_conformance.model.values import frozen

__all__ = [
    "Change",
    "CheckFile",
    "CheckOutcome",
    "ChecksError",
    "Directive",
    "EmptyText",
    "Kind",
    "changes",
    "parse",
    "passes",
    "run",
    "verdicts_only",
]


class Span(NamedTuple):
    """A part of the text."""

    start: int
    end: int


@dataclass(eq=False)
class Mismatch(Exception):
    """A directive that fails."""

    directive: Directive
    reason: str
    region: Span
    """The searched part of the text."""
    matched: Span | None = None
    """The forbidden or misplaced match, if there is one."""


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
        """Match every directive; return the first failure.

        Raise ``PatternTooSlow`` after ``seconds``.
        """
        at = begin = 0
        try:
            with time_limit(seconds):
                for index, last in enumerate((*directives, None)):
                    if last is not None and last.kind is not Kind.LABEL:
                        continue
                    # a label is found before the directives that lead to it, so that none of them
                    # matches after it
                    end = (
                        len(self.text)
                        if last is None
                        else self.expect(last, Span(at, len(self.text))).end
                    )
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
        """Match CHECK-DAGs and CHECK-NOTs, then the directive after them, None at the end of the
        text.

        Return the start of the next search.

        CHECK-NOTs separate groups of CHECK-DAGs. They apply from the end of one group to the first
        match of the next.
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
                at = next(
                    (
                        other.end
                        for other in sorted(group)
                        if other.start < span.end and span.start < other.end
                    ),
                    None,
                )
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
            span = self.expect(
                main, Span(span.end, region.end), f"matched {already} of {main.count} times"
            )
        span = self.matched[main.line] = Span(start, span.end)
        newlines = self.text.count("\n", region.start, start)
        reason = ""
        match main.kind:
            case Kind.NEXT | Kind.EMPTY if newlines == 0:
                reason = "matched on the same line as the previous match"
            case Kind.NEXT | Kind.EMPTY if newlines > 1:
                reason = "matched, but not on the line after the previous match"
            case Kind.SAME if newlines:
                reason = "matched, but not on the same line as the previous match"
        if reason:
            raise Mismatch(main, reason, region=region, matched=span)
        self.refuse(forbidden, Span(region.start, start))
        return span.end

    def expect(self, directive: Directive, region: Span, reason: str = "no match") -> Span:
        """Return the match; raise ``Mismatch`` when there is none."""
        if (span := self.find(directive, region)) is None:
            raise Mismatch(directive, reason, region=region)
        return span

    def refuse(self, forbidden: Iterable[Directive], region: Span) -> None:
        """Raise ``Mismatch`` if a CHECK-NOT matches."""
        for directive in forbidden:
            self.searched[directive.line] = (region, dict(self.variables))
            if (span := self.find(directive, region)) is not None:
                raise Mismatch(directive, "matched a forbidden line", region=region, matched=span)

    def find(self, directive: Directive, region: Span) -> Span | None:
        """Return the leftmost and then longest match, and store its variables."""
        # A copy, because ^ and $ match at the ends of the remaining text, as in LLVM.
        text = self.text[region.start : region.end]
        pattern = directive.compiled(self.variables)
        if (match := pattern.search(text)) is None:
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
        self.variables.update(
            {
                part.variable: match[part.group]
                for part in directive.parts
                if part.variable and part.expression
            }
        )
        # The newline that CHECK-EMPTY consumes belongs to the line before.
        return Span(
            region.start + match.start() + (directive.kind is Kind.EMPTY),
            region.start + match.end(),
        )


@frozen
class CheckOutcome:
    """Whether a text passes the directives.

    All other fields describe the first directive that failed.
    """

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
_SEARCHES: ContextVar[bool] = ContextVar("searches", default=True)
"""Whether the line that was probably meant is searched: it takes longer than all else."""


@contextlib.contextmanager
def verdicts_only() -> Iterator[None]:
    """Let nobody search for lines that were probably meant: for texts that are made to fail."""
    token = _SEARCHES.set(False)
    try:
        yield
    finally:
        _SEARCHES.reset(token)


def describe(
    mismatch: Mismatch, matcher: Matcher, lines: Sequence[str], numbers: Sequence[int]
) -> CheckOutcome:
    """Return the outcome of a text that fails a directive, given its lines as displayed and their
    numbers if they are not 1, 2, 3.
    """

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
    for number in range(
        max(1, marked - _BEFORE), min(max(len(lines), marked), marked + _AFTER) + 1
    ):
        rows.append(
            f"{'>' if number == marked else ' '}{shown(number):5} | "
            f"{_line(lines, number)[shift : shift + _WIDTH]}".rstrip()
        )
        if number == marked:
            marks = "^" * max(1, min(end - begin, _WIDTH // 2))
            rows.append(
                f"{' ' * 6} | {' ' * (begin - shift)}{marks} "
                f"{'matched here' if match else 'searched from here'}"
            )
    # the line that was probably meant; the verdict does not depend on it
    possible = ""
    if not match and _SEARCHES.get():
        with contextlib.suppress(PatternTooSlow), time_limit(_PATIENCE):
            number, where = _possible(mismatch, matcher, lines)
            possible = (
                f"line {shown(number)}: {_line(lines, number).strip()[:_WIDTH]}{where}"
                if number
                else ""
            )
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
    """Return the number of the line that was probably meant, one that matches elsewhere or else a
    similar one, and where; 0 for none.
    """
    text, region, directive = matcher.text, mismatch.region, mismatch.directive
    elsewhere = matcher.find(directive, Span(0, len(text))) if directive.count == 1 else None
    if elsewhere is not None:
        where = "before" if elsewhere.start < region.start else "after"
        return text.count("\n", 0, elsewhere.start) + 1, f" ({where} the lines searched)"
    first = text.count("\n", 0, region.start) + 1
    last = min(text.count("\n", 0, region.end) + 1, len(lines))
    # the literal text of the pattern
    parts = (part for part in directive.parts if not part.expression)
    example = "".join(matcher.variables.get(part.variable, part.text) for part in parts).strip()
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


class EmptyText(Exception):
    """The text is blank, so a verdict about it would be vacuous."""


def passes(checks: CheckFile, text: str, *, seconds: float = 5.0) -> bool:
    """Whether the directives match a text: the verdict of ``run`` without the search for an
    explanation.

    The same errors.
    """
    return _matcher(text).run(checks, seconds) is None


def run(
    checks: CheckFile, text: str, *, seconds: float = 5.0, numbers: Sequence[int] = ()
) -> CheckOutcome:
    """Match a text; raise ``EmptyText`` for a blank text and ``PatternTooSlow`` after ``seconds``.

    ``numbers`` are the line numbers to show, if the text is a part of another one. The time limit
    works only in the main thread.
    """
    matcher = _matcher(text)
    if (mismatch := matcher.run(checks, seconds)) is None:
        return CheckOutcome(passed=True)
    return describe(
        mismatch,
        matcher,
        text.replace("\r\n", "\n").expandtabs(TAB).rstrip("\n").split("\n"),
        numbers,
    )


def _matcher(text: str) -> Matcher:
    if not text.strip():
        raise EmptyText("the text is blank")
    return Matcher(text=canonical(text.replace("\r\n", "\n")))


# -- texts that the checks must reject -------------------------------------------------------------

_SECONDS = 5.0

_REMOVALS = 200
"""How many matches of a directive are removed one by one, before the rest is removed at once."""


class Change(Enum):
    """The change to a text."""

    REMOVED = "its match removed"
    FILLED = "its empty line filled"
    FORBIDDEN = "a matching line put in"


@frozen
class Changed:
    """A text changed for one directive; None if no such text was found, with the reason in
    ``why_not``.
    """

    directive: Directive
    kind: Change
    text: str | None
    why_not: str = ""


def changes(checks: CheckFile, text: str) -> Iterator[Changed]:
    """Yield a changed text for each directive of checks that pass for ``text``.

    Blanks are normalised as in FileCheck.

    Matches are removed until the directive finds no other one, because one match is enough to pass.
    A match of the empty text cannot be removed: then the text still passes and is yielded as it is.
    Raise ``PatternTooSlow`` after the time limit.
    """
    matcher = Matcher(text=canonical(text.replace("\r\n", "\n")))
    if matcher.run(checks, _SECONDS) is not None:
        return
    for directive in checks:
        if directive.kind is Kind.NOT:
            yield _with_forbidden(checks, directive, matcher)
        elif directive.kind is Kind.EMPTY:
            at = matcher.matched[directive.line].start
            yield Changed(
                directive=directive,
                kind=Change.FILLED,
                text=f"{matcher.text[:at]}x{matcher.text[at:]}",
            )
        else:
            yield Changed(
                directive=directive, kind=Change.REMOVED, text=_without(checks, directive, matcher)
            )


def _without(checks: CheckFile, directive: Directive, matcher: Matcher) -> str:
    begun = time.monotonic()
    for _ in range(_REMOVALS):
        if time.monotonic() - begun > _SECONDS:
            raise PatternTooSlow(_SECONDS)
        span = matcher.matched[directive.line]
        if span.start == span.end:
            return matcher.text
        text = matcher.text[: span.start] + matcher.text[span.end :]
        changed = Matcher(text=text)
        if not text.strip() or changed.run(checks, _SECONDS) is not None:
            return text
        matcher = changed
    return directive.compiled(matcher.variables).sub("", matcher.text)


def _with_forbidden(checks: CheckFile, directive: Directive, matcher: Matcher) -> Changed:
    """Insert a matching line where the directive forbids it, preferably where the directive itself
    rejects it and not its neighbours.
    """
    region, variables = matcher.searched[directive.line]
    if (line := _matching_line(directive.compiled(variables))) is None:
        why_not = "no text could be made that its pattern matches"
        return Changed(directive=directive, kind=Change.FORBIDDEN, text=None, why_not=why_not)
    text, newline = matcher.text, matcher.text.find("\n", region.start, region.end)
    # as text at the end of the region, for directives on the same line
    texts = [f"{text[: region.end]} {line} {text[region.end :]}"]
    if region.start == 0 or newline >= 0:
        at = newline + 1 if region.start else 0
        texts.insert(0, f"{text[:at]}{line}\n{text[at:]}")
    texts = [canonical(text) for text in texts]
    mismatches = [Matcher(text=text).run(checks, _SECONDS) for text in texts]
    refusing = [mismatch and mismatch.directive for mismatch in mismatches]
    best = next(
        (refusing.index(preferred) for preferred in (directive, None) if preferred in refusing), 0
    )
    return Changed(directive=directive, kind=Change.FORBIDDEN, text=texts[best])


# -- a text for a pattern --------------------------------------------------------------------------


def parse_tree(pattern: str, flags: int = 0) -> "Iterable[_Node]":
    """Return the parse tree of a regular expression: pairs of an operator and its argument."""
    from re import _parser  # type: ignore[attr-defined]  # no public function returns the tree, and typeshed has no stub for this one

    tree: Iterable[_Node] = _parser.parse(pattern, flags)
    return tree


def _matching_line(pattern: re.Pattern[str]) -> str | None:
    """Return a line that the pattern matches; None if the first choice at each place gives none."""
    for once in (False, True):
        line = _sample(parse_tree(pattern.pattern, pattern.flags & ~re.UNICODE), {}, once=once)
        if "\n" not in line and pattern.search(line):
            return line
    return None


_Node = tuple[Any, Any]
"""An operator of Python's parser of regular expressions and its argument, of which that parser says
no type.
"""


def _sample(tree: Iterable[_Node], groups: dict[int, str], *, once: bool) -> str:
    """Return a text that the parse tree of a regular expression matches; ``once``: optional parts
    occur once.
    """
    text = ""
    for operator, argument in tree:
        match str(operator):
            case "LITERAL":
                text += chr(argument)
            case "NOT_LITERAL":
                text += next(char for char in _CHARACTERS if ord(char) != argument)
            case "ANY":
                text += "x"
            case "IN":
                members = [(str(kind), value) for kind, value in argument]
                firsts = [
                    chr(value if kind == "LITERAL" else value[0])
                    for kind, value in members
                    if kind != "NEGATE"
                ]
                text += next(
                    (char for char in (*firsts, *_CHARACTERS) if _is_in(char, members)), "x"
                )
            case "BRANCH":
                text += _sample(argument[1][0], groups, once=once)
            case "MAX_REPEAT" | "MIN_REPEAT":
                least, most, inner = argument
                text += _sample(inner, groups, once=once) * max(
                    int(least), min(int(once), int(most))
                )
            case "SUBPATTERN":
                inside = _sample(argument[3], groups, once=once)
                if argument[0] is not None:
                    groups[argument[0]] = inside
                text += inside
            case "GROUPREF":
                text += groups.get(argument, "")
    return text


_CHARACTERS = "xa0_ .,:;()[]{}=+-*/<>'\"!#%&?@\\^`|~$"


def _is_in(char: str, members: Iterable[tuple[str, Any]]) -> bool:
    is_member = any(
        ord(char) == value if kind == "LITERAL" else value[0] <= ord(char) <= value[1]
        for kind, value in members
        if kind != "NEGATE"
    )
    return is_member is not any(kind == "NEGATE" for kind, _ in members) and char != "\n"
