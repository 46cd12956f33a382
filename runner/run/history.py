"""The history as commands use it: adding runs, choosing cases by a glob, and what a run takes from it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from runner.core.diagnostics import UsageError, one_line
from runner.core.globs import glob
from runner.record.history import queries
from runner.record.history.adding import Added, EndedRun, add
from runner.record.history.database import HistoryLocked, file_of_run, opened
from runner.record.history.database import file_of as history_file
from runner.record.history.queries import HistoryCase, HistoryResult, HistoryRun
from runner.system import output

__all__ = ["history_file"]  # for commands, which do not import ``record``

MOST_DETAILED = 20
"""How many cases are shown with every result."""

MOST = 1 << 30
"""A limit that no history reaches."""

_HINT_SECONDS = 0.5
"""How long a run waits at its beginning for a process that writes the history: it is a hint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What of a history is shown."""

    file: Path
    runs: tuple[HistoryRun, ...]
    cases: tuple[HistoryCase, ...] = ()
    results: Mapping[int, Sequence[HistoryResult]] = field(default_factory=dict)
    """Every result of a case, by its number; only where few cases are shown."""
    failing: tuple[HistoryCase, ...] = ()
    flaky: tuple[HistoryCase, ...] = ()
    slowest: tuple[HistoryCase, ...] = ()


def add_runs(path: Path, names: Sequence[str]) -> Iterator[tuple[str, Added | UsageError]]:
    """Add runs one after another; yield what became of each. A run that cannot be read is refused, and the others are added."""
    from runner.run.comparison_runs import read_placed  # loads the judge: not for the commands that only show

    with opened(path, writes=True):
        pass  # a file that is no history is refused before a run is read
    for name in names:
        try:
            placed = read_placed(name)
        except UsageError as error:
            yield name, error
            continue
        assert placed.run.footer is not None, "a truncated run is refused"
        run = EndedRun(header=placed.run.header, results=placed.run.results, footer=placed.run.footer)
        with opened(path, writes=True) as connection:
            yield name, add(connection, run)


def shown(path: Path, pattern: str = "", *, results: int = MOST) -> Shown:
    """Return the runs, the failing cases, and those that a glob matches with their last results; raise ``UsageError`` for no match."""
    with opened(path) as connection:
        found = Shown(file=path, runs=tuple(queries.runs(connection)), failing=tuple(queries.failing(connection)))
        if not pattern:
            return found
        matches = glob(pattern).fullmatch
        numbers = [number for case_id, number in sorted(queries.ids(connection).items()) if matches(case_id)]
        if not numbers:
            raise UsageError(f"no case of the history matches '{one_line(pattern)}' (only * and ? are special; '*NAME*' finds a part)")
        return replace(
            found,
            cases=tuple(queries.cases(connection, numbers)),
            results=queries.results(connection, numbers, results) if len(numbers) <= MOST_DETAILED else {},
        )


def ranked(path: Path, by: str, limit: int = MOST) -> Shown:
    """Return the cases by one figure: all that are ``flaky``, or the ``slowest``."""
    with opened(path) as connection:
        chosen = queries.flaky(connection) if by == "flaky" else queries.slowest(connection, limit)
        return Shown(file=path, runs=tuple(queries.runs(connection)), cases=tuple(chosen))


def whole(path: Path) -> Shown:
    """Return what the page shows: every run, the failing cases, the flaky ones, and the slowest."""
    with opened(path) as connection:
        return Shown(
            file=path,
            runs=tuple(queries.runs(connection)),
            failing=tuple(queries.failing(connection)),
            flaky=tuple(queries.flaky(connection)),
            slowest=tuple(queries.slowest(connection, MOST_DETAILED)),
        )


def check_history(named: Path | None) -> None:
    """Raise ``UsageError`` for a named file that is no history, before anything runs. One that is locked or not named is no error."""
    if named is None or not named.exists():
        return
    try:
        with opened(named, wait=_HINT_SECONDS):
            pass
    except HistoryLocked:
        pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectations:
    """What earlier runs say of the cases of the next one."""

    seconds: Mapping[str, float] = field(default_factory=dict)
    failure_rate: Mapping[str, float] = field(default_factory=dict)
    failing: frozenset[str] = frozenset()
    """The cases that failed, or were FLAKY, when they were last executed."""


def expectations(named: Path | None) -> Expectations:
    """Return what the history says; nothing where there is none. It is a hint, so a problem with it is a warning."""
    path = file_of_run(named)
    if path is None or not path.exists():
        return Expectations()
    try:
        with opened(path, wait=_HINT_SECONDS) as connection:
            found = queries.estimates(connection)
    except (UsageError, OSError) as error:
        output.note(f"warning: the order of the cases ignores the history: {error}")
        return Expectations()
    return Expectations(
        seconds={case_id: seconds for case_id, (seconds, _, _) in found.items() if seconds > 0},
        failure_rate={case_id: rate for case_id, (_, rate, _) in found.items() if rate > 0},
        failing=frozenset(case_id for case_id, (_, _, is_failing) in found.items() if is_failing),
    )
