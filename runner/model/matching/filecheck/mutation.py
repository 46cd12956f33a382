"""Mutants of a text that its passing checks must reject: a match removed, or a forbidden line inserted."""

import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from runner.model.matching.filecheck import Matcher
from runner.model.matching.filecheck.reading import CheckFile, Directive, Kind, canonical, compile_pattern
from runner.model.matching.time_limit import PatternTooSlow

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


def changes(checks: CheckFile, text: str) -> Iterator[Changed]:
    """Yield a changed text for each directive of checks that pass for ``text``. Blanks are normalised as in FileCheck.

    Matches are removed until the directive finds no other one, because one match is enough to pass. A match of the empty text cannot be
    removed: then the text still passes and is yielded as it is. Raise ``PatternTooSlow`` after the time limit.
    """
    matcher = Matcher(text=canonical(text.replace("\r\n", "\n")))
    if matcher.run(checks, _SECONDS) is not None:
        return
    for directive in checks:
        if directive.kind is Kind.NOT:
            yield _with_forbidden(checks, directive, matcher)
        elif directive.kind is Kind.EMPTY:
            at = matcher.matched[directive.line].start
            yield Changed(directive=directive, kind=Change.FILLED, text=f"{matcher.text[:at]}x{matcher.text[at:]}")
        else:
            yield Changed(directive=directive, kind=Change.REMOVED, text=_without(checks, directive, matcher))


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
    return compile_pattern(directive, matcher.variables).sub("", matcher.text)


def _with_forbidden(checks: CheckFile, directive: Directive, matcher: Matcher) -> Changed:
    """Insert a matching line where the directive forbids it, preferably where the directive itself rejects it and not its neighbours."""
    region, variables = matcher.searched[directive.line]
    line = _matching_line(compile_pattern(directive, variables))
    if line is None:
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
    best = next((refusing.index(preferred) for preferred in (directive, None) if preferred in refusing), 0)
    return Changed(directive=directive, kind=Change.FORBIDDEN, text=texts[best])


# -- a text for a pattern -------------------------------------------------------------------------------------------


def _matching_line(pattern: re.Pattern[str]) -> str | None:
    """Return a line that the pattern matches; None if the first choice at each place gives none."""
    from re import _parser  # type: ignore[attr-defined]  # the parser of re is private, and typeshed has no stub for the module re._parser

    for once in (False, True):
        line = _sample(_parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE), {}, once=once)
        if "\n" not in line and pattern.search(line):
            return line
    return None


_Node = tuple[Any, Any]
"""An operator of Python's parser of regular expressions and its argument, of which that parser says no type."""


def _sample(tree: Iterable[_Node], groups: dict[int, str], *, once: bool) -> str:
    """Return a text that the parse tree of a regular expression matches; ``once``: optional parts occur once."""
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
                firsts = [chr(value if kind == "LITERAL" else value[0]) for kind, value in members if kind != "NEGATE"]
                text += next((char for char in (*firsts, *_CHARACTERS) if _is_in(char, members)), "x")
            case "BRANCH":
                text += _sample(argument[1][0], groups, once=once)
            case "MAX_REPEAT" | "MIN_REPEAT":
                least, most, inner = argument
                text += _sample(inner, groups, once=once) * max(int(least), min(int(once), int(most)))
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
        ord(char) == value if kind == "LITERAL" else value[0] <= ord(char) <= value[1] for kind, value in members if kind != "NEGATE"
    )
    return is_member is not any(kind == "NEGATE" for kind, _ in members) and char != "\n"
