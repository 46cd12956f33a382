"""The temporary folder of a run: checked before the first case, locked during the run, removed
afterwards.

A killed run leaves its folder behind. The next run removes it if no process holds its lock. Locks
are the kernel's, so they are correct across containers that share a temporary folder; process ids
are not.
"""

import contextlib
import errno
import fcntl
import mmap
import os
import shutil
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from torch_conformance.model.diagnostics import UsageError, one_line
from torch_conformance.model.values import frozen

PREFIX = "torch-conformance."
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

LEAST_BYTES = 256 << 20
"""The minimum of free space for a run. A precompiled header of torch 2.13 takes 150 MB."""

_SHORT_BYTES = 8 << 20
_SHORT_FILES = 64
_SUSPECT_BYTES = 1 << 30
"""A message about a full disk counts only below this free space: the compiler deletes unfinished
files, so some space is free again.
"""

_FULL = tuple(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT))

_SPLITS = {
    " ": "a space",
    "\t": "a tab",
    "\n": "a line break",
    "'": "a quote (')",
    '"': 'a quote (")',
    "\\": "a backslash",
}
"""Characters of a path at which torch splits the compiler's command line.

All other characters work (tried with torch 2.13).
"""

_VARIABLES = ("TMPDIR", "TEMP", "TMP")


@dataclass(frozen=True, slots=True)
class Scratch:
    """The temporary folder of a run."""

    path: Path
    lock: int
    """A descriptor of the folder, which is locked."""

    def close(self) -> None:
        """Remove the folder, then release the lock."""
        _remove(self.path)
        os.close(self.lock)


def check() -> Path:
    """Return the folder for temporary files; raise ``UsageError`` if torch cannot build and load
    code in it.

    A folder that a variable names is taken even where nothing can be written to it: then that is
    the problem.
    """
    name = next((variable for variable in _VARIABLES if os.environ.get(variable)), "")
    try:
        folder = Path(os.environ[name] if name else tempfile.gettempdir()).absolute()
    except OSError as error:
        raise UsageError(
            f"no folder for temporary files can be written to: {error.strerror}; name one "
            "with TMPDIR"
        ) from error
    if why := problem_of(folder):
        folder_text = (
            f"{name}={os.environ[name]}" if name else f"the folder for temporary files, {folder}"
        )
        raise UsageError(f"{one_line(folder_text)}: {why}; name another folder with TMPDIR")
    return folder


def make() -> Scratch:
    """Return a new folder, after the folders of killed runs are removed."""
    folder = check()
    remove_dead(folder)
    new = Path(tempfile.mkdtemp(prefix=f".{PREFIX}", dir=folder))
    lock = os.open(new, _FLAGS)
    with contextlib.suppress(OSError):  # without locks the folder of a killed run stays
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return Scratch(
        new.rename(folder / new.name[1:]), lock
    )  # locked before it has a name that other runs look for


def _free(folder: Path) -> tuple[int, int | None]:
    """Return the free bytes and the free files; None if the file system has no limit of files."""
    filesystem = os.statvfs(folder)
    return (
        filesystem.f_bavail * filesystem.f_frsize,
        filesystem.f_favail if filesystem.f_files else None,
    )


def problem_of(folder: Path) -> str:
    """Return the reason why torch cannot build and load code below a folder; empty if it can."""
    for character in filter(_SPLITS.get, str(folder)):
        return (
            f"its path has {_SPLITS[character]}, at which torch splits the compiler's command line"
        )
    if any("\ud800" <= character <= "\udfff" for character in str(folder)):
        return "its path is not UTF-8, and torch decodes it as UTF-8"
    if not folder.is_dir():
        return "this is not a folder" if folder.exists() else "there is no such folder"
    space, files = _free(folder)
    if space < LEAST_BYTES:
        return f"it has {_mib(space)} of free space, and a run needs at least {_mib(LEAST_BYTES)}"
    if files is not None and files < _SHORT_FILES:
        return "its file system has no free inodes"
    try:
        with tempfile.NamedTemporaryFile(prefix=f"{PREFIX}probe-", dir=folder) as probe:
            probe.write(bytes(mmap.PAGESIZE))
            probe.flush()
            # as the loader maps a library
            mmap.mmap(
                probe.fileno(),
                mmap.PAGESIZE,
                flags=mmap.MAP_PRIVATE,
                prot=mmap.PROT_READ | mmap.PROT_EXEC,
            ).close()
    except OSError as error:
        if isinstance(error, PermissionError) and error.filename is None:
            return (
                "code there may not be executed (it is mounted with noexec), and torch loads the "
                "code that it compiles"
            )
        return f"no file can be written there: {error.strerror}"
    return ""


@frozen
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


def shortage(space: Space, message: str = "") -> str:
    """Return what there is too little space for; empty where there is enough.

    ``message`` is what a failed case printed.
    """
    if space.problem:
        return space.problem
    if space.bytes < _SHORT_BYTES or (
        space.bytes < _SUSPECT_BYTES and any(words in message for words in _FULL)
    ):
        return (
            f"no space is left in {space.folder} ({_mib(space.bytes)} free); make room there, or "
            "name another folder with TMPDIR"
        )
    if space.files is not None and space.files < _SHORT_FILES:
        return (
            f"no room is left for files in {space.folder}; make room there, or name another "
            "folder with TMPDIR"
        )
    return ""


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.0f} MiB"


# -- folders of killed runs ------------------------------------------------------------------------


def remove_dead(base: Path) -> int:
    """Remove the folders of this user's dead runs; return their number. Links are not followed."""
    count = 0
    for path in base.glob(f"{PREFIX}*"):
        try:
            descriptor = os.open(path, _FLAGS)
        except OSError:  # no folder, or a link
            continue
        try:
            status = os.fstat(descriptor)
            if status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(path)
                count += not path.exists()
        except OSError:  # its run lives
            pass
        finally:
            os.close(descriptor)
    return count


def _remove(path: Path) -> None:
    """Delete a folder with its contents, also where a case removed the permission to."""
    shutil.rmtree(path, ignore_errors=True)
    if path.exists():
        for root, names, _ in os.walk(path):
            for inner in (os.path.join(root, name) for name in names):
                if not os.path.islink(inner):
                    with contextlib.suppress(OSError):
                        os.chmod(inner, 0o700)
        shutil.rmtree(path, ignore_errors=True)


def remove(path: Path) -> None:
    """Remove what is there; a worker may have made a folder, or a link, which is not followed, in
    its place.
    """
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def open_untrusted(path: Path) -> BinaryIO:
    """Open a regular file for reading without following links; raise ``OSError`` for anything else.

    A worker may have replaced its files by a link out of the run folder or by a pipe that never
    ends.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path.name} is not a regular file")
    return os.fdopen(descriptor, "rb")


def tail(path: Path, limit: int, start: int = 0) -> str:
    """Return the end of a file that a worker left, at most ``limit`` bytes of what is behind
    ``start``; empty where it cannot be read.
    """
    try:
        with open_untrusted(path) as stream:
            size = stream.seek(0, 2)
            stream.seek(max(size - limit, start))
            return stream.read(limit).decode("utf-8", "backslashreplace")
    except OSError:
        return ""
