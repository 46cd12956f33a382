"""The engine: one loop, one thread, that keeps workers running, reads what they send and watches their deadlines.

A worker is never believed further than it must be: its messages are bounded, the first observation counts, and how it
ended is what its parent says, not what it says.
"""

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.core.model import Activity, RunningCase
from runner.execute.local.inbox import Inbox
from runner.execute.local.memory import MemoryWatch
from runner.execute.local.spawn import TemplateProcess, start_process
from runner.execute.local.workers import Running, Worker
from runner.plan.jobs import FACTS, SHARED, Environment, Execution, Isolation, Job
from runner.plan.resources import Capacity, Queue, Room

_START_SECONDS = 300
"""How long a template may take to warm up."""

_STACK_SECONDS = 0.5
"""How long a hanging worker has to print its stack before it is killed."""

_EXIT_SECONDS = 2.0
"""How long a worker may take to end once it has answered: then it is killed. A GPU's driver may hold a process for minutes."""

_CLEAN_SECONDS = 20.0
"""How long a worker of several cases may take to clean up once it has answered."""

_GONE_SECONDS = 3.0
"""How long a killed worker may take to be gone: then its case is over, and the next one begins beside what the system still holds."""

_FORK_SECONDS = 30
"""How long a template may take to fork: then the run goes on without it."""

_WARM_ALONE = 2
"""How many workers are warmed up for cases that run alone: each idle one holds a context on its GPU."""

_MOST_GROUPS = 4
"""How many workers of several cases may wait for cases of their group, however few run at once."""

_MOST_CASES = 100
"""How many cases a worker runs: what none of our checks sees grows with them."""

_MOST_SECONDS_ASLEEP = 0.25
"""How long the loop sleeps at most: floods of output are looked for as often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much runs at once, and where."""

    threads: int
    """OpenMP threads of each worker."""
    scratch: Path
    """A folder for what templates write; emptied by the caller."""
    isolation: Isolation = Isolation.CASE
    patience: float = 1.0
    """How many times longer than usual templates and workers may take to warm up."""
    spares: int = 0
    """How many workers for a GPU may warm up beside those that run cases."""


@dataclass
class _Template:
    process: TemplateProcess
    deadline: float


