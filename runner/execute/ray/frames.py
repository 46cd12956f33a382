"""Frames between runner, gateway, relay and agent: one JSON message, followed by blobs of bytes. No object is pickled."""

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from runner.core.protocol import Json

_HEAD = struct.Struct(">4sIQ")
_MAGIC = b"TCF1"

MOST_BYTES = 512 << 20
"""The maximum size of a frame. A larger one is refused by its sender and by its reader."""


Message: TypeAlias = dict[str, Json]
"""A map with the key ``kind``; its other keys go with the kind."""


class BadFrame(ValueError):
    """Bytes that are no frame: another program wrote into the pipe, or a limit is exceeded."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A message: a map with the key ``kind``, and blobs."""

    message: Message
    blobs: tuple[bytes, ...] = ()

    @property
    def kind(self) -> str:
        """What the message is."""
        return str(self.message.get("kind", ""))


def pack(message: Message, blobs: Sequence[bytes] = ()) -> bytes:
    """Return the bytes of a frame; raise ``BadFrame`` where it is too large."""
    text = json.dumps({"message": message, "sizes": [len(blob) for blob in blobs]}).encode("ascii")
    total = sum(map(len, blobs))
    if len(text) + total > MOST_BYTES:
        raise BadFrame(f"a message of {len(text) + total} bytes; {MOST_BYTES} are allowed")
    return b"".join([_HEAD.pack(_MAGIC, len(text), total), text, *blobs])


class FrameReader:
    """Makes frames of the bytes of a pipe, as they come."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Add bytes, and yield each frame that is complete; raise ``BadFrame``."""
        self._bytes += data
        while (size := self._size()) is not None and len(self._bytes) >= size:
            frame = unpack(bytes(self._bytes[:size]))
            del self._bytes[:size]
            yield frame

    def _size(self) -> int | None:
        if len(self._bytes) < _HEAD.size:
            return None
        magic, text, total = _HEAD.unpack_from(self._bytes)
        if magic != _MAGIC or text + total > MOST_BYTES:
            raise BadFrame(f"no frame begins with {bytes(self._bytes[:16])!r}")
        return _HEAD.size + int(text) + int(total)


def unpack(data: bytes) -> Frame:
    """Return the frame of its bytes; raise ``BadFrame``."""
    try:
        _, text, total = _HEAD.unpack_from(data)
        found = json.loads(data[_HEAD.size : _HEAD.size + text])
        sizes = [int(size) for size in found["sizes"]]
        message = found["message"]
    except (struct.error, ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadFrame(f"a frame that cannot be read: {type(error).__name__}: {error}") from error
    if sum(sizes) != total or min(sizes, default=0) < 0 or not isinstance(message, dict):
        raise BadFrame("the sizes in a frame are not those of its bytes")
    blobs, at = [], _HEAD.size + text
    for size in sizes:
        blobs.append(data[at : at + size])
        at += size
    return Frame(message, tuple(blobs))
