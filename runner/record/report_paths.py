"""The files that a run's options name for reports: checked before anything runs, and locked while the run writes to them."""

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from runner.core.diagnostics import UsageError
from runner.record.run_lock import FolderInUse, Holder, RunLock, holder_of

JOURNAL = "run.jsonl"
JUNIT = "junit.xml"

_PROBE = 1 << 12
_MOST_NAME = 60
"""How many characters of a report's name its lock's name contains: a file name has at most 255 bytes."""


def require_free_reports(files: Mapping[str, Path], mine: Path | None = None) -> None:
    """Raise ``UsageError`` if a file cannot be written, belongs to a live run, or is named twice. ``files``: paths by their option."""
    named: dict[Path, str] = {}
    for option, path in files.items():
        _require_free(option, path, mine)
        real = Path(os.path.realpath(path))
        if is_replaced(path) and (other := named.setdefault(real, option)) != option:
            raise UsageError(f"{other} and {option}: both name {path}; name two files")


def is_replaced(path: Path) -> bool:
    """Whether a report at this path replaces a file; pipes and devices are written to."""
    return path.is_file() or not path.exists()


def _require_free(option: str, path: Path, mine: Path | None) -> None:
    _require_writable(option, path)
    real = Path(os.path.realpath(path))
    if real.name == JOURNAL:
        raise UsageError(f"{option} {path}: {JOURNAL} is the name of journals; name another file")
    holder = holder_of(real.parent, _lock_name(real))
    if holder is None and real.name == JUNIT and real.parent != mine:
        holder = holder_of(real.parent)
    if holder is not None:
        raise UsageError(_in_use(option, path, holder))


def lock_of_report(option: str, path: Path, run: Path) -> RunLock | None:
    """Lock the file of an option with a lock file in its folder, because the report itself is replaced. Special files have no lock."""
    real = Path(os.path.realpath(path))
    if not is_replaced(real):
        return None
    try:
        return RunLock(real.parent, _lock_name(real), str(run))
    except FolderInUse as error:
        raise UsageError(_in_use(option, path, error.holder)) from error
    except OSError as error:
        raise UsageError(f"{option} {path}: cannot write beside it: {error.strerror}") from error


def _lock_name(report: Path) -> str:
    return f".{report.name[:_MOST_NAME]}.lock"


def _in_use(option: str, path: Path, holder: Holder) -> str:
    run = f" of its run in {holder.run}" if holder.run else " of its run"
    return f"{option} {path}: {holder} writes the report{run} to this file (wait for its end, end it, or name another file)"


def _require_writable(option: str, path: Path) -> None:
    """Raise ``UsageError`` if no report can be written to the path of an option; links are followed."""
    if path.is_dir():
        raise UsageError(f"{option} {path}: this is a folder; name a file")
    if path.is_socket() or path.is_block_device():
        raise UsageError(f"{option} {path}: this is {special(path)}; name a file, a named pipe or a character device")
    if path.exists() and not path.is_file():
        if not os.access(path, os.W_OK):
            raise UsageError(f"{option} {path}: it cannot be written to; check its permissions")
        return
    parent = Path(os.path.realpath(path)).parent
    if path.is_symlink() and os.path.islink(os.path.realpath(path)):
        raise UsageError(f"{option} {path}: this link leads to itself; name a file")
    must_be_writable(parent)


def must_be_writable(path: Path) -> None:
    """Make a folder; raise ``UsageError`` if no file can be written in it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f".writable-{secrets.token_hex(4)}"
        probe.write_bytes(bytes(_PROBE))  # empty files can be created on a full disk
        probe.unlink()
    except OSError as error:
        raise UsageError(f"cannot write to {path}: {error.strerror}") from error


def special(path: Path) -> str:
    """Return the type of a path that is no regular file: a folder, a named pipe, a device, a broken link."""
    kinds = ((Path.is_dir, "a folder"), (Path.is_fifo, "a named pipe"), (Path.is_socket, "a socket"))
    devices = ((Path.is_char_device, "a character device"), (Path.is_block_device, "a block device"))
    found = next((words for test, words in (*kinds, *devices) if test(path)), "")
    return found or ("a link that leads nowhere" if path.is_symlink() and not path.exists() else "no regular file")
