"""Opens a journal: for one writer, or for reading as an untrusted file."""

import errno
import fcntl
import os
import stat
from pathlib import Path
from typing import BinaryIO

from runner.core.diagnostics import UsageError
from runner.record.journal.lines import JournalError
from runner.system.streams import naming


def open_to_append(path: Path) -> BinaryIO:
    """Open a journal for one writer, unbuffered, so that a failed write is not repeated by ``close``."""
    with naming(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    stream = os.fdopen(descriptor, "ab", buffering=0)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        stream.close()
        raise UsageError(f"{path}: this run is still going on; wait for its end, or end it") from None
    except OSError:  # a file system without locks
        pass
    return stream


def write_all(stream: BinaryIO, data: bytes) -> None:
    """Write to a stream without a buffer."""
    rest = memoryview(data)
    while rest:
        rest = rest[stream.write(rest) :]


def open_plain(path: Path) -> BinaryIO:
    """Open a journal as an untrusted file: a worker, or the author of an archive, could have replaced it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise JournalError(1, "this is a link, not the file itself") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise JournalError(1, "this is no file")
    return os.fdopen(descriptor, "rb")
