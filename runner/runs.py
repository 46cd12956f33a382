"""The folder of a run: where it lies, what is in it, and going on with one that did not end."""

import itertools
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from runner.diagnostics import UsageError
from runner.language.source import shown
from runner.model import Case, CaseId, CaseResult
from runner.plan import digest_of
from runner.record import JournalError, RunHeader, read_run

REPORTS = Path("reports")
JOURNAL = "run.jsonl"
JUNIT = "junit.xml"
LATEST = "latest"


@dataclass
class RunFolder:
    """A run's folder, ready to be written to."""

    path: Path
    run_id: str
    header: RunHeader | None = None
    """Set when the run goes on with an earlier one's journal."""
    finished: tuple[CaseResult, ...] = ()
    attempts: Mapping[CaseId, tuple[CaseResult, ...]] = field(default_factory=dict)
    """Those of an earlier run, of cases that it did not finish."""
    junit_files: list[Path] = field(default_factory=list)
    is_latest: bool = False

    @property
    def journal(self) -> Path:
        """The journal's file."""
        return self.path / JOURNAL

    @property
    def shown_junit(self) -> str:
        """The report as people are told of it."""
        return shown(REPORTS / LATEST / JUNIT if self.is_latest else self.junit_files[-1])

    def case_folder(self, number: int) -> Path:
        """Return the folder of the ``number``-th case; ids are too long and too free for names of folders."""
        return self.path / "cases" / f"{number:05d}"

    def next_number(self) -> int:
        """Return the first number that no folder of an earlier attempt has: cases end in another order than they began."""
        names = [entry.name for entry in self.path.glob("cases/*") if entry.name.isdecimal()]
        return 1 + max(map(int, names), default=0)

    def claim_junit(self, extra: Path | None) -> None:
        """Make sure that the reports can be written before anything is run."""
        self.junit_files = [self.path / JUNIT]
        if extra is not None:
            _must_be_writable(extra.parent)
            if extra.is_dir():
                raise UsageError(f"--junit {extra}: this is a folder; name a file")
            self.junit_files.append(extra)
            self.is_latest = False


def open_run(out: Path | None) -> RunFolder:
    """Make the folder of a new run; raise ``UsageError`` when it cannot be written, or holds a run already."""
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    run_id = f"{moment}-{secrets.token_hex(3)}"
    path = (out if out is not None else REPORTS / run_id).absolute()
    if _holds_run(path):
        raise UsageError(f"--out {out}: this folder holds a run already; name another, or --resume it")
    _must_be_writable(path)
    folder = RunFolder(path=path, run_id=run_id)
    if out is None:
        folder.is_latest = _point_latest(path)
    return folder


def _holds_run(path: Path) -> bool:
    try:
        return (path / JOURNAL).stat().st_size > 0  # an empty one is of a run that never began
    except OSError:
        return False


def _must_be_writable(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f".writable-{secrets.token_hex(4)}"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise UsageError(f"cannot write to {path}: {error.strerror}") from error


def _point_latest(path: Path) -> bool:
    """Let ``reports/latest`` point to the run, in one step; False where links cannot be had."""
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
    raise UsageError(f"no run '{name}': neither {name}/{JOURNAL} nor {REPORTS / name}/{JOURNAL} exists")


def resume_run(name: str, selected: Sequence[Case]) -> RunFolder:
    """Return the folder of a truncated run with its results; raise ``UsageError`` when it ended, or ran other cases."""
    path = find_run(name)
    try:
        run = read_run(path / JOURNAL)
    except JournalError as error:
        raise UsageError(f"--resume {name}: {error}") from error
    if not run.truncated:
        raise UsageError(f"--resume {name}: this run came to its end; run the failures with --select")
    digests = {case.id: digest_of(case) for case in selected}
    for result in (*run.results, *itertools.chain.from_iterable(run.attempts.values())):
        if digests.get(result.case_id) != result.digest:
            raise UsageError(f"--resume {name}: {result.case_id} is not the case that was run then")
    if run.header.selected != len(selected):
        raise UsageError(f"--resume {name}: that run selected {run.header.selected} cases, this command {len(selected)}")
    return RunFolder(path=path, run_id=run.header.run_id, header=run.header, finished=run.results, attempts=run.attempts)
