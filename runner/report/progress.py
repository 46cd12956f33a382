"""What a person sees while a run goes: on a terminal a status that is drawn again, elsewhere a line for each case that ended.

Called by ``run``, which also says again and again what the engine does. ``rich`` is imported when a status is drawn, never before.
"""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TextIO

from runner.core.model import Activity, CaseResult, RunningCase
from runner.core.outcomes import Outcome
from runner.report import one_line
from runner.report.console import color_of, shown_id, write
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
_BAR = 24
_SHOWN = 8
"""Running cases that a status lists, the longest first."""


class Progress:
    """How far a run is. ``live`` draws a status on a terminal; a context manager, so that it is taken away whatever happens."""

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
        self._lets_flaky_pass = lets_flaky_pass
        self._color = color
        self._is_live = live
        self._clock = clock
        self._total = 0
        self._ended: Counter[Outcome] = Counter()
        self._activity = Activity()
        self._live: Live | None = None
        self._quiet_since = clock()
        self._patience = FIRST_HEARTBEAT
        self._drawn_at = float("-inf")

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, total: int) -> None:
        """Begin a run of ``total`` cases."""
        self._total = total
        self._quiet_since = self._clock()
        if self._is_live and self._live is None:
            self._live = _live(self._stream, self._status, color=self._color)

    def show(self, activity: Activity) -> None:
        """Show what the run does now; called often."""
        self._activity = activity
        now = self._clock()
        if self._live is not None and now - self._drawn_at >= _REDRAW:
            self._drawn_at = now
            self._live.refresh()
        elif not self._is_live and now - self._quiet_since >= self._patience and (words := self._in_words(now)):
            patience = min(2 * self._patience, LAST_HEARTBEAT)
            self._leave(None, words)
            self._patience = patience

    def case_finished(self, result: CaseResult) -> None:
        """Count a case; where there is no status, or where it failed, leave a line of it."""
        self._ended[result.outcome] += 1
        self._runs_no_more(result.case_id)
        width = len(str(self._total))
        self._leave_result(result, f"{self._ended.total():{width}}/{self._total}")

    def attempt_finished(self, result: CaseResult, which: str) -> None:
        """Leave a line of one of several attempts of a case, where there is no status, or where it failed."""
        self._runs_no_more(result.case_id)
        self._leave_result(result, which)

    def note(self, text: str) -> None:
        """Leave a line that is no case's."""
        self._leave(None, text)

    def close(self) -> None:
        """Take the status away; its last frame names nothing that runs."""
        self._activity = Activity()
        if self._live is not None:
            self._live.stop()
            self._live = None
        self._stream.flush()

    def _runs_no_more(self, case_id: str) -> None:
        """Take a case that ended out of what runs, until the engine reports anew: of several attempts that run at once the longest."""
        running = sorted(self._activity.running, key=lambda case: case.since)
        ended = next((case for case in running if case.name == case_id), None)
        if ended is not None:
            running.remove(ended)
            self._activity = replace(self._activity, running=tuple(running))

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

    # -- in words ---------------------------------------------------------------------------------------------------

    def _in_words(self, now: float) -> str:
        """Return on one line what the run waits for; nothing where it waits for nothing."""
        parts = _starting(self._activity, now)
        longest = self._longest()
        if longest:
            cases = ", ".join(_case(case, now) for case in longest)
            more = len(self._activity.running) - len(longest)
            parts.append(f"running {cases}" + (f" and {more} more" if more else ""))
        return f"{self._ended.total()}/{self._total} ended; {'; '.join(parts)}" if parts else ""

    def _longest(self) -> list[RunningCase]:
        return sorted(self._activity.running, key=lambda case: case.since)[:_SHOWN]

    # -- on a terminal ----------------------------------------------------------------------------------------------

    def _status(self) -> "RenderableType":
        """Return what is drawn: a bar with the counts, and a line for each thing that the run waits for."""
        from rich.console import Group

        now = self._clock()
        lines: list[RenderableType] = [self._bar()]
        lines += [_fitted(f"  {words}") for words in _starting(self._activity, now)]
        lines += [_fitted(f"  {_seconds(now - case.since):>6}  {_phase(case):<12}  {shown_id(case.name)}") for case in self._longest()]
        if (more := len(self._activity.running) - _SHOWN) > 0:
            lines.append(_fitted(f"          and {more} more"))
        return Group(*lines)

    def _bar(self) -> "RenderableType":
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        row = Table.grid(padding=(0, 1))
        row.add_column(no_wrap=True, width=_BAR)
        row.add_column(no_wrap=True)
        style = "red" if any(outcome.is_failure and not self._is_let(outcome) for outcome in self._ended) else "green"
        bar = ProgressBar(total=max(self._total, 1), completed=self._ended.total(), width=_BAR, complete_style=style, finished_style=style)
        row.add_row(bar, self._counts())
        return row

    def _counts(self) -> "Text":
        counts = _fitted(f"{self._ended.total()}/{self._total}")
        for outcome in Outcome:
            if count := self._ended[outcome]:
                counts.append(f"  {count} ")
                counts.append(outcome.label, "yellow" if self._is_let(outcome) else _STYLES[color_of(outcome)])
        if self._activity.running:
            counts.append(f"  {len(self._activity.running)} running")
        return counts

    def _is_let(self, outcome: Outcome) -> bool:
        return outcome is Outcome.FLAKY and self._lets_flaky_pass


_STYLES = {31: "red", 32: "green", 33: "yellow"}


def _starting(activity: Activity, now: float) -> list[str]:
    """Return what has to start before more cases run, and since when."""
    found = (("starting torch", activity.starting), ("warming up a worker", activity.warming))
    return [f"{words} ({_seconds(now - since)})" for words, since in found if since is not None]


def _case(case: RunningCase, now: float) -> str:
    return f"{shown_id(case.name)} ({_seconds(now - case.since)}, {_phase(case)})"


def _phase(case: RunningCase) -> str:
    return one_line(case.phase, 30) or "starting"  # a worker may say anything


def _seconds(seconds: float) -> str:
    return f"{max(seconds, 0):.0f} s"


def _line(outcome: Outcome | None, words: str) -> "Text":
    from rich.text import Text

    label = ("", "") if outcome is None else (outcome.label, _STYLES[color_of(outcome)])
    return Text.assemble(label, output.drawn(words))


def _fitted(words: str) -> "Text":
    """Return a line that is cut where the terminal ends; nothing in it is read as markup."""
    from rich.text import Text

    return Text(output.drawn(words), no_wrap=True, overflow="crop")


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
