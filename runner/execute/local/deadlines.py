"""Deadlines: kills workers that exceed their deadline or memory limit, or do not end, and does not wait for those that survive SIGKILL."""

import time

from runner.execute.local.forks import Forks
from runner.execute.local.limits import Limits
from runner.execute.local.memory import MemoryWatch
from runner.execute.local.pool import Pool
from runner.execute.local.running import Running
from runner.execute.local.workers import Worker
from runner.execute.local.zygotes import Zygotes

_SHORT_SECONDS = 0.02
"""How long the loop sleeps while a process is about to end."""

_MOST_SECONDS_ASLEEP = 0.25
"""The maximum sleep of the loop; the sizes of output files are checked as often."""


class Deadlines:
    """Watches every worker of a pool, and the zygotes."""

    def __init__(self, limits: Limits, pool: Pool, zygotes: Zygotes, forks: Forks) -> None:
        self._limits = limits
        self._pool = pool
        self._zygotes = zygotes
        self._forks = forks
        self._memory = MemoryWatch()

    def seconds_to_sleep(self) -> float:
        """Return how long to sleep: until the next deadline, or shortly if a process has just ended."""
        now = time.monotonic()
        running = [worker.running for worker in self._pool if worker.running]
        if any(worker.has_ended for worker in self._pool) or any(one.killed_at or one.answered_at for one in running):
            return _SHORT_SECONDS
        deadlines = [one.deadline for one in running] + self._zygotes.deadlines
        if any(one.job.memory_limit for one in running):
            deadlines.append(self._memory.due)
        return min(max(min(deadlines, default=now + 1.0) - now, 0.0), _MOST_SECONDS_ASLEEP)

    def watch(self) -> None:
        """Reap ended processes, and kill late ones."""
        now = time.monotonic()
        for worker in self._pool:
            worker.reap()
            if worker in self._pool:  # it goes with its zygote
                self._watch_worker(worker, now)
        self._watch_memory()
        self._forks.look_after_zygotes(now)

    def _watch_worker(self, worker: Worker, now: float) -> None:
        running = worker.running
        if worker.has_ended or running is None:
            self._watch_warming(worker, now)
        elif worker.pid is None:
            if now > running.begun + self._limits.grace.fork:
                self._forks.lose(worker.key, f"the zygote did not fork within {self._limits.grace.fork:g} s")
        else:
            self._watch_case(worker, running, now)
            running.bound_output()

    def _watch_warming(self, worker: Worker, now: float) -> None:
        if not worker.is_warm and now > worker.warm_until:
            self._pool.cold[worker.key] = f"a worker did not warm up within {self._limits.start_seconds:g} s"
            self._pool.end(worker)

    def _watch_case(self, worker: Worker, running: Running, now: float) -> None:
        grace = self._limits.grace
        if running.killed_at is not None:
            self._watch_killed(worker, running, now - running.killed_at)
        elif running.answered_at is not None:
            if now > running.answered_at + grace.exit:
                running.overstayed = True
                worker.kill()
        elif now > running.deadline:
            running.timed_out = True
            running.killed_at = now
            worker.request_stack()

    def _watch_killed(self, worker: Worker, running: Running, since: float) -> None:
        """Finish the case of a killed worker when its process is gone, or after a grace period if the process stays."""
        grace = self._limits.grace
        if since > (grace.stack if running.overstayed else grace.gone):
            worker.abandon(round(since, 1))
        elif since > grace.stack:
            worker.kill()

    def _watch_memory(self) -> None:
        limits: dict[int, int] = {}
        for worker in self._pool.busy:
            if worker.pid is not None and worker.running is not None and worker.running.job.memory_limit is not None:
                limits[worker.pid] = worker.running.job.memory_limit
        over = self._memory.look(limits)
        for worker in self._pool.busy:
            if worker.pid in over:
                worker.note = f"it used {_amount(over[worker.pid])}, more than the {_amount(limits[worker.pid])} of --memory-limit"
                worker.kill()


def _amount(size: int) -> str:
    return f"{size >> 20} MiB" if size < 10 << 30 else f"{size / (1 << 30):.1f} GiB"
