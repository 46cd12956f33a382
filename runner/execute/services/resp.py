"""The part of the Redis protocol that a proxy needs: complete requests, complete replies."""

from collections.abc import Sequence
from typing import Protocol

MAX_WORD = 512 << 20
"""The maximum bytes of one word; Redis has the same limit."""

_MAX_WORDS = 1024
_MAX_LINE = 100
_MAX_DEPTH = 8

_ONE_LINE = b"+-:_,#("
_COUNTED_BYTES = b"$!="
_COUNTED_REPLIES = {b"*": 1, b"~": 1, b">": 1, b"%": 2}
"""Replies made of replies, and how many stand for each that is counted."""


class Stream(Protocol):
    """What can be read from: a file of bytes."""

    def read(self, size: int, /) -> bytes: ...  # noqa: D102 - as of io.BufferedReader

    def readline(self, size: int, /) -> bytes: ...  # noqa: D102 - as of io.BufferedReader


class Broken(Exception):
    """The data violates the protocol, is too large, or was cut off."""


def request(words: Sequence[bytes]) -> bytes:
    """Return a request as it goes over the wire."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def read_request(stream: Stream, most: int = MAX_WORD) -> list[bytes] | None:
    """Read the words of one request, each at most ``most`` bytes; None where the stream ends between two. Raise ``Broken``."""
    first = stream.read(1)
    if not first:
        return None
    if first != b"*":
        raise Broken("a request that is no list")
    return [_word(stream, most) for _ in range(_number(_line(stream), _MAX_WORDS))]


def _word(stream: Stream, most: int) -> bytes:
    if stream.read(1) != b"$":
        raise Broken("a word that is no byte string")
    return _exactly(stream, _number(_line(stream), most) + 2)[:-2]


def read_reply(stream: Stream) -> bytes:
    """Read one whole reply, of RESP2 or RESP3, and return its bytes. Raise ``Broken``, also where the stream ends."""
    parts: list[bytes] = []
    _collect_reply(stream, parts, 0)
    return b"".join(parts)


def _collect_reply(stream: Stream, parts: list[bytes], depth: int) -> None:
    kind = _exactly(stream, 1)
    line = _line(stream, MAX_WORD)  # fakeredis answers with a line whatever fits into one
    parts.append(kind + line)
    if kind in _ONE_LINE or line == b"-1\r\n":
        return
    if kind in _COUNTED_BYTES:
        parts.append(_exactly(stream, _number(line, MAX_WORD) + 2))
    elif kind in _COUNTED_REPLIES and depth < _MAX_DEPTH:
        for _ in range(_number(line, _MAX_WORDS) * _COUNTED_REPLIES[kind]):
            _collect_reply(stream, parts, depth + 1)
    else:
        raise Broken("a reply of no known kind")


def _line(stream: Stream, most: int = _MAX_LINE) -> bytes:
    line = stream.readline(most)
    if not line.endswith(b"\r\n"):
        raise Broken("a line without an end")
    return line


def _number(line: bytes, most: int) -> int:
    digits = line[:-2]
    if not digits.isdigit() or len(digits) > 12 or int(digits) > most:
        raise Broken("a length that is none")
    return int(digits)


def _exactly(stream: Stream, size: int) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise Broken("cut off")
    return data
