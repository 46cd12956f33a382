"""The engine: one loop in one thread that gives jobs to workers, reads their messages, and ends them at their deadlines.

Workers are untrusted: their messages are bounded, only the first observation counts, and the ending of a worker is what its
parent reports (``pool``). A zygote starts when a job of its environment could start. A GPU cannot be warmed up before the fork, so workers
for a GPU warm up while others run cases, and a job for it starts when such a worker is idle.
"""

import dataclasses
import functools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from runner.core import devices
from runner.core.events import Activity, RunningCase
from runner.execute.base import Execution, Job
from runner.execute.local.memory import MemoryWatch
from runner.execute.local.pool import Limits, Pool
from runner.execute.local.running import LocalJob, Running
from runner.execute.local.spawn import ProcessStarter
from runner.execute.local.workers import Worker
from runner.plan.resources import Capacity, Environment, Lease, Queue, Room

_SHORT_SECONDS = 0.02
"""How long the loop sleeps while a process is about to end."""

_MOST_SECONDS_ASLEEP = 0.25
"""The maximum sleep of the loop; the sizes of output files are checked as often."""

_LEAST_ON_GPU = 2
"""How many workers without a case may hold a context on a GPU whose memory is leased: a lease counts several times what most cases use."""

_WARM_ALONE = 2
"""How many workers are warmed up for exclusive jobs: each idle worker holds a context on its GPU."""


