"""Adds runs to a history. A run is in it once, whether as it was run or as a part of a merged run."""

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import astuple, dataclass, fields
from enum import Enum

from runner.core.diagnostics import UsageError
from runner.core.header import RunFooter, RunHeader
from runner.core.outcomes import Outcome
from runner.core.results import CaseResult
from runner.record.history.stats import GOOD, CaseStats, folded
from runner.record.journal import totals


class Added(Enum):
    """What became of a run that was to be added."""

    NEW = "added"
    AGAIN = "already in the history"
    REPLACED = "replaced: the run has changed since it was added"
    PART = "in the history already, as a part of a merged run"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRun:
    """A run that is added."""

    header: RunHeader
    results: Sequence[CaseResult]
    footer: RunFooter


_STATS = tuple(field.name for field in fields(CaseStats))
_OUTCOMES = {outcome.label: outcome for outcome in Outcome}


def add(connection: sqlite3.Connection, run: EndedRun) -> Added:
    """Add a run; raise ``UsageError`` for one without an id. A merged run takes the place of its parts."""
    if not run.header.run_id:
        raise UsageError("the run has no id")
    digest = _digest(run.results)
    known = connection.execute("SELECT run, digest FROM runs WHERE id = ?", (run.header.run_id,)).fetchone()
    if known is not None and known[1] == digest:
        return Added.AGAIN
    if any(run.header.run_id in json.loads(merged) for (merged,) in connection.execute("SELECT merged FROM runs WHERE merged != '[]'")):
        return Added.PART
    gone = [known[0]] if known is not None else []
    for part in run.header.merged:
        gone += [number for (number,) in connection.execute("SELECT run FROM runs WHERE id = ?", (part,))]
    _remove(connection, gone)
    _insert(connection, run, digest)
    return Added.NEW if known is None else Added.REPLACED


def machine_of(environment: Mapping[str, str]) -> str:
    """Return the name of a kind of machine: its GPU and architecture, or its CPU. Versions are no part of it."""
    gpu = [environment[name] for name in ("device", "arch") if environment.get(name)]
    return " ".join(gpu or [environment[name] for name in ("cpu", "vec_isa") if environment.get(name)]) or "unknown"


def _digest(results: Iterable[CaseResult]) -> str:
    whole = hashlib.sha256()
    for result in results:
        whole.update(json.dumps([result.case_id, result.outcome.label, result.seconds, result.digest]).encode())
    return whole.hexdigest()


def _insert(connection: sqlite3.Connection, run: EndedRun, digest: str) -> None:
    header, machine = run.header, _number(connection, "machines", "machine", "name", machine_of(run.header.environment))
    executed = [result for result in run.results if result.is_executed]
    newest = connection.execute("SELECT max(started) FROM runs WHERE machine = ?", (machine,)).fetchone()[0]
    values = (
        *(header.run_id, digest, json.dumps(list(header.merged)), machine, header.started, run.footer.seconds),
        *(header.environment.get("torch", ""), header.version, run.footer.exit_code, header.selected, len(executed)),
        *(sum(result.outcome in GOOD for result in executed), sum(result.outcome.is_failure for result in run.results)),
        json.dumps({label: count for label, count in totals(run.results).items() if count}),
    )
    columns = "id, digest, merged, machine, started, seconds, torch, version, exit_code, selected, executed, passed, failed, totals"
    number = connection.execute(f"INSERT INTO runs ({columns}) VALUES ({_marks(len(values))})", values).lastrowid
    assert number is not None, "an insertion has a row"
    connection.executemany("INSERT OR IGNORE INTO cases (id) VALUES (?)", ((_text(result.case_id),) for result in run.results))
    numbers = dict(connection.execute("SELECT id, number FROM cases"))
    rows = [
        (number, numbers[_text(result.case_id)], result.outcome.label, result.seconds, int(result.is_executed)) for result in run.results
    ]
    connection.executemany(f"INSERT INTO results VALUES ({_marks(5)})", sorted(rows))
    if newest is None or header.started > newest:
        _fold(connection, machine, number, rows)
    else:
        refold(connection, machine, {row[1] for row in rows})


