"""The runner's end of a worker and its case: its pipe, its control socket, its output files, its
deadline, its end, its memory.
"""

import contextlib
import ctypes
import dataclasses
import json
import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch_conformance.execute.executor_protocol import Execution, Job, Warmup
from torch_conformance.model.case_facts import Ending
from torch_conformance.model.protocol import MAX_MESSAGE, loads

OUTPUTS = ("stdout.txt", "stderr.txt")
"""The files in a case's folder that its worker prints into: standard output and standard error."""

MOST = 64 << 20
"""The maximum size in bytes of each output file; a larger file is cut to its end."""

END = 1 << 20
"""The size of that end in bytes."""

LOST = f"[more than {MOST >> 20} MiB were printed: the output before this line is lost]\n".encode(
    "ascii"
)

_OUTPUT_FLAGS = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_KEEP_SIZE, _PUNCH_HOLE = 1, 2

_libc = ctypes.CDLL(None, use_errno=True)

_CUT = "the worker's last message was cut off"


class Running:
    """A case from the moment its worker has it, with the runner's end of its pipe, whose messages
    are untrusted.
    """

    def __init__(self, job: Job, descriptor: int, word: str, outputs: Sequence[int] = ()) -> None:
        os.set_blocking(descriptor, False)
        self.job = job
        self.descriptor = descriptor
        self.outputs = outputs
        """The files that it prints into."""
        self._word = word
        self.begun = self.deadline = 0.0
        self.phase = "import"
        self.step: int | None = None
        """The step that it began last, from 0."""
        self.observation: Any = None
        self.answered_at: float | None = None
        """When its observation had come."""
        self.problem = ""
        """How the worker broke the protocol; no further message is read then."""
        self.is_flooded = False
        self.is_at_end = False
        """Whether the stream has ended.

        The descriptor stays open, so that its number is not reused while the engine watches it.
        """
        self.rest = bytearray()
        """The begin of a message whose end has not come."""
        self._received = 0
        self._is_closed = False
        self.timed_out = False
        self.killed_at: float | None = None
        self.overstayed = False
        """Whether it was killed because it did not end after its answer."""
        self.stack_from = 0
        """Where in its standard error its stack begins, once its worker was asked for it."""
        self.is_cut = False
        """Whether some of what it printed is lost."""

    def restart_clock(self) -> None:
        """Start its deadline now: when its worker has it, and again when the worker's process
        exists.
        """
        self.begun = time.monotonic()
        self.deadline = self.begun + self.job.timeout

    def read(self) -> bool:
        """Read available data; return whether there was any.

        At the end of the stream ``is_at_end`` is set.
        """
        if self.is_at_end:
            return False
        try:
            data = os.read(self.descriptor, 1 << 20)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.is_at_end = True
            return False
        self._received += len(data)
        if self._received > MAX_MESSAGE:
            self.is_flooded = True
            if self.answered_at is None:
                self.problem = f"the worker sent more than {MAX_MESSAGE >> 20} MiB"
        *lines, rest = data.split(b"\n")
        for line in lines:
            if not self.problem:
                self._take(bytes(self.rest) + line)
                self.rest.clear()
        if not self.problem:
            self.rest += rest
        return True

    def drain(self) -> None:
        """Read all available data, up to the limit: a child of the worker may still write."""
        while not self.is_flooded and self.read():
            pass

    def close(self) -> None:
        """Close the descriptors, which the engine no longer watches."""
        self.is_at_end = True
        if not self._is_closed:
            self._is_closed = True
            for descriptor in (self.descriptor, *self.outputs):
                os.close(descriptor)

    def _take(self, line: bytes) -> None:
        try:
            message = loads(line)
        except ValueError as error:
            if self.answered_at is None:
                # later a child with the pipe may write until it is killed: reading that would be a
                # race
                self.problem = f"the worker sent a message that is {error}"
            return
        if not isinstance(message, dict):
            self.problem = "the worker sent a message that is not a map"
        elif "phase" in message:
            self.phase = str(message["phase"])[:100]
        elif "step" in message:
            self.step = message["step"] if isinstance(message["step"], int) else None
        elif "observation" in message:
            if self.answered_at is not None:
                self.problem = "the worker answered twice"
            elif message.get("word") != self._word:
                self.problem = (
                    "an observation lacks the token of its worker: code of the case sent it"
                )
            else:
                self.answered_at = time.monotonic()
                self.observation = message["observation"]


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
    cpu: float = 0.0
    """Seconds of processors that it used with the children that it waited for, once it has ended.
    """
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

    def warm_up(self, kinds: list[str], until: float) -> None:
        """Start its warm-up: the one-time work of a first compile."""
        self.is_warm, self.warm_until = False, until
        self.warmup = Warmup(begun=time.time())
        with contextlib.suppress(OSError):
            self.control.send(json.dumps({"warm": kinds, "gpus": self.gpus}).encode())

    def give(self, job: Job, plan: str, folder: Path) -> Running:
        """Give it its case, which prints into a folder.

        The end of a lost worker is detected elsewhere, not here.

        A word goes with the case, and comes back with its observation; code of the case cannot read
        it.
        """
        folder.mkdir(parents=True, exist_ok=True)
        read, write = os.pipe()
        word = secrets.token_hex(16)
        outputs = tuple(os.open(folder / name, _OUTPUT_FLAGS, 0o644) for name in OUTPUTS)
        self.running = Running(job, read, word, outputs)
        self.running.restart_clock()
        message = json.dumps({"plan": plan, "word": word, "gpus": self.gpus}).encode()
        with contextlib.suppress(OSError):
            socket.send_fds(self.control, [message], [write, *outputs])
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
            seconds, context = time.time() - self.warmup.begun, message.get("context")
            self.warmup = dataclasses.replace(
                self.warmup,
                seconds=seconds,
                context=context if isinstance(context, float) and 0 < context < seconds else 0.0,
                problem=str(message.get("problem", ""))[:500],
            )
        else:
            self.broke_protocol = True
        return True

    def request_stack(self) -> None:
        """Request the stacks of all threads, and note where in its standard error they will
        begin.
        """
        if self.pid is not None and self.running is not None:
            self.running.stack_from = os.fstat(self.running.outputs[1]).st_size
            with contextlib.suppress(OSError):
                os.kill(self.pid, signal.SIGUSR1)

    def retire(self) -> None:
        """End a worker without a running case: it gets none."""
        self.is_retired = True
        self.kill()

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
            state = (
                Path(f"/proc/{self.pid}/stat")
                .read_text("ascii", "replace")
                .rpartition(")")[2]
                .split()[0]
            )
        except OSError:
            state = ""
        state_text = (
            f"had not ended (state {state})"
            if state not in ("", "Z", "X")
            else "was not reported to have ended"
        )
        self.left_over = f"its process {self.pid} {state_text} {seconds:g} s after it was killed"

    def reap(self) -> None:
        """Reap a worker that is the runner's own child, and kill its children."""
        if self.process is None or self.has_ended:
            return
        if os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return
        self.kill()  # its pid cannot be reused as a process group until it is reaped
        _, self.status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(self.status)
        self.cpu = usage.ru_utime + usage.ru_stime

    def finish(self) -> Execution:
        """Return the execution of its case, which is over."""
        running = self.running
        assert running is not None
        # its children, which may hold the pipe, have been killed already
        running.drain()
        for descriptor in running.outputs:
            running.is_cut |= cut(descriptor)
        running.close()
        self.running, self.is_done = None, True

        status = self.status
        if status is None:
            # it goes on, having ended its case as it should; of one that is not waited for, all
            # that is judged is known
            status = signal.SIGKILL if running.killed_at is not None else 0
        if running.overstayed and status == signal.SIGKILL:
            status = 0  # it had answered, and we killed it
        code = os.waitstatus_to_exitcode(status)
        overstayed = (
            "its worker had answered and did not end, so it was killed"
            if running.overstayed
            else ""
        )
        left_over = "; ".join(filter(None, [overstayed, self.left_over]))
        lost = (
            f"it printed more than {MOST >> 20} MiB, of which the first are lost"
            if running.is_cut
            else ""
        )
        seconds = time.monotonic() - running.begun
        return Execution(
            job=running.job,
            observation=running.observation,
            ending=Ending(
                exit_code=code if code >= 0 else None,
                signal=-code if code < 0 else None,
                timed_out=running.timed_out,
                phase=running.phase,
                step=running.step,
            ),
            seconds=seconds,
            cpu=self.cpu,
            begun=time.time() - seconds,
            warmup=self.warmup,
            isolation=self.isolation,
            worker=self.number,
            stack_from=0
            if running.is_cut
            else running.stack_from,  # the offset is invalid after the file was cut
            note=self.note or left_over or (_CUT if running.rest else lost),
            # without an answer, the process died; an incomplete message does not matter
            problem=running.problem
            or (_CUT if running.rest and running.answered_at is not None else ""),
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


def free_beginning(descriptor: int) -> bool:
    """Punch a hole into an open output file, up to its end, to free disk space; return whether data
    was removed.
    """
    status = os.fstat(descriptor)
    # a file system may set more aside than there is, and less where there is a hole already
    if min(status.st_blocks * 512, status.st_size) <= MOST:
        return False
    # a hole, because between reading the end and cutting the file off the last line may come
    begin, length = ctypes.c_int64(0), ctypes.c_int64(status.st_size - END)
    if _libc.fallocate(descriptor, _KEEP_SIZE | _PUNCH_HOLE, begin, length) != 0:
        cut(descriptor)  # not every file system knows holes
    return True


def cut(descriptor: int) -> bool:
    """Cut the output file of a finished case to its end if it is too long; return whether it
    was.
    """
    size = os.fstat(descriptor).st_size
    if size <= MOST:
        return False
    with contextlib.suppress(OSError):  # no space left on the device: the run continues
        end = os.pread(descriptor, END, size - END)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, LOST + end)
    return True


