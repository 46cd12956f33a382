"""The case that a worker runs: its pipe, its output files, its deadline, and how it ended."""

import os
import secrets
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from runner.core.observation import Ending
from runner.execute.base import Job
from runner.execute.local import outputs
from runner.execute.local.inbox import Inbox

OUTPUTS = ("stdout.txt", "stderr.txt")
"""The files in a case's folder that its worker prints into."""

_OUTPUT_FLAGS = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

_CUT = "the worker's last message was cut off"

_OVERSTAYED = "its worker had answered and did not end, so it was killed"


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
            self.is_cut |= outputs.bound(descriptor)

    def finish(self) -> None:
        """Read the rest of the pipe, cut the output files to their limit, and close the descriptors."""
        self.inbox.drain()
        for descriptor in self.outputs:
            self.is_cut |= outputs.finish(descriptor)
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
        return f"it printed more than {outputs.MOST >> 20} MiB, of which the first are lost" if self.is_cut else ""

    @property
    def problem(self) -> str:
        """How its worker broke the protocol."""
        # without an answer, the process died; an incomplete message does not matter
        return self.inbox.problem or (_CUT if self.inbox.is_cut_off and self.inbox.has_answer else "")

    def left_over(self, of_worker: str) -> str:
        """Return a note about processes that outlived the case; ``of_worker`` is the note of the worker."""
        return "; ".join(filter(None, [_OVERSTAYED if self.overstayed else "", of_worker]))
