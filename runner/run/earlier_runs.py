"""What a run takes from an earlier one where an option asks for it, the cases that failed; and how long each case took.

A duration is a hint for the order: no error if malformed. ``durations.txt`` beside specs is for a machine without earlier runs. A line has
seconds and the id of a case; ``#`` begins a comment.
"""

import contextlib
import json
import os
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from runner.machine import cache_dirs, output
from runner.machine.scratch import open_untrusted
from runner.model.case import Case
from runner.model.diagnostics import UsageError, one_line, shown_path
from runner.model.options import RunOptions
from runner.model.outcomes import Outcome
from runner.record.journal import JournalError, read_run
from runner.record.run_folder import JOURNAL, LATEST, find_run, require_still


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The cases that failed in an earlier run."""

    run: str
    """Its id."""
    ids: frozenset[str] = field(default_factory=frozenset)

    def among(self, cases: Sequence[Case], read: Sequence[Case]) -> list[Case]:
        """Return the cases that failed; print how many of them are not among the cases that were read."""
        lost = len(self.ids - {case.id for case in read})
        if lost and lost < len(self.ids):
            output.note(f"{lost} of the {len(self.ids)} cases that failed in {self.run} are not among the cases that were read")
        return [case for case in cases if case.id in self.ids]

    @property
    def why_none(self) -> str:
        """Why no failed case is selected."""
        if not self.ids:
            return f"no case is selected: no case failed in {self.run}"
        count = f"{len(self.ids)} case{'' if len(self.ids) == 1 else 's'}"
        return (
            f"no case is selected: none of the {count} that failed in {self.run} is among those that the paths and the other options select"
        )


def with_failed(options: RunOptions) -> tuple[RunOptions, Failed]:
    """Return the options with the id of the run that ``--failed-in`` or ``--last-failed`` names, and its failed cases.

    Without a PATH those of that run are read, with its files of backends and waivers. Raise ``UsageError`` for a run that cannot be read.
    """
    if options.last_failed and options.failed_in:
        raise UsageError(f"--last-failed with --failed-in {options.failed_in}: each selects the failed cases of a run (use one of them)")
    if options.last_failed and options.resume:
        why = "the latest run may be another one than then (write --failed-in with the id in its header)"
        raise UsageError(f"--last-failed with --resume: {why}")
    option, name = (
        ("--last-failed", _last_of(options.paths)) if options.last_failed else (f"--failed-in {options.failed_in}", options.failed_in or "")
    )
    folder = find_run(name)
    require_still(name, folder)
    try:
        run = read_run(folder / JOURNAL)
    except (OSError, JournalError) as error:
        raise UsageError(f"{option}: cannot read {shown_path(folder / JOURNAL)}: {one_line(str(error))}") from error
    failing = {result.case_id for result in run.results if result.outcome.is_failure and result.outcome is not Outcome.NOT_RUN}
    failed = Failed(run=run.header.run_id or folder.name, ids=frozenset(failing))
    not_run = sum(result.outcome is Outcome.NOT_RUN for result in run.results)
    if run.footer is None:
        output.note(f"{failed.run} was cut off: what it would have run later is not known")
    if not_run:
        cases = "1 case was" if not_run == 1 else f"{not_run} cases were"
        output.note(f"{cases} not run in {failed.run}, and {'is' if not_run == 1 else 'are'} not selected (--resume runs what is left)")
    options = replace(options, last_failed=False, failed_in=failed.run)
    if not options.paths:
        files = {name: tuple(map(Path, shlex.split(run.header.options.get(name, "")))) for name in ("paths", "backends", "waivers")}
        backends, waivers = options.backends or files["backends"], options.waivers or files["waivers"]
        options = replace(options, paths=files["paths"], backends=backends, waivers=waivers)
    return options, failed


def remember(paths: Sequence[Path], folder: Path) -> None:
    """Add a run of some paths to the list in the cache folder, of which ``--last-failed`` takes the last one; a cache may be missing."""
    entry = [str(folder), os.getcwd(), *(str(path.resolve()) for path in paths)]
    with contextlib.suppress(OSError, UsageError):
        table = cache_dirs.private_folder(cache_dirs.home(), cache_dirs.VARIABLE) / _LAST_RUNS
        temporary = table.with_name(f"{_LAST_RUNS}.{os.getpid()}")
        temporary.write_text(json.dumps([entry, *(other for other in _last_runs() if other[0] != entry[0])][:_MOST_RUNS]), "utf-8")
        os.replace(temporary, table)


_LAST_RUNS, _MOST_RUNS = "last-runs.json", 100


def _last_runs() -> list[list[str]]:
    """Return for each run its folder, the folder where it began, and its paths; the last run first."""
    try:
        with open_untrusted(cache_dirs.home() / _LAST_RUNS) as stream:
            return [[str(part) for part in entry] for entry in json.loads(stream.read(1 << 20)) if len(entry) > 1]
    except (OSError, ValueError, TypeError):
        return []


def _last_of(paths: Sequence[Path]) -> str:
    """Return the folder of the last run of these specs, or of the last one that began in this folder; else ``latest``."""
    mine = [path.resolve() for path in paths]
    for folder, began_in, *names in _last_runs():
        theirs = list(map(Path, names))
        is_same = any(path.is_relative_to(other) or other.is_relative_to(path) for path in mine for other in theirs)
        if (is_same if mine and theirs else began_in == os.getcwd()) and os.path.isfile(Path(folder, JOURNAL)):
            return folder
    return LATEST


TABLE = "durations.txt"

_MOST_BYTES_OF_TABLE = 1 << 24
_NUMBER = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,3})?")

_MOST_BYTES = 1 << 30
"""Bytes that are read of a journal; the rest is ignored."""

# JSON escapes a quote within a string as \", so an unescaped quote begins a key. Decoding whole lines is three times slower.
_CASE = re.compile(rb'\{"kind": "case", "case_id": ("(?:[^"\\]|\\.)*")')
_SECONDS = re.compile(rb'"seconds": ([0-9][0-9.e+-]*)[,}]')


def seconds_of_run(folder: Path, journal: str) -> dict[str, float]:
    """Return the seconds of each executed case, by id; empty if the journal is missing or cannot be read."""
    seconds: dict[str, float] = {}
    try:
        with open_untrusted(folder / journal) as stream:
            left = _MOST_BYTES
            while left > 0 and (line := stream.readline(left)):
                left -= len(line)
                _note(line, seconds)
    except OSError:
        return {}
    return seconds


def seconds_of_tables(folders: Iterable[Path]) -> dict[str, float]:
    """Return the seconds of the cases in the tables in these folders, by id; empty where there is none that can be read."""
    seconds_of: dict[str, float] = {}
    for root in folders:
        try:
            with open_untrusted(root / TABLE) as stream:
                data = stream.read(_MOST_BYTES_OF_TABLE)
        except OSError:
            continue
        for line in data.decode("utf-8", "replace").splitlines():
            seconds, _, case_id = line.partition(" ")
            if _NUMBER.fullmatch(seconds) and case_id:
                seconds_of[case_id] = float(seconds)
    return seconds_of


def roots_of(paths: Sequence[Path]) -> list[Path]:
    """Return the folders where tables of the given specs lie: the folders, those of the files, the shipped specs for paths within them."""
    shipped = cache_dirs.folder("specs").resolve()
    roots = [
        shipped if path.is_relative_to(shipped) else path if path.is_dir() else path.parent for path in (name.resolve() for name in paths)
    ]
    return list(dict.fromkeys(roots or [shipped]))


def _note(line: bytes, seconds_of: dict[str, float]) -> None:
    named, timed = _CASE.match(line), _SECONDS.search(line)
    if named is None or timed is None:
        return
    try:
        case_id, seconds = json.loads(named[1]), float(timed[1])
    except ValueError:
        return
    if 0 < seconds < 1e9:  # 0: the case was not executed
        seconds_of[case_id] = seconds
