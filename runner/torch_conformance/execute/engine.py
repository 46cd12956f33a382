"""The executor of this machine: one loop in one thread that starts processes, gives them jobs,
reads their messages, ends them in time.

Each environment has a zygote, which forks its workers; where no fork is safe, a worker is a new
Python. Workers are untrusted: their messages are bounded, only the first observation counts, and a
worker is believed to have ended when its parent says so: its zygote, or for a new Python the
system. A zygote starts when a job of its environment could start. A GPU cannot be warmed up before
the fork, so workers for a GPU warm up while others run cases, and a job for it starts when such a
worker is idle.
"""

import contextlib
import dataclasses
import functools
import itertools
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from torch_conformance.execute.executor_protocol import (
    Execution,
    ExecutorSettings,
    Job,
    StartUp,
    with_paths,
)
from torch_conformance.execute.room import Lease, Queue, Room
from torch_conformance.execute.spawn import Orphans, ProcessStarter, ZygoteProcess
from torch_conformance.execute.workers import OUTPUTS, MemoryWatch, Worker, free_beginning
from torch_conformance.machine import scratch
from torch_conformance.machine.output import naming
from torch_conformance.model import devices
from torch_conformance.model.events import Activity, RunningCase
from torch_conformance.model.protocol import TARGET
from torch_conformance.model.values import frozen
from torch_conformance.plan.schedule import Capacity, Environment

if TYPE_CHECKING:
    from torch_conformance.execute.redis_service import Services

_SHORT_SECONDS = 0.02
"""How long the loop sleeps while a process is about to end."""

_MOST_SECONDS_ASLEEP = 0.25
"""The maximum sleep of the loop; the sizes of output files are checked as often."""

_LEAST_ON_GPU = 2
"""How many workers without a case may hold a context on a GPU whose memory is leased: a lease
counts several times what most cases use.
"""

_WARM_ALONE = 2
"""How many workers are warmed up for exclusive jobs: each idle worker holds a context on its GPU.
"""

_WARM_AT_A_TIME = 8
"""The driver of a host makes contexts one after another, for all of its GPUs. Measured on a host
with two H200: 4.7 a second for 4 processes at a time, 4.9 for 8, 4.4 for 16, 3.8 for 32; on one
with an H100 4.5 for 4, 5.0 for 8, 4.9 for 16."""

_FACTS = "facts"
"""The word that a worker gets instead of a plan's file, to report the facts of the machine;
predicates to call follow it.
"""

_PRINTED_BYTES = 64_000
"""The size limit of ``Execution.printed``."""

_PLAN_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@frozen
class Grace:
    """Grace periods in seconds, for operations that should be immediate."""

    start: float = 300
    """For a zygote, or a worker for a GPU, to warm up.

    It is multiplied by ``ExecutorSettings.timeout_factor``.
    """
    fork: float = 30
    """For a zygote to fork; after that, the run continues without it."""
    stack: float = 0.5
    """For a worker at its deadline to print its stack; after that, it is killed."""
    exit: float = 2.0
    """For a worker to end after its answer; after that, it is killed.

    A GPU's driver may hold a process for minutes.
    """
    gone: float = 3.0
    """For a killed worker to end; after that, its case is over even if the process stays."""


