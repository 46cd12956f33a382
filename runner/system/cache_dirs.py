"""The folder of ours in which something outlives a run: answers about the machine, and compiled objects where the user wants them.

What lies there is believed by later runs, so nobody else may write to it.
"""

import contextlib
import os
import re
import stat
import time
from dataclasses import dataclass
from pathlib import Path

from runner.core.diagnostics import UsageError

VARIABLE = "TORCH_CONFORMANCE_CACHE"
"""The variable that names the folder."""

OBJECT_BYTES = 2 << 30
"""The most that the folder of compiled objects holds when a run has ended."""

WARM_BYTES = 1 << 30
"""The most that templates keep of what they build while they warm up; a precompiled header takes some 200 MB."""

_FOLDER = re.compile(r"[0-9a-f]{2}")
_ENTRY = re.compile(r"[0-9a-f]{64}\.object")
_TEMPORARY = re.compile(r"\.[0-9a-f]+\.part")
_ABANDONED_SECONDS = 3600.0
"""After this long nobody writes to a temporary file any more."""


def home() -> Path:
    """Return the folder; it need not exist."""
    if named := os.environ.get(VARIABLE):
        return Path(named).absolute()
    base = os.environ.get("XDG_CACHE_HOME", "")
    # the XDG specification: a relative path is invalid and to be ignored
    return (Path(base) if os.path.isabs(base) else Path(os.path.expanduser("~")) / ".cache").absolute() / "torch-conformance"


def answers_folder() -> Path | None:
    """Return the folder for answers about the machine, made where it is not there; None where none can be made.

    Raise ``UsageError`` where there is one that others can write to.
    """
    try:
        return _private(home(), f"{VARIABLE}, or --no-kept")
    except OSError:
        if os.environ.get(VARIABLE):
            raise UsageError(f"{VARIABLE}={home()}: this folder cannot be made; name another, or leave it out") from None
        return None  # a home that cannot be written to, as in many containers: nothing is kept


def object_folder(named: Path | None) -> Path | None:
    """Return the folder of ``--object-cache``, made where it is not there: None for None, the default for an empty path.

    Raise ``UsageError`` for a folder that others can write to, or that holds anything else: at the end of a run entries are deleted.
    """
    if named is None:
        return None
    is_default = not named.parts
    try:
        path = _private(home(), f"{VARIABLE}, or --object-cache DIR") / "objects" if is_default else named.absolute()
        _private(path, "--object-cache DIR")
        strange = next((name for name in sorted(os.listdir(path)) if not _FOLDER.fullmatch(name)), None)
    except OSError as error:
        raise UsageError(f"--object-cache {named if not is_default else home()}: {error.strerror}; name another folder") from error
    if strange is not None:
        raise UsageError(
            f"--object-cache {named}: this folder holds other things ('{strange}'); name a new folder. "
            "Where it was meant as a PATH to run, write the paths before --object-cache"
        )
    return path


def _private(path: Path, instead: str) -> Path:
    """Make a folder for this user alone, or see that it is one; raise ``OSError`` or ``UsageError``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        raise UsageError(f"{path}: this is a link; name the folder itself with {instead}")
    if not stat.S_ISDIR(found.st_mode):
        raise UsageError(f"{path}: this is no folder; name one with {instead}")
    if found.st_uid != os.geteuid():
        raise UsageError(f"{path}: this folder is another user's (uid {found.st_uid}); name one of yours with {instead}")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UsageError(
            f"{path}: others can write to this folder (mode {stat.S_IMODE(found.st_mode):04o}); chmod 700 it, or use {instead}"
        )
    return path


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    path: str
    size: int
    used: float


def prune(folder: Path, most: int = OBJECT_BYTES) -> int:
    """Delete the least recently used objects until the folder holds at most ``most`` bytes; return how many went.

    Deletes nothing but what has the name of an entry, and follows no link: a worker could have put one anywhere.
    """
    entries = sorted(_entries(folder), key=lambda entry: entry.used)
    total = sum(entry.size for entry in entries)
    gone = 0
    for entry in entries:
        if total <= most:
            break
        with contextlib.suppress(OSError):
            os.unlink(entry.path)
            gone += 1
        total -= entry.size
    return gone


def _entries(folder: Path) -> list[_Entry]:
    found: list[_Entry] = []
    for inner in _scan(os.fspath(folder)):
        if not _FOLDER.fullmatch(inner.name) or not inner.is_dir(follow_symlinks=False):
            continue
        for item in _scan(inner.path):
            with contextlib.suppress(OSError):
                known = item.stat(follow_symlinks=False)
                if _ENTRY.fullmatch(item.name):
                    found.append(_Entry(path=item.path, size=known.st_size, used=known.st_mtime))
                elif _TEMPORARY.fullmatch(item.name) and known.st_mtime < time.time() - _ABANDONED_SECONDS:
                    os.unlink(item.path)
    return found


def _scan(folder: str) -> "list[os.DirEntry[str]]":
    try:
        with os.scandir(folder) as items:
            return list(items)
    except OSError:
        return []