# -- memory ----------------------------------------------------------------------------------------

# RSS is cheap to read, but counts shared pages in each process: sixteen forks of a process of 300
# MiB have 4.8 GiB RSS and take a few. So RSS is read first; PSS is read only for workers whose RSS
# is above their limit, because the kernel walks over all its pages. A scan of all processes of a
# machine takes milliseconds: with many processes, there are fewer scans.

INTERVAL = 0.1
"""The minimum seconds between two measurements."""

MOST_SHARE = 0.05
"""The maximum share of time for measurements."""

_PROC = Path("/proc")
_RESIDENT = (b"RssAnon:", b"RssShmem:", b"VmSwap:")
"""Memory that only the process can free; the kernel can drop pages of files."""

_PROPORTIONAL = (b"Pss_Anon:", b"Pss_Shmem:", b"SwapPss:")


class MemoryWatch:
    """Measures the memory use of workers periodically."""

    def __init__(self) -> None:
        self.due = 0.0
        """When the next measurement is due."""

    def look(self, limits: Mapping[int, int]) -> dict[int, int]:
        """Return the memory use of workers above their limit, by the leader of their session; empty
        if no measurement is due.
        """
        begun = time.monotonic()
        if not limits or begun < self.due:
            return {}
        over = above(limits)
        ended = time.monotonic()
        self.due = ended + max(INTERVAL, (ended - begun) / MOST_SHARE)
        return over


