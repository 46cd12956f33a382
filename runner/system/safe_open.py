"""Opens files that a worker could have put anything in place of: a link out of the run, a pipe that never ends."""

import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_left_behind(path: Path) -> BinaryIO:
    """Open a regular file for reading, following no link; raise ``OSError`` for anything else."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path.name} is no file")
    return os.fdopen(descriptor, "rb")


def tail(path: Path, limit: int, start: int = 0) -> str:
    """Return the end of a file that a worker left, at most ``limit`` bytes of what is behind ``start``; empty where it cannot be read."""
    try:
        with open_left_behind(path) as stream:
            size = stream.seek(0, 2)
            stream.seek(max(size - limit, start))
            return stream.read(limit).decode("utf-8", "backslashreplace")
    except OSError:
        return ""
