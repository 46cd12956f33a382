"""What a history answers. Figures are kept as runs are added, so no answer reads all results."""

import json
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

from runner.core.outcomes import Outcome
from runner.record.history.stats import CaseStats

_STATS = tuple(field.name for field in fields(CaseStats))


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRun:
    """A run of the history."""

    number: int
    id: str
    machine: str
    started: str
    seconds: float
    torch: str
    version: str
    exit_code: int
    selected: int
    executed: int
    passed: int
    failed: int
    totals: Mapping[str, int]
    merged: tuple[str, ...]

    @property
    def pass_rate(self) -> float | None:
        """The share of executed cases that passed; None without an executed case."""
        return self.passed / self.executed if self.executed else None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryCase:
    """A case on one machine."""

    number: int
    """Of the case."""
    id: str
    machine: str
    stats: CaseStats


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryResult:
    """One result of a case."""

    run: str
    started: str
    torch: str
    machine: str
    outcome: str
    seconds: float


def runs(connection: sqlite3.Connection) -> list[HistoryRun]:
    """Return every run, in the order in which they began."""
    columns = "run, runs.id, name, started, seconds, torch, version, exit_code, selected, executed, passed, failed, totals, merged"
    query = f"SELECT {columns} FROM runs JOIN machines USING (machine) ORDER BY started, runs.id"
    names = tuple(field.name for field in fields(HistoryRun))
    found = [dict(zip(names, row, strict=True)) for row in connection.execute(query)]
    return [HistoryRun(**{**one, "totals": json.loads(one["totals"]), "merged": tuple(json.loads(one["merged"]))}) for one in found]


def ids(connection: sqlite3.Connection) -> dict[str, int]:
    """Return the number of every case, by its id."""
    return dict(connection.execute("SELECT id, number FROM cases"))


def cases(connection: sqlite3.Connection, numbers: Iterable[int]) -> list[HistoryCase]:
    """Return some cases on each machine, by their numbers."""
    return [case for number in numbers for case in _cases(connection, f"number = {int(number)} ORDER BY name")]


def _cases(connection: sqlite3.Connection, rest: str) -> list[HistoryCase]:
    """Return the cases on each machine for which a condition of this module holds, in its order."""
    columns = ", ".join(f"stats.{name}" for name in _STATS)
    query = f"SELECT number, id, name, {columns} FROM stats JOIN cases USING (number) JOIN machines USING (machine) WHERE {rest}"
    return [
        HistoryCase(number=number, id=case_id, machine=machine, stats=CaseStats(**dict(zip(_STATS, row, strict=True))))
        for number, case_id, machine, *row in connection.execute(query)
    ]


def flaky(connection: sqlite3.Connection) -> list[HistoryCase]:
    """Return the cases that were FLAKY, or changed more often than by one failure and its repair; the flakiest first."""
    found = _cases(connection, "flaky > 0 OR changes > 2 ORDER BY id, name")
    return sorted(found, key=lambda one: -one.stats.flake_rate)


def slowest(connection: sqlite3.Connection, limit: int) -> list[HistoryCase]:
    """Return the cases that ever passed, by their mean time; the slowest first, and at most ``limit``."""
    return _cases(connection, f"timed > 0 ORDER BY stats.seconds / timed DESC, id, name LIMIT {int(limit)}")


def failing(connection: sqlite3.Connection) -> list[HistoryCase]:
    """Return the cases that failed and have not passed since; those that broke last come first."""
    return _cases(connection, "first_bad > 0 ORDER BY first_bad DESC, id, name")


def results(connection: sqlite3.Connection, numbers: Iterable[int], limit: int) -> dict[int, list[HistoryResult]]:
    """Return the last ``limit`` results of some cases, by the number of the case, in the order in which the runs began."""
    # results are stored by run, so that a run is added in one place of the file; a cross join keeps the order of the tables
    query = (
        "SELECT runs.id, started, torch, name, outcome, results.seconds FROM runs CROSS JOIN results USING (run) "
        "CROSS JOIN machines USING (machine) WHERE number = ? ORDER BY started DESC, runs.id DESC LIMIT ?"
    )
    names = tuple(field.name for field in fields(HistoryResult))
    return {
        number: [HistoryResult(**dict(zip(names, row, strict=True))) for row in connection.execute(query, (number, limit))][::-1]
        for number in numbers
    }


def estimates(connection: sqlite3.Connection) -> dict[str, tuple[float, float, bool]]:
    """Return for each case its expected seconds, the share of its executions that failed, and whether the last one failed.

    Of a case on several machines the figures of the run that was added last count.
    """
    query = (
        "SELECT id, estimate, (failed + flaky) * 1.0 / max(executed, 1), last_outcome, first_bad FROM stats JOIN cases USING (number) "
        "WHERE executed > 0 ORDER BY last_run"
    )
    return {
        case_id: (seconds, rate, (bool(bad) and last != Outcome.XFAIL.label) or last == Outcome.FLAKY.label)
        for case_id, seconds, rate, last, bad in connection.execute(query)
    }
