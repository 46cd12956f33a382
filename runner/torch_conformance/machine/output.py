"""Output of commands.

Only this module writes to standard output and error, so all output is escaped, and a closed reader
ends no run.

``line`` and ``lines`` print results on standard output. ``note`` and ``notes`` print messages on
standard error. Their text may come from specs, workers, file names and the environment. The streams
escape too, for output of argparse and tracebacks. This module imports nothing heavy, because every
command loads it.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import select
import sys

from torch_conformance.model import escaping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from pathlib import Path
    from typing import Any, TextIO

    from _typeshed import ReadableBuffer

_READER_LEFT = (errno.EPIPE, errno.EIO)
"""The errors of a write after the pipe's reader exited or the terminal was closed."""

OUT_OF_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
"""The errors of a write without space, quota or write permission.

They come from the machine and are never a bug of this program.
"""


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add the path to an ``OSError`` of the body: errors of writes to an open file have none."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


class Shown(str):
    """Text that the module ``output`` has escaped."""

    __slots__ = ()


class _Output(io.FileIO):
    """A file that discards output after the first write error."""

    problem: OSError | None = None
    is_closed = False
    """Whether the program was started without this stream."""

    def write(self, data: ReadableBuffer, /) -> int:
        if self.is_closed:
            self.problem = self.problem or OSError(errno.EBADF, "it is closed")
        while self.problem is None:
            try:
                if (count := super().write(data)) is not None:
                    return count
            except OSError as error:
                self.problem = error
            else:  # the terminal or the pipe is non-blocking, and its buffer is full
                select.select([], [self.fileno()], [])
        return memoryview(data).nbytes


class _Escaping:
    """A stream that escapes text, except text that ``output`` has escaped already. argparse,
    tracebacks and libraries print through it.
    """

    def __init__(self, stream: TextIO, *, redacts: bool) -> None:
        self._stream = stream
        self._redacts = redacts
        self._is_at_start = True

    def write(self, text: str, /) -> int:
        """Write a text, escaped; return its length."""
        safe = text
        if not isinstance(text, Shown):
            safe = _redacted(text) if self._redacts else text
            # a CI command counts only at the start of a line
            safe = escaping.plain(safe) if self._is_at_start else escaping.plain(f"x{safe}")[1:]
        if safe:
            self._stream.write(safe)
            self._is_at_start = not safe.rpartition("\n")[2].strip()
        return len(text)

    def writelines(self, texts: Iterable[str], /) -> None:
        """Write texts one after another."""
        for text in texts:
            self.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def guarded() -> Iterator[Callable[[], str]]:
    """Replace standard output and error with streams that escape text and survive a closed reader.

    Yields what returns the write error of standard output as text; it is empty if there was none,
    or if the reader closed the pipe.
    """
    closed: set[int] = set()
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:  # else a journal could get this number: open() takes the lowest free one
            closed.add(descriptor)
            with contextlib.suppress(OSError):
                os.open(os.devnull, os.O_RDWR)
    originals = sys.stdout, sys.stderr
    (stdout, file), (stderr, _) = (
        _replacement(stream, number, closed) for number, stream in enumerate(originals, start=1)
    )

    def problem() -> str:
        error = file.problem if file else None
        return (
            ""
            if error is None or error.errno in _READER_LEFT
            else f"cannot write to standard output: {error.strerror}"
        )

    sys.stdout = _Escaping(stdout, redacts=False)
    sys.stderr = _Escaping(stderr, redacts=True)
    try:
        yield problem
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        sys.stdout, sys.stderr = originals


def _replacement(
    stream: TextIO | None, number: int, closed: Collection[int]
) -> tuple[TextIO, _Output | None]:
    """Return a guarded stream to the same descriptor and its file; the stream itself if it is not a
    file, as in tests.
    """
    try:
        descriptor = number if stream is None else stream.fileno()
        if stream is not None:
            stream.flush()
    except (AttributeError, OSError, ValueError):
        return stream, None  # type: ignore[return-value]  # sys.stdout may be None, of which typeshed says nothing
    output = _Output(descriptor, "w", closefd=False)
    output.is_closed = number in closed or stream is None
    # characters that the terminal cannot encode are escaped
    text = io.TextIOWrapper(
        io.BufferedWriter(output),
        encoding=stream.encoding if stream is not None else "utf-8",
        errors="backslashreplace",
        line_buffering=number == 2 or (stream is not None and stream.isatty()),
    )
    return text, output


# -- what commands print ---------------------------------------------------------------------------

_AT_ONCE = 500
"""The number of lines that are written together: a call of the system for each takes longer than
making the line.
"""


def line(text: str) -> None:
    """Print one line of a result. Line ends in the text are escaped."""
    lines((text,))


def lines(texts: Iterable[str]) -> None:
    """Print several lines of a result, many at once."""
    waiting: list[str] = []
    try:
        for text in texts:
            waiting.append(text)
            if len(waiting) == _AT_ONCE:
                raw(escaping.lines(waiting) + "\n")
                waiting.clear()
    finally:  # an exception comes after the lines before it
        if waiting:
            raw(escaping.lines(waiting) + "\n")


def document(value: object) -> None:
    """Print a result as JSON."""
    raw(escaping.json_text(value) + "\n")


def raw(text: str) -> None:
    """Print text of our own: a part of a JSON document, made by ``escaping.json_text``, or a mark
    between documents.
    """
    _write(sys.stdout, text)


def command(text: str) -> None:
    """Print a command to the CI system on a line of standard error.

    The caller has escaped what is in it; line ends are refused.
    """
    if not text.isprintable():
        raise ValueError("a command has characters that end it or hide in it")
    _write(sys.stderr, _encodable(sys.stderr, _redacted(text)) + "\n")


def note(text: str) -> None:
    """Print a message of one line."""
    _write(sys.stderr, _redacted(escaping.line(text)) + "\n")


def notes(text: str) -> None:
    """Print a message of several lines."""
    _write(sys.stderr, _redacted(escaping.plain(text)) + "\n")


def traceback() -> None:
    """Print the exception that is being handled, with its stack."""
    from traceback import format_exc

    notes(format_exc().rstrip("\n"))


def paint(stream: TextIO, text: str) -> None:
    """Write text with colours and carriage returns of this program.

    Everything else is escaped, also what the stream cannot encode.
    """
    _write(stream, _encodable(stream, escaping.painted(text)))


def stdout() -> TextIO:
    """Return standard output, for callers of ``paint``."""
    return sys.stdout


def stderr() -> TextIO:
    """Return standard error, for callers of ``paint``."""
    return sys.stderr


def _encodable(stream: TextIO, text: str) -> str:
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _redacted(text: str) -> str:
    from torch_conformance.machine.redaction import redacted  # imported late: only messages need it

    return redacted(text)


def _write(stream: TextIO, text: str) -> None:
    stream.write(Shown(text))
    stream.flush()
