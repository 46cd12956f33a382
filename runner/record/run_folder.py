"""The folder of a run: its location, its content, and resuming a run that did not end."""

import itertools
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from runner.core.case import CaseId
from runner.core.diagnostics import UsageError, shown_path
from runner.core.header import RunHeader
from runner.core.results import CaseResult
from runner.record import report_paths
from runner.record.compatibility import Difference, option_differences, variable_differences
from runner.record.journal import JournalError, Run, read_run
from runner.record.report_paths import lock_of_report, must_be_writable, require_free_report, special
from runner.record.run_lock import FolderInUse, RunLock, holder_of
from runner.system.streams import naming

REPORTS = Path("reports")
JOURNAL = report_paths.JOURNAL
JUNIT = report_paths.JUNIT
LATEST = "latest"

_DEEPEST = 8
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_LARGEST = 256 << 20
"""The maximum size in bytes of a file that a merge copies; the limits of a worker's messages, code and traces are much smaller."""


@dataclass
class RunFolder:
    """A run's folder, open for writing."""

    path: Path
    run_id: str
    header: RunHeader | None = None
    """The header of the interrupted run; None for a new run."""
    finished: tuple[CaseResult, ...] = ()
    attempts: Mapping[CaseId, tuple[CaseResult, ...]] = field(default_factory=dict)
    """The attempts of cases that the interrupted run did not finish."""
    junit_files: list[Path] = field(default_factory=list)
    page: str = ""
    """The HTML report as messages show it, once it is written."""
    is_latest: bool = False
    lock: RunLock | None = None
    """The lock on the folder, while this process writes to it."""
    report_lock: RunLock | None = None
    """The lock on the file that ``--junit`` names."""

    def release(self) -> None:
        """Release the locks on the folder and on the report."""
        for lock in (self.report_lock, self.lock):
            if lock is not None:
                lock.release()

    @property
    def journal(self) -> Path:
        """The journal's file."""
        return self.path / JOURNAL

    @property
    def shown_junit(self) -> str:
        """The path of the report as messages show it."""
        return shown_path(REPORTS / LATEST / JUNIT if self.is_latest else self.junit_files[-1])

    def case_folder(self, number: int) -> Path:
        """Return the folder of the ``number``-th case. Ids are no valid folder names."""
        return self.path / "cases" / f"{number:05d}"

    def next_number(self) -> int:
        """Return the first number above those of all existing folders."""
        names = [entry.name for entry in self.path.glob("cases/*") if entry.name.isdecimal()]
        return 1 + max(map(int, names), default=0)

    def claim_report(self, junit: Path | None) -> None:
        """Check that the file of ``--junit`` can be written, before anything runs, and lock it."""
        self.junit_files = [self.path / JUNIT]
        require_free_report(junit, self.path)
        if junit is not None:
            self.report_lock = lock_of_report(junit, self.path)
            self.junit_files.append(junit)
            self.is_latest = False


def open_run(out: Path | None) -> RunFolder:
    """Make the folder of a new run; raise ``UsageError`` if it is not writable, or contains a run already."""
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    run_id = f"{moment}-{secrets.token_hex(3)}"
    path = (out if out is not None else REPORTS / run_id).absolute()
    if os.path.lexists(path) and not path.is_dir():
        raise UsageError(f"--out {out}: this is {'a file' if path.is_file() else special(path)}, and no folder; name another")
    _refuse_run(path, out)
    must_be_writable(path)
    lock = _lock(path)
    try:
        _refuse_run(path, out, mine=True)  # another run may have begun and ended in the meantime
    except UsageError:
        lock.release()
        raise
    folder = RunFolder(path=path, run_id=run_id, lock=lock)
    if out is None:
        folder.is_latest = _point_latest(path)
    return folder


def _refuse_run(path: Path, out: Path | None, *, mine: bool = False) -> None:
    holder = None if mine else holder_of(path)
    if holder is not None:
        raise UsageError(str(FolderInUse(path, holder)))
    if _holds_run(path):
        raise UsageError(f"--out {out}: this folder holds a run already; name another, or --resume it")


def _lock(path: Path) -> RunLock:
    try:
        return RunLock(path)
    except FolderInUse as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        raise UsageError(f"cannot write to {path}: {error.strerror}") from error


def require_still(name: str, path: Path) -> None:
    """Raise ``UsageError`` if a process is still writing the run."""
    holder = holder_of(path)
    if holder is not None:
        raise UsageError(f"{name}: {holder} is still writing this run in {path}; wait for its end")


def _holds_run(path: Path) -> bool:
    try:
        return (path / JOURNAL).stat().st_size > 0  # the journal of a run that never began is empty
    except OSError:
        return False


def _point_latest(path: Path) -> bool:
    """Point ``reports/latest`` to the run atomically; return False if links are not supported."""
    temporary = path.parent / f".latest-{secrets.token_hex(4)}"
    try:
        temporary.symlink_to(path.name)
        os.replace(temporary, path.parent / LATEST)
    except OSError:
        temporary.unlink(missing_ok=True)
        return False
    return True


def find_run(name: str) -> Path:
    """Return the folder of a run that is named by its folder, its id or ``latest``; raise ``UsageError``."""
    for path in (Path(name), REPORTS / name):
        if os.path.isfile(path / JOURNAL):
            return path.absolute()
        if os.path.lexists(path / JOURNAL):
            raise UsageError(f"{name}: {path / JOURNAL} is {special(path / JOURNAL)}; the journal of a run is a regular file")
    raise UsageError(f"no run '{name}': neither {name}/{JOURNAL} nor {REPORTS / name}/{JOURNAL} exists")


