"""The folder of a run: its location, its content, its locks, and the reports that options name."""

import contextlib
import fcntl
import json
import os
import secrets
import socket
import stat
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from torch_conformance.machine import cache_dirs
from torch_conformance.machine.scratch import tail
from torch_conformance.model.case import CaseId
from torch_conformance.model.diagnostics import UsageError
from torch_conformance.model.header import RunHeader
from torch_conformance.model.results import Redacted

REPORTS = Path("reports")
JOURNAL = "run.jsonl"
JUNIT = "junit.xml"
LATEST = "latest"
LAST_RUNS = "last-runs.jsonl"
"""A list in the cache folder, from which ``--last-failed`` takes the last run of its paths."""

_PROBE = 1 << 12
_MOST_BYTES = 1 << 18
"""At this size the list of runs begins anew."""
_MOST_NAME = 60
"""How many characters of a report's name its lock's name contains: a file name has at most 255
bytes.
"""


# -- locks -----------------------------------------------------------------------------------------

LOCK = "run.lock"
"""The lock file in a run's folder.

It contains the process; the lock itself is an ``flock``, so that a killed run locks nothing.
"""

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
        who = f"process {self.pid}" if self.pid else "another process"
        return who if self.host in ("", socket.gethostname()) else f"{who} on {self.host}"


class FolderInUse(UsageError):
    """Another process writes a run to this folder."""

    def __init__(self, folder: Path, holder: Holder) -> None:
        self.holder = holder
        super().__init__(
            f"{folder}: {holder} is writing a run there (wait for its end, end it, or name "
            "another folder)"
        )


class RunLock:
    """A lock on a folder, or on one file in it; the constructor locks.

    Raises ``FolderInUse``, or ``UsageError`` without a lock file.

    ``name`` is the name of the lock file; ``run`` is written to it for messages of other processes.
    """

    def __init__(self, folder: Path, name: str = LOCK, run: str = "") -> None:
        self._path = folder / name
        for attempt in range(_ATTEMPTS):  # ``holder_of`` in another process locks it for a moment
            try:
                descriptor = os.open(
                    self._path,
                    os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC,
                    0o644,
                )
            except OSError as error:
                raise UsageError(f"cannot write to {folder}: {error.strerror}") from error
            holder = _holder(descriptor, fcntl.LOCK_EX)
            if holder is None and self._is_at(descriptor):  # else its holder removed it in between
                break
            os.close(descriptor)
            if attempt == _ATTEMPTS - 1:
                raise FolderInUse(folder, holder or Holder(0, ""))
            time.sleep(_PAUSE)
        self._descriptor = descriptor
        self._close = weakref.finalize(self, os.close, descriptor)
        os.ftruncate(descriptor, 0)
        os.pwrite(
            descriptor,
            f"{os.getpid()} {socket.gethostname()}\n{run}"[:_LONGEST].encode(
                "utf-8", "surrogateescape"
            ),
            0,
        )

    def release(self) -> None:
        """Remove the file and the lock; a second call does nothing."""
        if self._close.alive:
            with contextlib.suppress(OSError):
                if self._is_at(self._descriptor):
                    self._path.unlink()
            self._close()

    def _is_at(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.lstat(self._path), os.fstat(descriptor))
        except FileNotFoundError:
            return False


