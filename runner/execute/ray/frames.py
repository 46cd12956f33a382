"""Frames between runner, gateway, relay and agent: one JSON message, followed by blobs of bytes. No object is pickled."""

import itertools
import json
import os
import selectors
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from runner.core.protocol import Json

_HEAD = struct.Struct(">4sIQ")
_MAGIC = b"TCF1"
CHUNK = 1 << 20

MOST_BYTES = 512 << 20
"""The maximum size of a frame. A larger one is refused by its sender and by its reader."""

Message: TypeAlias = dict[str, Json]
"""A map with the key ``kind``; its other keys go with the kind."""


class BadFrame(ValueError):
    """Bytes that are no frame: another program wrote into the pipe, or a limit is exceeded."""


class Ended(Exception):
    """The other side hung up."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A message and its blobs."""

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
        while len(self._bytes) >= _HEAD.size:
            magic, length, total = _HEAD.unpack_from(self._bytes)
            if magic != _MAGIC or length + total > MOST_BYTES:
                raise BadFrame(f"no frame begins with {bytes(self._bytes[:16])!r}")
            start = _HEAD.size + length
            if len(self._bytes) < start + total:
                return
            try:
                content = json.loads(self._bytes[_HEAD.size : start])
                sizes = [int(size) for size in content["sizes"]]
                message = content["message"]
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise BadFrame(f"a frame that cannot be read: {type(error).__name__}: {error}") from error
            if sum(sizes) != total or min(sizes, default=0) < 0 or not isinstance(message, dict):
                raise BadFrame("the sizes in a frame are not those of its bytes")
            ends = itertools.accumulate(sizes, initial=start)
            blobs = tuple(bytes(self._bytes[begin:end]) for begin, end in itertools.pairwise(ends))
            del self._bytes[: start + total]
            yield Frame(message, blobs)


class Inlet:
    """Frames from a descriptor."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._reader = FrameReader()
        self._selector = selectors.DefaultSelector()
        self._selector.register(descriptor, selectors.EVENT_READ)

    def frames(self, seconds: float | None) -> list[Frame]:
        """Return the frames that came; wait so long for one, with None without an end. Raise ``Ended`` at the end."""
        frames: list[Frame] = []
        while self._selector.select(0 if frames else seconds):
            data = os.read(self.descriptor, CHUNK)
            if not data:
                raise Ended
            frames += self._reader.feed(data)
        return frames


def write(descriptor: int, data: bytes) -> None:
    """Write all bytes to a descriptor."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def is_name(name: str) -> bool:
    """Whether the name of a file, which a node may have made up, stays in its folder."""
    return bool(name) and "/" not in name and "\0" not in name and name not in (".", "..") and len(os.fsencode(name)) < 256
