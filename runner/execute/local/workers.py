"""The runner's end of a worker: a process that is given cases one after another, and the case that it runs now."""

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from runner.core.model import Ending
from runner.core.protocol import loads
from runner.execute.local import outputs
from runner.execute.local.inbox import Inbox
from runner.plan.jobs import Execution, Job

_MOST_GROWTH = 1 << 30
"""Bytes by which a worker of several cases may grow after its first."""


@dataclass
class Running:
    """A case from the moment its worker has it."""

    job: Job
    inbox: Inbox
    begun: float
    deadline: float
    timed_out: bool = False
    killed_at: float | None = None
    outputs: tuple[int, ...] = ()
    """The files that it prints into."""
    stack_from: int = 0
    """Where in its standard error the answer begins when it is asked for its stack."""
    is_cut: bool = False
    """Whether some of what it printed is lost."""
    answered_at: float | None = None
    """When its observation had come."""
    overstayed: bool = False
    """Whether it was killed because it did not end after its answer."""
    word: str = ""
    """What its worker sends with its observation, and when it is done: code of the case does not know it."""

    def bound_output(self) -> None:
        """Let a flood of output fill no disk."""
        for descriptor in self.outputs:
            self.is_cut |= outputs.bound(descriptor)

    def finish_output(self) -> None:
        """Leave the end of what it printed."""
        for descriptor in self.outputs:
            self.is_cut |= outputs.finish(descriptor)

    def close(self) -> None:
        """Close the descriptors."""
        self.inbox.close()
        for descriptor in self.outputs:
            os.close(descriptor)
        self.outputs = ()


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
    """Set when it says that its case is over: what was odd then, or nothing. A worker of one case just ends."""
    spoke_out_of_turn: bool = False
    """Whether it said what our own code would not have said then."""
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
    _resident: int = 0
    """Bytes of memory when it had its first case behind it."""

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone, and with it all that it had started."""
        return self.status is not None

    @property
    def is_through(self) -> bool:
        """Whether its case is over: the process is gone, is not waited for, or says that it goes on."""
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

    def give(self, job: Job, *, is_last: bool) -> None:
        """Give it a case. A worker that is gone is noticed by its end, not here."""
        job.folder.mkdir(parents=True, exist_ok=True)
        if job.begin is not None:
            job.begin()
        read, write = os.pipe()
        now = time.monotonic()
        files = tuple(os.open(job.folder / name, _OUTPUT_FLAGS, 0o644) for name in OUTPUTS)
        self.group, self.contaminated = job.group, ""
        word = secrets.token_hex(16)
        self.running = Running(job, Inbox(read, word), now, now + job.timeout, outputs=files, word=word)
        message = json.dumps({"plan": job.plan, "last": is_last, "word": self.running.word}).encode()
        with contextlib.suppress(OSError):
            socket.send_fds(self.control, [message], [write, *files])
        os.close(write)

    def begin_case(self) -> None:
        """Let the time of its case begin: it was given one before there was a process to do it."""
        if self.running is not None:
            self.running.begun = time.monotonic()
            self.running.deadline = self.running.begun + self.running.job.timeout

    def listen(self) -> bool:
        """Take what it says of itself; False when it has hung up."""
        try:
            data = self.control.recv(1 << 16)
            message = loads(data) if data else None
        except OSError:
            return False
        except ValueError:
            message = {}
        if message is None:
            return False
        said = message if isinstance(message, dict) else {}
        if "done" in said and self.running is not None and said.get("word") == self.running.word:
            self.done = str(said["done"])[:500]
            self.contaminated = str(said.get("contaminated", ""))[:500]
        elif "warm" in said and not self.is_warm:
            self.is_warm = True
        else:
            self.spoke_out_of_turn = True
        return True

    def ask_for_stack(self) -> None:
        """Let it print every thread's stack."""
        if self.pid is not None:
            if self.running is not None and self.running.outputs:
                self.running.stack_from = os.fstat(self.running.outputs[OUTPUTS.index("stderr.txt")]).st_size
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

    def oddity(self) -> str:
        """Return why it should get no further case after this one; empty when nothing is odd."""
        children, resident = self._seen_by_system()
        if self.spoke_out_of_turn:
            return "it said what only the runner's own code may say"
        if children:
            return f"it left {children} process{'' if children == 1 else 'es'} behind"
        grown = resident - (self._resident or resident)
        self._resident = self._resident or resident
        if grown > _MOST_GROWTH:
            return f"it grew by {grown >> 20} MiB"
        return self.done or ""

    def _seen_by_system(self) -> tuple[int, int]:
        """Return how many processes it has started that are still there, and the bytes of its memory."""
        try:
            listed = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text("ascii").split()
            # orphans that have ended by themselves wait for a parent who never asks
            children = [pid for pid in listed if _is_alive(pid)]
            pages = Path(f"/proc/{self.pid}/statm").read_text("ascii").split()[1]
        except OSError:
            return 0, 0
        return len(children), int(pages) * os.sysconf("SC_PAGE_SIZE")

    def finish(self, note: str = "") -> Execution:
        """Return what became of its case, which is over: the worker has ended, or says that it is done with it."""
        running = self.running
        assert running is not None
        # who ended it has killed the children that it left behind, who might hold the pipe
        running.inbox.drain()
        running.finish_output()
        running.close()
        self.running = self.done = None
        self.cases += 1
        self.used_at = time.monotonic()
        left_over = "; ".join(filter(None, [_OVERSTAYED if running.overstayed else "", self.left_over]))
        return Execution(
            job=running.job,
            observation=running.inbox.observation,
            ending=self._ending(running),
            seconds=time.monotonic() - running.begun,
            isolation=self.isolation,
            after=self.cases - 1,
            worker=self.number,
            stack_from=0 if running.is_cut else running.stack_from,  # what was cut has moved
            note=self.note or left_over or note or _note(running),
            problem=_problem(running),
            left_over=left_over,
            contaminated=self.contaminated,
        )

    def _ending(self, running: Running) -> Ending:
        # one that goes on has ended its case as it should, and of one that is not waited for all is known that will be judged
        killed = signal.SIGKILL if running.killed_at is not None else 0
        status = self.status if self.status is not None else 0 if self.done is not None else killed
        if running.overstayed and status == signal.SIGKILL:
            status = 0  # it had answered, and we killed it
        signaled = os.WIFSIGNALED(status)
        return Ending(
            exit_code=None if signaled else os.waitstatus_to_exitcode(status),
            signal=os.WTERMSIG(status) if signaled else None,
            timed_out=running.timed_out,
            phase=running.inbox.phase,
            step=running.inbox.step,
        )

    def close(self) -> None:
        """Hang up."""
        self.control.close()
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None
        if self.running is not None:
            self.running.close()


OUTPUTS = ("stdout.txt", "stderr.txt")
"""The files in a case's folder that its worker prints into."""


_OUTPUT_FLAGS = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

_CUT = "the worker's last message was cut off"


_OVERSTAYED = "its worker had answered and did not end, so it was killed"


def _is_alive(pid: str) -> bool:
    return state_of(pid) not in ("", "Z", "X")


def state_of(pid: int | str | None) -> str:
    """Return the letter of a process's state; empty when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()[0]
    except OSError:
        return ""


def _note(running: Running) -> str:
    if running.inbox.is_cut_off:
        return _CUT
    return f"it printed more than {outputs.MOST >> 20} MiB, of which the first are lost" if running.is_cut else ""


def _problem(running: Running) -> str:
    # without an answer it is a process that died, whatever it wanted to say
    return running.inbox.problem or (_CUT if running.inbox.is_cut_off and running.inbox.has_answer else "")
