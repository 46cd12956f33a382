"""The folders of data that the project ships, and the cache folder: what zygotes built while they
warmed up, and names of torch.

Later runs trust these files, so no other user may write to the folder.
"""

import contextlib
import os
import stat
from pathlib import Path

from torch_conformance.model.diagnostics import UsageError

VARIABLE = "TORCH_CONFORMANCE_CACHE"
"""The environment variable with the path of the folder."""


def home() -> Path:
    """Return the cache folder; it may not exist."""
    if folder := os.environ.get(VARIABLE):
        return Path(folder).absolute()
    base = os.environ.get("XDG_CACHE_HOME", "")
    # the XDG specification: a relative path is invalid and is ignored
    return (
        Path(base) if os.path.isabs(base) else Path(os.path.expanduser("~")) / ".cache"
    ).absolute() / "torch-conformance"


def cache_folder(name: str) -> Path | None:
    """Return a folder of the cache, creating it if needed; None if it cannot be created.

    ``warm`` is what zygotes build while they warm up.

    Raise ``UsageError`` if other users can write to it.
    """
    try:
        return private_folder(private_folder(home(), VARIABLE) / name, VARIABLE)
    except OSError:
        if os.environ.get(VARIABLE):
            raise UsageError(
                f"{VARIABLE}={home()}: this folder cannot be created; name another one, or "
                "unset the variable"
            ) from None
        return None  # the home folder is not writable, as in many containers: no cache


def private_folder(path: Path, instead: str) -> Path:
    """Create a private folder of this user, or check that an existing one is private; raise
    ``OSError`` or ``UsageError``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        raise UsageError(f"{path}: this is a symbolic link; name the folder itself with {instead}")
    if not stat.S_ISDIR(status.st_mode):
        raise UsageError(f"{path}: this is not a folder; name one with {instead}")
    if status.st_uid != os.geteuid():
        raise UsageError(
            f"{path}: this folder belongs to another user (uid {status.st_uid}); name one of "
            f"your own with {instead}"
        )
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UsageError(
            f"{path}: other users can write to this folder (mode "
            f"{stat.S_IMODE(status.st_mode):04o}); chmod 700 it, or use {instead}"
        )
    return path


_PACKAGE = Path(__file__).resolve().parents[1]


def folder(name: str) -> Path:
    """Return the folder ``specs``, ``schemas`` or ``templates``; raise ``FileNotFoundError`` if
    neither place has it.
    """
    for base in (_PACKAGE.parents[1], _PACKAGE / "_data"):
        if (base / "schemas" / "spec.schema.json").is_file() and (base / name).is_dir():
            return base / name
    raise FileNotFoundError(f"the data folder '{name}' is missing from the installation")
