"""The cache folder: cached probe results, and compiled objects if the user enables the object cache.

Later runs trust these files, so no other user may write to the folder.
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
"""The environment variable with the path of the folder."""

OBJECT_BYTES = 2 << 30
"""The maximum size of the object cache after a run, in bytes."""

WARM_BYTES = 1 << 30
"""The maximum size of what zygotes cache while they warm up, in bytes. A precompiled header takes some 200 MB."""

_FOLDER = re.compile(r"[0-9a-f]{2}")
_ENTRY = re.compile(r"[0-9a-f]{64}\.object")
_TEMPORARY = re.compile(r"\.[0-9a-f]+\.part")
_ABANDONED_SECONDS = 3600.0
"""A temporary file older than this is deleted."""


def home() -> Path:
    """Return the cache folder; it may not exist."""
    if named := os.environ.get(VARIABLE):
        return Path(named).absolute()
    base = os.environ.get("XDG_CACHE_HOME", "")
    # the XDG specification: a relative path is invalid and is ignored
    return (Path(base) if os.path.isabs(base) else Path(os.path.expanduser("~")) / ".cache").absolute() / "torch-conformance"


def probe_cache_folder() -> Path | None:
    """Return the folder for cached probe results, creating it if needed; None if it cannot be created.

    Raise ``UsageError`` if other users can write to it.
    """
    try:
        return private_folder(home(), f"{VARIABLE}, or --no-kept")
    except OSError:
        if os.environ.get(VARIABLE):
            raise UsageError(f"{VARIABLE}={home()}: this folder cannot be created; name another one, or unset the variable") from None
        return None  # the home folder is not writable, as in many containers: no cache


def object_folder(named: Path | None) -> Path | None:
    """Return the folder of ``--object-cache``, creating it if needed: None for None, the default for an empty path.

    Raise ``UsageError`` if other users can write to it or if it holds other files, because entries are deleted at the end of a run.
    """
    if named is None:
        return None
    is_default = not named.parts
    try:
        path = private_folder(home(), f"{VARIABLE}, or --object-cache DIR") / "objects" if is_default else named.absolute()
        private_folder(path, "--object-cache DIR")
        foreign = next((name for name in sorted(os.listdir(path)) if not _FOLDER.fullmatch(name)), None)
    except OSError as error:
        raise UsageError(f"--object-cache {named if not is_default else home()}: {error.strerror}; name another folder") from error
    if foreign is not None:
        raise UsageError(
            f"--object-cache {named}: this folder holds other files ('{foreign}'); name a new folder. "
            "If it is a PATH to run, write the paths before --object-cache"
        )
    return path


def private_folder(path: Path, instead: str) -> Path:
    """Create a private folder of this user, or check that an existing one is private; raise ``OSError`` or ``UsageError``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        raise UsageError(f"{path}: this is a symbolic link; name the folder itself with {instead}")
    if not stat.S_ISDIR(found.st_mode):
        raise UsageError(f"{path}: this is not a folder; name one with {instead}")
    if found.st_uid != os.geteuid():
        raise UsageError(f"{path}: this folder belongs to another user (uid {found.st_uid}); name one of your own with {instead}")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UsageError(
            f"{path}: other users can write to this folder (mode {stat.S_IMODE(found.st_mode):04o}); chmod 700 it, or use {instead}"
        )
    return path


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    path: str
    size: int
    used: float


def prune(folder: Path, most: int = OBJECT_BYTES) -> int:
    """Delete the least recently used objects until the folder holds at most ``most`` bytes; return the number of deleted objects.

    Only files with the name of an entry are deleted. Links are not followed, because a worker can create links.
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
