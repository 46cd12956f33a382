"""What a person sees: progress on standard error while the run goes, the report on standard output at its end."""

import os
import shlex
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from runner.model import CaseResult
from runner.outcomes import JUnitTag, Outcome
from runner.output import paint
from runner.report import one_line, plain, timing_lines, verdict_text

BLOCK_LIMIT = 6_000
"""Bytes of one case's block; the JUnit report and the run's folder have the rest."""

_STDERR_LIMIT = 1_500
_BAR = 24
_GROUPED = (Outcome.NOT_RUN, Outcome.UNAVAILABLE)
"""Outcomes of cases that nothing was tried on: their reasons are few, the cases many."""


def wants_color(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Return whether to colour: a terminal, and NO_COLOR empty or unset."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def wants_bar(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Return whether to draw a bar: a terminal that a person looks at."""
    return stream.isatty() and not environ.get("CI") and environ.get("TERM") != "dumb"


class Progress:
    """How far a run is: one line that is drawn again (``live``), or one line for each case that ended."""

    def __init__(self, stream: TextIO, *, color: bool, live: bool, lets_flaky_pass: bool = False) -> None:
        self._stream = stream
        self._lets_flaky_pass = lets_flaky_pass
        self._color = color
        self._live = live
        self._total = 0
        self._done = 0
        self._failed = 0
        self._running: dict[str, None] = {}
        self._drawn = 0

    def start(self, total: int) -> None:
        """Begin a run of ``total`` cases."""
        self._total = total
        self._draw()

    def case_started(self, case_id: str) -> None:
        """Show a case as running."""
        self._running[case_id] = None
        self._draw()

    def case_finished(self, result: CaseResult) -> None:
        """Count a case; where there is no bar, or where it failed, leave a line of it."""
        self._running.pop(result.case_id, None)
        self._done += 1
        self._failed += result.outcome.is_failure and not (self._lets_flaky_pass and result.outcome is Outcome.FLAKY)
        if result.outcome.is_failure or not self._live:
            self._erase()
            _write(self._stream, self._line(result) + "\n")
        self._draw()

    def note(self, text: str) -> None:
        """Leave a line that is no case's."""
        self._erase()
        _write(self._stream, text + "\n")
        self._draw()

    def attempt_finished(self, result: CaseResult, which: str) -> None:
        """Leave a line of one of several attempts of a case, where there is no bar, or where it failed."""
        if result.outcome.is_failure or not self._live:
            self._erase()
            _write(self._stream, self._line(result, which) + "\n")
        self._draw()

    def close(self) -> None:
        """Take the bar away."""
        self._erase()
        self._stream.flush()

    def _line(self, result: CaseResult, count: str = "") -> str:
        width = len(str(self._total))
        count = count or f"{self._done:{width}}/{self._total}"
        because = f": {one_line(result.reason)}" if result.outcome.is_failure else ""
        head = _painted(result.outcome, color=self._color)
        return f"{head}  {count}  {result.seconds:.1f}s  {shown_id(result.case_id)}{because}"

    def _draw(self) -> None:
        if not self._live:
            return
        full = _BAR * self._done // max(self._total, 1)
        failed = f"  {self._failed} failed" if self._failed else ""
        running = f"  {shown_id(next(reversed(self._running)))}" if self._running else ""
        line = f"[{'#' * full}{'-' * (_BAR - full)}] {self._done}/{self._total}{failed}{running}"
        # One column short of the edge: a full line would wrap, and the next could not take its place.
        line = fitted(line, _columns(self._stream) - 1)
        self._erase()
        _write(self._stream, line)
        self._drawn = display_width(line)

    def _erase(self) -> None:
        # Blanks rather than a sequence, so that the bar needs no more of a terminal than a carriage return.
        if self._drawn:
            _write(self._stream, "\r" + " " * self._drawn + "\r")
            self._drawn = 0


def print_report(
    stream: TextIO,
    results: Sequence[CaseResult],
    selected: int,
    report_path: Path | str,
    *,
    color: bool,
    truncated: bool = False,
    objects: Path | None = None,
    lets_flaky_pass: bool = False,
) -> None:
    """Print every case that is no plain PASS, what was timed, the totals, and last the count of what was executed."""
    parts = (_expected, _blocks, _groups, _timings, _totals)
    lines = [line for part in parts for line in part(results, color=color)]
    lines += _objects(results, objects)
    if truncated:
        lines.append("truncated: this run did not reach its end")
    if lets_flaky_pass and any(result.outcome is Outcome.FLAKY for result in results):
        lines.append("FLAKY cases do not fail this run (--flaky pass)")
    lines.append(_last_line(results, selected, report_path))
    _write(stream, "\n".join(lines) + "\n")


def _expected(results: Iterable[CaseResult], *, color: bool) -> Iterable[str]:
    """Say in one line each what was neither judged a pass nor fails the run: XFAIL, OFFLINE_PASS."""
    for result in results:
        if result.outcome.junit is JUnitTag.SKIPPED and result.outcome not in _GROUPED:
            yield f"{_painted(result.outcome, color=color)}  {shown_id(result.case_id)}: {one_line(result.reason)}"


def _blocks(results: Iterable[CaseResult], *, color: bool) -> Iterable[str]:
    for result in results:
        if result.outcome.is_failure and result.outcome not in _GROUPED:
            yield f"\n{_painted(result.outcome, color=color)}  {shown_id(result.case_id)}"
            yield verdict_text(result, limit=BLOCK_LIMIT)
            yield from _last_words(result)


def _last_words(result: CaseResult) -> Iterable[str]:
    """Give the end of stderr where no expectation tells the story: a crash, a case that could not be judged."""
    if result.outcome.junit is not JUnitTag.ERROR:
        return
    shown = {line for verdict in result.failed for line in plain(verdict.detail).splitlines() if line}  # the stack of a timeout
    lines = [line for line in plain(result.stderr).splitlines() if line not in shown]
    text = "\n".join(lines).rstrip().encode("utf-8")[-_STDERR_LIMIT:].decode("utf-8", "ignore")
    if text:
        yield "stderr ends:"
        yield from (f"    {line}" for line in text.splitlines())


def _groups(results: Sequence[CaseResult], *, color: bool) -> Iterable[str]:
    for outcome in _GROUPED:
        reasons = Counter(one_line(result.reason) for result in results if result.outcome is outcome)
        if reasons:
            yield f"\n{_painted(outcome, color=color)}"
        for reason, count in reasons.most_common():
            yield f"  {count:5}  {reason}"


def _timings(results: Iterable[CaseResult], *, color: bool) -> Iterable[str]:
    """Say what bench steps timed; the traces lie in the run's folder."""
    timed = [result for result in results if result.timings or result.notes]
    if timed:
        yield "\ntimings: reported, never judged"
    for result in timed:
        yield f"  {shown_id(result.case_id)}"
        yield from (f"  {line}" for line in timing_lines(result))
        yield from (f"    {one_line(f'{result.folder}/{name}')}" for name in result.attachments)


def _totals(results: Sequence[CaseResult], *, color: bool) -> Iterable[str]:
    counts = Counter(result.outcome for result in results)
    yield ""
    for outcome in Outcome:
        if counts[outcome] or outcome is Outcome.PASS:
            yield f"{counts[outcome]:7}  {_painted(outcome, color=color)}"


def _objects(results: Sequence[CaseResult], folder: Path | None) -> Iterable[str]:
    """Say how much of what the C++ compiler should have built came from a folder."""
    served = sum(result.objects_served for result in results)
    if served or folder is not None:
        whole = served + sum(result.objects_built for result in results)
        where = f" from {one_line(str(folder))}" if folder is not None else ""
        yield f"{served} of {whole} compiled objects were served{where}{': not a conformance run' if served else ''}"
    silent = sum(result.outcome in (Outcome.CRASH, Outcome.TIMEOUT) for result in results) if folder is not None else 0
    if silent:
        yield f"what {silent} that crashed or timed out {'was' if silent == 1 else 'were'} served is not known"


def _last_line(results: Sequence[CaseResult], selected: int, report_path: Path | str) -> str:
    executed = sum(result.outcome.is_executed for result in results)
    unavailable = sum(result.outcome is Outcome.UNAVAILABLE for result in results)
    return f"executed {executed} of {selected} selected, {unavailable} unavailable; report: {one_line(str(report_path))}"


_REASONS = 3
"""How many reasons why nothing was executed stand in its line."""


def why_nothing(results: Sequence[CaseResult], least: int, selected: int) -> str:
    """Say in one line why a run in which nothing failed is no success."""
    executed = sum(result.outcome.is_executed for result in results)
    if not selected:
        return "nothing was executed: no case is selected"
    reasons = Counter(one_line(result.reason, 200) for result in results if not result.outcome.is_executed)
    shown = "; ".join(f"{count} x {reason}" for reason, count in reasons.most_common(_REASONS))
    more = f"; and {len(reasons) - _REASONS} more reasons" if len(reasons) > _REASONS else ""
    because = f": {shown}{more}" if shown else ""
    if not executed:
        return f"nothing was executed, of {selected} selected{because}"
    return f"{executed} of {selected} selected were executed, fewer than --min-executed {least}{because}"


def _painted(outcome: Outcome, *, color: bool) -> str:
    if not color:
        return outcome.label
    code = 31 if outcome.is_failure else 32 if outcome.junit is JUnitTag.NONE else 33
    return f"\x1b[{code}m{outcome.label}\x1b[0m"


def shown_id(case_id: str) -> str:
    """Return a case's id as it can be pasted into a shell."""
    return shlex.quote(one_line(case_id, limit=10_000))


def display_width(text: str) -> int:
    """Return the columns that a plain text takes on a terminal."""
    return sum(_character_width(character) for character in text)


def _character_width(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def fitted(text: str, columns: int) -> str:
    """Return ``text`` cut so that it takes at most ``columns`` columns."""
    if display_width(text) <= columns:
        return text
    kept, room = [], columns - 3
    for character in text:
        room -= _character_width(character)
        if room < 0:
            break
        kept.append(character)
    return ("".join(kept) + "...")[: max(columns, 0)]


def _columns(stream: TextIO) -> int:
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        columns = 0
    return columns or 80


def _write(stream: TextIO, text: str) -> None:
    """Write what the stream's encoding can say, and the rest as escapes."""
    paint(stream, text)