class LocalExecutor:
    """Runs jobs in workers on this machine (``executor_protocol``); ``close`` ends its processes,
    and removes the scratch folder.
    """

    def __init__(
        self,
        settings: ExecutorSettings,
        starter: ProcessStarter | None = None,
        grace: Grace | None = None,
    ) -> None:
        """``starter`` is one that starts other processes, or has started early zygotes."""
        self._settings = settings
        self._orphans = Orphans()
        if starter is not None and starter.threads != settings.threads:
            starter.close()
            starter = None
        self._starter = starter or ProcessStarter(settings.threads, settings.warm_folder)
        self._scratch = self._starter.scratch.path
        self._services: Services | None = None
        """The servers of cases, from the first job on that uses one."""
        self._grace = grace or Grace()
        self._start_seconds = self._grace.start * settings.timeout_factor
        self._selector = selectors.DefaultSelector()
        self._numbers = itertools.count(1)
        self._workers: dict[int, Worker] = {}
        self._zygotes: dict[str, ZygoteProcess] = {}
        """By the key of their environment, as the next three are."""
        self.broken: dict[str, str] = {}
        """Environments that have no zygote that can fork, with the reasons: their jobs get new
        Pythons.
        """
        self._cold: dict[str, str] = {}
        """Environments whose workers could not be warmed up, with the reasons."""
        self._ahead = list(settings.environments)
        self._environments = {environment.key: environment for environment in self._ahead}
        self._leaving: list[ZygoteProcess] = []
        """Zygotes that were hung up on and are ending."""
        self._waiting: Queue = Queue()
        self._returned: list[Job] = []
        """Jobs whose worker was never forked: they wait again when their lease is released."""
        self._missing: dict[tuple[str, tuple[int, ...]], Environment] = {}
        """The workers that jobs with room lacked since the last job started, by environment and
        GPUs.
        """
        self._memory = MemoryWatch()
        self.start_up: StartUp | None = None
        """That of the first zygote that is warm."""
        self._is_cancelled = False
        self._check: Callable[[], None] = lambda: None
        self._wake: int | None = None
        self._problems: dict[str, None] = {}
        """What torch raised in warm-ups, and which workers outlived their case."""

    # -- what a run asks for -----------------------------------------------------------------------

    def run(self, jobs: Iterable[Job], capacity: Capacity) -> Iterator[Execution]:
        """Run every job, in order as far as there is room, and yield each as it ends."""
        for job in jobs:
            self.enqueue(job)
        while self._ahead:
            self._start_zygote(self._ahead.pop(0))
        room = Room(capacity)
        self._start(room)
        self._starter.end_early_zygotes()
        while self._waiting.lines or self._busy():
            self._check()
            self._start(room)
            for key, _ in self._selector.select(timeout=self._seconds_to_sleep()):
                if key.data is not None:
                    key.data()
            self._watch()
            for worker in list(self._workers.values()):
                if worker.running is not None and (worker.has_ended or worker.is_abandoned):
                    yield self._finished(worker, room)
            for job in self._returned:
                del room.leases[job.name]
                self.enqueue(job)
            self._returned.clear()
            self._forget_ended()

    def enqueue(self, job: Job) -> None:
        """Append a job to the queue, for its first or a further execution.

        Nothing is added after ``cancel_waiting``.
        """
        if not self._is_cancelled:
            self._environments[job.environment.key] = job.environment
            self._waiting.put(job)

    def cancel_waiting(self) -> int:
        """Drop the waiting jobs, and return the number of running ones, which continue to their
        ends or deadlines.
        """
        self._is_cancelled = True
        self._waiting = Queue()
        return len(self._busy())

    def on_interrupt(self, wake: int, check: Callable[[], None]) -> None:
        """Call ``check`` before a job starts, and when ``wake`` is readable; an exception from
        ``check`` ends the run.
        """
        self._check, self._wake = check, wake
        self._selector.register(wake, selectors.EVENT_READ)

    def rest(self) -> bool:
        """Get ready for another run; return False where something of the last one is left, or an
        environment has no zygote.
        """
        self._forget_ended()
        if self._wake is not None:
            self._unwatch(self._wake)
        self._check, self._wake, self._is_cancelled = lambda: None, None, False
        self._waiting = Queue()
        self._returned.clear()
        self._missing.clear()
        is_clean = not (self.broken or self._cold or self._problems)
        return is_clean and not any(
            worker.running or worker.is_retired for worker in self._workers.values()
        )

    def close(self) -> None:
        """Kill all workers, reap those that are the runner's own children, and end the zygotes,
        services and orphans.
        """
        for worker in self._workers.values():
            worker.kill()
        for worker in self._workers.values():
            if worker.process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):  # the system may hold it
                    worker.process.wait(timeout=self._grace.stack)
            worker.close()
        closing = [*self._leaving, *self._zygotes.values()]
        for zygote in closing:
            zygote.hang_up()  # all in parallel: each needs time to kill the orphans of its workers
        for zygote in closing:
            zygote.close()
        for group in (self._workers, self._zygotes, self._leaving):
            group.clear()
        self._selector.close()
        if self._services is not None:
            self._services.close()
        self._orphans.close()
        self._starter.close()

    @property
    def warnings(self) -> list[str]:
        """Why zygotes could not fork, what torch raised in warm-ups, and which workers outlived
        their case, in the order of their cases.
        """
        slow = [
            f"cases got a new process each instead of a fork, which is slow: {why}"
            for why in dict.fromkeys(self.broken.values())
        ]
        return [*slow, *self._problems]

    @property
    def activity(self) -> Activity:
        """What the run waits for now. While cases run, none waits for the warm-up of a worker."""
        busy = self._busy()
        starting = [zygote.warm_until for zygote in self._zygotes.values() if not zygote.is_warm]
        warming = [
            worker.warm_until
            for worker in self._workers.values()
            if not (worker.is_warm or worker.is_retired or worker.has_ended)
        ]
        return Activity(
            starting=min(starting) - self._start_seconds if starting else None,
            warming=min(warming) - self._start_seconds if warming and not busy else None,
            running=tuple(
                RunningCase(
                    name=case.job.name,
                    since=case.begun,
                    phase=case.phase if worker.pid is not None else "",
                )
                for worker in busy
                if (case := worker.running) is not None
            ),
        )

    # -- jobs and their files ----------------------------------------------------------------------

    def _folder_of(self, job: Job) -> Path:
        """Return the folder of a job's artifacts: in the folder of the run, or in the scratch
        folder for a job without one.
        """
        return self._settings.folder / job.folder if job.folder else self._scratch / _FACTS

    def _cache_of(self, job: Job) -> Path:
        """Return the folder for the caches of a job and the addresses of its services."""
        return self._scratch / Path(job.folder).name

    def _prepare(self, job: Job) -> tuple[str, Path]:
        """Start the services of a job and write its plan with the paths of this machine; a second
        call does it again.

        Return the file of the plan, or the word for facts, and the folder of what the worker
        prints.
        """
        if job.services:
            from torch_conformance.execute.redis_service import Services

            self._services = self._services or Services(self._scratch)
            self._services.start(job.name, self._cache_of(job))
        folder = self._folder_of(job)
        folder.mkdir(parents=True, exist_ok=True)
        if job.plan is None:
            return " ".join([_FACTS, *job.questions]), folder
        plan = with_paths(job.plan, folder, self._cache_of(job), self._settings.torch_root)
        path = folder / "plan.json"
        scratch.remove(path)
        with (
            naming(path),
            os.fdopen(os.open(path, _PLAN_FLAGS, 0o644), "w", encoding="ascii") as stream,
        ):
            stream.write(json.dumps(plan, indent=1, ensure_ascii=True))
        return str(path), folder

    def _finished(self, worker: Worker, room: Room) -> Execution:
        """Return the execution of a worker's case, which is over, with what lies in its folder;
        release its lease and its cache.
        """
        assert worker.running is not None
        self._unwatch(worker.running.descriptor)
        execution = worker.finish()
        job = execution.job
        if execution.warmup.problem:
            problem = (
                "the warm-up of workers for a GPU failed, so each case does its work again: "
                f"{execution.warmup.problem}"
            )
            self._problems[problem] = None
        if execution.left_over:
            self._problems[f"{job.name}: {execution.left_over}"] = None
        gpus = room.leases.pop(job.name).gpus
        files = []
        with contextlib.suppress(OSError):  # its worker removed the folder
            files = sorted(os.listdir(self._folder_of(job))) if job.folder else []
        if job.folder:
            shutil.rmtree(self._cache_of(job), ignore_errors=True)
        return dataclasses.replace(
            execution,
            gpus=gpus,
            files=tuple(files),
            services=(self._services.stop(job.name),)
            if job.services and self._services is not None
            else (),
            space=scratch.space_of(self._scratch),
            printed=""
            if job.folder
            else scratch.tail(self._folder_of(job) / OUTPUTS[1], _PRINTED_BYTES),
        )

    def _busy(self) -> list[Worker]:
        """Return the workers that have a job."""
        return [worker for worker in self._workers.values() if worker.running is not None]

    # -- starting ----------------------------------------------------------------------------------

    def _start(self, room: Room) -> None:
        """Give waiting jobs to workers while there is room, then start the workers that later jobs
        will need.
        """
        while (
            job := self._waiting.next(room, functools.partial(self._may_start, room))
        ) is not None:
            # a job took the worker of a place, and the others are asked again
            self._missing.clear()
            gpus = _pins(job, room, room.leases[job.name])
            worker = self._idle_for(job, gpus) or self._start_worker(
                job.environment, gpus, is_new=job.new_process
            )
            running = worker.give(job, *self._prepare(job))
            self._selector.register(
                running.descriptor, selectors.EVENT_READ, functools.partial(self._on_pipe, worker)
            )
        for key, zygote in self._zygotes.items():
            # after the job that looks at the machine is forked, which needs no warm zygote
            if zygote.is_ready and not zygote.is_asked:
                zygote.warm_up(self._environments[key].words, few=self._settings.few)
        for (key, gpus), environment in self._missing.items():
            if all(worker.is_warm or worker.is_retired for worker in self._at(key, gpus)):
                self._start_worker(environment, gpus, warms=True)
        self._missing.clear()
        if not room.is_taken_alone:
            self._warm_spares(room)

    def _may_start(self, room: Room, job: Job, lease: Lease) -> bool:
        """Whether a job can start now with a lease; starts its zygote if there is none and there
        may be one more.

        A worker for a GPU that is missing starts only when every job that can start has started:
        where another job takes the place at the same moment, none is needed.
        """
        key = job.environment.key
        if job.new_process or key in self.broken:
            return True
        if key not in self._zygotes:
            self._start_zygote(job.environment)
        zygote = self._zygotes.get(key)
        if zygote is None or not zygote.is_ready or (zygote.is_asked and not zygote.is_warm):
            return False  # while it warms up it forks nothing
        if job.plan is None or not zygote.is_warm:
            return job.plan is None
        gpus = _pins(job, room, lease)
        warms_workers = job.environment.uses_accelerator and key not in self._cold
        if not warms_workers or self._idle_for(job, gpus):
            return True
        self._missing.setdefault((key, gpus), job.environment)
        return False

    def _start_zygote(self, environment: Environment) -> None:
        """Start the zygote of an environment, unless there are enough with jobs; end those without:
        each uses some 300 MB.

        The zygote of a target that nothing is executed on starts in addition, and stays.
        """
        if TARGET not in environment.variables:
            zygotes = {
                key for key in self._zygotes if TARGET not in self._environments[key].variables
            }
            waiting = {line for _, line in self._waiting.lines}
            used = {worker.key for worker in self._busy()} | {
                key for key in zygotes if key in waiting or not self._zygotes[key].is_warm
            }
            if len(used & zygotes) >= self._settings.zygotes:
                return
            for worker in self._workers.values():
                if worker.running is None and worker.key not in {*used, environment.key}:
                    worker.retire()
            for key in zygotes - used:
                self._hang_up(key)
        zygote = self._starter.zygote(environment)
        self._zygotes[environment.key] = zygote
        zygote.warm_until = time.monotonic() + self._start_seconds
        self._selector.register(
            zygote.control.fileno(),
            selectors.EVENT_READ,
            functools.partial(self._on_zygote, environment.key),
        )

    def _warm_spares(self, room: Room) -> None:
        """Start warm-ups of workers for the next waiting jobs, as far as the machine has cores, up
        to ``spares`` more than jobs.

        As many warm up as there are free places, and a quarter of all places more: these wait for
        the driver, while cases use the cores. More than ``_WARM_AT_A_TIME`` would disturb each
        other.
        """
        for key, zygote in self._zygotes.items():
            environment = self._environments[key]
            if not zygote.is_warm or not environment.uses_accelerator or key in self._cold:
                continue
            live = [worker for worker in self._workers.values() if not worker.is_retired]
            # one for several GPUs starts when these have room
            lines = self._waiting.lines.items()
            sizes = [
                (needs.exclusive, len(jobs))
                for (needs, line), jobs in lines
                if line == key and needs.gpus <= 1
            ]
            exclusive = sum(count for is_alone, count in sizes if is_alone)
            useful = sum(count for is_alone, count in sizes if not is_alone) + min(
                exclusive, _WARM_ALONE
            )
            unused = sum(
                worker.key == key and worker.running is None and not worker.is_done
                for worker in live
            )
            at_a_time = min(max(room.most - len(self._busy()) + room.most // 4, 1), _WARM_AT_A_TIME)
            free = min(
                room.most + self._settings.spares - len(live),
                at_a_time - sum(not worker.is_warm for worker in live),
            )
            for _ in range(min(useful - unused, free)):
                current = [worker for worker in self._workers.values() if not worker.is_retired]
                gpus: tuple[int, ...] = ()
                if not devices.sees_own(environment.variables):
                    # else the GPU that the fewest of its workers see
                    seen = Counter(worker.gpus for worker in current if worker.key == key)
                    gpus = min(room.pins_of_one, key=seen.__getitem__, default=())
                if sum(worker.gpus == gpus and worker.running is None for worker in current) >= max(
                    room.contexts(gpus), _LEAST_ON_GPU
                ):
                    break
                self._start_worker(environment, gpus, warms=True)

    def _start_worker(
        self,
        environment: Environment,
        gpus: tuple[int, ...],
        *,
        warms: bool = False,
        is_new: bool = False,
    ) -> Worker:
        """Start a worker: by a fork where that is safe, else as a new Python, which warms nothing
        up.

        ``gpus`` are those that it sees, by number; it sees all of them where none is named.
        """
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        worker = Worker(number=next(self._numbers), key=environment.key, control=mine, gpus=gpus)
        zygote = (
            None if is_new or environment.key in self.broken else self._zygotes.get(environment.key)
        )
        if zygote is None or not zygote.fork(worker.number, theirs.fileno()):
            worker.isolation, worker.note = "process", self.broken.get(environment.key, "")
            worker.process = self._starter.worker(environment, theirs.fileno())
            worker.pid = worker.process.pid
            worker.pidfd = os.pidfd_open(worker.pid)
            self._selector.register(worker.pidfd, selectors.EVENT_READ)
        elif warms:
            worker.warm_up(sorted(environment.kinds), time.monotonic() + self._start_seconds)
        theirs.close()
        self._workers[worker.number] = worker
        self._selector.register(
            mine.fileno(), selectors.EVENT_READ, functools.partial(self._on_control, worker)
        )
        return worker

    def _idle_for(self, job: Job, gpus: tuple[int, ...]) -> Worker | None:
        """Return an idle worker for a job that sees only these GPUs (all, where none is named)."""
        idle = (
            worker
            for worker in self._at(job.environment.key, gpus)
            if worker.is_warm
            and not (worker.running or worker.is_done or worker.is_retired or worker.has_ended)
        )
        return None if job.new_process else next(idle, None)

    def _at(self, key: str, gpus: tuple[int, ...]) -> Iterator[Worker]:
        """Yield the workers of an environment, by its key, that see these GPUs."""
        for worker in self._workers.values():
            if worker.key == key and worker.gpus == gpus:
                yield worker

    # -- hearing -----------------------------------------------------------------------------------

    def _on_pipe(self, worker: Worker) -> None:
        if (running := worker.running) is None:
            return
        running.read()
        if running.is_at_end or running.is_flooded:
            self._unwatch(running.descriptor)
        if running.is_flooded:
            worker.kill()

    def _on_control(self, worker: Worker) -> None:
        """Handle a worker's message on its control socket: it is warm.

        After a hang-up, its parent reports its end.
        """
        if worker.number not in self._workers:
            return
        if not worker.listen():
            self._unwatch(worker.control.fileno())
        elif worker.broke_protocol and worker.running is None:
            worker.retire()

    def _on_zygote(self, key: str) -> None:
        """Handle a zygote's message: it is ready; or of a worker: no fork is safe, it was forked,
        or it has ended.
        """
        if (zygote := self._zygotes.get(key)) is None:
            return
        if (message := zygote.receive()) is None:
            *_, words = ["", *zygote.last_words().splitlines()]
            self._lose(key, "the zygote ended" + (f": {words}" if words else ""))
        elif "ready" in message:
            zygote.is_ready = True
        elif "warm" in message:
            zygote.is_warm = True
            start_up = StartUp(begun=zygote.begun, phases=message["warm"])
            self.start_up = self.start_up or start_up
        elif (
            worker := self._workers.get(
                int(message.get("refused", message.get("started", message.get("ended"))))
            )
        ) is None:
            return
        elif "refused" in message:
            self.broken[key] = str(message["why"])
            self._put_back(worker)
        elif "started" in message:
            worker.pid = int(message["pid"])
            if worker.running is not None:
                worker.running.restart_clock()
            if worker.is_retired:
                worker.kill()
        else:
            worker.status, worker.cpu = int(message["status"]), float(message["cpu"])
            if survivors := message.get("held"):
                pids = ", ".join(map(str, survivors[:5])) + (", ..." if len(survivors) > 5 else "")
                worker.left_over = (
                    "processes that were started by a case and killed had not ended 1 s later: "
                    f"{pids}"
                )

    # -- watching and ending -----------------------------------------------------------------------

    def _seconds_to_sleep(self) -> float:
        """Return how long to sleep: until the next deadline, or shortly if a process has just
        ended.
        """
        now = time.monotonic()
        running = [worker.running for worker in self._workers.values() if worker.running]
        if any(worker.has_ended for worker in self._workers.values()) or any(
            case.killed_at or case.answered_at for case in running
        ):
            return _SHORT_SECONDS
        deadlines = [case.deadline for case in running]
        deadlines += [zygote.warm_until for zygote in self._zygotes.values() if not zygote.is_warm]
        if any(case.job.memory_limit for case in running):
            deadlines.append(self._memory.due)
        return min(max(min(deadlines, default=now + 1.0) - now, 0.0), _MOST_SECONDS_ASLEEP)

    def _watch(self) -> None:
        """Reap ended processes, kill those that exceed a deadline or their memory or do not end,
        and look after the zygotes.
        """
        now, grace = time.monotonic(), self._grace
        limits: dict[int, int] = {}
        for worker in list(self._workers.values()):
            worker.reap()
            running = worker.running
            if worker.number not in self._workers:  # it went with its zygote
                continue
            if worker.has_ended or running is None:
                if not worker.is_warm and now > worker.warm_until:
                    self._cold[worker.key] = (
                        f"a worker did not warm up within {self._start_seconds:g} s"
                    )
                    worker.retire()
            elif worker.pid is None:
                if now > running.begun + grace.fork:
                    self._lose(worker.key, f"the zygote did not fork within {grace.fork:g} s")
            else:
                self._watch_case(worker, now)
                for descriptor in running.outputs:
                    running.is_cut |= free_beginning(descriptor)
                if running.job.memory_limit is not None:
                    limits[worker.pid] = running.job.memory_limit
        over = self._memory.look(limits)
        for worker in self._busy():
            if worker.pid in over:
                worker.note = (
                    f"it used {_amount(over[worker.pid])}, more than the "
                    f"{_amount(limits[worker.pid])} of --memory-limit"
                )
                worker.kill()
        self._leaving = [zygote for zygote in self._leaving if not zygote.has_left()]
        for key, zygote in list(self._zygotes.items()):
            zygote.wake()
            if not zygote.is_warm and now > zygote.warm_until:
                self._lose(key, f"the zygote did not warm up within {self._start_seconds:g} s")

    def _watch_case(self, worker: Worker, now: float) -> None:
        """Ask a late worker for its stack, kill it, and do not wait for one that survives that."""
        running, grace = worker.running, self._grace
        assert running is not None
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

    def _lose(self, key: str, why: str) -> None:
        """Give up a zygote: its waiting jobs, and later ones, get new Pythons."""
        self._hang_up(key)
        self.broken[key] = why
        for worker in list(self._workers.values()):
            if worker.key != key or worker.process is not None or worker.has_ended:
                continue
            if worker.pid is None:  # it was never forked, so its job has not run
                self._put_back(worker)
            else:
                worker.note = why
                worker.kill()
                worker.status = signal.SIGKILL  # a worker dies with its zygote

    def _hang_up(self, key: str) -> None:
        zygote = self._zygotes.pop(key)
        self._unwatch(zygote.control.fileno())
        zygote.hang_up()
        self._leaving.append(zygote)
        for worker in self._workers.values():
            if worker.key == key and worker.process is None and worker.running is None:
                worker.retire()
                worker.status = (
                    signal.SIGKILL
                )  # an idle worker dies with its zygote, and no message reports its end

    def _put_back(self, worker: Worker) -> None:
        """Remove a worker that was never forked; its job waits again."""
        if worker.running is not None:
            self._unwatch(worker.running.descriptor)
            self._returned.append(worker.running.job)
        self._forget(worker)

    def _forget(self, worker: Worker) -> None:
        del self._workers[worker.number]
        self._unwatch(worker.control.fileno())
        if worker.pidfd is not None:
            self._unwatch(worker.pidfd)
        worker.close()

    def _forget_ended(self) -> None:
        """Forget the workers that have ended and have no case."""
        for worker in list(self._workers.values()):
            if worker.has_ended and worker.running is None:
                if not worker.is_warm and not worker.is_retired:
                    self._cold[worker.key] = "a worker ended while it warmed up"
                self._forget(worker)

    def _unwatch(self, descriptor: int) -> None:
        """Stop watching a descriptor, before it is closed: its number may be reused for another
        worker's socket.
        """
        if descriptor in self._selector.get_map():
            self._selector.unregister(descriptor)


def _pins(job: Job, room: Room, lease: Lease) -> tuple[int, ...]:
    """Return the GPUs that the worker of a job sees; empty for one that sees all, or whose spec
    says which it sees.
    """
    return () if devices.sees_own(job.environment.variables) else room.pins(lease)


def _amount(size: int) -> str:
    return f"{size >> 20} MiB" if size < 10 << 30 else f"{size / (1 << 30):.1f} GiB"
