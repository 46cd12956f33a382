"""The engine: one loop in one thread that gives jobs to workers, reads their messages, and reaps them.

Workers are untrusted: their messages are bounded, only the first observation counts, and the ending of a worker is what its
parent reports. The parts: ``waiting`` (jobs that wait), ``zygotes`` and ``forks`` (processes that fork workers), ``pool`` and ``spares``
(workers), ``readiness`` (whether a job can start now), ``deadlines`` (killing),
``descriptors`` (what the loop sleeps on).
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator

from runner.core.activity import Activity, RunningCase
from runner.execute.base import Execution, Job
from runner.execute.local.deadlines import Deadlines
from runner.execute.local.descriptors import Descriptors, only_wake
from runner.execute.local.forks import Forks
from runner.execute.local.limits import Limits
from runner.execute.local.pool import Pool
from runner.execute.local.readiness import Readiness, pins
from runner.execute.local.running import LocalJob
from runner.execute.local.spares import Spares
from runner.execute.local.spawn import Starter
from runner.execute.local.waiting import WaitingJobs
from runner.execute.local.workers import Worker
from runner.execute.local.zygotes import Zygotes
from runner.plan.resources import Capacity, Room


class Engine:
    """Runs jobs; ``close`` ends its processes. ``prepare`` is called with each job before a worker gets it."""

    def __init__(self, limits: Limits, starter: Starter, prepare: Callable[[Job], LocalJob]) -> None:
        self._limits = limits
        self._prepare = prepare
        self._descriptors = Descriptors()
        self._waiting = WaitingJobs()
        self._zygotes = Zygotes(limits, starter, self._descriptors)
        self._pool = Pool(limits, starter, self._descriptors, self._zygotes)
        self._forks = Forks(self._zygotes, self._pool, self._waiting, limits)
        self._spares = Spares(self._pool, self._zygotes, self._waiting, limits)
        self._readiness = Readiness(self._zygotes, self._forks, self._pool, self._spares)
        self._deadlines = Deadlines(limits, self._pool, self._zygotes, self._forks)
        self._check: Callable[[], None] | None = None
        self._left_over: dict[int, str] = {}
        self._warm_problems: dict[str, None] = {}

    def close(self) -> None:
        """Kill running workers and end the zygotes."""
        self._pool.close(self._limits.grace.stack)
        self._zygotes.close()
        self._descriptors.close()

    @property
    def broken(self) -> tuple[str, ...]:
        """Reasons why zygotes could not fork."""
        return tuple(dict.fromkeys(self._zygotes.broken.values()))

    @property
    def warm_problems(self) -> tuple[str, ...]:
        """What torch raised while workers for a GPU warmed up."""
        return tuple(self._warm_problems)

    @property
    def left_over(self) -> tuple[str, ...]:
        """Which workers outlived their case, in the order of their cases."""
        return tuple(self._left_over.values())

    @property
    def activity(self) -> Activity:
        """What the run waits for now."""
        running = [(worker.running, worker.pid) for worker in self._pool.busy]
        return Activity(
            starting=self._zygotes.warming_since,
            warming=self._spares.warming_since,
            running=tuple(
                RunningCase(name=one.job.name, since=one.begun, phase=one.inbox.phase if pid is not None else "")
                for one, pid in running
                if one is not None
            ),
        )

    def run(self, jobs: Iterable[Job], capacity: Capacity) -> Iterator[Execution]:
        """Run every job, in order as far as there is room, and yield each as it ends."""
        for job in jobs:
            self.again(job)
        room = Room(capacity)
        while len(self._waiting) or self._pool.busy:
            if self._check is not None:
                self._check()
            self._start(room)
            self._descriptors.wait(self._deadlines.seconds_to_sleep())
            self._deadlines.watch()
            for execution in self._finished():
                gpus = room.lease(execution.job.name).gpus
                room.give_back(execution.job.name)
                yield dataclasses.replace(execution, gpus=gpus)
            for job in self._forks.take_returned():
                room.give_back(job.name)
                self.again(job)
            self._pool.forget_ended()

    def again(self, job: Job) -> None:
        """Append a job to the queue; a job may run again. Nothing is added after ``cancel_waiting``."""
        self._waiting.put(job)

    def cancel_waiting(self) -> int:
        """Drop the waiting jobs, and return the number of running ones, which continue to their ends or deadlines."""
        self._waiting.cancel()
        return len(self._pool.busy)

    def on_interrupt(self, wake: int, check: Callable[[], None]) -> None:
        """Call ``check`` before a job starts, and when ``wake`` is readable; an exception from ``check`` ends the run."""
        self._check = check
        self._descriptors.watch(wake, only_wake)

    def _start(self, room: Room) -> None:
        """Give waiting jobs to workers while there is room."""
        for job in self._waiting.started(room, functools.partial(self._readiness.may_start, room)):
            self._readiness.started()
            gpus = pins(job, room, room.lease(job.name))
            worker = self._pool.idle_for(job, gpus) or self._pool.start(job.environment, gpus, is_new=job.new_process)
            running = worker.give(self._prepare(job))
            self._descriptors.watch(running.inbox.descriptor, functools.partial(self._on_pipe, worker))
        self._readiness.start_missing()
        if room.lease_of_alone is None:
            self._spares.warm(room)

    def _on_pipe(self, worker: Worker) -> None:
        running = worker.running
        if running is None:
            return
        running.read()
        if running.inbox.is_at_end or running.inbox.is_flooded:
            self._descriptors.forget(running.inbox.descriptor)
        if running.inbox.is_flooded:
            worker.kill()

    def _finished(self) -> Iterator[Execution]:
        for worker in self._pool:
            if worker.running is None or not worker.is_through:
                continue
            self._descriptors.forget(worker.running.inbox.descriptor)
            execution = worker.finish()
            if execution.warmup.problem:
                self._warm_problems[execution.warmup.problem] = None
            if execution.left_over:
                self._left_over[worker.number] = f"{execution.job.name}: {execution.left_over}"
            yield execution
