"""The progress of a run: on a terminal a line that is drawn again and again, elsewhere a line for each case that ended."""

import contextlib
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable
from typing import TextIO

from runner.machine import output
from runner.model.events import Activity
from runner.model.outcomes import Outcome
from runner.model.results import CaseResult
from runner.report import one_line
from runner.report.console import color_of, painted, shown_id
from runner.report.excerpts import columns, cut_to

FIRST_HEARTBEAT = 30.0
"""Seconds without a line after which a stream that is no terminal gets a heartbeat: a line with what the run waits for."""

LAST_HEARTBEAT = 300.0
"""The longest time between two heartbeats; the interval doubles until then."""

MOST_RUNNING = 8
"""The maximum number of running cases in a line, the longest first."""

_REDRAW = 0.1
_BAR = 24
_CLEAR = "\r\x1b[K"


class Progress:
    """The progress of a run. With ``live`` a status is drawn on a terminal; ``close`` removes it."""

    def __init__(self, stream: TextIO, *, color: bool, live: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._color = color
        self._is_live = live
        self._lets_flaky_pass = False
        self._clock = clock
        self._total = 0
        self._ended: Counter[Outcome] = Counter()
        self._activity = Activity()
        self._quiet_since = clock()
        self._patience = FIRST_HEARTBEAT
        self._drawn_at = float("-inf")

    def start(self, total: int, *, lets_flaky_pass: bool = False) -> None:
        """Begin a run of ``total`` cases."""
        self._total = total
        self._lets_flaky_pass = lets_flaky_pass
        self._quiet_since = self._clock()

    def show(self, activity: Activity) -> None:
        """Show the current activity of the run; called often."""
        self._activity = activity
        now = self._clock()
        if self._is_live and now - self._drawn_at >= _REDRAW:
            self._drawn_at = now
            output.paint(self._stream, self._status(now))
        elif not self._is_live and now - self._quiet_since >= self._patience and (words := self._waits_for(now)):
            patience = min(2 * self._patience, LAST_HEARTBEAT)
            self.note(f"{self._ended.total()}/{self._total} ended; {words}")
            self._patience = patience

    def case_finished(self, result: CaseResult) -> None:
        """Count a case; print a line if no status is drawn, or if the case failed."""
        self._ended[result.outcome] += 1
        self.attempt_finished(result, f"{self._ended.total():{len(str(self._total))}}/{self._total}")

    def attempt_finished(self, result: CaseResult, which: str) -> None:
        """Print a line for an attempt of a case if no status is drawn, or if the attempt failed."""
        if result.outcome.is_failure or not self._is_live:
            because = f": {one_line(result.reason)}" if result.outcome.is_failure else ""
            words = f"  {which}  {result.seconds:.1f}s  {shown_id(result.case_id)}{because}"
            self.note(f"{painted(result.outcome, color=self._color)}{words}")

    def note(self, text: str) -> None:
        """Print a line, in the place of the status if there is one."""
        self._quiet_since = self._clock()
        self._patience = FIRST_HEARTBEAT
        output.paint(self._stream, f"{_CLEAR if self._is_live else ''}{text}\n")
        self._drawn_at = float("-inf")

    def close(self) -> None:
        """Remove the status; nothing is drawn after it."""
        if self._is_live:
            output.paint(self._stream, _CLEAR)

    def _waits_for(self, now: float) -> str:
        """Return what the run waits for; empty if it waits for nothing."""
        waits = (
            ("starting torch", self._activity.starting),
            ("warming up a worker", self._activity.warming),
            ("waiting for nodes, which another run may hold", self._activity.held),
        )
        parts = [f"{words} ({max(now - since, 0):.0f} s)" for words, since in waits if since is not None]
        if running := sorted(self._activity.running, key=lambda case: case.since):
            # the phase is a worker's text
            cases = [
                f"{shown_id(case.name)} ({max(now - case.since, 0):.0f} s, {one_line(case.phase, 30) or 'starting'})"
                for case in running[:MOST_RUNNING]
            ]
            more = f" and {len(running) - MOST_RUNNING} more" if len(running) > MOST_RUNNING else ""
            parts.append(f"running {', '.join(cases)}{more}")
        return "; ".join(parts)

    def _status(self, now: float) -> str:
        """Return the status: a bar, the counts, and what the run waits for, as wide as the terminal."""

        def color(outcome: Outcome) -> int:
            return 33 if outcome is Outcome.FLAKY and self._lets_flaky_pass else color_of(outcome)

        ended = self._ended.total()
        filled = _BAR * ended // max(self._total, 1)
        parts = [("=" * filled, 31 if any(color(outcome) == 31 for outcome in self._ended) else 32)]
        parts += [("-" * (_BAR - filled), 0), (f" {ended}/{self._total}", 0)]
        for outcome in Outcome:
            if count := self._ended[outcome]:
                parts += [(f"  {count} ", 0), (outcome.label, color(outcome))]
        parts.append((f"  {self._waits_for(now)}", 0))
        width = 0  # some terminals do not know theirs
        with contextlib.suppress(OSError, ValueError):
            width = os.get_terminal_size(self._stream.fileno()).columns
        room = (width or shutil.get_terminal_size().columns) - 1
        text = _CLEAR
        for words, number in parts:
            shown = cut_to(words, room)
            room -= columns(shown)
            text += f"\x1b[{number}m{shown}\x1b[0m" if number and shown and self._color else shown
        return text
