"""Report files: replaced atomically, so that a reader never sees a partial file. Named pipes and devices are written to directly."""

import os
import secrets
from contextlib import suppress
from pathlib import Path

from runner.machine.output import naming


def is_special(path: Path) -> bool:
    """Whether a path is a named pipe or a device. Reports that are written there are not replaced."""
    return path.exists() and not path.is_file()


def replace(path: Path, data: bytes) -> None:
    """Replace a report file; a link is followed, and a special file is written to directly."""
    if is_special(path):
        with naming(path), path.open("wb") as stream:
            stream.write(data)
        return
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    # in the report's folder: a rename is atomic only within one file system
    temporary = path.parent / f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}"
    try:
        with naming(path), temporary.open("xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()
