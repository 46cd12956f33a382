"""The temporary folder of a run: checked before the first case, locked during the run, removed afterwards.

A killed run leaves its folder behind. The next run removes it if no process holds the lock of its lock file. Locks are the kernel's, so
they are correct across containers that share a temporary folder; process ids are not.
"""

import contextlib
import errno
import fcntl
import mmap
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from runner.core.diagnostics import UsageError, one_line

PREFIX = "torch-conformance-"
LOCK = ".lock"

LEAST_BYTES = 256 << 20
"""The minimum of free space for a run. A precompiled header of torch 2.13 takes 150 MB."""

_SHORT_BYTES = 8 << 20
_SHORT_FILES = 64
_SUSPECT_BYTES = 1 << 30
"""A message about a full disk counts only below this free space: the compiler deletes unfinished files, so some space is free again."""

_FULL = tuple(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT))
_PROBE_BYTES = 1 << 20

_SPLITS = {" ": "a space", "\t": "a tab", "\n": "a line break", "'": "a quote (')", '"': 'a quote (")', "\\": "a backslash"}
"""Characters of a path at which torch splits the compiler's command line. All other characters work (tried with torch 2.13)."""

_VARIABLES = ("TMPDIR", "TEMP", "TMP")


class Scratch:
    """The temporary folder of a run; a context manager that removes it."""

    def __init__(self, path: Path, lock: int | None) -> None:
        self.path = path
        self._lock = lock

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Remove the folder, then release the lock."""
        with contextlib.suppress(OSError), _opened(self.path) as folder:
            _empty(folder)
            self.path.rmdir()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def check() -> None:
    """Raise ``UsageError`` if torch cannot build and load code in the folder for temporary files."""
    folder, name = _base()
    if why := problem_of(folder):
        raise UsageError(f"{name}: {why}; name another folder with TMPDIR")


def make() -> Scratch:
    """Return a new folder, after the folders of killed runs are removed."""
    folder, _ = _base()
    check()
    remove_dead(folder)
    path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=folder))
    return Scratch(path, _locked(path))


def _base() -> tuple[Path, str]:
    """Return the folder for temporary files and its name in messages. A folder named by a variable is returned without a check."""
    for variable in _VARIABLES:
        if named := os.environ.get(variable):
            return Path(named).absolute(), one_line(f"{variable}={named}")
    try:
        found = tempfile.gettempdir()
    except OSError as error:
        raise UsageError(f"no folder for temporary files can be written to: {error.strerror}; name one with TMPDIR") from error
    return Path(found).absolute(), f"the folder for temporary files, {one_line(found)}"


def _free(folder: Path) -> tuple[int, int | None]:
    """Return the free bytes and the free files; None if the file system has no limit of files."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize, found.f_favail if found.f_files else None


def _try_to_execute(descriptor: int) -> None:
    """Map a file as the loader maps a library; raise ``OSError`` if that is forbidden."""
    mmap.mmap(descriptor, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC).close()


def problem_of(
    folder: Path, *, free: Callable[[Path], tuple[int, int | None]] = _free, execute: Callable[[int], None] = _try_to_execute
) -> str:
    """Return the reason why torch cannot build and load code below a folder; empty if it can."""
    character = next((character for character in str(folder) if character in _SPLITS), None)
    if character is not None:
        return f"its path has {_SPLITS[character]}, at which torch splits the compiler's command line"
    if any("\ud800" <= character <= "\udfff" for character in str(folder)):
        return "its path is not UTF-8, and torch decodes it as UTF-8"
    if not folder.is_dir():
        return "this is not a folder" if folder.exists() else "there is no such folder"
    space, files = free(folder)
    if space < LEAST_BYTES:
        return f"it has {_mib(space)} of free space, and a run needs at least {_mib(LEAST_BYTES)}"
    if files is not None and files < _SHORT_FILES:
        return "its file system has no free inodes"
    try:
        descriptor, name = tempfile.mkstemp(prefix=f"{PREFIX}probe-", dir=folder)
    except OSError as error:
        return f"no file can be created there: {error.strerror}"
    try:
        return _problem_of_file(descriptor, execute)
    finally:
        os.close(descriptor)
        with contextlib.suppress(OSError):
            os.unlink(name)


