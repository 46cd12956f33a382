"""Progress of a run: on a terminal a live status, elsewhere a line for each case that ended.

``terminal`` passes the events of a run on to it. ``rich`` is imported only when a status is drawn.
"""

import importlib.util
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from runner.core.activity import Activity
from runner.core.outcomes import Outcome
from runner.core.results import CaseResult
from runner.report import one_line
from runner.report.console import color_of, shown_id, write
from runner.report.status import STYLES, Status
from runner.system import output

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.text import Text

FIRST_HEARTBEAT = 30.0
"""Seconds without a line after which a stream that is no terminal gets a heartbeat: a line with what the run waits for."""

LAST_HEARTBEAT = 300.0
"""The longest time between two heartbeats; the interval doubles until then."""

_REDRAW = 0.1


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
        lets_flaky_pass: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream
        self._color = color
        self._is_live = live
        self._clock = clock
        self.status = Status(lets_flaky_pass=lets_flaky_pass)
        self._live: Live | None = None
        self._quiet_since = clock()
        self._patience = FIRST_HEARTBEAT
        self._drawn_at = float("-inf")

    def start(self, total: int) -> None:
        """Begin a run of ``total`` cases."""
        self.status.total = total
        self._quiet_since = self._clock()
        if self._is_live and self._live is None:
            self._live = _live(self._stream, lambda: self.status.drawn(self._clock()), color=self._color)

    def show(self, activity: Activity) -> None:
        """Show the current activity of the run; called often."""
        self.status.activity = activity
        now = self._clock()
        if self._live is not None and now - self._drawn_at >= _REDRAW:
            self._drawn_at = now
            self._live.refresh()
        elif not self._is_live and now - self._quiet_since >= self._patience and (words := self.status.in_words(now)):
            patience = min(2 * self._patience, LAST_HEARTBEAT)
            self._leave(None, words)
            self._patience = patience

    def case_finished(self, result: CaseResult) -> None:
        """Count a case; print a line if there is no live status, or if the case failed."""
        self.status.ended[result.outcome] += 1
        self.status.remove_running(result.case_id)
        width = len(str(self.status.total))
        self._leave_result(result, f"{self.status.ended.total():{width}}/{self.status.total}")

    def attempt_finished(self, result: CaseResult, which: str) -> None:
        """Print a line for an attempt of a case if there is no live status, or if the attempt failed."""
        self.status.remove_running(result.case_id)
        self._leave_result(result, which)

    def note(self, text: str) -> None:
        """Print a line that belongs to no case."""
        self._leave(None, text)

    def close(self) -> None:
        """Remove the live status; its last frame lists no running case."""
        self.status.activity = Activity()
        if self._live is not None:
            self._live.stop()
            self._live = None
        self._stream.flush()

    def _leave_result(self, result: CaseResult, count: str) -> None:
        if not result.outcome.is_failure and self._is_live:
            return
        because = f": {one_line(result.reason)}" if result.outcome.is_failure else ""
        self._leave(result.outcome, f"  {count}  {result.seconds:.1f}s  {shown_id(result.case_id)}{because}")

    def _leave(self, outcome: Outcome | None, words: str) -> None:
        """Print a line, above the live status if there is one."""
        self._quiet_since = self._clock()
        self._patience = FIRST_HEARTBEAT
        if self._live is not None:
            self._live.console.print(_line(outcome, words), soft_wrap=True)
            self._live.refresh()
            return
        label = "" if outcome is None else f"\x1b[{color_of(outcome)}m{outcome.label}\x1b[0m" if self._color else outcome.label
        write(self._stream, f"{label}{words}\n")


def _line(outcome: Outcome | None, words: str) -> "Text":
    from rich.text import Text

    label = ("", "") if outcome is None else (outcome.label, STYLES[color_of(outcome)])
    return Text.assemble(label, output.drawn(words))


def _live(stream: TextIO, status: "Callable[[], RenderableType]", *, color: bool) -> "Live":
    from rich.live import Live

    live = Live(
        console=_console(stream, color=color),
        get_renderable=status,
        auto_refresh=False,  # drawn by the engine's loop, without a second thread
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
        vertical_overflow="crop",
    )
    live.start(refresh=True)
    live.console.show_cursor()  # a killed run must not leave a terminal without a cursor
    return live


def _console(stream: TextIO, *, color: bool) -> "Console":
    from rich.console import Console

    return Console(file=output.canvas(stream), force_terminal=True, no_color=not color, markup=False, emoji=False, highlight=False)
