"""An archive as bytes: a tar of plain files in one zstd frame. The same members always give the same bytes.

The reader trusts nothing: it makes the header of each member itself from name and size, and the header that it reads must be equal. A
link, a device, a folder, an owner, a time, an extended header and a name in another encoding are no header of a submission.
"""

import tarfile
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import BinaryIO

from runner.core.diagnostics import UsageError
from runner.record.submission.layout import (
    MOST_COMPRESSED,
    MOST_CONTENT,
    MOST_MEMBER,
    MOST_MEMBERS,
    BadArchive,
    collision,
    why_no_member,
)

_BLOCK = 512
_LEVEL = 17
_MAGIC = b"\x28\xb5\x2f\xfd"
_WINDOW = 1 << 27
"""The maximum window of a frame in bytes: what its reader must keep in memory."""
_KINDS = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a character device",
    b"4": "a block device",
    b"5": "a folder",
    b"6": "a named pipe",
    b"x": "an extended header",
    b"g": "an extended header for all members",
    b"L": "a long name in GNU's form",
    b"K": "a long link in GNU's form",
    b"S": "a sparse file",
}


def _zstandard() -> ModuleType:
    try:
        import zstandard
    except ImportError as error:
        raise UsageError("this needs the package zstandard (install the extra: pip install 'torch-conformance[submit]')") from error
    return zstandard


# -- writing --------------------------------------------------------------------------------------------------------


def packed(members: Mapping[str, bytes]) -> bytes:
    """Return the archive of these members; raise ``ValueError`` for members that its reader would refuse."""
    if len(members) > MOST_MEMBERS or sum(map(len, members.values())) > MOST_CONTENT:
        raise ValueError(f"it has more than {MOST_MEMBERS} files or {MOST_CONTENT >> 20} MiB")
    for name, data in members.items():
        if why := why_no_member(name) or (f"it has more than {MOST_MEMBER >> 20} MiB" if len(data) > MOST_MEMBER else ""):
            raise ValueError(f"{name}: {why}")
    if found := collision(members):
        raise ValueError(f"{found[0]} and {found[1]} are one file where case does not count")
    pieces = b"".join(piece for name in sorted(members) for piece in _member(name, members[name])) + bytes(2 * _BLOCK)
    zstd = _zstandard()
    data = zstd.ZstdCompressor(level=_LEVEL, write_checksum=True, write_content_size=True).compress(pieces)
    if len(data) > MOST_COMPRESSED:
        raise ValueError(f"it has more than {MOST_COMPRESSED >> 20} MiB")
    return bytes(data)


def _member(name: str, data: bytes) -> Iterator[bytes]:
    yield _header(name, len(data))
    yield data
    yield bytes(-len(data) % _BLOCK)


def _header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = size
    info.mode = 0o644
    return info.tobuf(tarfile.USTAR_FORMAT, "ascii", "strict")


# -- reading --------------------------------------------------------------------------------------------------------


def unpacked(data: bytes) -> dict[str, bytes]:
    """Return the members of an archive by name; raise ``BadArchive`` for anything that ``packed`` would not have written."""
    with _content(data) as stream:
        members = dict(_members(stream))
    if found := collision(members):
        raise BadArchive(f"'{found[0]}' and '{found[1]}' are one file where case does not count")
    return members


