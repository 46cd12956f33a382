"""The events of a run.

``run`` emits them, the listeners in ``report/reporters.py`` consume them; neither knows the other.

The order of a run: ``RunStarted``, ``HeaderCompleted``, then the events of cases,
``ExecutionEnded``, warnings, unfinished cases, ``ResultsCompleted``, ``RunEnded``. ``RunAbandoned``
replaces the rest where the journal or a case's files were altered.
"""

from dataclasses import dataclass
from typing import Protocol, TypeAlias

from torch_conformance.model.header import ReportedRun, RunFooter, RunHeader
from torch_conformance.model.results import Published, Redacted
from torch_conformance.model.values import frozen


@frozen
class RunningCase:
    """A case that runs just now, or the engine's name for it."""

    name: str
    since: float
    """As ``time.monotonic`` counts."""
    phase: str
    """What its worker said last; it may say anything."""


@frozen
class Activity:
    """What an engine waits for just now. Emitted many times a second."""

    starting: float | None = None
    """Since when a zygote warms up: the longest of several; None where none does."""
    warming: float | None = None
    """Since when a worker for a GPU warms up while no case runs: the longest of several; None where
    none does.
    """
    held: float | None = None
    """Since when a node of a fleet is waited for, which another run may hold: the longest of
    several; None where none is.
    """
    running: tuple[RunningCase, ...] = ()


@frozen
class RunStarted:
    """The folder is open, nothing was executed yet."""

    header: RunHeader
    """Without the facts that only a worker can report."""
    total: int
    """How many cases have no result yet."""
    is_resumed: bool


@frozen
class HeaderCompleted:
    """The machine is known, or the run ended before it was."""

    header: RunHeader
    is_resumed: bool
    """The journal has this header already."""


@frozen
class AttemptFinished:
    """One of several attempts of a case ended. ``CaseFinished`` follows the last one."""

    result: Redacted
    number: int
    bound: str
    """How many attempts the case has, in words."""


@frozen
class CaseFinished:
    """The result of a case is known."""

    result: Redacted
    had_all_attempts: bool = True
    """False where the run ended before that; this is the result that counts."""


@frozen
class Note:
    """A message about the run as a whole. It may hold words of a worker."""

    text: str
    is_warning: bool = False


@dataclass(frozen=True, slots=True)
class ExecutionEnded:
    """No worker lives any more.

    The journal verifies itself and raises ``JournalAltered`` where it was changed.
    """


@frozen
class ResultsCompleted(ReportedRun):
    """Every selected case has a result: files for people and CI are written now, before the journal
    gets its footer.
    """

    results: tuple[Published, ...]
    """In the order of the selection."""
    footer: RunFooter
    """How the run ended, up to here: the journal's footer also has the time that the files took."""


@frozen
class RunEnded(ReportedRun):
    """All report files are written. The journal gets its footer, the console its report."""

    results: tuple[Published, ...]
    footer: RunFooter


@frozen
class RunAbandoned(ReportedRun):
    """The journal, or files of a case, were altered while the run went on: no journal may be taken
    for the run's. It has the results that were known.
    """


RunEvent: TypeAlias = (
    RunStarted
    | HeaderCompleted
    | Activity
    | AttemptFinished
    | CaseFinished
    | Note
    | ExecutionEnded
    | ResultsCompleted
    | RunEnded
    | RunAbandoned
)


class Listener(Protocol):
    """A consumer of events. What it raises ends the run."""

    def on_event(self, event: RunEvent) -> None:
        """Consume an event; ignore those of no interest."""

    def close(self) -> None:
        """Release what the listener holds. Called once, however the run ended."""
        return