def holder_of(folder: Path, name: str = LOCK) -> Holder | None:
    """Return the process that holds a lock now; None if no process does."""
    try:
        descriptor = os.open(
            folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        )
    except OSError:
        return None
    try:
        return _holder(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _holder(descriptor: int, kind: int) -> Holder | None:
    """Lock a file; return the process that holds it where that is impossible."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        first, _, run = (
            os.pread(descriptor, 4 * _LONGEST, 0).decode("utf-8", "replace").strip().partition("\n")
        )
        pid, _, host = first.partition(" ")
        return Holder(
            int(pid) if pid.isascii() and pid.isdecimal() and len(pid) < 10 else 0, host, run
        )
    except OSError:  # a file system without locks: the journal notices a second writer
        pass
    return None


# -- the folder ------------------------------------------------------------------------------------


@dataclass
class RunFolder:
    """A run's folder, open for writing."""

    path: Path
    run_id: str
    header: RunHeader | None = None
    """The header of the interrupted run; None for a new run."""
    finished: tuple[Redacted, ...] = ()
    attempts: Mapping[CaseId, tuple[Redacted, ...]] = field(default_factory=dict)
    """The attempts of cases that the interrupted run did not finish."""
    page: str = ""
    """The HTML report as messages show it, once it is written."""
    is_latest: bool = False
    locks: list[RunLock] = field(default_factory=list)
    """The locks on the folder and on the files of reports, while this process writes to them."""

    def release(self) -> None:
        """Release the locks, that on the folder last."""
        for lock in reversed(self.locks):
            lock.release()

    def next_number(self) -> int:
        """Return the first number above those of all existing folders."""
        names = [entry.name for entry in self.path.glob("cases/*") if entry.name.isdecimal()]
        return 1 + max(map(int, names), default=0)

    def claim_reports(self, files: Mapping[str, Path]) -> None:
        """Lock the files of reports (``report_files``), each by a file in its folder, as the report
        is replaced; special files have no lock.
        """
        for option, path in files.items():
            real = Path(os.path.realpath(path))
            if real.exists() and not real.is_file():
                continue
            try:
                self.locks.append(RunLock(real.parent, _lock_name(real), str(self.path)))
            except FolderInUse as error:
                raise UsageError(_in_use(option, path, error.holder)) from error


def new_run_id() -> str:
    """Return an id for a new run, which is the name of its folder where no other is named."""
    return f"{datetime.now(UTC).strftime('%Y%m%dT%H%M%SZ')}-{secrets.token_hex(3)}"


def open_run(out: Path | None, run_id: str = "") -> RunFolder:
    """Make the folder of a new run; raise ``UsageError`` if it is not writable, or contains a run
    already.
    """
    run_id = run_id or new_run_id()
    path = (out if out is not None else REPORTS / run_id).absolute()
    if os.path.lexists(path) and not path.is_dir():
        raise UsageError(
            f"--out {out}: this is {'a file' if path.is_file() else special(path)}, and no "
            "folder; name another"
        )
    must_be_writable(path)
    lock = RunLock(path)
    with contextlib.suppress(FileNotFoundError):
        if (path / JOURNAL).stat().st_size > 0:  # the journal of a run that never began is empty
            lock.release()
            raise UsageError(
                f"--out {out}: this folder holds a run already; name another, or --resume it"
            )
    folder = RunFolder(path=path, run_id=run_id, locks=[lock])
    if out is None:
        # point to the run, where links are supported
        temporary = path.parent / f".latest-{secrets.token_hex(4)}"
        try:
            temporary.symlink_to(path.name)
            os.replace(temporary, path.parent / LATEST)
            folder.is_latest = True
        except OSError:
            temporary.unlink(missing_ok=True)
    return folder


def require_still(name: str, path: Path) -> None:
    """Raise ``UsageError`` if a process is still writing the run."""
    holder = holder_of(path)
    if holder is not None:
        raise UsageError(f"{name}: {holder} is still writing this run in {path}; wait for its end")


def find_run(name: str) -> Path:
    """Return the folder of a run that is named by its folder, its id or ``latest``; raise
    ``UsageError``.
    """
    for path in (Path(name), REPORTS / name):
        if os.path.isfile(path / JOURNAL):
            return path.absolute()
        if os.path.lexists(path / JOURNAL):
            raise UsageError(
                f"{name}: {path / JOURNAL} is {special(path / JOURNAL)}; the journal of a run "
                "is a regular file"
            )
    raise UsageError(
        f"no run '{name}': neither {name}/{JOURNAL} nor {REPORTS / name}/{JOURNAL} exists"
    )


def remember(folder: Path, paths: Sequence[Path]) -> None:
    """Add a run of some paths to the list of runs; a cache may be missing."""
    with contextlib.suppress(OSError, UsageError):
        place = cache_dirs.private_folder(cache_dirs.home(), cache_dirs.VARIABLE)
        with (place / LAST_RUNS).open("a", encoding="utf-8") as stream:
            if stream.tell() > _MOST_BYTES:
                stream.truncate(0)
            stream.write(
                json.dumps([str(folder), os.getcwd(), *(str(path.resolve()) for path in paths)])
                + "\n"
            )


def last_run_of(paths: Sequence[Path]) -> str:
    """Return the folder of the last run of these specs, or of the last one that began in this
    folder; else ``latest``.
    """
    mine = [path.resolve() for path in paths]
    for line in reversed(tail(cache_dirs.home() / LAST_RUNS, 2 * _MOST_BYTES).splitlines()):
        try:
            folder, began_in, *names = map(str, json.loads(line))
        except (ValueError, TypeError):
            continue
        theirs = list(map(Path, names))
        is_same = any(
            path.is_relative_to(other) or other.is_relative_to(path)
            for path in mine
            for other in theirs
        )
        if (is_same if mine and theirs else began_in == os.getcwd()) and os.path.isfile(
            Path(folder, JOURNAL)
        ):
            return folder
    return LATEST


# -- the reports that options name: checked before anything runs, and locked while the run writes to


def require_free_reports(files: Mapping[str, Path]) -> None:
    """Raise ``UsageError`` if the file of a report, by its option, cannot be written, or belongs to
    a live run; links are followed.
    """
    for option, path in files.items():
        real = Path(os.path.realpath(path))
        if path.is_dir():
            raise UsageError(f"{option} {path}: this is a folder; name a file")
        if path.is_socket() or path.is_block_device():
            raise UsageError(
                f"{option} {path}: this is {special(path)}; name a file, a named pipe or a "
                "character device"
            )
        if path.exists() and not path.is_file():
            if not os.access(path, os.W_OK):
                raise UsageError(f"{option} {path}: it cannot be written to; check its permissions")
        elif path.is_symlink() and os.path.islink(real):
            raise UsageError(f"{option} {path}: this link leads to itself; name a file")
        else:
            must_be_writable(real.parent)
        if real.name == JOURNAL:
            raise UsageError(
                f"{option} {path}: {JOURNAL} is the name of journals; name another file"
            )
        holder = holder_of(real.parent, _lock_name(real))
        if holder is None and real.name == JUNIT:
            holder = holder_of(real.parent)
        if holder is not None:
            raise UsageError(_in_use(option, path, holder))


def _lock_name(report: Path) -> str:
    return f".{report.name[:_MOST_NAME]}.lock"


def _in_use(option: str, path: Path, holder: Holder) -> str:
    run = f" of its run in {holder.run}" if holder.run else " of its run"
    return (
        f"{option} {path}: {holder} writes the report{run} to this file (wait for its end, end "
        "it, or name another file)"
    )


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
    """Return the type of a path that is not a regular file."""
    try:
        kind = stat.S_IFMT(path.stat().st_mode)
    except OSError:
        return "a link that leads nowhere"
    return _SPECIAL.get(kind, "no regular file")


_SPECIAL = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
}