class Engine:
    """Runs jobs; a context manager, so that no process outlives it."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._selector = selectors.DefaultSelector()
        self._templates: dict[str, _Template] = {}
        self._broken: dict[str, str] = {}
        self._workers: dict[int, Worker] = {}
        self._queue: Queue[Job] = Queue(())
        self._waiting: Counter[str] = Counter()
        """How many jobs wait, by the key of their environment."""
        self._environments: dict[str, Environment] = {}
        self._returned: list[Job] = []
        """Jobs whose worker never came to be: they wait again, and give back their room."""
        self._memory = MemoryWatch()
        self._heed: Callable[[], None] | None = None
        self._is_stopping = False
        self._next = 0
        self._cold: dict[str, str] = {}
        """Environments whose workers could not be warmed up beforehand, and why."""
        self._waiting_alone: Counter[str] = Counter()
        """How many of the jobs that wait run with nothing beside them."""
        self._leaving: list[TemplateProcess] = []
        """Templates that were hung up on and end by themselves."""
        self._left_over: dict[int, str] = {}

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill what runs and end the templates."""
        for worker in self._workers.values():
            worker.kill()
        for worker in self._workers.values():
            if worker.process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):  # the system may hold it
                    worker.process.wait(timeout=_STACK_SECONDS)
            worker.close()
        self._workers.clear()
        leaving = [*self._leaving, *(template.process for template in self._templates.values())]
        for process in leaving:
            process.hang_up()  # all at once: each takes its time to kill what its workers left
        for process in leaving:
            process.close()
        self._templates.clear()
        self._leaving.clear()
        self._selector.close()

    @property
    def _start_seconds(self) -> float:
        return _START_SECONDS * self._limits.patience

    @property
    def broken(self) -> Mapping[str, str]:
        """Why templates could not be forked from, by the key of their environment."""
        return dict(self._broken)

    @property
    def cold(self) -> Mapping[str, str]:
        """Why workers could not be warmed up before they had a case, by the key of their environment."""
        return dict(self._cold)

    @property
    def activity(self) -> Activity:
        """What is waited for just now."""
        starting = [one.deadline - self._start_seconds for one in self._templates.values() if not one.process.is_ready]
        running = [(worker.running, worker.pid) for worker in self._busy()]
        # beside cases that run, spares warm up all the time: nothing waits for them
        alive = [worker for worker in self._workers.values() if not worker.is_retired and not worker.has_ended]
        waited_for = [] if running else [worker for worker in alive if not worker.is_warm]
        return Activity(
            starting=min(starting, default=None),
            warming=min((one.warm_until - self._start_seconds for one in waited_for), default=None),
            running=tuple(
                RunningCase(name=one.job.name, since=one.begun, phase=one.inbox.phase if pid is not None else "")
                for one, pid in running
                if one is not None
            ),
        )

    @property
    def left_over(self) -> tuple[str, ...]:
        """Which workers outlived their case, in the order of their cases."""
        return tuple(self._left_over.values())

    def run(self, jobs: Iterable[Job], capacity: Capacity) -> Iterator[Execution]:
        """Run every job, in order as far as there is room, and yield each as it ends."""
        for job in jobs:
            self.again(job)
        room = Room(capacity)
        while len(self._queue) or self._busy():
            if self._heed is not None:
                self._heed()
            self._fill(room)
            self._wait()
            for execution in self._finished():
                room.give_back(execution.job.name)
                yield execution
            self._bury(room)

    def again(self, job: Job) -> None:
        """Let a job wait for its turn: one that was run may be run once more. Nothing waits where no job is started any more."""
        if self._is_stopping:
            return
        self._environments[job.environment.key] = job.environment
        self._count_waiting(job, 1)
        self._queue.put(job)

    def _count_waiting(self, job: Job, number: int) -> None:
        if job.new_process:
            return  # no worker is warmed up for it
        self._waiting[job.environment.key] += number
        if job.needs.exclusive:
            self._waiting_alone[job.environment.key] += number

    def retire(self, number: int) -> None:
        """Give a worker no further case."""
        worker = self._workers.get(number)
        if worker is not None and worker.running is None:
            self._end(worker)

    def heed(self, wake: int, asked: Callable[[], None]) -> None:
        """Call ``asked`` before any job is started, and as soon as ``wake`` is readable; where it raises, the run ends."""
        self._heed = asked
        self._selector.register(wake, selectors.EVENT_READ, None)

    def stop_starting(self) -> int:
        """Drop the jobs that wait and return how many run on, to their ends or their deadlines."""
        self._is_stopping = True
        self._queue = Queue(())
        self._waiting.clear()
        self._waiting_alone.clear()
        return len(self._busy())

    # -- starting -----------------------------------------------------------------------------------------------

    def _busy(self) -> list[Worker]:
        return [worker for worker in self._workers.values() if worker.running is not None]

    def _fill(self, room: Room) -> None:
        """Give waiting jobs to workers while there is room."""
        while (job := self._queue.next(room, self._may_start)) is not None:
            self._count_waiting(job, -1)
            worker = self._idle_worker(job) or self._start(job.environment, is_new=job.new_process)
            if self._shares(job):
                worker.isolation = SHARED
            worker.give(job, is_last=not self._shares(job))
            assert worker.running is not None
            self._selector.register(worker.running.inbox.descriptor, selectors.EVENT_READ, worker)
        self._retire_unused(room.most)
        if room.lease_of_alone is None:
            self._warm_spares(room.most)

    def _shares(self, job: Job) -> bool:
        return job.shares and self._limits.isolation in (Isolation.WORKER, Isolation.NONE)

    def _may_start(self, job: Job) -> bool:
        """Whether a job can start now; begins to warm its template when there is none."""
        key = job.environment.key
        if self._limits.isolation is Isolation.PROCESS or job.new_process or key in self._broken:
            return True
        if key not in self._templates:
            self._warm(job.environment)
        if not self._templates[key].process.is_ready:
            return False
        if job.plan == FACTS or not self._wants_spares(job.environment) or self._idle_worker(job):
            return True
        if not any(one.key == key and not one.is_warm and not one.is_retired for one in self._workers.values()):
            self._start(job.environment, is_warm=False)
        return False

    def _warm(self, wanted: Environment) -> None:
        self._retire_idle(wanted.key)
        self._next += 1
        process = TemplateProcess(wanted, self._limits.threads, self._limits.scratch / f"template-{self._next}")
        self._templates[wanted.key] = _Template(process, time.monotonic() + self._start_seconds)
        self._selector.register(process.control, selectors.EVENT_READ, wanted.key)

    def _retire_idle(self, wanted: str) -> None:
        """End workers that wait for cases of another environment, and templates that no worker came from: each holds some 300 MB."""
        for worker in list(self._workers.values()):
            if worker.running is None and worker.key != wanted:
                self._end(worker)
        busy = {worker.key for worker in self._busy()}
        for key in [key for key in self._templates if key not in busy]:
            self._drop_template(key)

    def _drop_template(self, key: str) -> None:
        template = self._templates.pop(key)
        self._selector.unregister(template.process.control)
        template.process.hang_up()
        self._leaving.append(template.process)
        for worker in self._workers.values():
            if worker.key == key and worker.process is None and worker.running is None:
                self._end(worker)
                worker.status = signal.SIGKILL  # an idle worker dies with its template, and no message reports its end

    def _idle_worker(self, job: Job) -> Worker | None:
        """Return a worker that waits for such a case: rather one that has run others than one that has not."""
        if job.new_process:
            return None
        fresh_alone = not self._shares(job)
        idle = [one for one in self._workers.values() if one.key == job.environment.key and one.is_idle]
        may = [one for one in idle if not one.cases or (one.group == job.group and not fresh_alone)]
        return max(may, key=lambda one: one.cases, default=None)

    def _retire_unused(self, most: int) -> None:
        """End the workers of other groups that have waited longest, where more wait than can be of use."""
        waiting = sorted((one for one in self._workers.values() if one.is_idle and one.cases), key=lambda one: one.used_at)
        for worker in waiting[: max(0, len(waiting) - max(most, _MOST_GROUPS))]:
            self._end(worker)

    def _wants_spares(self, wanted: Environment) -> bool:
        """Whether what a first compile does once cannot be done before the fork."""
        return wanted.uses_accelerator and wanted.key in self._templates and wanted.key not in self._cold

    def _warm_spares(self, jobs: int) -> None:
        """Let workers warm up while others run: the next cases find them ready. There are no more than may run, and the spares."""
        for key, template in self._templates.items():
            if template.process.is_ready and self._wants_spares(self._environments[key]):
                unused = sum(one.key == key and one.running is None and not one.is_retired for one in self._workers.values())
                room = jobs + self._limits.spares - sum(not one.is_retired for one in self._workers.values())
                # of those that run one after another only the next has use for a warm worker, and the one after it
                useful = self._waiting[key] - max(0, self._waiting_alone[key] - _WARM_ALONE)
                for _ in range(min(useful - unused, room)):
                    self._start(self._environments[key], is_warm=False)

    def _start(self, wanted: Environment, *, is_warm: bool = True, is_new: bool = False) -> Worker:
        """Start a worker: by a fork where that is safe, else in a process of its own, which warms nothing up."""
        self._next += 1
        key = wanted.key
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        worker = Worker(number=self._next, key=key, control=mine, isolation="fork", is_warm=is_warm)
        template = self._templates.get(key) if key not in self._broken and not is_new else None
        if template is None or not template.process.fork(worker.number, theirs.fileno()):
            worker.isolation = "process"
            worker.note = self._broken.get(key, "")
            worker.process = start_process(wanted, theirs.fileno(), self._limits.threads, self._limits.scratch)
            worker.pid = worker.process.pid
            worker.pidfd = os.pidfd_open(worker.pid)
            worker.is_warm = True
            self._selector.register(worker.pidfd, selectors.EVENT_READ, worker)
        theirs.close()
        self._workers[worker.number] = worker
        self._selector.register(mine, selectors.EVENT_READ, worker.number)
        if not worker.is_warm:
            worker.warm_up(sorted(wanted.kinds), time.monotonic() + self._start_seconds)
        return worker

    # -- waiting ------------------------------------------------------------------------------------------------

    def _wait(self) -> None:
        for key, _ in self._selector.select(timeout=self._patience()):
            match key.data:
                case str():
                    self._on_template(key.data)
                case int():
                    self._on_control(key.data)
                case Worker() if key.fd != key.data.pidfd:
                    self._on_pipe(key.data)
                # what is left wakes the loop, which begins again and looks
        now = time.monotonic()
        for worker in list(self._workers.values()):
            worker.reap()
            if worker.number in self._workers:  # it goes with its template
                self._watch(worker, now)
        self._watch_memory()
        self._leaving = [process for process in self._leaving if not process.has_left()]
        for name, template in list(self._templates.items()):
            template.process.wake()
            if not template.process.is_ready and now > template.deadline:
                self._lose_template(name, f"the template did not warm up within {self._start_seconds:g} s")

    def _patience(self) -> float:
        """Return how long to sleep: until the next deadline, and shortly where something has just ended."""
        now = time.monotonic()
        running = [worker.running for worker in self._workers.values() if worker.running]
        if any(worker.has_ended for worker in self._workers.values()) or any(one.killed_at or one.answered_at for one in running):
            return 0.02
        deadlines = [one.deadline for one in running]
        if any(worker.running and worker.running.job.memory_limit for worker in self._workers.values()):
            deadlines.append(self._memory.due)
        deadlines += [template.deadline for template in self._templates.values() if not template.process.is_ready]
        return min(max(min(deadlines, default=now + 1.0) - now, 0.0), _MOST_SECONDS_ASLEEP)

    def _on_template(self, key: str) -> None:
        template = self._templates.get(key)
        if template is None:
            return
        message = template.process.receive()
        if message is None:
            words = template.process.last_words()
            self._lose_template(key, "the template ended" + (f": {words.splitlines()[-1]}" if words else ""))
        elif "ready" in message:
            template.process.is_ready = True
        elif "refused" in message:
            self._refuse(int(message["refused"]), str(message["why"]))
        else:
            worker = self._workers.get(int(message.get("started", message.get("ended", -1))))
            if worker is not None and "started" in message:
                worker.pid = int(message["pid"])
                worker.begin_case()
                if worker.is_retired:
                    worker.kill()
            elif worker is not None:
                worker.status = int(message["status"])
                if held := message.get("held"):
                    worker.left_over = f"processes that were started by a case and killed had not ended 1 s later: {_numbers(held)}"

    def _on_control(self, number: int) -> None:
        """A worker says that it is warm, or done with its case; or it has hung up, and its end will be told by its parent."""
        worker = self._workers.get(number)
        if worker is None:
            return
        if not worker.listen():
            self._selector.unregister(worker.control)
        elif worker.spoke_out_of_turn and worker.running is None:
            self._end(worker)

    def _on_pipe(self, worker: Worker) -> None:
        inbox = worker.running.inbox if worker.running else None
        if inbox is None:
            return
        inbox.read()
        if inbox.has_answer and worker.running is not None and worker.running.answered_at is None:
            worker.running.answered_at = time.monotonic()
        if inbox.is_at_end or inbox.is_flooded:
            self._stop_reading(inbox)
        if inbox.is_flooded:
            worker.kill()

    def _stop_reading(self, inbox: Inbox) -> None:
        """Watch a case's pipe no more. It must be open still: the number of a closed one may be that of another worker's socket."""
        if inbox.descriptor in self._selector.get_map():
            self._selector.unregister(inbox.descriptor)

    def _refuse(self, number: int, why: str) -> None:
        """A fork would not be safe: this case, and those after it, get new processes."""
        worker = self._workers[number]
        self._broken[worker.key] = why
        self._put_back(worker)

    def _put_back(self, worker: Worker) -> None:
        """Let the case of a worker that never came to be wait again."""
        if worker.running is not None:
            self._stop_reading(worker.running.inbox)
            self._returned.append(worker.running.job)
        self._forget(worker)

    def _lose_template(self, key: str, why: str) -> None:
        self._drop_template(key)
        self._broken[key] = why
        for worker in list(self._workers.values()):
            if worker.key != key or worker.process is not None or worker.has_ended:
                continue
            if worker.pid is None:  # it was never forked: nothing of it has run
                self._put_back(worker)
            else:
                worker.note = why
                worker.kill()
                worker.status = signal.SIGKILL  # a worker dies with its template

    def _watch(self, worker: Worker, now: float) -> None:
        running = worker.running
        if worker.has_ended or running is None:
            if not worker.is_warm and now > worker.warm_until:
                self._cold[worker.key] = f"a worker did not warm up within {self._start_seconds:g} s"
                self._end(worker)
            return
        if worker.pid is None:
            if now > running.begun + _FORK_SECONDS:
                self._lose_template(worker.key, f"the template did not fork within {_FORK_SECONDS} s")
            return
        if running.killed_at is not None:
            self._watch_killed(worker, running, now - running.killed_at)
        elif worker.done is None and running.answered_at is not None:
            if now > running.answered_at + (_CLEAN_SECONDS if worker.isolation == SHARED else _EXIT_SECONDS):
                running.overstayed = True
                worker.kill()
        elif worker.done is None and now > running.deadline:
            running.timed_out = True
            running.killed_at = now
            worker.ask_for_stack()
        running.bound_output()

    def _watch_killed(self, worker: Worker, running: Running, since: float) -> None:
        """Finish the case of a killed worker: when its process is gone, or without that where the system holds it."""
        if since > (_STACK_SECONDS if running.overstayed else _GONE_SECONDS):
            worker.abandon(round(since, 1))
        elif since > _STACK_SECONDS:
            worker.kill()

    def _watch_memory(self) -> None:
        limits: dict[int, int] = {}
        for worker in self._busy():
            if worker.pid is not None and worker.running is not None and worker.running.job.memory_limit is not None:
                limits[worker.pid] = worker.running.job.memory_limit
        over = self._memory.look(limits)
        for worker in self._busy():
            if worker.pid in over:
                worker.note = f"it used {_amount(over[worker.pid])}, more than the {_amount(limits[worker.pid])} of --memory-limit"
                worker.kill()

    # -- ending -------------------------------------------------------------------------------------------------

    def _finished(self) -> Iterator[Execution]:
        for worker in list(self._workers.values()):
            if worker.running is None or not worker.is_through:
                continue
            goes_on = not worker.has_ended and not worker.is_abandoned
            odd = worker.oddity() if goes_on else ""
            self._stop_reading(worker.running.inbox)
            execution = worker.finish(odd)
            if execution.left_over:
                self._left_over[worker.number] = f"{execution.job.name}: {execution.left_over}"
            if goes_on and (odd or execution.problem or worker.cases >= _MOST_CASES):
                self._end(worker)
            yield execution

    def _end(self, worker: Worker) -> None:
        """Let a worker end: it has no case, or is done with it."""
        worker.is_retired = True
        worker.kill()

    def _bury(self, room: Room) -> None:
        """Forget workers that have ended, and let the jobs wait again that never had one."""
        for job in self._returned:
            room.give_back(job.name)
            self.again(job)
        self._returned.clear()
        for worker in [worker for worker in self._workers.values() if worker.has_ended and worker.running is None]:
            if not worker.is_warm and not worker.is_retired:
                self._cold[worker.key] = "a worker ended while it warmed up"
            self._forget(worker)

    def _forget(self, worker: Worker) -> None:
        del self._workers[worker.number]
        for registered in (worker.control, worker.pidfd):
            if registered is not None and registered in self._selector.get_map():
                self._selector.unregister(registered)
        worker.close()


def _numbers(pids: Sequence[int]) -> str:
    return ", ".join(map(str, pids[:5])) + (", ..." if len(pids) > 5 else "")


def _amount(size: int) -> str:
    return f"{size >> 20} MiB" if size < 10 << 30 else f"{size / (1 << 30):.1f} GiB"
