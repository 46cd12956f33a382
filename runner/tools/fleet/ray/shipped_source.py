"""The source of this package as bytes, with its digest: it travels to the nodes, so that each runs the source of the runner."""

import hashlib
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[2]
_LEFT_OUT = ("cli", "report", "record", "judge", "run")
"""Rooms that no node needs."""


def bundle() -> bytes:
    """Return the package as a compressed archive. It is the same for the same files, wherever they lie."""
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
        total.update(f"{path.relative_to(_PACKAGE).as_posix()}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()


def _files() -> Iterator[Path]:
    for path in sorted(_PACKAGE.rglob("*")):
        parts = path.relative_to(_PACKAGE).parts
        if path.is_file() and parts[0] not in _LEFT_OUT and "__pycache__" not in parts and path.suffix in (".py", ".json"):
            yield path