def _problem_of_file(descriptor: int, execute: Callable[[int], None]) -> str:
    try:
        with open(descriptor, "wb", closefd=False) as stream:
            stream.write(bytes(_PROBE_BYTES))
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EFBIG:  # EFBIG is a limit of this process and not of the folder
            return f"a file of {_mib(_PROBE_BYTES)} cannot be written there: {error.strerror}"
    try:
        execute(descriptor)
    except PermissionError:
        return "code there may not be executed (it is mounted with noexec), and torch loads the code that it compiles"
    except OSError as error:
        return f"a file there cannot be mapped as code: {error.strerror}"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """What is free in the folder for temporary files."""

    folder: str
    bytes: int = 0
    files: int | None = None
    """How many files there is room for; None where the file system does not count them."""
    problem: str = ""
    """Why that is not known."""


def space_of(folder: Path) -> Space:
    """Return what is free where the scratch folder of a run lies."""
    try:
        space, files = _free(folder)
    except OSError as error:
        return Space(folder=str(folder.parent), problem=f"{folder}: {error.strerror}")
    return Space(folder=str(folder.parent), bytes=space, files=files)


def shortage(space: Space, said: str = "") -> str:
    """Return what there is too little space for; empty where there is enough. ``said`` is what a failed case printed."""
    if space.problem:
        return space.problem
    if space.bytes < _SHORT_BYTES or (space.bytes < _SUSPECT_BYTES and any(words in said for words in _FULL)):
        return f"no space is left in {space.folder} ({_mib(space.bytes)} free); make room there, or name another folder with TMPDIR"
    if space.files is not None and space.files < _SHORT_FILES:
        return f"no room is left for files in {space.folder}; make room there, or name another folder with TMPDIR"
    return ""


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.0f} MiB"


# -- folders of killed runs -------------------------------------------------------------------------------------------


def _locked(path: Path) -> int | None:
    """Create a lock file that is locked before it gets its name; return None if the file system has no locks."""
    temporary = path / f"{LOCK}.new"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        temporary.unlink()
        return None
    temporary.rename(path / LOCK)
    return descriptor


def remove_dead(base: Path) -> int:
    """Remove the folders of this user's dead runs; return their number. Links are not followed."""
    gone = 0
    for entry in _entries(base):
        with contextlib.suppress(OSError), _opened(entry) as folder:
            if _is_dead(folder) and _empty(folder):
                os.rmdir(entry)
                gone += 1
    return gone


def _entries(base: Path) -> list[str]:
    try:
        with os.scandir(base) as found:
            return [entry.path for entry in found if entry.name.startswith(PREFIX) and entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


@contextlib.contextmanager
def _opened(path: str | Path) -> Iterator[int]:
    """Open a folder that only this user can write to; raise ``OSError`` for any other."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(errno.EPERM, "another user's folder", str(path))
        yield descriptor
    finally:
        os.close(descriptor)


def _is_dead(folder: int) -> bool:
    """Whether a folder has a lock file that no process holds."""
    try:
        lock = os.open(LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return False
    try:
        found = os.fstat(lock)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            return False
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(lock)


def _empty(folder: int) -> bool:
    """Delete the contents of a folder, the lock file last, so that another run can retry the deletion. Return whether all is deleted."""
    names = [name for name in os.listdir(folder) if name != LOCK]
    for name in names:
        _remove(name, folder)
    if any(name != LOCK for name in os.listdir(folder)):
        _open_up(folder)
        for name in names:
            _remove(name, folder)
    if any(name != LOCK for name in os.listdir(folder)):
        return False
    with contextlib.suppress(FileNotFoundError):
        os.unlink(LOCK, dir_fd=folder)
    return True


def _remove(name: str, folder: int) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except OSError:
        shutil.rmtree(name, ignore_errors=True, dir_fd=folder)


def _open_up(folder: int) -> None:
    """Make the subfolders writable again: a case may have removed the permission."""
    for root, names, _ in os.walk(f"/proc/self/fd/{folder}"):
        for name in names:
            inner = os.path.join(root, name)
            if not os.path.islink(inner):
                with contextlib.suppress(OSError):
                    os.chmod(inner, 0o700)
