"""An agent whose cases sleep: for benchmarks of what a fleet adds to the time of its cases (``benchmarks/fleet.py``)."""

import heapq
import itertools
import os
import select
import time
from collections.abc import Callable, Iterable, Iterator

from runner.core.activity import Activity
from runner.core.observation import Ending
from runner.execute.base import Execution, ExecutorSettings, Job
from runner.execute.ray.agent import main
from runner.plan.resources import Capacity


class SleepExecutor:
    """Ends each job after the seconds that its plan has as ``sleep`` (``runner.execute.base.Executor``)."""

    activity = Activity()
    warnings = ()

    def __init__(self, settings: ExecutorSettings) -> None:
        self._waiting: list[Job] = []
        self._running: list[tuple[float, int, Job]] = []
        self._count = itertools.count()
        self._wake = -1
        self._check: Callable[[], None] = lambda: None

    def run(self, jobs: Iterable[Job], capacity: Capacity) -> Iterator[Execution]:
        """Let as many jobs sleep in parallel as the capacity has."""
        self._waiting += jobs
        while self._waiting or self._running:
            self._check()
            now = time.monotonic()
            while self._waiting and len(self._running) < capacity.jobs:
                job = self._waiting.pop(0)
                heapq.heappush(self._running, (now + float((job.plan or {}).get("sleep", 0.0)), next(self._count), job))
            select.select([self._wake], [], [], max(0.0, self._running[0][0] - time.monotonic()))
            while self._running and self._running[0][0] <= time.monotonic():
                _, _, job = heapq.heappop(self._running)
                seconds = float((job.plan or {}).get("sleep", 0.0))
                yield Execution(job=job, observation={"pid": os.getpid()}, ending=Ending(exit_code=0), seconds=seconds, isolation="fork")

    def again(self, job: Job) -> None:
        """Append a job."""
        self._waiting.append(job)

    def retire(self, worker: int) -> None:
        """There are no workers."""

    def cancel_waiting(self) -> int:
        """Drop what waits."""
        self._waiting.clear()
        return len(self._running)

    def on_interrupt(self, wake: int, check: Callable[[], None]) -> None:
        """Call ``check`` before jobs start, and when ``wake`` is readable."""
        self._wake, self._check = wake, check

    def close(self) -> None:
        """Nothing was started."""


if __name__ == "__main__":
    main(SleepExecutor)
