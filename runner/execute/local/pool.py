"""The processes of a run: a zygote for each environment, and the workers, which zygotes fork or which are new Pythons.

Zygotes and workers are heard over sockets. A worker is believed to have ended when its parent says so: its zygote, or for a new Python
the system.
"""

import contextlib
import functools
import itertools
import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from runner.execute.base import Job
from runner.execute.local.spawn import Message, ProcessStarter, ZygoteProcess
from runner.execute.local.workers import Worker
from runner.plan.resources import Environment


@dataclass(frozen=True, slots=True, kw_only=True)
class Grace:
    """Grace periods in seconds, for operations that should be immediate."""

    start: float = 300
    """For a zygote, or a worker for a GPU, to warm up. It is multiplied by ``Limits.timeout_factor``."""
    fork: float = 30
    """For a zygote to fork; after that, the run continues without it."""
    stack: float = 0.5
    """For a worker at its deadline to print its stack; after that, it is killed."""
    exit: float = 2.0
    """For a worker to end after its answer; after that, it is killed. A GPU's driver may hold a process for minutes."""
    gone: float = 3.0
    """For a killed worker to end; after that, its case is over even if the process stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The time limits and the number of workers."""

    timeout_factor: float = 1.0
    """How many times longer than usual zygotes and workers may take to warm up."""
    spares: int = 0
    """How many workers for a GPU may warm up beside those that run cases."""
    zygotes: int = 1
    """How many environments may have a zygote with jobs. With more than one, a zygote for a GPU has one for the CPU beside it."""
    keeps_zygotes: bool = False
    """Whether zygotes without jobs stay while one starts."""
    grace: Grace = field(default_factory=Grace)

    @property
    def start_seconds(self) -> float:
        """How long a zygote, or a worker for a GPU, may take to warm up."""
        return self.grace.start * self.timeout_factor


def _only_wake() -> None:
    """Do nothing: the event only wakes the loop."""


