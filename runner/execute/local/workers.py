"""The runner's end of a worker: a process that is given cases one after another."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from runner.core.protocol import loads
from runner.execute.base import SHARED, Execution
from runner.execute.local.running import LocalJob, Running


@dataclass
class Worker:
    """A process from before its start to after its end."""

    number: int
    key: str
    """Of the environment that it was started with."""
    control: socket.socket
    isolation: str
    """``fork``, ``process`` or ``shared``."""
    note: str = ""
    pid: int | None = None
    process: "subprocess.Popen[bytes] | None" = None
    pidfd: int | None = None
    status: int | None = None
    is_warm: bool = True
    """False while it still does what every first compile of a process does once."""
    warm_until: float = 0.0
    """The moment by which it must be warm."""
    done: str | None = None
    """Set when it has sent that its case is over: what was contaminated then, or nothing. A worker of one case just ends."""
    broke_protocol: bool = False
    """Whether it sent what our own code would not have sent then."""
    is_retired: bool = False
    """It gets no further case."""
    contaminated: str = ""
    """What its last case changed of what measures cases."""
    group: str = ""
    """Whose cases it runs."""
    used_at: float = 0.0
    """When its last case was over."""
    is_abandoned: bool = False
    """Whether its case was finished without waiting for the end of its process, which may come later."""
    left_over: str = ""
    """What stays of it after its case, for a person."""
    cases: int = 0
    running: Running | None = None
    first_resident: int = 0
    """Bytes of memory when it had its first case behind it."""

    @property
    def is_shared(self) -> bool:
        """Whether it may run several cases."""
        return self.isolation == SHARED

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone, and with it all that it had started."""
        return self.status is not None

    @property
    def is_through(self) -> bool:
        """Whether its case is over: the process is gone, is not waited for, or has sent that it goes on."""
        return self.has_ended or self.is_abandoned or self.done is not None

    @property
    def is_idle(self) -> bool:
        """Whether it can be given a case."""
        return self.running is None and self.is_warm and not self.is_retired and not self.has_ended

    def warm_up(self, kinds: list[str], until: float) -> None:
        """Let it do what a first compile does once."""
        self.is_warm, self.warm_until = False, until
        with contextlib.suppress(OSError):
            self.control.send(json.dumps({"warm": kinds}).encode())

    def give(self, local: LocalJob, *, is_last: bool) -> Running:
        """Give it a case. A worker that is gone is noticed by its end, not here."""
        self.group, self.contaminated = local.job.group, ""
        self.running, write = Running.begin(local)
        message = json.dumps({"plan": local.plan, "last": is_last, "word": self.running.word}).encode()
        with contextlib.suppress(OSError):
            socket.send_fds(self.control, [message], [write, *self.running.outputs])
        os.close(write)
        return self.running

    def listen(self) -> bool:
        """Take what it sends of itself; False when it has hung up."""
        try:
            data = self.control.recv(1 << 16)
            message = loads(data) if data else None
        except OSError:
            return False
        except ValueError:
            message = {}
        if message is None:
            return False
        sent = message if isinstance(message, dict) else {}
        if "done" in sent and self.running is not None and sent.get("word") == self.running.word:
            self.done = str(sent["done"])[:500]
            self.contaminated = str(sent.get("contaminated", ""))[:500]
        elif "warm" in sent and not self.is_warm:
            self.is_warm = True
        else:
            self.broke_protocol = True
        return True

    def request_stack(self) -> None:
        """Let it print every thread's stack."""
        if self.pid is not None:
            if self.running is not None:
                self.running.mark_stack()
            with contextlib.suppress(OSError):
                os.kill(self.pid, signal.SIGUSR1)

    def kill(self) -> None:
        """Kill its process group, which it leads: with it go g++ and whatever else it started."""
        if self.pid is not None and not self.has_ended:
            if self.running is not None and self.running.killed_at is None:
                self.running.killed_at = time.monotonic()
            with contextlib.suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)

    def abandon(self, seconds: float) -> None:
        """Go on without its end: it was killed, and the system still holds it."""
        self.is_abandoned = self.is_retired = True
        state = state_of(self.pid)
        what = f"had not ended (state {state})" if state not in ("", "Z", "X") else "was not reported to have ended"
        self.left_over = f"its process {self.pid} {what} {seconds:g} s after it was killed"

    def reap(self) -> None:
        """Take the end of a worker that is our own child; its children go with it."""
        if self.process is None or self.has_ended:
            return
        if os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return
        self.kill()  # while it is not reaped, its number can be nobody else's group
        code = self.process.wait()
        self.status = -code if code < 0 else code << 8

    def finish(self, note: str = "") -> Execution:
        """Return what became of its case, which is over: the worker has ended, or has sent that it is done with it."""
        running = self.running
        assert running is not None
        # who ended it has killed the children that it left behind, who might hold the pipe
        running.finish()
        self.running = self.done = None
        self.cases += 1
        self.used_at = time.monotonic()
        left_over = running.left_over(self.left_over)
        return Execution(
            job=running.job,
            observation=running.inbox.observation,
            ending=running.ending(self.status),
            seconds=time.monotonic() - running.begun,
            isolation=self.isolation,
            after=self.cases - 1,
            worker=self.number,
            stack_from=0 if running.is_cut else running.stack_from,  # what was cut has moved
            note=self.note or left_over or note or running.note,
            problem=running.problem,
            left_over=left_over,
            contaminated=self.contaminated,
        )

    def close(self) -> None:
        """Hang up."""
        self.control.close()
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None
        if self.running is not None:
            self.running.close()


def state_of(pid: int | str | None) -> str:
    """Return the letter of a process's state; empty when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()[0]
    except OSError:
        return ""
