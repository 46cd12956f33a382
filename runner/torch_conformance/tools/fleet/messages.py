"""What travels between runner, gateway and agent: one line of JSON each, with files as base64, and
the source of this package.

No object is pickled. The source travels as an archive with its digest, so that each node runs the
source of the runner.
"""

import base64
import hashlib
import io
import json
import os
import selectors
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from torch_conformance.model.protocol import Json

CHUNK = 1 << 20

MOST_BYTES = 1 << 30
"""The maximum size of a message. A larger one is refused by its sender and by its reader."""

IMAGE = "TORCH_CONFORMANCE_IMAGE"
"""The variable with the name of a node's image or virtual environment."""

Message: TypeAlias = dict[str, Json]
"""A map with the key ``kind``; its other keys go with the kind."""


class BadFrame(ValueError):
    """Bytes that are no message: another program wrote into the pipe, or a limit is exceeded."""


class Ended(Exception):
    """The other side hung up."""


def pack(message: Message) -> bytes:
    """Return the bytes of a message; raise ``BadFrame`` where it is too large."""
    data = json.dumps(message).encode("ascii") + b"\n"
    if len(data) > MOST_BYTES:
        raise BadFrame(f"a message of {len(data)} bytes; {MOST_BYTES} are allowed")
    return data


def as_text(data: bytes) -> str:
    """Return bytes as a message has them."""
    return base64.b64encode(data).decode("ascii")


def as_bytes(text: str) -> bytes:
    """Return the bytes that ``as_text`` wrote; raise ``ValueError``."""
    return base64.b64decode(text, validate=True)


class FrameReader:
    """Makes messages of the bytes of a pipe, as they come."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> Iterator[Message]:
        """Add bytes, and yield each message that is complete; raise ``BadFrame``."""
        for number, part in enumerate(data.split(b"\n")):
            if number:
                line = b"".join(self._parts)
                self._parts, self._size = [], 0
                try:
                    message = json.loads(line)
                except (ValueError, RecursionError) as error:
                    raise BadFrame(
                        f"a message that cannot be read: {type(error).__name__}: {error}"
                    ) from error
                if not isinstance(message, dict) or not isinstance(message.get("kind"), str):
                    raise BadFrame(f"no message begins with {line[:16]!r}")
                yield message
            self._parts.append(part)
            self._size += len(part)
            if self._size > MOST_BYTES:
                raise BadFrame(f"a message of more than {MOST_BYTES} bytes")


class Inlet:
    """Messages from a descriptor."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._reader = FrameReader()
        self._selector = selectors.DefaultSelector()
        self._selector.register(descriptor, selectors.EVENT_READ)

    def messages(self, seconds: float | None) -> list[Message]:
        """Return the messages that arrived; wait up to ``seconds`` for the first, None without a
        limit.

        Raise ``Ended`` at end of file.
        """
        messages: list[Message] = []
        while self._selector.select(0 if messages else seconds):
            data = os.read(self.descriptor, CHUNK)
            if not data:
                raise Ended
            messages += self._reader.feed(data)
        return messages


def write(descriptor: int, data: bytes) -> None:
    """Write all bytes to a descriptor."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def is_name(name: str) -> bool:
    """Whether the name of a file, which a node may have made up, stays in its folder."""
    return (
        bool(name)
        and "/" not in name
        and "\0" not in name
        and name not in (".", "..")
        and len(os.fsencode(name)) < 256
    )


# -- the source ------------------------------------------------------------------------------------


_PACKAGE = Path(__file__).resolve().parents[2]
_LEFT_OUT = ("cli", "report", "record", "judge", "run")
"""Rooms that no node needs."""


def bundle() -> bytes:
    """Return the package as a compressed archive.

    It is the same for the same files, wherever they lie.
    """
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:xz", preset=1) as archive:
        for path in _files():
            entry = tarfile.TarInfo(f"{_PACKAGE.name}/{path.relative_to(_PACKAGE).as_posix()}")
            data = path.read_bytes()
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return content.getvalue()


def digest() -> str:
    """Return the sha256 of the names and the contents of the files in the archive."""
    total = hashlib.sha256()
    for path in _files():
        total.update(
            f"{path.relative_to(_PACKAGE).as_posix()}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode()
        )
    return total.hexdigest()


def _files() -> Iterator[Path]:
    for path in sorted(_PACKAGE.rglob("*")):
        parts = path.relative_to(_PACKAGE).parts
        if (
            path.is_file()
            and parts[0] not in _LEFT_OUT
            and "__pycache__" not in parts
            and path.suffix in (".py", ".json")
        ):
            yield path
