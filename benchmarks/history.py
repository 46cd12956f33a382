"""Whether a history of many runs answers in under a second: ``python benchmarks/history.py``.

A generated history of 1,000 runs of 10,000 cases each, with the tables and the figures that ``history add`` writes. Measured are the
queries of the commands, the commands as processes, and adding one more run. Exit 1 where a query takes more than a second.

With ``--duckdb`` (and the package ``duckdb``, which the project does not use) the same results are put into DuckDB, without kept figures,
and the same questions are asked of all ten million results.
"""

import argparse
import dataclasses
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from runner.core.case import CaseId
from runner.core.diagnostics import Position
from runner.core.header import RunFooter, RunHeader
from runner.core.outcomes import Outcome
from runner.core.results import CaseResult
from runner.record.history import queries
from runner.record.history.adding import EndedRun, add
from runner.record.history.database import opened
from runner.record.history.stats import CaseStats, of
from runner.record.journal import totals

LIMIT = 1.0
"""CPU seconds of a query or a command: the clock also counts what else the machine does."""

_LABELS = [outcome.label for outcome in Outcome]
_CODES = {outcome: code for code, outcome in enumerate(Outcome)}
_FIRST = datetime(2026, 1, 1, tzinfo=UTC)
_COLUMNS = ", ".join(field.name for field in dataclasses.fields(CaseStats))


def outcomes(case: int, runs: int) -> list[tuple[Outcome, float]]:
    """Return the results of a case: most pass, some break once, few are flaky or unavailable."""
    chance = random.Random(case)
    seconds = 0.5 + chance.random() ** 4 * 30
    kind, breaks = chance.random(), chance.randrange(runs)
    found = []
    for run in range(runs):
        outcome = Outcome.PASS
        if kind < 0.02:
            outcome = Outcome.UNAVAILABLE
        elif kind < 0.05 and run >= breaks:
            outcome = Outcome.FAIL
        elif kind < 0.08 and chance.random() < 0.05:
            outcome = Outcome.FLAKY
        found.append((outcome, 0.0 if outcome is Outcome.UNAVAILABLE else round(seconds * chance.uniform(0.9, 1.1), 3)))
    return found


def generate(path: Path, runs: int, cases: int) -> None:
    """Write a history with the figures of every case."""
    counts: list[dict[str, int]] = [{} for _ in range(runs)]
    by_case: list[tuple[bytes, array[float]]] = []
    with opened(path, writes=True) as connection:
        connection.execute("PRAGMA cache_size = -200000")
        connection.execute("INSERT INTO machines VALUES (1, 'x86_64 avx2')")
        connection.executemany("INSERT INTO cases VALUES (?, ?)", ((n, case_id(n)) for n in range(1, cases + 1)))
        for number in range(1, cases + 1):
            found = outcomes(number, runs)
            by_case.append((bytes(_CODES[outcome] for outcome, _ in found), array("d", (seconds for _, seconds in found))))
            stats = of((run, outcome, seconds, seconds > 0) for run, (outcome, seconds) in enumerate(found, 1))
            marks = ", ".join("?" * (2 + len(dataclasses.fields(CaseStats))))
            connection.execute(
                f"INSERT INTO stats (number, machine, {_COLUMNS}) VALUES ({marks})", (number, 1, *dataclasses.astuple(stats))
            )
            for run, (outcome, _) in enumerate(found):
                counts[run][outcome.label] = counts[run].get(outcome.label, 0) + 1
        for run in range(runs):  # in the order in which runs are added
            rows = [
                (run + 1, number, _LABELS[words[run]], times[run], int(times[run] > 0)) for number, (words, times) in enumerate(by_case, 1)
            ]
            connection.executemany("INSERT INTO results VALUES (?, ?, ?, ?, ?)", rows)
        for run, count in enumerate(counts, 1):
            executed = cases - count.get("UNAVAILABLE", 0)
            failed = count.get("FAIL", 0) + count.get("FLAKY", 0)
            values = (run, f"run-{run:04}", "-", "[]", 1, started(run), 900.0, "2.13.0", "0.1.0", 0, cases, executed, count.get("PASS", 0))
            connection.execute(f"INSERT INTO runs VALUES ({', '.join('?' * 15)})", (*values, failed, json.dumps(count)))


def case_id(number: int) -> str:
    """Return an id as long as those of the shipped specs."""
    return f"area-{number % 40}/a-generated-spec-{number}[backend=cpu,dtype=float32,dynamic=true]"


def started(run: int) -> str:
    """Return when a run began."""
    return (_FIRST + timedelta(hours=8 * run)).isoformat(timespec="seconds")


def one_more(cases: int) -> EndedRun:
    """Return a run that is newer than all others."""
    results = [
        CaseResult(
            case_id=CaseId(case_id(number)),
            spec="s.yaml",
            area=f"area-{number % 40}",
            name=f"a-generated-spec-{number}",
            backend="cpu",
            outcome=Outcome.PASS,
            reason="",
            failure_type="",
            verdicts=(),
            position=Position(file="s.yaml"),
            seconds=1.0,
        )
        for number in range(1, cases + 1)
    ]
    moment = datetime.now(UTC)
    header = RunHeader(
        run_id=f"one-more-{moment.timestamp()}",
        started=f"2{moment.isoformat()}",
        version="0.1.0",
        command=(),
        environment={"cpu": "x86_64", "vec_isa": "avx2", "torch": "2.14.0"},
        variables={},
        specs={},
        selected=cases,
    )
    return EndedRun(header=header, results=results, footer=RunFooter(ended="", seconds=900.0, totals=totals(results), exit_code=0))


