"""Handles the messages of zygotes about their workers, and the loss of a zygote."""

import functools
import signal
from collections.abc import Collection, Sequence

from runner.execute.base import Job
from runner.execute.local.limits import Limits
from runner.execute.local.pool import Pool
from runner.execute.local.spawn import Message
from runner.execute.local.waiting import WaitingJobs
from runner.execute.local.workers import Worker
from runner.execute.local.zygotes import Zygotes
from runner.plan.jobs import Environment
from runner.plan.schedule import companion


class Forks:
    """Keeps the workers of the pool in step with their zygotes."""

    def __init__(self, zygotes: Zygotes, pool: Pool, waiting: WaitingJobs, limits: Limits) -> None:
        self._zygotes = zygotes
        self._pool = pool
        self._waiting = waiting
        self._limits = limits
        self._returned: list[Job] = []

    def take_returned(self) -> list[Job]:
        """Return the jobs whose worker was never forked: they are queued again, and their leases are released."""
        returned, self._returned = self._returned, []
        return returned

    def start_zygote(self, wanted: Environment) -> None:
        """Start the zygote of an environment, unless there are enough with jobs; end those without: each uses some 300 MB."""
        used = {worker.key for worker in self._pool.busy}
        used |= {key for key in self._zygotes if self._waiting.has(key) or not self._zygotes.is_ready(key)}
        if len(used & set(self._zygotes)) >= self._limits.zygotes and not self._limits.keeps_zygotes:
            return
        self._end_unused({*used, wanted.key})
        self._zygotes.start(wanted, functools.partial(self._on_zygote, wanted.key))
        beside = companion(wanted) if self._limits.zygotes > 1 else None
        if beside is not None and beside.key not in self._zygotes:
            self._zygotes.start(beside, functools.partial(self._on_zygote, beside.key))

    def _end_unused(self, used: Collection[str]) -> None:
        """End the zygotes and idle workers of other environments than these."""
        for worker in self._pool:
            if worker.running is None and worker.key not in used:
                self._pool.end(worker)
        for key in self._zygotes:
            if key not in used and not self._limits.keeps_zygotes:
                self._hang_up(key)

    def lose(self, key: str, why: str) -> None:
        """Give up a zygote: its waiting jobs, and later ones, get new processes."""
        self._hang_up(key)
        self._zygotes.broken[key] = why
        for worker in self._pool:
            if worker.key != key or worker.process is not None or worker.has_ended:
                continue
            if worker.pid is None:  # it was never forked, so its job has not run
                self._put_back(worker)
            else:
                worker.note = why
                worker.kill()
                worker.status = signal.SIGKILL  # a worker dies with its zygote

    def look_after_zygotes(self, now: float) -> None:
        """Continue zygotes that were stopped, and give up those that are late."""
        for key in self._zygotes.look_after(now):
            self.lose(key, f"the zygote did not warm up within {self._limits.start_seconds:g} s")

    def _hang_up(self, key: str) -> None:
        self._zygotes.hang_up(key)
        for worker in self._pool:
            if worker.key == key and worker.process is None and worker.running is None:
                self._pool.end(worker)
                worker.status = signal.SIGKILL  # an idle worker dies with its zygote, and no message reports its end

    def _on_zygote(self, key: str) -> None:
        if key not in self._zygotes:
            return
        message = self._zygotes.receive(key)
        if message is None:
            words = self._zygotes.last_words(key)
            self.lose(key, "the zygote ended" + (f": {words}" if words else ""))
        elif "refused" in message:
            self._refuse(int(message["refused"]), str(message["why"]))
        elif "started" in message:
            self._on_start(message)
        elif "ended" in message:
            self._on_end(message)

    def _refuse(self, number: int, why: str) -> None:
        """Record that a fork is not safe: this job and later ones get new processes."""
        worker = self._pool.get(number)
        if worker is not None:
            self._zygotes.broken[worker.key] = why
            self._put_back(worker)

    def _put_back(self, worker: Worker) -> None:
        job = self._pool.put_back(worker)
        if job is not None:
            self._returned.append(job)

    def _on_start(self, message: Message) -> None:
        worker = self._pool.get(int(message["started"]))
        if worker is not None:
            worker.pid = int(message["pid"])
            if worker.running is not None:
                worker.running.restart_clock()
            if worker.is_retired:
                worker.kill()

    def _on_end(self, message: Message) -> None:
        worker = self._pool.get(int(message["ended"]))
        if worker is not None:
            worker.status = int(message["status"])
            if held := message.get("held"):
                worker.left_over = f"processes that were started by a case and killed had not ended 1 s later: {_numbers(held)}"


def _numbers(pids: Sequence[int]) -> str:
    return ", ".join(map(str, pids[:5])) + (", ..." if len(pids) > 5 else "")
