"""What commands print: the only module that writes to standard output and error, so that nothing reaches them unescaped.

``line`` and ``block`` are results, on standard output; ``note`` and ``notes`` are messages, on standard error. Text of specs, workers, file
names and the environment may stand in any of them. Within the program the streams themselves escape too (``streams``): what argparse or a
traceback prints is safe as well.
"""

import sys
from collections.abc import Iterable
from typing import Any, TextIO, cast

from runner.core import escaping
from runner.system.streams import Shown


def line(text: str) -> None:
    """Print one line of a result: line ends within it are escaped."""
    _write(sys.stdout, escaping.line(text) + "\n")


def lines(texts: Iterable[str]) -> None:
    """Print lines of a result, each one line."""
    for text in texts:
        line(text)


def document(value: object) -> None:
    """Print a result as JSON."""
    raw(escaping.json_text(value) + "\n")


def raw(text: str) -> None:
    """Print a part of a JSON document that ``escaping.json_text`` made."""
    _write(sys.stdout, text)


def note(text: str) -> None:
    """Print one line of a message."""
    _write(sys.stderr, _redacted(escaping.line(text)) + "\n")


def notes(text: str) -> None:
    """Print a message of several lines."""
    _write(sys.stderr, _redacted(escaping.plain(text)) + "\n")


def traceback() -> None:
    """Print the exception that is handled, with its stack."""
    from traceback import format_exc

    notes(format_exc().rstrip("\n"))


def paint(stream: TextIO, text: str) -> None:
    """Write text with our own colours and carriage returns; everything else in it is escaped, also what the stream cannot encode."""
    encoding = stream.encoding or "utf-8"
    _write(stream, escaping.painted(text).encode(encoding, "backslashreplace").decode(encoding))


class _Canvas:
    """A stream for a library that draws on a terminal: its control sequences pass unescaped."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str, /) -> int:
        """Write what the library drew."""
        self._stream.write(Shown(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def canvas(stream: TextIO) -> TextIO:
    """Return a stream for a library that draws; who draws escapes the words with ``drawn``."""
    return cast(TextIO, _Canvas(stream))


def drawn(words: str) -> str:
    """Return words as they may be drawn: on one line, escaped, without secrets."""
    return _redacted(escaping.line(words))


def stdout() -> TextIO:
    """Return standard output, for what draws by ``paint``."""
    return sys.stdout


def stderr() -> TextIO:
    """Return standard error, for what draws by ``paint``."""
    return sys.stderr


def _redacted(text: str) -> str:
    from runner.system.redaction import redacted  # only what prints a message needs it

    return redacted(text)


def _write(stream: TextIO, text: str) -> None:
    stream.write(Shown(text))
    stream.flush()
