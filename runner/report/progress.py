"""The progress of a run: on a terminal a live status, elsewhere a line for each case that ended. ``terminal`` passes the events on to it.

``rich`` is imported only where a status is drawn.
"""

import importlib.util
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TextIO

from runner.core.events import Activity, RunningCase
from runner.core.outcomes import Outcome
from runner.core.results import CaseResult
from runner.report import one_line
from runner.report.console import color_of, painted, shown_id
from runner.system import output

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live
    from rich.text import Text

FIRST_HEARTBEAT = 30.0
"""Seconds without a line after which a stream that is no terminal gets a heartbeat: a line with what the run waits for."""

LAST_HEARTBEAT = 300.0
"""The longest time between two heartbeats; the interval doubles until then."""

MOST_RUNNING = 8
"""The maximum number of running cases in a status, the longest first."""

_REDRAW = 0.1
_BAR = 24
_STYLES = {31: "red", 32: "green", 33: "yellow"}


def can_draw() -> bool:
    """Return whether a status can be drawn; without ``rich``, a terminal gets the lines that other streams get."""
    return importlib.util.find_spec("rich") is not None


class Progress:
    """The progress of a run. With ``live`` a status is drawn on a terminal; ``close`` removes it."""

    def __init__(
        self,
        stream: TextIO,
        *,
        color: bool,
        live: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream
        self._color = color
        self._is_live = live
        self._lets_flaky_pass = False
        self._clock = clock
        self._total = 0
        self._ended: Counter[Outcome] = Counter()
        self.activity = Activity()
        self._live: Live | None = None
        self._quiet_since = clock()
        self._patience = FIRST_HEARTBEAT
        self._drawn_at = float("-inf")

    def start(self, total: int, *, lets_flaky_pass: bool = False) -> None:
        """Begin a run of ``total`` cases."""
        self._total = total
        self._lets_flaky_pass = lets_flaky_pass
        self._quiet_since = self._clock()
        if self._is_live and self._live is None:
            self._live = self._opened()

    def show(self, activity: Activity) -> None:
        """Show the current activity of the run; called often."""
        self.activity = activity
        now = self._clock()
        if self._live is not None and now - self._drawn_at >= _REDRAW:
            self._drawn_at = now
            self._live.refresh()
        elif not self._is_live and now - self._quiet_since >= self._patience and (words := self._in_words(now)):
            patience = min(2 * self._patience, LAST_HEARTBEAT)
            self._leave(None, words)
            self._patience = patience

    def case_finished(self, result: CaseResult) -> None:
        """Count a case; print a line if there is no live status, or if the case failed."""
        self._ended[result.outcome] += 1
        self.attempt_finished(result, f"{self._ended.total():{len(str(self._total))}}/{self._total}")

    def attempt_finished(self, result: CaseResult, which: str) -> None:
        """Print a line for an attempt of a case if there is no live status, or if the attempt failed."""
        # until the executor's next report; of several running attempts, the oldest ended
        running = self._oldest_first()
        if (ended := next((case for case in running if case.name == result.case_id), None)) is not None:
            running.remove(ended)
            self.activity = replace(self.activity, running=tuple(running))
        if result.outcome.is_failure or not self._is_live:
            because = f": {one_line(result.reason)}" if result.outcome.is_failure else ""
            self._leave(result.outcome, f"  {which}  {result.seconds:.1f}s  {shown_id(result.case_id)}{because}")

    def note(self, text: str) -> None:
        """Print a line that belongs to no case."""
        self._leave(None, text)

    def close(self) -> None:
        """Remove the live status; its last frame lists no running case."""
        self.activity = Activity()
        if self._live is not None:
            self._live.stop()
            self._live = None
        self._stream.flush()

    def _leave(self, outcome: Outcome | None, words: str) -> None:
        """Print a line, above the live status if there is one."""
        self._quiet_since = self._clock()
        self._patience = FIRST_HEARTBEAT
        if self._live is None:
            output.paint(self._stream, f"{painted(outcome, color=self._color) if outcome is not None else ''}{words}\n")
            return
        from rich.text import Text

        label = ("", "") if outcome is None else (outcome.label, _STYLES[color_of(outcome)])
        self._live.console.print(Text.assemble(label, output.drawn(words)), soft_wrap=True)
        self._live.refresh()

    def _oldest_first(self) -> list[RunningCase]:
        return sorted(self.activity.running, key=lambda case: case.since)

    def _starting(self, now: float) -> list[str]:
        """Return the processes that must start before more cases run, with their waiting times."""
        waits = (
            ("starting torch", self.activity.starting),
            ("warming up a worker", self.activity.warming),
            ("waiting for nodes, which another run may hold", self.activity.held),
        )
        return [f"{words} ({_seconds(now - since)})" for words, since in waits if since is not None]

    def _in_words(self, now: float) -> str:
        """Return on one line what the run waits for; empty if it waits for nothing."""
        parts = self._starting(now)
        if running := self._oldest_first():
            cases = [f"{shown_id(case.name)} ({_seconds(now - case.since)}, {_phase(case)})" for case in running[:MOST_RUNNING]]
            more = f" and {len(running) - MOST_RUNNING} more" if len(running) > MOST_RUNNING else ""
            parts.append(f"running {', '.join(cases)}{more}")
        return f"{self._ended.total()}/{self._total} ended; {'; '.join(parts)}" if parts else ""

    def _opened(self) -> "Live":
        from rich.console import Console
        from rich.live import Live

        live = Live(
            console=Console(
                file=output.canvas(self._stream),
                force_terminal=True,
                no_color=not self._color,
                markup=False,
                emoji=False,
                highlight=False,
            ),
            get_renderable=lambda: self._drawn(self._clock()),
            auto_refresh=False,  # drawn by the engine's loop, without a second thread
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )
        live.start(refresh=True)
        live.console.show_cursor()  # a killed run must not leave a terminal without a cursor
        return live

    def _drawn(self, now: float) -> "RenderableType":
        """Return the status: a bar with the counts, and a line for each thing that the run waits for."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        is_red = any(outcome.is_failure and not self._is_let_pass(outcome) for outcome in self._ended)
        style = "red" if is_red else "green"
        row = Table.grid(padding=(0, 1))
        row.add_column(no_wrap=True, width=_BAR)
        row.add_column(no_wrap=True)
        ended = self._ended.total()
        bar = ProgressBar(total=max(self._total, 1), completed=ended, width=_BAR, complete_style=style, finished_style=style)
        row.add_row(bar, self._counts())
        running = self._oldest_first()
        words = [f"  {text}" for text in self._starting(now)]
        words += [f"  {_seconds(now - case.since):>6}  {_phase(case):<12}  {shown_id(case.name)}" for case in running[:MOST_RUNNING]]
        words += [f"          and {len(running) - MOST_RUNNING} more"] if len(running) > MOST_RUNNING else []
        return Group(row, *map(_fitted, words))

    def _counts(self) -> "Text":
        counts = _fitted(f"{self._ended.total()}/{self._total}")
        for outcome in Outcome:
            if count := self._ended[outcome]:
                counts.append(f"  {count} ")
                counts.append(outcome.label, "yellow" if self._is_let_pass(outcome) else _STYLES[color_of(outcome)])
        if self.activity.running:
            counts.append(f"  {len(self.activity.running)} running")
        return counts

    def _is_let_pass(self, outcome: Outcome) -> bool:
        return outcome is Outcome.FLAKY and self._lets_flaky_pass


def _phase(case: RunningCase) -> str:
    return one_line(case.phase, 30) or "starting"  # untrusted


def _seconds(seconds: float) -> str:
    return f"{max(seconds, 0):.0f} s"


def _fitted(words: str) -> "Text":
    """Return a line that is cropped to the width of the terminal; markup is not interpreted."""
    from rich.text import Text

    return Text(output.drawn(words), no_wrap=True, overflow="crop")
