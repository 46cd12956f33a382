"""The case that a worker runs: its pipe, its output files, its deadline, and how it ended."""

import contextlib
import ctypes
import os
import secrets
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.core.observation import Ending
from runner.core.protocol import MAX_MESSAGE, loads
from runner.execute.base import Job

OUTPUTS = ("stdout.txt", "stderr.txt")
"""The files in a case's folder that its worker prints into."""

MOST = 64 << 20
"""The maximum size in bytes of each output file; a larger file is cut to its end."""

END = 1 << 20
"""The size of that end in bytes."""

LOST = f"[more than {MOST >> 20} MiB were printed: what stood here is lost]\n".encode("ascii")

_OUTPUT_FLAGS = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_KEEP_SIZE, _PUNCH_HOLE = 1, 2

_libc = ctypes.CDLL(None, use_errno=True)

_CUT = "the worker's last message was cut off"

_OVERSTAYED = "its worker had answered and did not end, so it was killed"


class Inbox:
    """The runner's end of a case's pipe. Its messages are untrusted."""

    def __init__(self, descriptor: int, word: str) -> None:
        os.set_blocking(descriptor, False)
        self._word = word
        self.descriptor = descriptor
        self.phase = "import"
        self.step: int | None = None
        """The step that it began last, from 0."""
        self.observation: Any = None
        self.has_answer = False
        self.problem = ""
        """How the worker broke the protocol; no further message is read then."""
        self.is_flooded = False
        self.is_at_end = False
        """Whether the stream has ended. The descriptor stays open, so that its number is not reused while the engine watches it."""
        self._is_closed = False
        self._buffer = bytearray()
        self._received = 0

    @property
    def is_cut_off(self) -> bool:
        """Whether the last message is incomplete."""
        return bool(self._buffer)

    def read(self) -> bool:
        """Read available data; return whether there was any. At the end of the stream ``is_at_end`` is set."""
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
            if not self.has_answer:
                self.problem = f"the worker sent more than {MAX_MESSAGE >> 20} MiB"
        if not self.problem:
            self._take(data)
        return True

    def drain(self) -> None:
        """Read all available data, up to the limit: a child of the worker may still write."""
        while not self.is_at_end and not self.is_flooded and self.read():
            pass

    def close(self) -> None:
        """Close the pipe, which the engine no longer watches."""
        self.is_at_end = True
        if not self._is_closed:
            self._is_closed = True
            os.close(self.descriptor)

    def _take(self, data: bytes) -> None:
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._take_message(bytes(self._buffer) + line)
            self._buffer.clear()
            if self.problem:
                return
        self._buffer += rest

    def _take_message(self, line: bytes) -> None:
        try:
            message = loads(line)
        except ValueError as error:
            if self.has_answer:
                return  # a child with the pipe may write until it is killed, so later bytes are ignored: reading them would be a race
            self.problem = f"the worker sent a message that is {error}"
            return
        if not isinstance(message, dict):
            self.problem = "the worker sent a message that is no map"
        elif "phase" in message:
            self.phase = str(message["phase"])[:100]
        elif "step" in message:
            self.step = message["step"] if isinstance(message["step"], int) else None
        elif "observation" in message:
            if self.has_answer:
                self.problem = "the worker answered twice"
                return
            if message.get("word") != self._word:
                self.problem = "an observation came without the word that its worker was given: code of the case sent it"
                return
            self.has_answer = True
            self.observation = message["observation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalJob:
    """A job with its paths on this machine."""

    job: Job
    plan: str
    """The plan's file, or ``facts``."""
    folder: Path
    """Where the worker prints."""


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
    """Where in its standard error its stack begins, once its worker was asked for it."""
    is_cut: bool = False
    """Whether some of what it printed is lost."""
    answered_at: float | None = None
    """When its observation had come."""
    overstayed: bool = False
    """Whether it was killed because it did not end after its answer."""
    word: str = ""
    """A token that its worker sends with its observation and at the end of the case; code of the case cannot read it."""

    @classmethod
    def begin(cls, local: LocalJob) -> "tuple[Running, int]":
        """Open the pipe and the output files of a job; return the case and the worker's end of the pipe, which the caller closes."""
        local.folder.mkdir(parents=True, exist_ok=True)
        read, write = os.pipe()
        word = secrets.token_hex(16)
        now = time.monotonic()
        files = tuple(os.open(local.folder / name, _OUTPUT_FLAGS, 0o644) for name in OUTPUTS)
        return cls(local.job, Inbox(read, word), now, now + local.job.timeout, outputs=files, word=word), write

    def restart_clock(self) -> None:
        """Start its deadline now: it was given to a worker before the worker's process existed."""
        self.begun = time.monotonic()
        self.deadline = self.begun + self.job.timeout

    def read(self) -> None:
        """Read the messages of its worker."""
        self.inbox.read()
        if self.inbox.has_answer and self.answered_at is None:
            self.answered_at = time.monotonic()

    def mark_stack(self) -> None:
        """Note where in its standard error its stack will begin."""
        if self.outputs:
            self.stack_from = os.fstat(self.outputs[OUTPUTS.index("stderr.txt")]).st_size

    def bound_output(self) -> None:
        """Limit the size of its output files."""
        for descriptor in self.outputs:
            self.is_cut |= bound(descriptor)

    def finish(self) -> None:
        """Read the rest of the pipe, cut the output files to their limit, and close the descriptors."""
        self.inbox.drain()
        for descriptor in self.outputs:
            self.is_cut |= cut(descriptor)
        self.close()

    def close(self) -> None:
        """Close the descriptors."""
        self.inbox.close()
        for descriptor in self.outputs:
            os.close(descriptor)
        self.outputs = ()

    def ending(self, status: int | None) -> Ending:
        """Return its ending. ``status`` is that of the worker's process; None if the process continues or is not waited for."""
        # one that goes on has ended its case as it should, and of one that is not waited for all is known that will be judged
        if status is None:
            status = signal.SIGKILL if self.killed_at is not None else 0
        if self.overstayed and status == signal.SIGKILL:
            status = 0  # it had answered, and we killed it
        signaled = os.WIFSIGNALED(status)
        return Ending(
            exit_code=None if signaled else os.waitstatus_to_exitcode(status),
            signal=os.WTERMSIG(status) if signaled else None,
            timed_out=self.timed_out,
            phase=self.inbox.phase,
            step=self.inbox.step,
        )

    @property
    def note(self) -> str:
        """Notes about lost messages or lost output."""
        if self.inbox.is_cut_off:
            return _CUT
        return f"it printed more than {MOST >> 20} MiB, of which the first are lost" if self.is_cut else ""

    @property
    def problem(self) -> str:
        """How its worker broke the protocol."""
        # without an answer, the process died; an incomplete message does not matter
        return self.inbox.problem or (_CUT if self.inbox.is_cut_off and self.inbox.has_answer else "")

    def left_over(self, of_worker: str) -> str:
        """Return a note about processes that outlived the case; ``of_worker`` is the note of the worker."""
        return "; ".join(filter(None, [_OVERSTAYED if self.overstayed else "", of_worker]))


def bound(descriptor: int) -> bool:
    """Punch a hole into an open output file, up to its end, to free disk space; return whether data was removed."""
    found = os.fstat(descriptor)
    # a file system may set more aside than there is, and less where there is a hole already
    if min(found.st_blocks * 512, found.st_size) <= MOST:
        return False
    # a hole, because between reading the end and cutting the file off the last line may come
    begin, length = ctypes.c_int64(0), ctypes.c_int64(found.st_size - END)
    if _libc.fallocate(descriptor, _KEEP_SIZE | _PUNCH_HOLE, begin, length) != 0:
        _cut(descriptor, found.st_size)  # not every file system knows holes
    return True


def cut(descriptor: int) -> bool:
    """Cut the output file of a finished case to its end if it is too long; return whether it was."""
    size = os.fstat(descriptor).st_size
    if size <= MOST:
        return False
    _cut(descriptor, size)
    return True


def _cut(descriptor: int, size: int) -> None:
    with contextlib.suppress(OSError):  # no space left on the device: the run continues
        end = os.pread(descriptor, END, size - END)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, LOST + end)
