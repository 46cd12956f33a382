"""The cache of specs: files that ``list`` and ``validate`` keep of specs without a problem. Content is data and is never executed.

A file begins with a keyed digest of its content. The key lies beside the files and only its user can read it, so a file that was changed,
or written by somebody without the key, is not used. Code of the same user can read the key, as it can change the specs themselves; that is
why a run, and everything else that decides an outcome, reads the specs and never this cache.
"""

import contextlib
import hashlib
import hmac
import os
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path

from runner.core.diagnostics import UsageError
from runner.system.cache_dirs import VARIABLE, home, private_folder
from runner.system.safe_open import open_untrusted

MOST_BYTES = 256 << 20
"""The maximum size of all files, in bytes."""

_MAGIC = b"torch-conformance specs 1\n"
_KEY = "key"
_SUFFIX = ".specs"
_KEY_BYTES = 32
_DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True)
class SpecCache:
    """The files of one folder."""

    folder: Path
    key: bytes

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None if there is none, or if it was not written with the key."""
        try:
            with open_untrusted(self._path(name)) as stream:
                _must_be_private(os.fstat(stream.fileno()), name)
                data = stream.read(MOST_BYTES + 1)
        except (OSError, UsageError):
            return None
        start = len(_MAGIC) + _DIGEST_BYTES
        if len(data) > MOST_BYTES or not data.startswith(_MAGIC):
            return None
        is_ours = hmac.compare_digest(data[len(_MAGIC) : start], self._digest(name, data[start:]))
        return data[start:] if is_ours else None

    def write(self, name: str, body: bytes) -> None:
        """Replace a file. A disk that is full, or a folder that cannot be written, leaves the old one."""
        data = b"".join([_MAGIC, self._digest(name, body), body])
        if len(data) > MOST_BYTES:
            return
        temporary = self.folder / f".{secrets.token_hex(8)}.part"
        with contextlib.suppress(OSError):
            try:
                _create(temporary, data)
                os.replace(temporary, self._path(name))
            except OSError:
                temporary.unlink(missing_ok=True)
            self._prune(keep=self._path(name))

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}{_SUFFIX}"

    def _digest(self, name: str, body: bytes) -> bytes:
        state = hashlib.blake2b(key=self.key, digest_size=_DIGEST_BYTES)
        state.update(name.encode())
        state.update(b"\0")
        state.update(body)
        return state.digest()

    def _prune(self, keep: Path) -> None:
        """Delete the oldest files until the folder holds at most ``MOST_BYTES``."""
        files = sorted(_files(self.folder), key=lambda file: file.stat().st_mtime)
        total = sum(file.stat().st_size for file in files)
        for file in files:
            if total <= MOST_BYTES or file == keep:
                break
            total -= file.stat().st_size
            file.unlink()


def folder() -> Path:
    """Return where the files lie; the folder may not exist."""
    return home() / "specs"


def opened() -> SpecCache | None:
    """Return the cache, making its folder and its key if needed; None if they cannot be made.

    Raise ``UsageError`` if another user owns the folder, or could write to it or read the key.
    """
    try:
        private_folder(home(), f"{VARIABLE}, or --no-cache")
        return SpecCache(private_folder(folder(), f"{VARIABLE}, or --no-cache"), _key(folder() / _KEY))
    except OSError:
        return None


def refusal() -> str:
    """Return why an existing cache is not used; empty if nothing speaks against it, or if there is none."""
    try:
        return "" if not folder().is_dir() or opened() else f"{folder()} cannot be read"
    except UsageError as error:
        return str(error)


def usage() -> tuple[int, int]:
    """Return the number of files and their size in bytes."""
    sizes = [file.lstat().st_size for file in _files(folder())]
    return len(sizes), sum(sizes)


def _files(inside: Path) -> list[Path]:
    try:
        return [Path(entry.path) for entry in os.scandir(inside) if entry.name.endswith(_SUFFIX) and entry.is_file(follow_symlinks=False)]
    except OSError:
        return []


def _key(path: Path) -> bytes:
    if not os.path.lexists(path):
        temporary = path.parent / f".{secrets.token_hex(8)}.part"
        _create(temporary, secrets.token_bytes(_KEY_BYTES))
        with contextlib.suppress(FileExistsError):  # another process made one at the same time: its key counts
            os.link(temporary, path)
        temporary.unlink()
    with open_untrusted(path) as stream:
        _must_be_private(os.fstat(stream.fileno()), str(path))
        key = stream.read(_KEY_BYTES)
    if len(key) < _KEY_BYTES:
        raise UsageError(f"{path}: the key of the cache is incomplete; delete this folder")
    return key


def _create(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(data)


def _must_be_private(found: os.stat_result, path: str) -> None:
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise UsageError(f"{path}: other users can read or write this file of the cache; delete the folder that it is in")