class Pool:
    """The workers by number, and the zygotes by the key of their environment."""

    def __init__(self, limits: Limits, starter: ProcessStarter) -> None:
        self._limits = limits
        self._starter = starter
        self._selector = selectors.DefaultSelector()
        self._numbers = itertools.count(1)
        self._workers: dict[int, Worker] = {}
        self.zygotes: dict[str, ZygoteProcess] = {}
        self._warm_until: dict[str, float] = {}
        """The deadlines of warm-ups of zygotes."""
        self._leaving: list[ZygoteProcess] = []
        """Zygotes that were hung up on and are ending."""
        self.broken: dict[str, str] = {}
        """Environments that have no zygote that can fork, with the reasons: their jobs get new Pythons."""
        self.cold: dict[str, str] = {}
        """Environments whose workers could not be warmed up, with the reasons."""
        self._returned: list[Job] = []

    def __iter__(self) -> Iterator[Worker]:
        return iter(list(self._workers.values()))

    def __contains__(self, worker: Worker) -> bool:
        return worker.number in self._workers

    @property
    def busy(self) -> list[Worker]:
        """The workers that have a job."""
        return [worker for worker in self._workers.values() if worker.running is not None]

    # -- what the loop sleeps on ------------------------------------------------------------------------------------

    def watch(self, descriptor: int, on_readable: Callable[[], None] = _only_wake) -> None:
        """Call ``on_readable`` whenever a descriptor is readable; once a descriptor."""
        self._selector.register(descriptor, selectors.EVENT_READ, on_readable)

    def forget_descriptor(self, descriptor: int) -> None:
        """Stop watching a descriptor, before it is closed: its number may be reused for another worker's socket."""
        if descriptor in self._selector.get_map():
            self._selector.unregister(descriptor)

    def wait(self, seconds: float) -> None:
        """Sleep until a descriptor is readable, or for ``seconds``; then call the callbacks of readable descriptors."""
        for key, _ in self._selector.select(timeout=seconds):
            key.data()

    # -- zygotes ----------------------------------------------------------------------------------------------------

    def start_zygote(self, wanted: Environment) -> None:
        """Start the zygote of an environment, which warms up."""
        zygote = self._starter.zygote(wanted)
        self.zygotes[wanted.key] = zygote
        self._warm_until[wanted.key] = time.monotonic() + self._limits.start_seconds
        self.watch(zygote.control.fileno(), functools.partial(self._on_zygote, wanted.key))

    def is_ready(self, key: str) -> bool:
        """Whether the zygote of an environment is warm."""
        return key in self.zygotes and self.zygotes[key].is_ready

    @property
    def zygote_deadlines(self) -> list[float]:
        """The deadlines of the zygotes that warm up."""
        return [self._warm_until[key] for key, zygote in self.zygotes.items() if not zygote.is_ready]

    def end_others(self, used: Collection[str]) -> None:
        """End the zygotes and idle workers of other environments than these."""
        for worker in self:
            if worker.running is None and worker.key not in used:
                self.end(worker)
        for key in [key for key in self.zygotes if key not in used and not self._limits.keeps_zygotes]:
            self._hang_up(key)

    def lose(self, key: str, why: str) -> None:
        """Give up a zygote: its waiting jobs, and later ones, get new Pythons."""
        self._hang_up(key)
        self.broken[key] = why
        for worker in self:
            if worker.key != key or worker.process is not None or worker.has_ended:
                continue
            if worker.pid is None:  # it was never forked, so its job has not run
                self._put_back(worker)
            else:
                worker.note = why
                worker.kill()
                worker.status = signal.SIGKILL  # a worker dies with its zygote

    def look_after_zygotes(self, now: float) -> None:
        """Continue those that a worker has stopped, give up those that are late, and end those that were hung up on."""
        self._leaving = [zygote for zygote in self._leaving if not zygote.has_left()]
        for key, zygote in list(self.zygotes.items()):
            zygote.wake()
            if not zygote.is_ready and now > self._warm_until[key]:
                self.lose(key, f"the zygote did not warm up within {self._limits.start_seconds:g} s")

    def take_returned(self) -> list[Job]:
        """Return the jobs whose worker was never forked: they are queued again, and their leases are released."""
        returned, self._returned = self._returned, []
        return returned

    def _hang_up(self, key: str) -> None:
        zygote = self.zygotes.pop(key)
        self.forget_descriptor(zygote.control.fileno())
        zygote.hang_up()
        self._leaving.append(zygote)
        for worker in self:
            if worker.key == key and worker.process is None and worker.running is None:
                self.end(worker)
                worker.status = signal.SIGKILL  # an idle worker dies with its zygote, and no message reports its end

    def _on_zygote(self, key: str) -> None:
        zygote = self.zygotes.get(key)
        if zygote is None:
            return
        message = zygote.receive()
        if message is None:
            *_, words = ["", *zygote.last_words().splitlines()]
            self.lose(key, "the zygote ended" + (f": {words}" if words else ""))
        elif "ready" in message:
            zygote.is_ready = True
        elif (worker := self._workers.get(int(message.get("refused", message.get("started", message.get("ended")))))) is not None:
            self._take(worker, message)

    def _take(self, worker: Worker, message: Message) -> None:
        """Note what a zygote says of a worker: no fork is safe, it was forked, or it has ended."""
        if "refused" in message:
            self.broken[worker.key] = str(message["why"])
            self._put_back(worker)
        elif "started" in message:
            worker.pid = int(message["pid"])
            if worker.running is not None:
                worker.running.restart_clock()
            if worker.is_retired:
                worker.kill()
        else:
            worker.status = int(message["status"])
            if held := message.get("held"):
                worker.left_over = f"processes that were started by a case and killed had not ended 1 s later: {_listed(held)}"

    def _put_back(self, worker: Worker) -> None:
        """Remove a worker that was never forked; its job waits again."""
        if worker.running is not None:
            self.forget_descriptor(worker.running.inbox.descriptor)
            self._returned.append(worker.running.job)
        self._forget(worker)

    # -- workers ----------------------------------------------------------------------------------------------------

    def start(self, wanted: Environment, gpus: tuple[int, ...] = (), *, warms: bool = False, is_new: bool = False) -> Worker:
        """Start a worker: by a fork where that is safe, else as a new Python, which warms nothing up.

        ``gpus`` are those that it sees, by number; it sees all of them where none is named.
        """
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        worker = Worker(number=next(self._numbers), key=wanted.key, control=mine, gpus=gpus)
        zygote = None if is_new or wanted.key in self.broken else self.zygotes.get(wanted.key)
        if zygote is None or not zygote.fork(worker.number, theirs.fileno()):
            worker.isolation, worker.note = "process", self.broken.get(wanted.key, "")
            worker.process = self._starter.worker(wanted, theirs.fileno())
            worker.pid = worker.process.pid
            worker.pidfd = os.pidfd_open(worker.pid)
            self.watch(worker.pidfd)
        elif warms:
            worker.warm_up(sorted(wanted.kinds), time.monotonic() + self._limits.start_seconds)
        theirs.close()
        self._workers[worker.number] = worker
        self.watch(mine.fileno(), functools.partial(self._on_control, worker))
        return worker

    def _on_control(self, worker: Worker) -> None:
        """Handle a worker's message on its control socket: it is warm. After a hang-up, its parent reports its end."""
        if worker not in self:
            return
        if not worker.listen():
            self.forget_descriptor(worker.control.fileno())
        elif worker.broke_protocol and worker.running is None:
            self.end(worker)

    def idle_for(self, job: Job, gpus: tuple[int, ...] = ()) -> Worker | None:
        """Return an idle worker for a job that sees these GPUs alone (all, where none is named)."""
        idle = (one for one in self._workers.values() if one.key == job.environment.key and one.gpus == gpus and one.is_idle)
        return None if job.new_process else next(idle, None)

    def end(self, worker: Worker) -> None:
        """End a worker without a running case."""
        worker.is_retired = True
        worker.kill()

    def forget_ended(self) -> None:
        """Remove the workers whose processes are gone and whose jobs are over."""
        for worker in self:
            if worker.has_ended and worker.running is None:
                if not worker.is_warm and not worker.is_retired:
                    self.cold[worker.key] = "a worker ended while it warmed up"
                self._forget(worker)

    def _forget(self, worker: Worker) -> None:
        del self._workers[worker.number]
        for descriptor in (worker.control.fileno(), worker.pidfd):
            if descriptor is not None:
                self.forget_descriptor(descriptor)
        worker.close()

    # -- the end ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Kill all workers, reap those that are the runner's own children, and wait for the zygotes that serve no other run."""
        for worker in self:
            worker.kill()
        for worker in self:
            if worker.process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):  # the system may hold it
                    worker.process.wait(timeout=self._limits.grace.stack)
            worker.close()
        self._workers.clear()
        self.close_zygotes()
        self._selector.close()

    def close_zygotes(self) -> None:
        """End the zygotes, or give them back to the store that lent them."""
        closing = [*self._leaving, *self.zygotes.values()]
        for zygote in closing:
            zygote.release()  # all in parallel: each needs time to kill the orphans of its workers
        for zygote in closing:
            zygote.close()
        self.zygotes.clear()
        self._leaving.clear()


def _listed(pids: Sequence[int]) -> str:
    return ", ".join(map(str, pids[:5])) + (", ..." if len(pids) > 5 else "")