def _content(data: bytes) -> "_Bounded":
    """Return the content of the one frame that the file must be."""
    zstd = _zstandard()
    if len(data) > MOST_COMPRESSED:
        raise BadArchive(f"the file has more than {MOST_COMPRESSED >> 20} MiB")
    if data[:4] != _MAGIC:
        raise BadArchive("the file does not begin with a zstd frame")
    try:
        frame = zstd.get_frame_parameters(data)
        begin = zstd.frame_header_size(data)
    except zstd.ZstdError as error:
        raise BadArchive(f"the zstd frame has no header: {error}") from error
    if frame.dict_id or not frame.has_checksum or frame.window_size > _WINDOW:
        raise BadArchive("the zstd frame has a dictionary, no checksum, or a window that is too large")
    if not 0 < frame.content_size <= MOST_CONTENT:
        raise BadArchive(f"the zstd frame does not say its size, or more than {MOST_CONTENT >> 20} MiB")
    if end := _end_of_frame(data, begin) - len(data):
        raise BadArchive("the file is cut off" if end > 0 else f"{-end} bytes, or another frame, follow the zstd frame")
    reader = zstd.ZstdDecompressor(max_window_size=_WINDOW).stream_reader(data, read_across_frames=False)
    return _Bounded(reader, frame.content_size, zstd.ZstdError)


def _end_of_frame(data: bytes, at: int) -> int:
    """Return where a frame ends, by the sizes of its blocks and without decompressing it; behind the file where that is cut off."""
    last = False
    while not last:
        head = int.from_bytes(data[at : at + 3], "little")
        if at + 3 > len(data):
            return len(data) + 1
        last, kind, size = bool(head & 1), head >> 1 & 3, head >> 3
        if kind == 3:
            raise BadArchive("the zstd frame has a block of no known kind")
        at += 3 + (1 if kind == 1 else size)
    return at + 4


class _Bounded:
    """Reads the content of a frame, which may have no other size than the frame says."""

    def __init__(self, reader: BinaryIO, size: int, error: type[Exception]) -> None:
        self._reader = reader
        self.left = size
        self._error = error

    def __enter__(self) -> "_Bounded":
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    def read(self, size: int) -> bytes:
        """Return so many bytes; raise ``BadArchive`` where there are fewer."""
        pieces: list[bytes] = []
        wanted = size
        while wanted:
            try:
                piece = self._reader.read(min(wanted, 1 << 20))
            except self._error as error:
                raise BadArchive(f"its content cannot be decompressed: {error}") from error
            if not piece:
                raise BadArchive("its content is cut off")
            pieces.append(piece)
            wanted -= len(piece)
            self.left -= len(piece)
        return b"".join(pieces)


def _members(stream: _Bounded) -> Iterator[tuple[str, bytes]]:
    before = ""
    count = 0
    while True:
        block = stream.read(_BLOCK)
        if not any(block):
            break
        name, size = _read_header(block)
        if name <= before:
            raise BadArchive(f"the member '{name}' is there twice" if name == before else f"the member '{name}' is not in its place")
        count += 1
        if count > MOST_MEMBERS:
            raise BadArchive(f"it has more than {MOST_MEMBERS} members")
        data = stream.read(size)
        if any(stream.read(-size % _BLOCK)):
            raise BadArchive(f"bytes are hidden behind the member '{name}'")
        yield name, data
        before = name
    if any(stream.read(_BLOCK)) or stream.left:
        raise BadArchive("bytes follow the last member")


def _read_header(block: bytes) -> tuple[str, int]:
    """Return name and size of a member; raise ``BadArchive`` unless the header is the one that ``packed`` writes."""
    name = _text(block[345:500], block[:100])
    try:
        size = int(block[124:135], 8)
    except ValueError as error:
        raise BadArchive(f"the header of the member '{name}' has no size") from error
    if why := _KINDS.get(block[156:157], ""):
        raise BadArchive(f"the member '{name}' is {why}")
    if why := why_no_member(name):
        raise BadArchive(f"the member '{name}': {why}")
    if not 0 <= size <= MOST_MEMBER:
        raise BadArchive(f"the member '{name}' has more than {MOST_MEMBER >> 20} MiB")
    if _header(name, size) != block:
        raise BadArchive(f"the header of the member '{name}' is not as 'submit' writes it: owner, mode, time or form differ")
    return name, size


def _text(prefix: bytes, name: bytes) -> str:
    parts = [part.split(b"\0")[0].decode("ascii", "backslashreplace") for part in (prefix, name)]
    return "/".join(part for part in parts if part)
