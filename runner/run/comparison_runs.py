"""Reads the runs that ``diff`` is given: a folder, an id, ``latest``, or a journal alone. Refuses truncated and altered journals."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.core.comparison import CaseChange, CaseTexts, Change, FilePair, Mark
from runner.core.diagnostics import UsageError, shown_path
from runner.core.observation import ObservedStep
from runner.core.results import CaseResult
from runner.core.stable_text import is_same
from runner.judge.reading import NoObservation, recorded_observation
from runner.record.evidence import OBSERVATION, EvidenceAltered, RecordedFiles
from runner.record.journal import JournalError, read_run
from runner.record.run_folder import JOURNAL, find_run, require_still
from runner.run.comparison import NamedRun

_CODE = re.compile(r"code-([0-9]{1,6})-([0-9]{1,6})\.txt")
_WITH_TEXTS = (Change.BROKEN, Change.CHANGED, Change.STILL_FAILING, Change.FIXED, Change.WAIVED)
"""The changes whose generated code and graphs are compared, as well as cases that are slower or another case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedRun(NamedRun):
    """A run with its folder."""

    folder: Path | None
    """None where the journal alone was given."""


def read_placed(name: str) -> PlacedRun:
    """Read a run that has ended; raise ``UsageError`` for one that is truncated, altered, or still written."""
    journal, folder = _journal_of(name)
    if folder is not None:
        require_still(name, folder)
    try:
        run = read_run(journal)
    except JournalError as error:
        raise UsageError(f"{shown_path(journal)}:{error.line}: {error.reason}") from error
    except OSError as error:
        raise UsageError(f"{shown_path(journal)}: {error.strerror}") from error
    if run.footer is None:
        raise UsageError(f"{name}: the run was cut off: its journal has no footer; resume it with 'run ... --resume {name}'")
    return PlacedRun(name=name, run=run, folder=folder)


def _journal_of(name: str) -> tuple[Path, Path | None]:
    if not os.path.isfile(name):
        folder = find_run(name)
        return folder / JOURNAL, folder
    path = Path(name).absolute()
    return path, path.parent if path.name == JOURNAL and (path.parent / "cases").is_dir() else None


def texts_of(changes: Iterable[CaseChange], before: PlacedRun, after: PlacedRun) -> Iterator[CaseTexts]:
    """Yield the generated code and graphs of each changed case that has some; raise ``UsageError`` for files that were altered."""
    for change in changes:
        if change.before is None or change.after is None or not _is_compared(change):
            continue
        try:
            then, now = _texts(before.folder, change.before), _texts(after.folder, change.after)
        except EvidenceAltered as error:
            raise UsageError(f"{error}; nothing is compared with an altered run") from error
        except _Unreadable as error:
            yield CaseTexts(case_id=change.case_id, missing=str(error))
            continue
        names = sorted(then.keys() | now.keys(), key=_in_order)
        if names:
            pairs = tuple(_pair(name, then.get(name), now.get(name)) for name in names)
            yield CaseTexts(case_id=change.case_id, pairs=pairs)


def _is_compared(change: CaseChange) -> bool:
    return change.change in _WITH_TEXTS or Mark.SLOWER in change.marks or Mark.SPEC_CHANGED in change.marks


def _pair(name: str, before: str | None, after: str | None) -> FilePair:
    return FilePair(name=name, before=before, after=after, is_same=before is not None and after is not None and is_same(before, after))


def _in_order(name: str) -> tuple[tuple[int, str], ...]:
    return tuple((int(word), "") if word.isdecimal() else (-1, word) for word in re.split("([0-9]+)", name))


class _Unreadable(Exception):
    """The texts of a case are not there."""


def _texts(folder: Path | None, result: CaseResult) -> dict[str, str]:
    """Return the texts by which a case was judged: generated code by file, captured graphs by step and expectation."""
    if not result.folder or not result.evidence:
        return {}
    if folder is None:
        raise _Unreadable("the journal was given without the folders of its cases")
    files = RecordedFiles(folder / result.folder, result.evidence)
    pieces = [match for name in result.evidence if (match := _CODE.fullmatch(name))]
    try:
        found = {match[0]: files.code(int(match[1]), int(match[2])) for match in pieces}
        steps = recorded_observation(files.observation()).steps if OBSERVATION in result.evidence else ()
    except (OSError, ValueError, NoObservation) as error:
        raise _Unreadable(f"{result.folder} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    return {**found, **dict(_graphs(steps))}


def _graphs(steps: Sequence[ObservedStep]) -> Iterator[tuple[str, str]]:
    for number, step in enumerate(steps):
        for index, measured in step.facts.items():
            graphs = measured.get("graphs") if isinstance(measured, dict) else None
            for at, graph in enumerate(graphs if isinstance(graphs, list) else ()):
                if isinstance(graph, dict) and isinstance(graph.get("text"), str):
                    yield f"graph {at} of step {number}, expectation {index}", graph["text"]
