"""The executor of a run: gives each job to the executor that the job names, and starts an executor with its first job.

The executors run one after the other, because each uses all of the capacity.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from runner.core.events import Activity
from runner.execute.base import Execution, Executor, ExecutorSettings, Job
from runner.plan.resources import Capacity

Makers = Mapping[str, Callable[[ExecutorSettings], Executor]]


class RoutingExecutor:
    """Runs jobs in several executors (``runner.execute.base.Executor``); ``makers`` are the rows of ``EXECUTORS``."""

    def __init__(self, settings: ExecutorSettings, makers: Makers) -> None:
        self._settings = settings
        self._makers = makers
        self._started: dict[str, Executor] = {}
        self._current = ""
        """The executor that runs now."""
        self._interrupt: tuple[int, Callable[[], None]] | None = None
        self._is_cancelled = False

    def run(self, jobs: Iterable[Job], capacity: Capacity) -> Iterator[Execution]:
        """Run every job in its executor, and yield each as it ends."""
        waiting: dict[str, list[Job]] = {}
        for job in jobs:
            waiting.setdefault(job.executor, []).append(job)
        for name in (one for one in self._makers if one in waiting):
            if self._is_cancelled:
                return
            self._current = name
            yield from self._executor(name).run(waiting[name], capacity)

    def again(self, job: Job) -> None:
        """Append a job to the queue of its executor, which runs now."""
        self._executor(job.executor).again(job)

    def cancel_waiting(self) -> int:
        """Drop the waiting jobs of every executor, and return the number of running ones."""
        self._is_cancelled = True
        return sum(executor.cancel_waiting() for executor in self._started.values())

    def on_interrupt(self, wake: int, check: Callable[[], None]) -> None:
        """Call ``check`` before a job starts, and when ``wake`` is readable."""
        self._interrupt = (wake, check)
        for executor in self._started.values():
            executor.on_interrupt(wake, check)

    @property
    def activity(self) -> Activity:
        """What the executor that runs now waits for."""
        return self._started[self._current].activity if self._current in self._started else Activity()

    @property
    def warnings(self) -> Sequence[str]:
        """The warnings of every executor."""
        return [warning for executor in self._started.values() for warning in executor.warnings]

    def close(self) -> None:
        """Close every executor."""
        for executor in self._started.values():
            executor.close()

    def _executor(self, name: str) -> Executor:
        if name not in self._started:
            self._started[name] = self._makers[name](self._settings)
            if self._interrupt is not None:
                self._started[name].on_interrupt(*self._interrupt)
        return self._started[name]
