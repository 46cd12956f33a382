"""Output of commands. Only this module writes to standard output and error, so all output is escaped.

``line`` and ``lines`` print results on standard output. ``note`` and ``notes`` print messages on standard error. Their text may come from
specs, workers, file names and the environment. The streams escape too (``streams``), for output of argparse and tracebacks.
"""

import sys
from collections.abc import Iterable
from typing import Any, TextIO, cast

from runner.core import escaping
from runner.system.streams import Shown

_AT_ONCE = 500
"""The number of lines that are written together: a call of the system for each takes longer than making the line."""


def line(text: str) -> None:
    """Print one line of a result. Line ends in the text are escaped."""
    _write(sys.stdout, escaping.line(text) + "\n")


def lines(texts: Iterable[str]) -> None:
    """Print several lines of a result, many at once."""
    waiting: list[str] = []
    try:
        for text in texts:
            waiting.append(text)
            if len(waiting) == _AT_ONCE:
                _write(sys.stdout, escaping.lines(waiting) + "\n")
                waiting.clear()
    finally:  # an exception comes after the lines before it
        if waiting:
            _write(sys.stdout, escaping.lines(waiting) + "\n")


def document(value: object) -> None:
    """Print a result as JSON."""
    raw(escaping.json_text(value) + "\n")


def raw(text: str) -> None:
    """Print text of our own: a part of a JSON document, made by ``escaping.json_text``, or a mark between documents."""
    _write(sys.stdout, text)


def command(text: str) -> None:
    """Print a command to the CI system on a line of standard error. The caller has escaped what stands in it; line ends are refused."""
    if not text.isprintable():
        raise ValueError("a command has characters that end it or hide in it")
    encoding = sys.stderr.encoding or "utf-8"
    _write(sys.stderr, _redacted(text).encode(encoding, "backslashreplace").decode(encoding) + "\n")


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
    """Write text with colours and carriage returns of this program. Everything else is escaped, also what the stream cannot encode."""
    encoding = stream.encoding or "utf-8"
    _write(stream, escaping.painted(text).encode(encoding, "backslashreplace").decode(encoding))


class _Canvas:
    """A stream for a library that draws on a terminal. Control sequences pass unescaped."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str, /) -> int:
        """Write text that the library drew."""
        self._stream.write(Shown(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def canvas(stream: TextIO) -> TextIO:
    """Return a stream for a library that draws. The caller escapes the words with ``drawn``."""
    return cast(TextIO, _Canvas(stream))


def drawn(words: str) -> str:
    """Return words for drawing: on one line, escaped, without secrets."""
    return _redacted(escaping.line(words))


def stdout() -> TextIO:
    """Return standard output, for callers of ``paint``."""
    return sys.stdout


def stderr() -> TextIO:
    """Return standard error, for callers of ``paint``."""
    return sys.stderr


def _redacted(text: str) -> str:
    from runner.system.redaction import redacted  # imported late: only messages need it

    return redacted(text)


def _write(stream: TextIO, text: str) -> None:
    stream.write(Shown(text))
    stream.flush()