class Engine:
    """Runs jobs; ``close`` ends its processes. ``prepare`` is called with each job before a worker gets it."""

    def __init__(self, limits: Limits, starter: ProcessStarter, prepare: Callable[[Job], LocalJob]) -> None:
        self._limits = limits
        self._prepare = prepare
        self.pool = Pool(limits, starter)
        self._waiting: Queue[Job] = Queue()
        self._environments: dict[str, Environment] = {}
        self._missing: dict[tuple[str, tuple[int, ...]], Environment] = {}
        """The workers that jobs with room lacked since the last job started, by environment and GPUs."""
        self._memory = MemoryWatch()
        self._is_cancelled = False
        self._check: Callable[[], None] | None = None
        self._left_over: dict[int, str] = {}
        self._warm_problems: dict[str, None] = {}

    def close(self) -> None:
        """Kill running workers and end the zygotes."""
        self.pool.close()

    @property
    def warnings(self) -> list[str]:
        """Why zygotes could not fork, what torch raised in warm-ups, and which workers outlived their case, in the order of their cases."""
        slow = [f"cases got a new process each instead of a fork, which is slow: {why}" for why in dict.fromkeys(self.pool.broken.values())]
        cold = [f"the warm-up of workers for a GPU failed, so each case does its work again: {why}" for why in self._warm_problems]
        return [*slow, *cold, *self._left_over.values()]

    @property
    def activity(self) -> Activity:
        """What the run waits for now. While cases run, none waits for the warm-up of a worker."""
        busy = self.pool.busy
        cold = [worker for worker in self.pool if not (worker.is_warm or worker.is_retired or worker.has_ended)]
        running = [(worker.running, worker.pid is not None) for worker in busy]
        return Activity(
            starting=self._begun(self.pool.zygote_deadlines),
            warming=None if busy else self._begun([worker.warm_until for worker in cold]),
            running=tuple(
                RunningCase(name=case.job.name, since=case.begun, phase=case.inbox.phase if is_there else "")
                for case, is_there in running
                if case is not None
            ),
        )

    def _begun(self, deadlines: list[float]) -> float | None:
        """Return when the warm-up with the first of these deadlines began."""
        return min((deadline - self._limits.start_seconds for deadline in deadlines), default=None)

    def run(self, jobs: Iterable[Job], capacity: Capacity) -> Iterator[Execution]:
        """Run every job, in order as far as there is room, and yield each as it ends."""
        for job in jobs:
            self.again(job)
        room = Room(capacity)
        while len(self._waiting) or self.pool.busy:
            if self._check is not None:
                self._check()
            self._start(room)
            self.pool.wait(self._seconds_to_sleep())
            self._watch()
            for execution in self._finished():
                gpus = room.lease(execution.job.name).gpus
                room.give_back(execution.job.name)
                yield dataclasses.replace(execution, gpus=gpus)
            for job in self.pool.take_returned():
                room.give_back(job.name)
                self.again(job)
            self.pool.forget_ended()

    def again(self, job: Job) -> None:
        """Append a job to the queue; a job may run again. Nothing is added after ``cancel_waiting``."""
        if not self._is_cancelled:
            self._environments[job.environment.key] = job.environment
            self._waiting.put(job)

    def cancel_waiting(self) -> int:
        """Drop the waiting jobs, and return the number of running ones, which continue to their ends or deadlines."""
        self._is_cancelled = True
        self._waiting = Queue()
        return len(self.pool.busy)

    def on_interrupt(self, wake: int, check: Callable[[], None]) -> None:
        """Call ``check`` before a job starts, and when ``wake`` is readable; an exception from ``check`` ends the run."""
        self._check = check
        self.pool.watch(wake)

    # -- starting ---------------------------------------------------------------------------------------------------

    def _start(self, room: Room) -> None:
        """Give waiting jobs to workers while there is room, then start the workers that later jobs will need."""
        while (job := self._waiting.next(room, functools.partial(self._may_start, room))) is not None:
            self._missing.clear()  # a job took the worker of a place, and the others are asked again
            gpus = _pins(job, room, room.lease(job.name))
            worker = self.pool.idle_for(job, gpus) or self.pool.start(job.environment, gpus, is_new=job.new_process)
            running = worker.give(self._prepare(job))
            self.pool.watch(running.inbox.descriptor, functools.partial(self._on_pipe, worker))
        for (key, gpus), environment in self._missing.items():
            if not any(one.key == key and one.gpus == gpus and not one.is_warm and not one.is_retired for one in self.pool):
                self.pool.start(environment, gpus, warms=True)
        self._missing.clear()
        if room.lease_of_alone is None:
            self._warm_spares(room)

    def _may_start(self, room: Room, job: Job, lease: Lease) -> bool:
        """Whether a job can start now with a lease; starts its zygote if there is none and there may be one more.

        A worker for a GPU that is missing starts only when every job that can start has started: where another job takes the place at the
        same moment, none is needed.
        """
        key = job.environment.key
        if job.new_process or key in self.pool.broken:
            return True
        if key not in self.pool.zygotes:
            self._start_zygote(job.environment)
        if not self.pool.is_ready(key):
            return False
        gpus = _pins(job, room, lease)
        if job.plan is None or not self._warms_workers(job.environment) or self.pool.idle_for(job, gpus):
            return True
        self._missing.setdefault((key, gpus), job.environment)
        return False

    def _start_zygote(self, wanted: Environment) -> None:
        """Start the zygote of an environment, unless there are enough with jobs; end those without: each uses some 300 MB."""
        waiting = {line for _, line in self._waiting.sizes}
        used = {worker.key for worker in self.pool.busy}
        used |= {key for key in self.pool.zygotes if key in waiting or not self.pool.is_ready(key)}
        if self._limits.keeps_zygotes or len(used & set(self.pool.zygotes)) < self._limits.zygotes:
            self.pool.end_others({*used, wanted.key})
            self.pool.start_zygote(wanted)

    def _warms_workers(self, wanted: Environment) -> bool:
        """Whether the workers of an environment warm up before they have a job."""
        return wanted.uses_accelerator and wanted.key in self.pool.zygotes and wanted.key not in self.pool.cold

    def _warm_spares(self, room: Room) -> None:
        """Start warm-ups of workers for the next waiting jobs, as far as the machine has cores, up to ``Limits.spares`` more than jobs.

        While jobs run in all places, a quarter as many warm up beside them: the cases need the cores.
        """
        for key in list(self.pool.zygotes):
            environment = self._environments.get(key)
            if environment is None or not self.pool.is_ready(key) or not self._warms_workers(environment):
                continue
            live = [one for one in self.pool if not one.is_retired]
            unused = sum(one.key == key and one.running is None and not one.is_done for one in live)
            at_a_time = max(room.most - len(self.pool.busy), room.most // 4, 1)
            free = min(room.most + self._limits.spares - len(live), at_a_time - sum(not one.is_warm for one in live))
            for _ in range(min(self._useful_spares(key) - unused, free)):
                gpus = self._next_gpus(environment, room)
                idle = sum(one.gpus == gpus and one.running is None and not one.is_retired for one in self.pool)
                if idle >= max(room.contexts(gpus), _LEAST_ON_GPU):
                    break
                self.pool.start(environment, gpus, warms=True)

    def _useful_spares(self, key: str) -> int:
        """Return how many warm workers the waiting jobs of an environment can use. One for several GPUs starts when these have room."""
        sizes = [(needs.exclusive, count) for (needs, line), count in self._waiting.sizes.items() if line == key and needs.gpus <= 1]
        alone = sum(count for is_alone, count in sizes if is_alone)
        return sum(count for is_alone, count in sizes if not is_alone) + min(alone, _WARM_ALONE)

    def _next_gpus(self, wanted: Environment, room: Room) -> tuple[int, ...]:
        """Return the GPU that the fewest workers of an environment see; empty where workers see all GPUs."""
        if devices.sees_own(wanted.variables):
            return ()
        seen = Counter(one.gpus for one in self.pool if one.key == wanted.key and not one.is_retired)
        return min(room.pins_of_one, key=seen.__getitem__, default=())

    # -- hearing and ending -----------------------------------------------------------------------------------------

    def _on_pipe(self, worker: Worker) -> None:
        running = worker.running
        if running is None:
            return
        running.read()
        if running.inbox.is_at_end or running.inbox.is_flooded:
            self.pool.forget_descriptor(running.inbox.descriptor)
        if running.inbox.is_flooded:
            worker.kill()

    def _seconds_to_sleep(self) -> float:
        """Return how long to sleep: until the next deadline, or shortly if a process has just ended."""
        now = time.monotonic()
        running = [worker.running for worker in self.pool if worker.running]
        if any(worker.has_ended for worker in self.pool) or any(case.killed_at or case.answered_at for case in running):
            return _SHORT_SECONDS
        deadlines = [case.deadline for case in running] + self.pool.zygote_deadlines
        if any(case.job.memory_limit for case in running):
            deadlines.append(self._memory.due)
        return min(max(min(deadlines, default=now + 1.0) - now, 0.0), _MOST_SECONDS_ASLEEP)

    def _watch(self) -> None:
        """Reap ended processes, and kill those that exceed a deadline or their memory, or do not end."""
        now, grace = time.monotonic(), self._limits.grace
        for worker in self.pool:
            worker.reap()
            running = worker.running
            if worker not in self.pool:  # it went with its zygote
                continue
            if worker.has_ended or running is None:
                if not worker.is_warm and now > worker.warm_until:
                    self.pool.cold[worker.key] = f"a worker did not warm up within {self._limits.start_seconds:g} s"
                    self.pool.end(worker)
            elif worker.pid is None:
                if now > running.begun + grace.fork:
                    self.pool.lose(worker.key, f"the zygote did not fork within {grace.fork:g} s")
            else:
                self._watch_case(worker, running, now)
                running.bound_output()
        self._watch_memory()
        self.pool.look_after_zygotes(now)

    def _watch_case(self, worker: Worker, running: Running, now: float) -> None:
        """Ask a late worker for its stack, kill it, and do not wait for one that survives that."""
        grace = self._limits.grace
        if running.killed_at is not None:
            since = now - running.killed_at
            if since > (grace.stack if running.overstayed else grace.gone):
                worker.abandon(round(since, 1))
            elif since > grace.stack:
                worker.kill()
        elif running.answered_at is not None:
            if now > running.answered_at + grace.exit:
                running.overstayed = True
                worker.kill()
        elif now > running.deadline:
            running.timed_out = True
            running.killed_at = now
            worker.request_stack()

    def _watch_memory(self) -> None:
        limits: dict[int, int] = {}
        for worker in self.pool.busy:
            if worker.pid is not None and worker.running is not None and worker.running.job.memory_limit is not None:
                limits[worker.pid] = worker.running.job.memory_limit
        over = self._memory.look(limits)
        for worker in self.pool.busy:
            if worker.pid in over:
                worker.note = f"it used {_amount(over[worker.pid])}, more than the {_amount(limits[worker.pid])} of --memory-limit"
                worker.kill()

    def _finished(self) -> Iterator[Execution]:
        """Yield the executions of workers whose process is gone, or is not waited for."""
        for worker in self.pool:
            if worker.running is None or not (worker.has_ended or worker.is_abandoned):
                continue
            self.pool.forget_descriptor(worker.running.inbox.descriptor)
            execution = worker.finish()
            if execution.warmup.problem:
                self._warm_problems[execution.warmup.problem] = None
            if execution.left_over:
                self._left_over[worker.number] = f"{execution.job.name}: {execution.left_over}"
            yield execution


def _pins(job: Job, room: Room, lease: Lease) -> tuple[int, ...]:
    """Return the GPUs that the worker of a job sees; empty for one that sees all, or whose spec says which it sees."""
    return () if devices.sees_own(job.environment.variables) else room.pins(lease)


def _amount(size: int) -> str:
    return f"{size >> 20} MiB" if size < 10 << 30 else f"{size / (1 << 30):.1f} GiB"
