"""The smallest change of FileCheck directives under which recorded code passes. Pure.

Only what a directive requires is changed: its literal text to the most similar text of the code, a count to the observed one, CHECK-NEXT
and CHECK-SAME to CHECK where the match stands elsewhere. No directive is removed, and CHECK-NOT is never changed.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from filecheck.ops import Literal

from runner.core.matching.filecheck import CheckFile, CheckOutcome, ChecksError, Directive, EmptyText, Kind, parse, run
from runner.core.matching.generality import are_general, is_general
from runner.core.matching.time_limit import PatternTooSlow
from runner.run.blessing.leaves import NotBlessed

_SIMILAR = 0.6
"""The least similarity of a text that may take the place of a pattern."""

_TRIED = 10
"""The maximum number of texts that are tried for one directive."""

_LONGEST, _MOST_LINES = 200, 20_000


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the directives that is changed: its number from 1, and its text without the blanks around it."""

    number: int
    old: str
    new: str


def changed_lines(checks: str, texts: Sequence[str]) -> list[Line]:
    """Return the lines to change so that every text passes; raise ``NotBlessed`` where there is no such change."""
    found: dict[int, Line] = {}
    while (failed := _first_failure(checks, texts)) is not None:
        text, outcome, directive = failed
        if directive.line in found:
            raise NotBlessed(f"the recorded code differs between cases or runs at '{directive}'")
        new = _mended(checks, text, outcome, directive)
        old = checks.split("\n")[directive.line - 1]
        found[directive.line] = Line(directive.line, old.strip(), new.strip())
        checks = _with_line(checks, directive.line, new)
    return list(found.values())


def with_lines(checks: str, lines: Sequence[Line]) -> str:
    """Return directives with changed lines."""
    for line in lines:
        old = checks.split("\n")[line.number - 1]
        checks = _with_line(checks, line.number, old.replace(line.old, line.new))
    return checks


def _with_line(checks: str, number: int, new: str) -> str:
    rows = checks.split("\n")
    return "\n".join([*rows[: number - 1], new, *rows[number:]])


def _first_failure(checks: str, texts: Sequence[str]) -> tuple[str, CheckOutcome, Directive] | None:
    parsed = parse(checks)
    for text in texts:
        outcome = _run(parsed, text)
        if not outcome.passed:
            return text, outcome, next(one for one in parsed.directives if one.line == outcome.line)
    return None


def _run(parsed: CheckFile, text: str) -> CheckOutcome:
    try:
        return run(parsed, text)
    except (PatternTooSlow, EmptyText) as error:
        raise NotBlessed("the directives could not be matched against the recorded code") from error


def _mended(checks: str, text: str, outcome: CheckOutcome, directive: Directive) -> str:
    """Return the line of a failed directive, changed so that it matches."""
    if not directive.positive:
        raise NotBlessed(f"the code has what '{directive}' forbids")
    row = checks.split("\n")[directive.line - 1]
    for new in _candidates(row, text, outcome, directive):
        if _is_better(_with_line(checks, directive.line, new), text, directive):
            return new
    raise NotBlessed(f"no small change of '{directive}' matches the recorded code")


def _is_better(checks: str, text: str, directive: Directive) -> bool:
    """Whether changed directives are valid, can fail, and pass at least to the next directive."""
    try:
        parsed = parse(checks)
    except ChecksError:
        return False
    if [one.line for one in parsed.directives].count(directive.line) != 1 or are_general(parsed):
        return False
    outcome = _run(parsed, text)
    return outcome.passed or (outcome.line or 0) > directive.line


def _candidates(row: str, text: str, outcome: CheckOutcome, directive: Directive) -> Iterator[str]:
    """Yield changed lines of a directive, the smallest change first."""
    if directive.kind is Kind.COUNT and (found := re.match(r"matched ([0-9]+) of", outcome.reason)):
        yield row.replace(f"CHECK-COUNT-{directive.count}", f"CHECK-COUNT-{found[1]}", 1)
    if directive.kind in (Kind.NEXT, Kind.SAME) and outcome.reason != "no match":
        yield row.replace(directive.kind.value, Kind.CHECK.value, 1)
    if outcome.reason == "no match" and all(isinstance(part, Literal) for part in directive.parts):
        head = row[: directive.column - 1]
        for similar in _similar(directive.pattern, text):
            yield head + similar


_TOKEN = re.compile(r"[^\W_]+|_+|[ \t]+|[^\w\s]")
"""A word of a name, blanks, or a sign: names of kernels differ in one of their words."""


def _similar(pattern: str, text: str) -> list[str]:
    """Return the texts within lines that are most similar to a pattern, the most similar first."""
    wanted = _TOKEN.findall(pattern)
    words = {token for token in wanted if len(token) > 2}
    found: dict[str, float] = {}
    for line in text.split("\n")[:_MOST_LINES]:
        if len(line) > 10 * _LONGEST or not any(word in line for word in words):
            continue
        tokens = _TOKEN.findall(line)
        block = SequenceMatcher(None, tokens, wanted, autojunk=False).find_longest_match()
        start = max(0, block.a - block.b)
        part = "".join(tokens[start : start + len(wanted)]).strip()
        if _is_plain(part) and part != pattern:
            found[part] = SequenceMatcher(None, part, pattern, autojunk=False).ratio()
    near = sorted((part for part in found if found[part] >= _SIMILAR), key=lambda part: -found[part])
    return near[:_TRIED]


def _is_plain(text: str) -> bool:
    """Whether FileCheck reads a text as itself, and it says something."""
    return (
        text.isprintable()
        and 0 < len(text) <= _LONGEST
        and not any(mark in text for mark in ("{{", "}}", "[[", "]]", "CHECK"))
        and not is_general(text)
    )