def resume_run(name: str, now: RunHeader, digests: Mapping[str, str], files: Mapping[str, str], out: Path | None = None) -> RunFolder:
    """Return the folder of an incomplete run, with its results; raise ``UsageError`` if it cannot be resumed.

    ``now`` is the header that this command would write, ``digests`` are those of the selected cases by id, ``files`` those of backends
    and waivers. A run without a judged case starts again, in its folder.
    """
    path = find_run(name)
    if out is not None and out.absolute() != path:
        raise UsageError(f"--resume {name} --out {out}: a resumed run stays in its folder; remove --out")
    lock = _lock(path)
    try:
        return replace(_resumed(path, name, now, digests, files), lock=lock)
    except BaseException:
        lock.release()
        raise


def _resumed(path: Path, name: str, now: RunHeader, digests: Mapping[str, str], files: Mapping[str, str]) -> RunFolder:
    try:
        run = read_run(path / JOURNAL)
    except JournalError as error:
        if not (path / JOURNAL).stat().st_size:
            hint = f"write the same command with --out {shown_path(path)} in place of --resume"
            raise UsageError(f"--resume {name}: that run ended before anything was recorded; {hint}") from error
        raise UsageError(f"--resume {name}: {path / JOURNAL}:{error.line}: {error.reason}") from error
    if run.has_come_to_its_end:
        raise UsageError(f"--resume {name}: this run came to its end; run the failures with --select")
    problem = _why_another(run, now, digests, files)
    if problem:
        raise UsageError(f"--resume {name}: {problem}; begin a new run, or resume with the command of that run")
    begun = RunFolder(path=path, run_id=run.header.run_id)
    return replace(begun, header=run.header, finished=run.finished, attempts=run.attempts) if run.has_something else begun


def _why_another(run: Run, now: RunHeader, digests: Mapping[str, str], files: Mapping[str, str]) -> str:
    """Return why this command is not compatible with the interrupted run; empty if it is."""
    then = run.header
    if then.merged:
        return "this run was joined from others, and ran nothing itself"
    if not then.selection:
        return "its journal is of an older version, which does not say what was selected"
    if then.version != now.version:
        return f"it was begun by version {then.version}, and this is {now.version}"
    options = option_differences(now.options, then.options)
    if options:
        return f"this command differs from that run's: {_in_words(options)}"
    recorded = itertools.chain(run.results, *run.attempts.values())
    changed = [result.case_id for result in recorded if digests.get(result.case_id) != result.digest]
    if changed:
        return f"{changed[0]} is not the case that was run then"
    if then.profile != now.profile:
        return "the profile requires other cases than then, or permits other waivers"
    if then.selection != now.selection:
        return f"other cases are selected than then, or a case has changed: {then.selected_whole} then, {now.selected_whole} now"
    other = [file for file, digest in files.items() if then.specs.get(file) != digest]
    if other:
        return f"{other[0]} is not the file that was read then"
    return _in_words(variable_differences(now.variables, then.variables))


def _in_words(found: Sequence[Difference]) -> str:
    return "; ".join(difference.between("now", "then") for difference in found)


def copy_evidence(source: Path, folders: Mapping[str, str], target: Path) -> list[str]:
    """Copy the artifacts of cases from one run's folder to another's; ``folders`` maps old to new names.

    The files are untrusted: no link is followed, and special files are not copied. Returns the files that were not copied, with reasons.
    """
    left: list[str] = []
    for name, new in folders.items():
        try:
            descriptor = _open_folder(source, name)
        except OSError as error:
            left.append(f"{source / name}: {error.strerror}")
            continue
        left += _copy_folder(descriptor, source / name, target / new)
    return left


def _copy_folder(descriptor: int, shown_as: Path, target: Path, depth: int = 0) -> Iterator[str]:
    """Copy the content of an open folder, and close it; yield the files that were not copied."""
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name in sorted(os.listdir(descriptor)):
            try:
                mode = os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode
                is_folder = stat.S_ISDIR(mode) and depth < _DEEPEST
                flags = _FOLDER_FLAGS if is_folder else os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
                source = os.open(name, flags | os.O_NOFOLLOW, dir_fd=descriptor)
            except OSError as error:
                yield f"{shown_as / name}: {error.strerror}"
                continue
            if is_folder:
                yield from _copy_folder(source, shown_as / name, target / name, depth + 1)
            elif why := _copy_file(source, target / name):
                yield f"{shown_as / name}: {why}"
    finally:
        os.close(descriptor)


def _open_folder(source: Path, name: str) -> int:
    """Open a folder below another without following links."""
    descriptor = os.open(source, _FOLDER_FLAGS)
    for part in Path(name).parts:
        try:
            inner = os.open(part, _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        descriptor = inner
    return descriptor


def _copy_file(source: int, target: Path) -> str:
    """Copy an open file, and close it; return why it was not copied, empty if it was."""
    status = os.fstat(source)
    if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST:
        os.close(source)
        return f"it is larger than {_LARGEST >> 20} MiB" if stat.S_ISREG(status.st_mode) else "this is no file"
    with os.fdopen(source, "rb") as stream, naming(target), target.open("xb") as copy:
        shutil.copyfileobj(stream, copy)
    return ""