def timed(name: str, work: Callable[[], object]) -> float:
    """Print how long some work took, and return its CPU seconds, of processes that it started too."""
    begun, before = time.perf_counter(), os.times()
    work()
    after = os.times()
    cpu = sum(after[:4]) - sum(before[:4])
    print(f"{time.perf_counter() - begun:9.3f} s  {cpu:9.3f} CPU s  {name}", flush=True)
    return cpu


def measured(path: Path, folder: Path) -> Iterator[float]:
    """Yield the seconds of each query and command."""

    def query(of: Callable[..., object], *arguments: object) -> Callable[[], object]:
        def ask() -> object:
            with opened(path) as connection:
                return of(connection, *arguments)

        return ask

    yield timed("every run", query(queries.runs))
    yield timed("the figures of 100 cases", query(queries.cases, range(1, 101)))
    yield timed("failing cases, with their first bad run", query(queries.failing))
    yield timed("flaky cases", query(queries.flaky))
    yield timed("slowest cases", query(queries.slowest, 21))
    yield timed("every result of 20 cases", query(queries.results, range(1, 21), 1_000))
    yield timed("durations and failure rates for the next run", query(queries.estimates))
    for words in (["show"], ["show", "*-spec-47[*"], ["show", "*-spec-47*"], ["flaky"], ["slowest"], ["html", str(folder / "x.html")]):
        command = [sys.executable, "-m", "runner", "history", *words, "--history", str(path)]
        yield timed(
            f"history {' '.join(words[:2])} (process)",
            lambda command=command: subprocess.run(command, capture_output=True, check=False, timeout=60),
        )


def of_duckdb(path: Path, target: Path, cases: int) -> None:
    """Print how long DuckDB takes with all results and no kept figures."""
    timed("import duckdb (process)", lambda: subprocess.run([sys.executable, "-c", "import duckdb"], check=True, timeout=60))
    import sqlite3

    import duckdb

    rows = sqlite3.connect(path).execute("SELECT number, run, outcome, seconds FROM results")
    text = target.with_suffix(".csv")
    with text.open("w") as stream:
        stream.writelines(f"{number},{run},{outcome},{seconds}\n" for number, run, outcome, seconds in rows)
    database = duckdb.connect(str(target))
    kinds = "{'number': 'INTEGER', 'run': 'INTEGER', 'outcome': 'VARCHAR', 'seconds': 'DOUBLE'}"
    timed("load", lambda: database.execute(f"CREATE TABLE results AS SELECT * FROM read_csv('{text}', columns = {kinds})"))
    figures = (
        "SELECT number, count(*) FILTER (seconds > 0) AS executed, count(*) FILTER (outcome = 'PASS') AS passed, "
        "count(*) FILTER (outcome = 'FLAKY') AS flaky, avg(seconds) FILTER (outcome = 'PASS') AS mean, "
        "max(run) FILTER (outcome = 'PASS') AS last_good FROM results GROUP BY number"
    )
    first_bad = (
        f"WITH figures AS ({figures}) SELECT number, min(run) FROM results JOIN figures USING (number) "
        "WHERE outcome = 'FAIL' AND run > coalesce(last_good, 0) GROUP BY number"
    )
    timed("the figures of every case", lambda: database.execute(figures).fetchall())
    timed("failing cases, with their first bad run", lambda: database.execute(first_bad).fetchall())
    timed("every result of 20 cases", lambda: database.execute("SELECT * FROM results WHERE number <= 20 ORDER BY run").fetchall())
    text.write_text("".join(f"{number},1000000,PASS,1.0\n" for number in range(1, cases + 1)))
    timed(
        "add one run of results, from a CSV file",
        lambda: database.execute(f"INSERT INTO results FROM read_csv('{text}', columns = {kinds})"),
    )
    database.close()
    timed("open, ask for one case, close", lambda: duckdb.connect(str(target)).execute("SELECT * FROM results WHERE number = 7").fetchall())
    print(f"{target.stat().st_size / 1e6:9.1f} MB the file")


def main() -> int:
    """Generate, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--duckdb", action="store_true")
    parser.add_argument("--file", type=Path, help="keep the generated history in this file, and use it again where it is there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        path = options.file or Path(name) / "history.sqlite"
        if not path.exists():
            timed(f"generate {options.runs} runs of {options.cases} cases", lambda: generate(path, options.runs, options.cases))
        print(f"{path.stat().st_size / 1e6:9.1f} MB the file")
        slow = [seconds for seconds in measured(path, Path(name)) if seconds > LIMIT]

        def add_one() -> None:
            with opened(path, writes=True) as connection:
                add(connection, one_more(options.cases))

        timed("add one more run", add_one)
        if options.duckdb:
            print("DuckDB:")
            of_duckdb(path, Path(name) / "history.duckdb", options.cases)
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
