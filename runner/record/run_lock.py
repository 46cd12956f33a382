"""The locks of a run's folder and of its ``--junit`` report. The process that writes them holds the locks until it ends."""

import contextlib
import fcntl
import os
import socket
import time
import weakref
from dataclasses import dataclass
from pathlib import Path

LOCK = "run.lock"
"""The lock file in a run's folder. It contains the process; the lock itself is an ``flock``, so that a killed run locks nothing."""

_ATTEMPTS = 10
_PAUSE = 0.05
_LONGEST = 1_000
"""Characters."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that holds a lock."""

    pid: int
    host: str
    run: str = ""
    """The run's folder, for a lock outside of it."""

    def __str__(self) -> str:
        here = self.host in ("", _host())
        who = f"process {self.pid}" if self.pid else "another process"
        return who if here else f"{who} on {self.host}"


class FolderInUse(Exception):
    """Another process writes a run to this folder."""

    def __init__(self, folder: Path, holder: Holder) -> None:
        self.holder = holder
        super().__init__(f"{folder}: {holder} is writing a run there (wait for its end, end it, or name another folder)")


class RunLock:
    """A lock on a folder, or on one file in it; the constructor locks. Raises ``FolderInUse``, or ``OSError`` without a lock file.

    ``name`` is the name of the lock file; ``run`` is written to it for messages of other processes.
    """

    def __init__(self, folder: Path, name: str = LOCK, run: str = "") -> None:
        self._path = folder / name
        self._descriptor = _locked(folder, self._path)
        self._close = weakref.finalize(self, os.close, self._descriptor)
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()} {_host()}\n{run}"[:_LONGEST].encode("utf-8", "surrogateescape"), 0)

    def release(self) -> None:
        """Remove the file and the lock; a second call does nothing."""
        if not self._close.alive:
            return
        with contextlib.suppress(OSError):
            if _is_at(self._path, self._descriptor):
                self._path.unlink()
        self._close()


def holder_of(folder: Path, name: str = LOCK) -> Holder | None:
    """Return the process that holds a lock now; None if no process does."""
    try:
        descriptor = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return None if _is_free(descriptor, fcntl.LOCK_SH) else _named(descriptor)
    finally:
        os.close(descriptor)


def _locked(folder: Path, path: Path) -> int:
    """Open the file and lock it. ``holder_of`` in another process locks it for a moment, so locking is retried."""
    for attempt in range(_ATTEMPTS):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
        is_free = _is_free(descriptor, fcntl.LOCK_EX)
        if is_free and _is_at(path, descriptor):  # else its holder removed it in between
            return descriptor
        holder = _named(descriptor)
        os.close(descriptor)
        if not is_free and attempt == _ATTEMPTS - 1:
            break
        time.sleep(_PAUSE)
    raise FolderInUse(folder, holder)


def _is_free(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: check the process that the file names
        return not _lives(_named(descriptor))
    return True


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        named, mine = os.lstat(path), os.fstat(descriptor)
    except FileNotFoundError:
        return False
    return (named.st_dev, named.st_ino) == (mine.st_dev, mine.st_ino)


def _named(descriptor: int) -> Holder:
    first, _, run = os.pread(descriptor, 4 * _LONGEST, 0).decode("utf-8", "replace").strip().partition("\n")
    pid, _, host = first.partition(" ")
    return Holder(int(pid) if pid.isascii() and pid.isdecimal() and len(pid) < 10 else 0, host, run)


def _lives(holder: Holder) -> bool:
    if not holder.pid or holder.pid == os.getpid() or holder.host != _host():
        return False
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _host() -> str:
    return socket.gethostname()
