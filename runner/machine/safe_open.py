"""Opens untrusted files: a worker may have replaced them by a link out of the run folder or by a pipe that never ends."""

import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_untrusted(path: Path) -> BinaryIO:
    """Open a regular file for reading without following links; raise ``OSError`` for anything else."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path.name} is not a regular file")
    return os.fdopen(descriptor, "rb")


def tail(path: Path, limit: int, start: int = 0) -> str:
    """Return the end of a file that a worker left, at most ``limit`` bytes of what is behind ``start``; empty where it cannot be read."""
    try:
        with open_untrusted(path) as stream:
            size = stream.seek(0, 2)
            stream.seek(max(size - limit, start))
            return stream.read(limit).decode("utf-8", "backslashreplace")
    except OSError:
        return ""
