"""Writing that may fail: standard output and error outlive their readers, and a file that has no room is told by its name.

A run of an hour is not lost because the `head` that its progress went to has ended. Imports nothing heavy: every command loads it.
"""

import contextlib
import errno
import io
import os
import select
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

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


class Shown(str):
    """Text that is safe to show: ``output`` made it."""

    __slots__ = ()


class _Output(io.FileIO):
    """Writes until that fails; from then on what is written goes nowhere."""

    problem: OSError | None = None
    is_closed = False
    """Whether the program was started without this stream."""

    def write(self, data: "ReadableBuffer", /) -> int:
        if self.is_closed:
            self.problem = self.problem or OSError(errno.EBADF, "it is closed")
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


class _Escaping:
    """Escapes what is written to a stream, but for what ``output`` made safe already: argparse, tracebacks and libraries print too."""

    def __init__(self, stream: TextIO, *, redacts: bool) -> None:
        self._stream = stream
        self._redacts = redacts
        self._is_at_start = True

    def write(self, text: str, /) -> int:
        """Write a text, escaped; return its length."""
        shown = text if isinstance(text, Shown) else self._safe(text)
        if shown:
            self._stream.write(shown)
            self._is_at_start = not shown.rpartition("\n")[2].strip()
        return len(text)

    def _safe(self, text: str) -> str:
        from runner.core.escaping import plain

        if self._redacts:
            from runner.system.redaction import redacted

            text = redacted(text)
        # what follows other text on its line begins none
        return plain(text) if self._is_at_start else plain(f"x{text}")[1:]

    def writelines(self, texts: Iterable[str], /) -> None:
        """Write texts one after another."""
        for text in texts:
            self.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def guarded() -> Iterator[Guard]:
    """Put streams that outlive their readers, and escape what is written, in the place of standard output and error."""
    kept = sys.stdout, sys.stderr
    closed = _fill_closed()
    guard = Guard()
    streams: list[TextIO] = []
    for descriptor, stream in enumerate(kept, start=1):
        replaced = _replacement(stream, descriptor, is_closed=descriptor in closed)
        if replaced is not None and descriptor == 1:
            guard.watch(replaced[1])
        streams.append(replaced[0] if replaced is not None else stream)
    sys.stdout = cast(TextIO, _Escaping(streams[0], redacts=False))
    sys.stderr = cast(TextIO, _Escaping(streams[1], redacts=True))
    try:
        yield guard
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        sys.stdout, sys.stderr = kept


def _fill_closed() -> frozenset[int]:
    """Open /dev/null in the place of standard streams that are closed, and return which: a journal might take their numbers."""
    closed: list[int] = []
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            closed.append(descriptor)
            with contextlib.suppress(OSError):
                os.open(os.devnull, os.O_RDWR)  # the lowest free number
    return frozenset(closed)


def _replacement(stream: TextIO | None, number: int, *, is_closed: bool) -> tuple[TextIO, _Output] | None:
    """Return a stream to the same place; None for one that is no file, as tests have."""
    try:
        descriptor = number if stream is None else stream.fileno()
        if stream is not None:
            stream.flush()
    except (AttributeError, OSError, ValueError):
        return None
    output = _Output(descriptor, "w", closefd=False)
    output.is_closed = is_closed or stream is None
    # what a stranger's file holds is shown in whatever this terminal can show
    text = io.TextIOWrapper(
        io.BufferedWriter(output),
        encoding=stream.encoding if stream is not None else "utf-8",
        errors="backslashreplace",
        line_buffering=number == 2 or (stream is not None and stream.isatty()),
    )
    return text, output
