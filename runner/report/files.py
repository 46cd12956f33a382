"""Report files: replaced atomically, so that a reader never sees a partial file. Named pipes and devices are written to directly."""

import errno
import os
import secrets
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

from runner.system.output import naming

_READER_SECONDS = 30.0
"""How long the writer waits for a reader of a named pipe."""


def is_special(path: Path) -> bool:
    """Whether a path is a named pipe or a device. Reports that are written there are not replaced."""
    return path.exists() and not path.is_file()


def _opened(path: Path) -> int:
    """Open a pipe or a device for writing; raise ``OSError`` if a pipe has no reader within ``_READER_SECONDS``."""
    deadline = time.monotonic() + _READER_SECONDS
    while True:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError as error:
            if error.errno != errno.ENXIO or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
            continue
        os.set_blocking(descriptor, True)
        return descriptor


def _write_all(stream: IO[bytes], data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[stream.write(rest) :]


def replace(path: Path, data: bytes) -> None:
    """Replace a report file; a link is followed, and a special file is written to directly."""
    if is_special(path):
        with naming(path), os.fdopen(_opened(path), "wb", buffering=0) as stream:
            _write_all(stream, data)
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