def _text(case_id: str) -> str:
    """Return an id as SQLite stores it: a lone surrogate is no UTF-8."""
    return case_id.encode("utf-8", "backslashreplace").decode("utf-8")


def _marks(count: int) -> str:
    return ", ".join("?" * count)


def _number(connection: sqlite3.Connection, table: str, key: str, column: str, value: str) -> int:
    connection.execute(f"INSERT OR IGNORE INTO {table} ({column}) VALUES (?)", (_text(value),))
    return int(connection.execute(f"SELECT {key} FROM {table} WHERE {column} = ?", (_text(value),)).fetchone()[0])


def _remove(connection: sqlite3.Connection, runs: Sequence[int]) -> None:
    touched: dict[int, set[int]] = {}
    for run in runs:
        (machine,) = connection.execute("SELECT machine FROM runs WHERE run = ?", (run,)).fetchone()
        touched.setdefault(machine, set()).update(
            number for (number,) in connection.execute("SELECT number FROM results WHERE run = ?", (run,))
        )
        connection.execute("DELETE FROM results WHERE run = ?", (run,))
        connection.execute("DELETE FROM runs WHERE run = ?", (run,))
    for machine, numbers in touched.items():
        refold(connection, machine, numbers)


# -- figures ----------------------------------------------------------------------------------------------------------

_Row = tuple[int, int, str, float, int]


def _fold(connection: sqlite3.Connection, machine: int, run: int, rows: Iterable[_Row]) -> None:
    """Add the results of the newest run of a machine to the figures of its cases."""
    found = connection.execute(f"SELECT number, {', '.join(_STATS)} FROM stats WHERE machine = ?", (machine,))
    known = {number: CaseStats(**dict(zip(_STATS, values, strict=True))) for number, *values in found}
    changed = [
        (number, folded(known.get(number, CaseStats()), run, _OUTCOMES[outcome], seconds, is_executed=bool(executed)))
        for _, number, outcome, seconds, executed in rows
    ]
    _write(connection, ((number, machine, stats) for number, stats in changed))


def refold(connection: sqlite3.Connection, machine: int, cases: Set[int]) -> None:
    """Compute the figures of these cases on a machine again, from all its runs, in one pass over their results."""
    runs = connection.execute("SELECT run FROM runs WHERE machine = ? ORDER BY started, id", (machine,)).fetchall()
    found: dict[int, CaseStats] = {}
    for (run,) in runs:
        for number, word, seconds, executed in _results_of(connection, run, cases):
            found[number] = folded(found.get(number, CaseStats()), run, _OUTCOMES[word], seconds, is_executed=bool(executed))
    connection.executemany("DELETE FROM stats WHERE number = ? AND machine = ?", ((number, machine) for number in cases))
    _write(connection, ((number, machine, stats) for number, stats in found.items()))


_FEW = 100
"""Up to so many cases are looked up in a run one by one; of more, the whole run is read."""


def _results_of(connection: sqlite3.Connection, run: int, cases: Set[int]) -> Iterator[tuple[int, str, float, int]]:
    columns = "SELECT number, outcome, seconds, executed FROM results WHERE run = ?"
    if len(cases) > _FEW:
        yield from (row for row in connection.execute(columns, (run,)) if row[0] in cases)
    else:
        yield from connection.execute(f"{columns} AND number IN ({_marks(len(cases))})", (run, *sorted(cases)))


def _write(connection: sqlite3.Connection, stats: Iterable[tuple[int, int, CaseStats]]) -> None:
    columns = ", ".join(("number", "machine", *_STATS))
    rows = ((number, machine, *astuple(one)) for number, machine, one in stats)
    connection.executemany(f"INSERT OR REPLACE INTO stats ({columns}) VALUES ({_marks(2 + len(_STATS))})", rows)
