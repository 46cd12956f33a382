"""The workers of a run: starts them, finds a worker for a job, and ends unused ones."""

import contextlib
import functools
import os
import socket
import subprocess
import time
from collections.abc import Iterator

from runner.execute.base import Job
from runner.execute.local.descriptors import Descriptors, only_wake
from runner.execute.local.limits import Limits
from runner.execute.local.spawn import Starter
from runner.execute.local.workers import Worker
from runner.execute.local.zygotes import Zygotes
from runner.plan.jobs import Environment


class Pool:
    """The workers, by number."""

    def __init__(self, limits: Limits, starter: Starter, descriptors: Descriptors, zygotes: Zygotes) -> None:
        self._limits = limits
        self._starter = starter
        self._descriptors = descriptors
        self._zygotes = zygotes
        self._workers: dict[int, Worker] = {}
        self._last = 0
        self.cold: dict[str, str] = {}
        """Environments whose workers could not be warmed up, with the reasons."""

    def __iter__(self) -> Iterator[Worker]:
        return iter(list(self._workers.values()))

    def __contains__(self, worker: Worker) -> bool:
        return worker.number in self._workers

    def get(self, number: int) -> Worker | None:
        """Return a worker; None for one that was removed."""
        return self._workers.get(number)

    @property
    def busy(self) -> list[Worker]:
        """The workers that have a job."""
        return [worker for worker in self._workers.values() if worker.running is not None]

    def start(self, wanted: Environment, gpus: tuple[int, ...] = (), *, is_warm: bool = True, is_new: bool = False) -> Worker:
        """Start a worker: by a fork where that is safe, else in a process of its own, which warms nothing up.

        ``gpus`` are those that it sees, by number; it sees all of them where none is named.
        """
        self._last += 1
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        worker = Worker(number=self._last, key=wanted.key, control=mine, isolation="fork", is_warm=is_warm, gpus=gpus)
        if is_new or not self._zygotes.fork(wanted.key, worker.number, theirs.fileno()):
            self._start_process(worker, wanted, theirs.fileno())
        theirs.close()
        self._workers[worker.number] = worker
        self._descriptors.watch(mine.fileno(), functools.partial(self._on_control, worker))
        if not worker.is_warm:
            worker.warm_up(sorted(wanted.kinds), time.monotonic() + self._limits.start_seconds)
        return worker

    def _start_process(self, worker: Worker, wanted: Environment, control: int) -> None:
        worker.isolation = "process"
        worker.note = self._zygotes.broken.get(wanted.key, "")
        worker.process = self._starter.worker(wanted, control)
        worker.pid = worker.process.pid
        worker.pidfd = os.pidfd_open(worker.pid)
        worker.is_warm = True
        self._descriptors.watch(worker.pidfd, only_wake)

    def _on_control(self, worker: Worker) -> None:
        """Handle a worker's message on its control socket: it is warm, or its case is over. After a hang-up, its parent reports its end."""
        if worker not in self:
            return
        if not worker.listen():
            self._descriptors.forget(worker.control.fileno())
        elif worker.broke_protocol and worker.running is None:
            self.end(worker)

    def idle_for(self, job: Job, gpus: tuple[int, ...] = ()) -> Worker | None:
        """Return an idle worker for a job that sees these GPUs alone (all, where none is named)."""
        if job.new_process:
            return None
        idle = (one for one in self._workers.values() if one.key == job.environment.key and one.gpus == gpus and one.is_idle)
        return next(idle, None)

    def end(self, worker: Worker) -> None:
        """End a worker without a running case."""
        worker.is_retired = True
        worker.kill()

    def put_back(self, worker: Worker) -> Job | None:
        """Remove a worker that was never forked; return its job."""
        job = None
        if worker.running is not None:
            self._descriptors.forget(worker.running.inbox.descriptor)
            job = worker.running.job
        self.forget(worker)
        return job

    def forget_ended(self) -> None:
        """Remove the workers whose processes are gone and whose jobs are over."""
        for worker in self:
            if worker.has_ended and worker.running is None:
                if not worker.is_warm and not worker.is_retired:
                    self.cold[worker.key] = "a worker ended while it warmed up"
                self.forget(worker)

    def forget(self, worker: Worker) -> None:
        """Remove a worker and close its descriptors."""
        del self._workers[worker.number]
        for descriptor in (worker.control.fileno(), worker.pidfd):
            if descriptor is not None:
                self._descriptors.forget(descriptor)
        worker.close()

    def close(self, seconds: float) -> None:
        """Kill all workers, and reap those that are the runner's own children."""
        for worker in self:
            worker.kill()
        for worker in self:
            if worker.process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):  # the system may hold it
                    worker.process.wait(timeout=seconds)
            worker.close()
        self._workers.clear()
