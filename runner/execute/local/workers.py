"""The runner's end of a worker: a process that runs one case."""

import contextlib
import dataclasses
import json
import os
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from runner.core.protocol import loads
from runner.execute.base import Execution, Warmup
from runner.execute.local.running import LocalJob, Running


@dataclass
class Worker:
    """A worker process, from before its start until after its end."""

    number: int
    key: str
    """Of the environment that it was started with."""
    control: socket.socket
    isolation: str = "fork"
    """``fork`` or ``process``."""
    gpus: tuple[int, ...] = ()
    """The GPUs that it sees, by number among those that the run sees; empty for all."""
    note: str = ""
    pid: int | None = None
    process: "subprocess.Popen[bytes] | None" = None
    pidfd: int | None = None
    status: int | None = None
    is_warm: bool = True
    """False while it warms up: while it does the one-time work of a first compile."""
    warm_until: float = 0.0
    """The moment by which it must be warm."""
    warmup: Warmup = field(default_factory=Warmup)
    """Its warm-up, when that is over."""
    broke_protocol: bool = False
    """Whether it sent a message that the worker's own code does not send in this state."""
    is_retired: bool = False
    """It gets no case."""
    is_abandoned: bool = False
    """Whether its case was finished without waiting for the end of its process."""
    left_over: str = ""
    """A note about processes that outlived its case."""
    running: Running | None = None
    is_done: bool = False
    """Whether it has had its case."""

    @property
    def has_ended(self) -> bool:
        """Whether the process and its children are gone."""
        return self.status is not None

    @property
    def is_idle(self) -> bool:
        """Whether it can be given a case."""
        return self.is_warm and self.running is None and not (self.is_done or self.is_retired or self.has_ended)

    def warm_up(self, kinds: list[str], until: float) -> None:
        """Start its warm-up: the one-time work of a first compile."""
        self.is_warm, self.warm_until = False, until
        self.warmup = Warmup(begun=time.time())
        with contextlib.suppress(OSError):
            self.control.send(json.dumps({"warm": kinds, "gpus": self.gpus}).encode())

    def give(self, local: LocalJob) -> Running:
        """Give it its case. The end of a lost worker is detected elsewhere, not here."""
        self.running, write = Running.begin(local)
        message = json.dumps({"plan": local.plan, "word": self.running.word, "gpus": self.gpus}).encode()
        with contextlib.suppress(OSError):
            socket.send_fds(self.control, [message], [write, *self.running.outputs])
        os.close(write)
        return self.running

    def listen(self) -> bool:
        """Handle a message on its control socket; return False if it has hung up."""
        try:
            data = self.control.recv(1 << 16)
            message = loads(data) if data else None
        except OSError:
            return False
        except ValueError:
            message = {}
        if message is None:
            return False
        if isinstance(message, dict) and "warm" in message and not self.is_warm:
            self.is_warm = True
            problem = str(message.get("problem", ""))[:500]
            self.warmup = dataclasses.replace(self.warmup, seconds=time.time() - self.warmup.begun, problem=problem)
        else:
            self.broke_protocol = True
        return True

    def request_stack(self) -> None:
        """Request the stacks of all threads."""
        if self.pid is not None:
            if self.running is not None:
                self.running.mark_stack()
            with contextlib.suppress(OSError):
                os.kill(self.pid, signal.SIGUSR1)

    def kill(self) -> None:
        """Kill its process group, including g++ and other children."""
        if self.pid is not None and not self.has_ended:
            if self.running is not None and self.running.killed_at is None:
                self.running.killed_at = time.monotonic()
            with contextlib.suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)

    def abandon(self, seconds: float) -> None:
        """Continue without waiting for its end: it was killed, and the process is still there."""
        self.is_abandoned = self.is_retired = True
        try:
            state = Path(f"/proc/{self.pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()[0]
        except OSError:
            state = ""
        what = f"had not ended (state {state})" if state not in ("", "Z", "X") else "was not reported to have ended"
        self.left_over = f"its process {self.pid} {what} {seconds:g} s after it was killed"

    def reap(self) -> None:
        """Reap a worker that is the runner's own child, and kill its children."""
        if self.process is None or self.has_ended:
            return
        if os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return
        self.kill()  # its pid cannot be reused as a process group until it is reaped
        code = self.process.wait()
        self.status = -code if code < 0 else code << 8

    def finish(self) -> Execution:
        """Return the execution of its case, which is over."""
        running = self.running
        assert running is not None
        # its children, which may hold the pipe, have been killed already
        running.finish()
        self.running, self.is_done = None, True
        left_over = running.left_over(self.left_over)
        seconds = time.monotonic() - running.begun
        return Execution(
            job=running.job,
            observation=running.inbox.observation,
            ending=running.ending(self.status),
            seconds=seconds,
            begun=time.time() - seconds,
            warmup=self.warmup,
            isolation=self.isolation,
            worker=self.number,
            stack_from=0 if running.is_cut else running.stack_from,  # the offset is invalid after the file was cut
            note=self.note or left_over or running.note,
            problem=running.problem,
            left_over=left_over,
        )

    def close(self) -> None:
        """Hang up."""
        self.control.close()
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None
        if self.running is not None:
            self.running.close()
