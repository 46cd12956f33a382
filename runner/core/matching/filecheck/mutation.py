"""Mutants of a text that its passing checks must reject: a match removed, or a forbidden line inserted."""

import itertools
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from runner.core.matching.filecheck.directives import CheckFile, Directive, Kind
from runner.core.matching.filecheck.expressions import canonical, compile_pattern
from runner.core.matching.filecheck.matching import Matcher, Mismatch, Span
from runner.core.matching.time_limit import PatternTooSlow, time_limit

_SECONDS = 5.0

_REMOVALS = 200
"""How many matches of a directive are removed one by one, before the rest is removed at once."""


class Change(Enum):
    """The change to a text."""

    REMOVED = "its match removed"
    FILLED = "its empty line filled"
    FORBIDDEN = "a matching line put in"


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """A text changed for one directive; None if no such text was found, with the reason in ``why_not``."""

    directive: Directive
    kind: Change
    text: str | None
    why_not: str = ""


@dataclass(slots=True, kw_only=True)
class _Witness(Matcher):
    """A matcher that records the match of each directive and the searched region of each CHECK-NOT."""

    matched: dict[int, Span] = field(default_factory=dict)
    """By the directive's line."""
    searched: dict[int, tuple[Span, Mapping[str, str]]] = field(default_factory=dict)

    # a dataclass with slots is a new class: super() would use the original one

    def expect_all(self, directive: Directive, region: Span) -> Span:
        span = self.matched[directive.line] = Matcher.expect_all(self, directive, region)
        return span

    def find_free(self, directive: Directive, taken: Sequence[Span], region: Span) -> Span:
        span = self.matched[directive.line] = Matcher.find_free(self, directive, taken, region)
        return span

    def refuse(self, forbidden: Iterable[Directive], region: Span) -> None:
        directives = list(forbidden)
        for directive in directives:
            self.searched[directive.line] = (region, dict(self.variables))
        Matcher.refuse(self, directives, region)


def changes(checks: CheckFile, text: str) -> Iterator[Changed]:
    """Yield a changed text for each directive of checks that pass for ``text``. Blanks are normalised as in FileCheck.

    Matches are removed until the directive finds no other one, because one match is enough to pass. A match of the empty text cannot be
    removed: then the text still passes and is yielded as it is. Raise ``PatternTooSlow`` after the time limit.
    """
    seen = _witness(checks, canonical(text.replace("\r\n", "\n")))
    if seen is None:
        return
    for directive in checks.directives:
        if directive.kind is Kind.NOT:
            yield _with_forbidden(checks, directive, seen)
        elif directive.kind is Kind.EMPTY:
            at = seen.matched[directive.line].start
            yield Changed(directive=directive, kind=Change.FILLED, text=f"{seen.text[:at]}x{seen.text[at:]}")
        else:
            yield Changed(directive=directive, kind=Change.REMOVED, text=_without(checks, directive, seen))


def _witness(checks: CheckFile, text: str) -> _Witness | None:
    """Return the matches of the checks; None if the checks fail."""
    witness = _Witness(text=text)
    try:
        with time_limit(_SECONDS):
            witness.run(checks.directives)
    except Mismatch:
        return None
    return witness


def _without(checks: CheckFile, directive: Directive, seen: _Witness) -> str:
    text = seen.text
    begun = time.monotonic()
    for _ in range(_REMOVALS):
        if time.monotonic() - begun > _SECONDS:
            raise PatternTooSlow(_SECONDS)
        span = seen.matched[directive.line]
        if span.start == span.end:
            return text
        text = text[: span.start] + text[span.end :]
        found = _witness(checks, text) if text.strip() else None
        if found is None:
            return text
        seen = found
    pattern = compile_pattern(directive, seen.variables)
    return pattern.sub("", text)


