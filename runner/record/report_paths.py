"""The file that ``--junit`` names: checked before anything runs, and locked while the run writes to it."""

import os
import secrets
from pathlib import Path

from runner.core.diagnostics import UsageError
from runner.record.run_lock import FolderInUse, Holder, RunLock, holder_of

OPTION = "--junit"
JOURNAL = "run.jsonl"
JUNIT = "junit.xml"

_PROBE = 1 << 12
_MOST_NAME = 60
"""How many characters of a report's name its lock's name contains: a file name has at most 255 bytes."""


def require_free_report(path: Path | None, mine: Path | None = None) -> None:
    """Raise ``UsageError`` if the file of ``--junit`` cannot be written, or belongs to a live run; ``mine`` is the folder of this run."""
    if path is None:
        return
    _require_writable(path)
    real = Path(os.path.realpath(path))
    if real.name == JOURNAL:
        raise UsageError(f"{OPTION} {path}: {JOURNAL} is the name of journals; name another file")
    holder = holder_of(real.parent, _lock_name(real))
    if holder is None and real.name == JUNIT and real.parent != mine:
        holder = holder_of(real.parent)
    if holder is not None:
        raise UsageError(_in_use(path, holder))


def lock_of_report(path: Path, run: Path) -> RunLock | None:
    """Lock the file of ``--junit`` with a lock file in its folder, because the report itself is replaced. Special files have no lock."""
    real = Path(os.path.realpath(path))
    if real.exists() and not real.is_file():
        return None
    try:
        return RunLock(real.parent, _lock_name(real), str(run))
    except FolderInUse as error:
        raise UsageError(_in_use(path, error.holder)) from error
    except OSError as error:
        raise UsageError(f"{OPTION} {path}: cannot write beside it: {error.strerror}") from error


def _lock_name(report: Path) -> str:
    return f".{report.name[:_MOST_NAME]}.lock"


def _in_use(path: Path, holder: Holder) -> str:
    run = f" of its run in {holder.run}" if holder.run else " of its run"
    return f"{OPTION} {path}: {holder} writes the report{run} to this file (wait for its end, end it, or name another file)"


def _require_writable(path: Path) -> None:
    """Raise ``UsageError`` if no report can be written to this path; links are followed."""
    if path.is_dir():
        raise UsageError(f"{OPTION} {path}: this is a folder; name a file")
    if path.is_socket() or path.is_block_device():
        raise UsageError(f"{OPTION} {path}: this is {special(path)}; name a file, a named pipe or a character device")
    if path.exists() and not path.is_file():
        if not os.access(path, os.W_OK):
            raise UsageError(f"{OPTION} {path}: it cannot be written to; check its permissions")
        return
    parent = Path(os.path.realpath(path)).parent
    if path.is_symlink() and os.path.islink(os.path.realpath(path)):
        raise UsageError(f"{OPTION} {path}: this link leads to itself; name a file")
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