def above(limits: Mapping[int, int], proc: Path = _PROC) -> dict[int, int]:
    """Return the bytes of workers above their limit, by the leader of their session.

    A worker's processes are its session, their descendants, and the sessions that these started.
    """
    following: dict[int, list[int]] = {}
    for entry in filter(str.isdecimal, os.listdir(proc)):
        # the name of a process is in parentheses and may contain parentheses
        fields = _read(f"{proc}/{entry}/stat").rpartition(b")")[2].split()
        for other in (fields[1], fields[3]) if len(fields) > 3 else ():
            # its parent, and the leader of its session
            following.setdefault(int(other), []).append(int(entry))
    over: dict[int, int] = {}
    for leader, limit in limits.items():
        pids: set[int] = set()
        waiting = [leader]
        while waiting:
            if (pid := waiting.pop()) not in pids:
                pids.add(pid)
                waiting += following.get(pid, ())
        if sum(_amount(f"{proc}/{pid}/status", _RESIDENT) for pid in pids) > limit:
            # a process whose pages cannot be read counts with all of them
            used = sum(
                _amount(f"{proc}/{pid}/smaps_rollup", _PROPORTIONAL)
                or _amount(f"{proc}/{pid}/status", _RESIDENT)
                for pid in pids
            )
            if used > limit:
                over[leader] = used
    return over


def _amount(path: str, names: tuple[bytes, ...]) -> int:
    """Return the sum of these lines of a file in ``/proc``, in bytes."""
    return sum(
        int(line.split()[1]) << 10 for line in _read(path).splitlines() if line.startswith(names)
    )


def _read(path: str) -> bytes:
    """Return the content of a file in ``/proc``; empty for a process that has ended, or without
    permission.
    """
    try:
        with open(path, "rb", buffering=0) as stream:
            return stream.read(1 << 16)
    except OSError:
        return b""