def _with_forbidden(checks: CheckFile, directive: Directive, seen: _Witness) -> Changed:
    """Insert a matching line where the directive forbids it, preferably where the directive itself rejects it and not its neighbours."""
    region, variables = seen.searched[directive.line]
    pattern = compile_pattern(directive, variables)
    line = _matching_line(pattern)
    if line is None:
        why_not = "no text could be made that its pattern matches"
        return Changed(directive=directive, kind=Change.FORBIDDEN, text=None, why_not=why_not)
    texts = [canonical(text) for text in _with_line(seen.text, region, line)]
    refusals = [_refusal(checks, text) for text in texts]
    best = next((index for wanted in (directive, None) for index, found in enumerate(refusals) if found is wanted), 0)
    return Changed(directive=directive, kind=Change.FORBIDDEN, text=texts[best])


def _refusal(checks: CheckFile, text: str) -> Directive | None:
    """Return the directive that fails; None if all pass."""
    try:
        with time_limit(_SECONDS):
            Matcher(text=text).run(checks.directives)
    except Mismatch as mismatch:
        return mismatch.directive
    return None


def _with_line(text: str, region: Span, line: str) -> Iterator[str]:
    """Yield the text with a new line in a region, then with the line's text at the end of the region, for directives on the same line."""
    newline = text.find("\n", region.start, region.end)
    if region.start == 0 or newline >= 0:
        at = newline + 1 if region.start else 0
        yield f"{text[:at]}{line}\n{text[at:]}"
    yield f"{text[: region.end]} {line} {text[region.end :]}"


# -- a text for a pattern -------------------------------------------------------------------------------------------


def _matching_line(pattern: re.Pattern[str]) -> str | None:
    """Return a line that the pattern matches; None if the first choice at each place gives none."""
    from re import _parser  # type: ignore[attr-defined]  # the parser of re is private, and typeshed has no stub for the module re._parser

    for once in (False, True):
        line = _Sample(once=once).of(_parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE))
        if "\n" not in line and pattern.search(line):
            return line
    return None


_Node = tuple[Any, Any]
"""An operator of Python's parser of regular expressions and its argument, of which that parser says no type."""


@dataclass(slots=True, kw_only=True)
class _Sample:
    """Makes a matching text from the parse tree of a regular expression."""

    once: bool
    """Whether optional parts occur once."""
    groups: dict[int, str] = field(default_factory=dict)

    def of(self, tree: Iterable[_Node]) -> str:
        return "".join(map(self.part, tree))

    def part(self, node: _Node) -> str:
        operator, argument = node
        match str(operator):
            case "LITERAL":
                return chr(argument)
            case "NOT_LITERAL":
                return next(char for char in _CHARACTERS if ord(char) != argument)
            case "ANY":
                return "x"
            case "IN":
                return next((char for char in _candidates(argument) if _is_in(char, argument)), "x")
            case "BRANCH":
                return self.of(argument[1][0])
            case "MAX_REPEAT" | "MIN_REPEAT":
                least, most, inner = argument
                return self.of(inner) * max(int(least), min(int(self.once), int(most)))
            case "SUBPATTERN":
                text = self.of(argument[3])
                if argument[0] is not None:
                    self.groups[argument[0]] = text
                return text
            case "GROUPREF":
                return self.groups.get(argument, "")
        return ""


_CHARACTERS = "xa0_ .,:;()[]{}=+-*/<>'\"!#%&?@\\^`|~$"


def _candidates(members: Iterable[_Node]) -> Iterator[str]:
    firsts = (chr(argument if str(operator) == "LITERAL" else argument[0]) for operator, argument in members if str(operator) != "NEGATE")
    return itertools.chain(firsts, _CHARACTERS)


def _is_in(char: str, members: Iterable[_Node]) -> bool:
    found = False
    negated = False
    for operator, argument in members:
        match str(operator):
            case "NEGATE":
                negated = True
            case "LITERAL":
                found |= ord(char) == argument
            case "RANGE":
                found |= argument[0] <= ord(char) <= argument[1]
    return found is not negated and char != "\n"
