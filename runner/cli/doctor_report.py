"""The report of ``doctor`` for people: findings by group, what the machine allows, and at the end what to do. At most 100 columns."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from runner.cli.doctor_subjects import Row
from runner.system.doctor.findings import Finding, Level

WIDTH = 100

_COLORS = {Level.OK: "32", Level.NOTE: "2", Level.WARNING: "33", Level.PROBLEM: "31"}

_WORDS = {True: (Level.OK, "runs"), None: (Level.WARNING, "perhaps"), False: (Level.NOTE, "cannot")}
"""The level and the word of what the machine allows."""

_MARGIN = 10
"""The column of the text, after the word of the level."""

_MOST_REASONS = 3

Report = Sequence[tuple[str, Finding]]
"""Findings, each with its group."""


def lines(report: Report, allows: Mapping[str, Sequence[Row]], unread: str, *, color: bool) -> Iterator[str]:
    """Yield the whole report. ``unread`` says why the specs could not be looked at."""
    for group, findings in groupby(report, key=lambda one: one[0]):
        yield group
        for _, finding in findings:
            yield from _entry(_word(finding.level, color=color), finding.level.value, finding.found)
        yield ""
    for title, rows in ((title, rows) for title, rows in allows.items() if rows):
        yield title.capitalize()
        yield from (line for row in rows for line in _row(row, color=color))
        yield ""
    if unread:
        yield from _entry("", "", f"the specs were not looked at: {unread}")
        yield ""
    yield from _what_to_do([finding for _, finding in report], color=color)


def _word(level: Level, *, color: bool) -> str:
    return f"\x1b[{_COLORS[level]}m{level.value}\x1b[0m" if color else level.value


def _entry(shown: str, bare: str, text: str) -> Iterator[str]:
    """Yield a text with a word before its first line. ``shown`` is the word with its colours, ``bare`` without."""
    first, *rest = _wrapped(text, _MARGIN)
    yield f"  {shown}{' ' * (_MARGIN - 2 - len(bare))}{first}"
    yield from (" " * _MARGIN + line for line in rest)


def _wrapped(text: str, margin: int) -> list[str]:
    """Return a text in lines that fit. A long path stands alone on its line and is not broken, so that it can be copied."""
    return textwrap.wrap(text, WIDTH - margin, break_long_words=False, break_on_hyphens=False) or [""]


def _row(row: Row, *, color: bool) -> Iterator[str]:
    level, word = _WORDS[row.runs]
    shown = f"\x1b[{_COLORS[level]}m{word}\x1b[0m" if color else word
    yield from _entry(shown, word, row.heading)
    yield from (" " * _MARGIN + line for line in _wrapped(row.numbers, _MARGIN))
    for reason, count in list(row.reasons.items())[:_MOST_REASONS]:
        yield from (" " * _MARGIN + line for line in _wrapped(f"{count} case{'' if count == 1 else 's'}: {reason}", _MARGIN))
    if len(row.reasons) > _MOST_REASONS:
        yield f"{' ' * _MARGIN}and {len(row.reasons) - _MOST_REASONS} other reasons ({row.shown_by})"


def _what_to_do(findings: Sequence[Finding], *, color: bool) -> Iterator[str]:
    """Yield the problems and warnings again, the problems last, each with its cause and what to type."""
    by_level = {level: [finding for finding in findings if finding.level is level] for level in (Level.WARNING, Level.PROBLEM)}
    for level, found in by_level.items():
        for finding in found:
            yield from _entry(_word(level, color=color), level.value, finding.found)
            if finding.cause:
                yield from (" " * _MARGIN + line for line in _wrapped(f"because {finding.cause}", _MARGIN))
            if finding.remedy:
                yield from (" " * _MARGIN + line for line in _wrapped(f"next: {finding.remedy}", _MARGIN))
    counts = [f"{len(found)} {level.value}{'' if len(found) == 1 else 's'}" for level, found in reversed(by_level.items())]
    yield ", ".join(counts)
