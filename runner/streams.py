"""Writing that may fail: standard output and error outlive their readers, and a file that has no room is told by its name.

A run of an hour is not lost because the `head` that its progress went to has ended. Imports nothing heavy: every command loads it.
"""

import contextlib
import errno
import io
import select
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_READER_LEFT = (errno.EPIPE, errno.EIO)
"""What writing says when a pipe has no reader any more, or the terminal was closed."""

OUT_OF_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
"""What writing says where nothing more can be written: the machine's state, never a bug of this program."""


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Say in an error of the system which file it was: writing to an open one does not."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


class _Output(io.FileIO):
    """Writes until that fails; from then on what is written goes nowhere."""

    problem: OSError | None = None

    def write(self, data: "ReadableBuffer", /) -> int:
        while self.problem is None:
            try:
                if (count := super().write(data)) is not None:
                    return count
            except OSError as error:
                self.problem = error
            else:  # somebody made the terminal or the pipe non-blocking, and it has no room just now
                select.select([], [self.fileno()], [])
        return memoryview(data).nbytes


class Guard:
    """What became of standard output; ``problem`` says why it is not whole, and is empty when its reader merely left."""

    def __init__(self) -> None:
        self._output: _Output | None = None

    @property
    def problem(self) -> str:
        """Why standard output could not be written."""
        error = self._output.problem if self._output else None
        return "" if error is None or error.errno in _READER_LEFT else f"cannot write to standard output: {error.strerror}"

    def watch(self, output: _Output) -> None:
        """Tell of this stream."""
        self._output = output


@contextlib.contextmanager
def guarded() -> Iterator[Guard]:
    """Put streams that outlive their readers in the place of standard output and error."""
    kept = sys.stdout, sys.stderr
    guard = Guard()
    if (replaced := _replacement(sys.stdout)) is not None:
        sys.stdout = replaced[0]
        guard.watch(replaced[1])
    if (replaced := _replacement(sys.stderr)) is not None:
        sys.stderr = replaced[0]
    try:
        yield guard
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        sys.stdout, sys.stderr = kept


def _replacement(stream: TextIO) -> tuple[TextIO, _Output] | None:
    """Return a stream to the same place; None for one that is no file, as tests have."""
    try:
        descriptor = stream.fileno()
        stream.flush()
    except (AttributeError, OSError, ValueError):
        return None
    output = _Output(descriptor, "w", closefd=False)
    # what a stranger's file holds is shown in whatever this terminal can show
    text = io.TextIOWrapper(
        io.BufferedWriter(output),
        encoding=stream.encoding,
        errors="backslashreplace",
        line_buffering=stream.isatty() or stream is sys.stderr,
    )
    return text, output
