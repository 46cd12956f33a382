"""Runs a program of the machine, such as a compiler that tells its version, within limits of time and output."""

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

SECONDS = 30.0
"""How long a program may take to tell its version."""

_BYTES = 64_000
"""How much of its output is read: the end."""


@dataclass(frozen=True, slots=True)
class Printed:
    """What a program printed, on both streams, and how it ended."""

    text: str
    problem: str = ""
    """Why it gave no answer; empty when it ended with 0."""

    @property
    def first_line(self) -> str:
        """The first line that is not empty."""
        return next((line.strip() for line in self.text.splitlines() if line.strip()), "")


class RunProgram(Protocol):
    """Runs a command and returns what it printed; tests pass another one."""

    def __call__(self, command: Sequence[str], *, given: bytes = b"", seconds: float = SECONDS) -> Printed:
        """Run it; ``given`` is its standard input."""


def run_program(
    command: Sequence[str], *, given: bytes = b"", seconds: float = SECONDS, environ: Mapping[str, str] | None = None
) -> Printed:
    """Run a command in a session of its own, kill the whole session at the deadline, and return the end of what it printed."""
    with tempfile.TemporaryFile() as stream, tempfile.TemporaryFile() as source:
        source.write(given)
        source.seek(0)
        try:
            child = subprocess.Popen(list(command), stdin=source, stdout=stream, stderr=stream, env=environ, start_new_session=True)
        except OSError as error:
            return Printed("", f"it cannot be started: {error.strerror}")
        try:
            code: int | None = child.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            # a driver of a compiler starts other programs, which would outlive it
            with contextlib.suppress(OSError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - _BYTES))
        text = stream.read(_BYTES).decode("utf-8", "replace")
    return Printed(text, _ending(code, seconds))


def _ending(code: int | None, seconds: float) -> str:
    if code is None:
        return f"it did not end within {seconds:.0f} s"
    if code < 0:
        return f"it was ended by signal {-code}"
    return f"it ended with exit code {code}" if code else ""
