"""What a person sees while a run goes: on a terminal a status that is drawn again, elsewhere a line for each case that ended.

``terminal`` passes the events of a run on to it. ``rich`` is imported when a status is drawn, never before.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from runner.core.model import Activity, CaseResult
from runner.core.outcomes import Outcome
from runner.report import one_line
from runner.report.console import color_of, shown_id, write
from runner.report.status import STYLES, Status
from runner.system import output

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.text import Text

FIRST_HEARTBEAT = 30.0
"""Seconds without a line after which a stream that is no terminal gets one that says what the run waits for."""

LAST_HEARTBEAT = 300.0
"""The longest time between two: each waits twice as long as the one before."""

_REDRAW = 0.1


class Progress:
    """How far a run is. ``live`` draws a status on a terminal, which ``close`` removes."""

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
        """Show what the run does now; called often."""
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
        """Count a case; where there is no status, or where it failed, leave a line of it."""
        self.status.ended[result.outcome] += 1
        self.status.remove_running(result.case_id)
        width = len(str(self.status.total))
        self._leave_result(result, f"{self.status.ended.total():{width}}/{self.status.total}")

    def attempt_finished(self, result: CaseResult, which: str) -> None:
        """Leave a line of one of several attempts of a case, where there is no status, or where it failed."""
        self.status.remove_running(result.case_id)
        self._leave_result(result, which)

    def note(self, text: str) -> None:
        """Leave a line that is no case's."""
        self._leave(None, text)

    def close(self) -> None:
        """Take the status away; its last frame names nothing that runs."""
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
        """Leave a line, above the status where there is one."""
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
        auto_refresh=False,  # the engine's loop draws: there is no second thread
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
        vertical_overflow="crop",
    )
    live.start(refresh=True)
    live.console.show_cursor()  # a run that is killed must not leave a terminal without one
    return live


def _console(stream: TextIO, *, color: bool) -> "Console":
    from rich.console import Console

    return Console(file=output.canvas(stream), force_terminal=True, no_color=not color, markup=False, emoji=False, highlight=False)
