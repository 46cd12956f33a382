"""The status of a run, as text and drawn. ``rich`` is imported only when a status is drawn."""

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from runner.core.activity import Activity, RunningCase
from runner.core.outcomes import Outcome
from runner.report import one_line
from runner.report.console import color_of, shown_id
from runner.system import output

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

_BAR = 24
_SHOWN = 8
"""The maximum number of running cases in a status, the longest first."""


@dataclass(kw_only=True)
class Status:
    """The number of ended cases by outcome, and what the run waits for."""

    lets_flaky_pass: bool
    total: int = 0
    ended: Counter[Outcome] = field(default_factory=Counter)
    activity: Activity = field(default_factory=Activity)

    def in_words(self, now: float) -> str:
        """Return on one line what the run waits for; empty if it waits for nothing."""
        parts = _starting(self.activity, now)
        longest = self._longest()
        if longest:
            cases = ", ".join(_case(case, now) for case in longest)
            more = len(self.activity.running) - len(longest)
            parts.append(f"running {cases}" + (f" and {more} more" if more else ""))
        return f"{self.ended.total()}/{self.total} ended; {'; '.join(parts)}" if parts else ""

    def remove_running(self, case_id: str) -> None:
        """Remove an ended case from the running ones until the executor's next report; of several running attempts, remove the oldest."""
        running = sorted(self.activity.running, key=lambda case: case.since)
        ended = next((case for case in running if case.name == case_id), None)
        if ended is not None:
            running.remove(ended)
            self.activity = replace(self.activity, running=tuple(running))

    def _longest(self) -> list[RunningCase]:
        return sorted(self.activity.running, key=lambda case: case.since)[:_SHOWN]

    def drawn(self, now: float) -> "RenderableType":
        """Return the drawn status: a bar with the counts, and a line for each thing that the run waits for."""
        from rich.console import Group

        lines: list[RenderableType] = [self._bar()]
        lines += [_fitted(f"  {words}") for words in _starting(self.activity, now)]
        lines += [_fitted(f"  {_seconds(now - case.since):>6}  {_phase(case):<12}  {shown_id(case.name)}") for case in self._longest()]
        if (more := len(self.activity.running) - _SHOWN) > 0:
            lines.append(_fitted(f"          and {more} more"))
        return Group(*lines)

    def _bar(self) -> "RenderableType":
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        row = Table.grid(padding=(0, 1))
        row.add_column(no_wrap=True, width=_BAR)
        row.add_column(no_wrap=True)
        style = "red" if any(outcome.is_failure and not self._is_let(outcome) for outcome in self.ended) else "green"
        bar = ProgressBar(total=max(self.total, 1), completed=self.ended.total(), width=_BAR, complete_style=style, finished_style=style)
        row.add_row(bar, self._counts())
        return row

    def _counts(self) -> "Text":
        counts = _fitted(f"{self.ended.total()}/{self.total}")
        for outcome in Outcome:
            if count := self.ended[outcome]:
                counts.append(f"  {count} ")
                counts.append(outcome.label, "yellow" if self._is_let(outcome) else STYLES[color_of(outcome)])
        if self.activity.running:
            counts.append(f"  {len(self.activity.running)} running")
        return counts

    def _is_let(self, outcome: Outcome) -> bool:
        return outcome is Outcome.FLAKY and self.lets_flaky_pass


STYLES = {31: "red", 32: "green", 33: "yellow"}


def _starting(activity: Activity, now: float) -> list[str]:
    """Return the processes that must start before more cases run, with their waiting times."""
    held = "waiting for nodes, which another run may hold"
    found = (("starting torch", activity.starting), ("warming up a worker", activity.warming), (held, activity.held))
    return [f"{words} ({_seconds(now - since)})" for words, since in found if since is not None]


def _case(case: RunningCase, now: float) -> str:
    return f"{shown_id(case.name)} ({_seconds(now - case.since)}, {_phase(case)})"


def _phase(case: RunningCase) -> str:
    return one_line(case.phase, 30) or "starting"  # untrusted


def _seconds(seconds: float) -> str:
    return f"{max(seconds, 0):.0f} s"


def _fitted(words: str) -> "Text":
    """Return a line that is cropped to the width of the terminal; markup is not interpreted."""
    from rich.text import Text

    return Text(output.drawn(words), no_wrap=True, overflow="crop")
