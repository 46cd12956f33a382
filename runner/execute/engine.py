"""The engine: one loop, one thread, that keeps workers running, reads what they send and watches their deadlines.

A worker is never believed further than it must be: its messages are bounded, the first observation counts, and how it
ended is what its parent says, not what it says.
"""

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.execute.jobs import Execution, Job
from runner.execute.spawn import TemplateProcess, start_process
from runner.model import Ending
from runner.protocol import MAX_MESSAGE, loads

_START_SECONDS = 300
"""How long a template may take to warm up."""

_STACK_SECONDS = 0.5
"""How long a hanging worker has to print its stack before it is killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much runs at once, and where."""

    workers: int
    threads: int
    """OpenMP threads of each worker."""
    scratch: Path
    """A folder for what templates write; emptied by the caller."""
    fork: bool = True
    """False: every case gets a new process."""
    patience: float = 1.0
    """How many times longer than usual a template may take to warm up."""


@dataclass
class _Running:
    """A worker from its start to its end."""

    number: int
    job: Job
    pipe: int
    begun: float
    deadline: float
    isolation: str = "fork"
    note: str = ""
    problem: str = ""
    pid: int | None = None
    process: "subprocess.Popen[bytes] | None" = None
    status: int | None = None
    buffer: bytearray = field(default_factory=bytearray)
    received: int = 0
    observation: Any = None
    observations: int = 0
    phase: str = "import"
    timed_out: bool = False
    killed_at: float | None = None
    is_closed: bool = False

    @property
    def has_ended(self) -> bool:
        return self.status is not None


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
        self._running: dict[int, _Running] = {}
        self._next = 0

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill what runs and end the templates."""
        for running in self._running.values():
            _kill(running)
        for running in list(self._running.values()):
            if running.process is not None:
                running.process.wait()
            self._close_pipe(running)
        self._running.clear()
        for template in self._templates.values():
            template.process.close()
        self._templates.clear()
        self._selector.close()

    @property
    def broken(self) -> Mapping[str, str]:
        """Why templates could not be forked from, by the key of their environment."""
        return dict(self._broken)

    def run(self, jobs: Iterable[Job], *, at_once: int | None = None) -> Iterator[Execution]:
        """Run every job, in order as far as there is room and at most ``at_once`` side by side, and yield each as it ends."""
        waiting = deque(jobs)
        workers = self._limits.workers if at_once is None else at_once
        while waiting or self._running:
            while waiting and len(self._running) < workers and self._may_start(waiting[0]):
                self._start(waiting.popleft())
            self._wait()
            yield from self._finished()

    # -- starting -----------------------------------------------------------------------------------------------

    def _may_start(self, job: Job) -> bool:
        """Whether a job can start now; begins to warm its template when there is none."""
        key = job.environment.key
        if not self._limits.fork or key in self._broken:
            return True
        if key not in self._templates:
            self._warm(job)
        return self._templates[key].process.is_ready

    def _warm(self, job: Job) -> None:
        self._retire_idle()
        folder = self._limits.scratch / f"template-{len(self._templates) + len(self._broken)}-{self._next}"
        process = TemplateProcess(job.environment, self._limits.threads, folder)
        self._templates[job.environment.key] = _Template(process, time.monotonic() + _START_SECONDS * self._limits.patience)
        self._selector.register(process.control, selectors.EVENT_READ, job.environment.key)

    def _retire_idle(self) -> None:
        """End templates that no running worker came from: each holds some 300 MB."""
        busy = {running.job.environment.key for running in self._running.values()}
        for key in [key for key in self._templates if key not in busy]:
            self._drop_template(key)

    def _drop_template(self, key: str) -> None:
        template = self._templates.pop(key)
        self._selector.unregister(template.process.control)
        template.process.close()

    def _start(self, job: Job) -> None:
        self._next += 1
        read, write = os.pipe()
        os.set_blocking(read, False)
        job.folder.mkdir(parents=True, exist_ok=True)
        if job.begin is not None:
            job.begin()
        now = time.monotonic()
        running = _Running(self._next, job, read, now, now + job.timeout)
        self._running[running.number] = running
        self._selector.register(read, selectors.EVENT_READ, running)
        with _output_files(job.folder) as outputs:
            self._launch(running, [write, *outputs])
        os.close(write)

    def _launch(self, running: _Running, descriptors: list[int]) -> None:
        key = running.job.environment.key
        template = self._templates.get(key) if self._limits.fork and key not in self._broken else None
        if template is not None and template.process.send(running.number, running.job, descriptors):
            return
        running.isolation = "process"
        running.note = self._broken.get(key, "")
        running.process = start_process(running.job, descriptors, self._limits.threads, self._limits.scratch)
        running.pid = running.process.pid

    # -- waiting ------------------------------------------------------------------------------------------------

    def _wait(self) -> None:
        for key, _ in self._selector.select(timeout=self._patience()):
            if isinstance(key.data, str):
                self._on_template(key.data)
            else:
                self._on_pipe(key.data)
        now = time.monotonic()
        for running in self._running.values():
            self._watch(running, now)
        for name, template in list(self._templates.items()):
            if not template.process.is_ready and now > template.deadline:
                self._lose_template(name, f"the template did not warm up within {_START_SECONDS * self._limits.patience:g} s")

    def _patience(self) -> float:
        """Return how long to sleep: until the next deadline, and shortly where a process must be polled."""
        now = time.monotonic()
        if any(running.process is not None or running.killed_at is not None or running.has_ended for running in self._running.values()):
            return 0.02
        deadlines = [running.deadline for running in self._running.values()]
        deadlines += [template.deadline for template in self._templates.values() if not template.process.is_ready]
        return max(min(deadlines, default=now + 1.0) - now, 0.0)

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
            running = self._running.get(int(message.get("started", message.get("ended", -1))))
            if running is not None and "started" in message:
                running.pid = int(message["pid"])
            elif running is not None:
                running.status = int(message["status"])

    def _refuse(self, number: int, why: str) -> None:
        """A fork would not be safe: this case, and those after it, get new processes."""
        running = self._running.pop(number)
        self._broken[running.job.environment.key] = why
        self._close_pipe(running)
        self._start(running.job)

    def _lose_template(self, key: str, why: str) -> None:
        self._drop_template(key)
        self._broken[key] = why
        for running in list(self._running.values()):
            if running.job.environment.key != key or running.process is not None or running.has_ended:
                continue
            if running.pid is None:  # it was never forked: nothing of it has run
                del self._running[running.number]
                self._close_pipe(running)
                self._start(running.job)
            else:
                running.note = why
                running.status = signal.SIGKILL  # a worker dies with its template
                _kill(running)

    def _on_pipe(self, running: _Running) -> None:
        try:
            data = os.read(running.pipe, 1 << 20)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close_pipe(running)
            return
        running.received += len(data)
        if running.received > MAX_MESSAGE:
            running.problem = f"the worker sent more than {MAX_MESSAGE >> 20} MiB"
            self._close_pipe(running)
            _kill(running)
            return
        if running.problem:
            return  # it has broken the protocol: nothing more is read out of it
        *lines, rest = data.split(b"\n")
        for line in lines:
            running.problem = _take_message(running, bytes(running.buffer) + line)
            running.buffer.clear()
            if running.problem:
                return
        running.buffer += rest

    def _watch(self, running: _Running, now: float) -> None:
        if running.process is not None and running.status is None:
            running.status = _reap(running)
        if running.has_ended or running.pid is None:
            if running.pid is None and now > running.deadline:
                running.timed_out = True
                running.status = signal.SIGKILL
            return
        if running.killed_at is None and now > running.deadline:
            running.timed_out = True
            running.killed_at = now
            with contextlib.suppress(OSError):
                os.kill(running.pid, signal.SIGUSR1)  # faulthandler prints every thread's stack
        elif running.killed_at is not None and now > running.killed_at + _STACK_SECONDS:
            _kill(running)

    # -- ending -------------------------------------------------------------------------------------------------

    def _finished(self) -> Iterator[Execution]:
        for running in [running for running in self._running.values() if running.has_ended]:
            # who reaped it has killed the children that it left behind, who might hold the pipe
            while not running.is_closed and self._drain(running):
                pass
            del self._running[running.number]
            self._close_pipe(running)
            yield _execution(running)

    def _drain(self, running: _Running) -> bool:
        before = running.received
        self._on_pipe(running)
        return running.received != before

    def _close_pipe(self, running: _Running) -> None:
        if not running.is_closed:
            running.is_closed = True
            self._selector.unregister(running.pipe)
            os.close(running.pipe)


@contextlib.contextmanager
def _output_files(folder: Path) -> Iterator[list[int]]:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
    descriptors = [os.open(folder / name, flags, 0o644) for name in ("stdout.txt", "stderr.txt")]
    try:
        yield descriptors
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _take_message(running: _Running, line: bytes) -> str:
    """Take what a line says; return how it breaks the protocol, if it does."""
    try:
        message = loads(line)
    except ValueError as error:
        return f"the worker sent a message that is {error}"
    if not isinstance(message, dict):
        return "the worker sent a message that is no map"
    if "phase" in message:
        running.phase = str(message["phase"])[:100]
    elif "observation" in message:
        running.observations += 1
        if running.observations > 1:
            return "the worker answered twice"
        running.observation = message["observation"]
    return ""


def _reap(running: _Running) -> int | None:
    """Return the wait status of a worker that is our own child, when it has ended; its children go with it."""
    assert running.process is not None
    if os.waitid(os.P_PID, running.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        return None
    _kill(running)  # while it is not reaped, its number can be nobody else's group
    code = running.process.wait()
    return -code if code < 0 else code << 8


def _kill(running: _Running) -> None:
    """Kill the worker's process group, which it leads: with it go g++ and whatever else it started."""
    if running.pid is not None:
        with contextlib.suppress(OSError):
            os.killpg(running.pid, signal.SIGKILL)


def _execution(running: _Running) -> Execution:
    status = running.status or 0
    signaled = os.WIFSIGNALED(status)
    ending = Ending(
        exit_code=None if signaled else os.waitstatus_to_exitcode(status),
        signal=os.WTERMSIG(status) if signaled else None,
        timed_out=running.timed_out,
        phase=running.phase,
    )
    seconds = time.monotonic() - running.begun
    cut = "the worker's last message was cut off" if running.buffer else ""
    return Execution(
        job=running.job,
        observation=running.observation,
        ending=ending,
        seconds=seconds,
        isolation=running.isolation,
        note=running.note or cut,
        # without an answer it is a process that died, whatever it wanted to say
        problem=running.problem or (cut if running.observations else ""),
    )
