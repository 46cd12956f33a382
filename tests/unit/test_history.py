"""The history: figures folded from outcomes, runs added once, problems of its file, and what its commands print."""

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from runner.cli.parser import main
from runner.core.attempts import attempt_of
from runner.core.case import CaseId
from runner.core.diagnostics import UsageError
from runner.core.outcomes import Outcome
from runner.core.results import CaseResult
from runner.language.read import schema
from runner.record.history import database, queries
from runner.record.history.adding import Added, EndedRun, add, machine_of
from runner.record.history.database import HistoryLocked, HistoryProblem, file_of_run, opened
from runner.record.history.queries import HistoryCase
from runner.record.history.stats import CaseStats, of
from runner.record.journal import JournalWriter, Run
from tests.recorded import MACHINE, recorded, run_of, write_run
from tests.results import EVIDENCE
from tests.unit.test_diff_command import HOSTILE, Page

GLYPHS = {outcome.glyph: outcome for outcome in Outcome}
FILE = Path("reports/history.sqlite")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(database.VARIABLE, raising=False)
    return tmp_path


# figures


def stats(glyphs: str) -> CaseStats:
    """Return the figures of these outcomes, one a run; each takes two seconds, the last four."""
    found = [GLYPHS[glyph] for glyph in glyphs]
    return of((run, one, 4.0 if run == len(found) else 2.0, one.is_executed) for run, one in enumerate(found, 1))


@pytest.mark.parametrize(
    ("glyphs", "first_bad", "last_good"),
    [
        (".", 0, 1),
        ("..F", 3, 2),
        ("..FCT", 3, 2),
        ("..FF.", 0, 5),
        ("F", 1, 0),
        ("..FuFu", 3, 2),
        ("..F-", 3, 2),
        ("..FxF", 3, 2),
        ("..~F", 4, 2),
        (".~", 0, 1),
        ("uu", 0, 0),
        ("Fu", 1, 0),
        ("oo", 0, 0),
        ("FX", 0, 2),
    ],
)
def test_the_first_bad_run_is_the_first_failure_since_the_last_pass(glyphs: str, first_bad: int, last_good: int) -> None:
    found = stats(glyphs)
    assert (found.first_bad, found.last_good) == (first_bad, last_good)


def test_what_is_not_executed_neither_passed_nor_failed() -> None:
    found = stats("u-o.u")
    assert (found.runs, found.executed, found.passed, found.pass_rate) == (5, 1, 1, 1.0)
    assert stats("uuu").pass_rate is None
    assert (stats("uuu").flake_rate, stats("uuu").mean, stats("uuu").estimate) == (0.0, None, 0.0)


@pytest.mark.parametrize(("glyphs", "rate"), [("....", 0.0), ("..~.", 0.25), ("..F.", 0.0), (".F.F", 0.25), (".F.F.F", 0.5), ("x.x.", 0.0)])
def test_one_failure_and_its_repair_are_not_flaky(glyphs: str, rate: float) -> None:
    assert stats(glyphs).flake_rate == pytest.approx(rate)


def test_times_are_those_of_passes_and_the_estimate_follows_the_latest() -> None:
    assert stats("..F").mean == 2.0
    assert stats("...").mean == pytest.approx(8 / 3)
    assert stats("...").estimate == pytest.approx(3.0)
    assert stats("." * 90).recent == "." * 40


# adding


def ended(run: Run) -> EndedRun:
    assert run.footer is not None
    return EndedRun(header=run.header, results=run.results, footer=run.footer)


def put(*runs: Run) -> list[Added]:
    found = []
    for run in runs:
        with opened(FILE, writes=True) as connection:
            found.append(add(connection, ended(run)))
    return found


def known() -> dict[str, HistoryCase]:
    with opened(FILE) as connection:
        return {f"{case.id} {case.machine}": case for case in queries.cases(connection, queries.ids(connection).values())}


def day(number: int, *results: CaseResult, **changes: object) -> Run:
    return run_of(*results, run_id=f"run-{number}", started=f"2026-10-{number:02}T12:00:00+00:00", **changes)


ONE = "area/one[backend=cpu] x86_64"


def test_a_run_is_added_once() -> None:
    first, again = day(1, recorded("one")), day(1, recorded("one", Outcome.FAIL))
    assert put(first, first, again, again) == [Added.NEW, Added.AGAIN, Added.REPLACED, Added.AGAIN]
    assert known()[ONE].stats == replace(stats("F"), estimate=1.5, last_run=1, first_bad=1)


def test_the_order_of_adding_does_not_change_the_figures() -> None:
    runs = [
        day(number, recorded("one", outcome)) for number, outcome in enumerate((Outcome.PASS, Outcome.FAIL, Outcome.FLAKY, Outcome.FAIL), 1)
    ]
    found = []
    for order in ([0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]):
        FILE.unlink(missing_ok=True)
        put(*(runs[index] for index in order))
        with opened(FILE) as connection:
            (case,) = queries.failing(connection)
            names = {run.number: run.id for run in queries.runs(connection)}
        found.append((names[case.stats.first_bad], names[case.stats.last_good], case.stats.recent, case.stats.changes))
    assert found == [("run-2", "run-1", ".F~F", 1)] * 3


def test_a_merged_run_takes_the_place_of_its_parts() -> None:
    parts = [day(1, recorded("one")), day(2, recorded("two"))]
    merged = day(3, recorded("one"), recorded("two"), merged=("run-1", "run-2"))
    assert put(*parts, merged, *parts) == [Added.NEW, Added.NEW, Added.NEW, Added.PART, Added.PART]
    with opened(FILE) as connection:
        (run,) = queries.runs(connection)
    assert (run.id, run.merged, run.executed) == ("run-3", ("run-1", "run-2"), 2)
    assert {case.stats.runs for case in known().values()} == {1}


def test_machines_have_figures_of_their_own() -> None:
    gpu = {**MACHINE, "device": "NVIDIA H200", "arch": "sm_90"}
    put(day(1, recorded("one")), day(2, recorded("one", Outcome.FAIL), environment=gpu))
    assert {name: case.stats.recent for name, case in known().items()} == {ONE: ".", "area/one[backend=cpu] NVIDIA H200 sm_90": "F"}
    assert machine_of({}) == "unknown"


def test_a_run_without_an_id_is_refused() -> None:
    with pytest.raises(UsageError, match="no id"):
        put(run_of(recorded("one"), run_id=""))


def test_what_fails_while_it_is_added_is_not_added_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    put(day(1, recorded("one")))
    monkeypatch.setattr("runner.record.history.adding._fold", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        put(day(2, recorded("one"), recorded("two")))
    with opened(FILE) as connection:
        assert [run.id for run in queries.runs(connection)] == ["run-1"]
        assert connection.execute("SELECT count(*) FROM cases").fetchone() == (1,)


# problems of the file


def damaged() -> None:
    put(*(day(number, *(recorded(f"case-{one}") for one in range(60))) for number in range(1, 3)))
    data = bytearray(FILE.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    FILE.write_bytes(data)


def of_another_program() -> None:
    FILE.parent.mkdir()
    with sqlite3.connect(FILE) as connection:
        connection.execute("CREATE TABLE things (name TEXT)")
    connection.close()


def test_adding_and_removing_a_run_touches_no_results_of_others() -> None:
    put(day(1, recorded("one")), day(2, recorded("one")))
    with opened(FILE) as connection:
        plan = connection.execute("EXPLAIN QUERY PLAN DELETE FROM results WHERE run = 1").fetchall()
        columns = [name for _, name, *_ in connection.execute("PRAGMA table_info(results)")]
    assert [step[-1] for step in plan] == ["SEARCH results USING PRIMARY KEY (run=?)"]
    assert columns[:2] == ["run", "number"]


def test_the_last_results_of_a_case_are_found_from_the_newest_run_on() -> None:
    put(*(day(number, recorded("one"), recorded("two")) for number in range(1, 6)))
    with opened(FILE) as connection:
        number = queries.ids(connection)[recorded("one").case_id]
        found = queries.results(connection, [number], 2)[number]
        assert [one.run for one in found] == ["run-4", "run-5"]


@pytest.mark.parametrize("cases", [1, 150], ids=["a few", "many"])
def test_a_run_from_before_changes_the_figures_of_its_cases_alone(cases: int) -> None:
    names = [f"case-{number}" for number in range(cases)]
    newest = day(3, *map(recorded, names), recorded("other"))
    put(newest, day(2, *(recorded(name, seconds=9.0) for name in names)))
    with opened(FILE) as connection:
        ids = queries.ids(connection)
        figures = {one.number: one.stats for one in queries.cases(connection, ids.values())}
    assert {figures[ids[recorded(name).case_id]].runs for name in names} == {2}
    assert figures[ids[recorded("other").case_id]].runs == 1


def of_format(number: int) -> None:
    put(day(1, recorded("one")))
    connection = sqlite3.connect(FILE)
    connection.execute(f"PRAGMA user_version = {number}")
    connection.close()


def no_database() -> None:
    FILE.parent.mkdir()
    FILE.write_bytes(b"summary: a spec\n" * 100)


def a_folder() -> None:
    FILE.mkdir(parents=True)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (damaged, "this history is damaged; move it away, and add the runs again"),
        (of_another_program, "this is the database of another program, and no history"),
        (lambda: of_format(1), "this history has the format 1, of an older version of this program, which reads 2"),
        (lambda: of_format(3), "this history has the format 3, of a newer version of this program, which reads 2"),
        (no_database, "this is no history: not a SQLite file"),
        (a_folder, "this is a folder, and no history"),
        (lambda: None, "no history: reports/history.sqlite does not exist"),
    ],
)
def test_each_problem_of_the_file_has_a_message(make: object, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert callable(make)
    make()
    assert main(["history", "show"]) == 2
    assert message in capsys.readouterr().err
    if message.startswith("no history"):
        return
    write_run(Path("a"), run_of(recorded("one")))
    before = FILE.read_bytes() if FILE.is_file() else b""
    assert main(["history", "add", "a"]) == 2
    assert message in capsys.readouterr().err
    assert before == (FILE.read_bytes() if FILE.is_file() else b"")


@pytest.mark.parametrize("change", ["UPDATE results SET outcome = 'GREAT'", "UPDATE runs SET merged = '{'", "UPDATE runs SET totals = '?'"])
def test_values_of_somebody_else_are_no_bug_of_ours(change: str, capsys: pytest.CaptureFixture[str]) -> None:
    put(day(2, recorded("one")))
    connection = sqlite3.connect(FILE)
    connection.execute(change)
    connection.commit()
    connection.close()
    write_run(Path("a"), day(1, recorded("one")))  # an earlier run: the figures are computed again
    code = main(["history", "show"]) if "totals" in change else main(["history", "add", "a"])
    assert code == 2
    assert "this history has values that no version of this program writes" in capsys.readouterr().err


@pytest.fixture
def locked() -> Iterator[None]:
    put(day(1, recorded("one")))
    other = sqlite3.connect(FILE, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    yield
    other.close()


@pytest.mark.parametrize("writes", [True, False])
def test_a_locked_history_is_named_after_a_while(writes: bool, locked: None) -> None:
    with pytest.raises(HistoryLocked, match="another process is writing this history"), opened(FILE, writes=writes, wait=0.05):
        pytest.fail("it was opened")


def test_a_full_disk_loses_no_run_that_was_there(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """SQLite's own limit of pages gives the error of a full disk."""
    put(day(1, recorded("one")))
    write_run(Path("a"), day(2, *(recorded(f"case-{number}") for number in range(300))))
    connect = sqlite3.connect

    def small(*arguments: object, **options: object) -> sqlite3.Connection:
        connection = connect(*arguments, **options)
        connection.execute("PRAGMA max_page_count = 14")
        return connection

    monkeypatch.setattr(sqlite3, "connect", small)
    assert main(["history", "add", "a"]) == 1
    assert "cannot write" in (text := capsys.readouterr().err)
    assert "No space left on device" in text
    with opened(FILE) as connection:
        assert [run.id for run in queries.runs(connection)] == ["run-1"]


def test_a_history_that_cannot_be_made_is_named() -> None:
    Path("plain").write_text("")
    with pytest.raises(HistoryProblem, match="its folder cannot be made"), opened(Path("plain/history.sqlite"), writes=True):
        pytest.fail("it was opened")


def test_a_run_adds_itself_where_a_history_is_named_set_or_there(monkeypatch: pytest.MonkeyPatch) -> None:
    assert file_of_run(None) is None
    assert file_of_run(Path("x")) == Path("x")
    put(day(1, recorded("one")))
    assert file_of_run(None) == FILE
    monkeypatch.setenv(database.VARIABLE, "ours.sqlite")
    assert file_of_run(None) == Path("ours.sqlite")


# commands


def flaky() -> CaseResult:
    """Return a result that failed and then passed; a merged run has no lines for its attempts."""
    made = [recorded("two", outcome, folder=f"cases/0000{number}") for number, outcome in ((2, Outcome.FAIL), (3, Outcome.PASS))]
    attempts = tuple(replace(attempt_of(one), evidence=EVIDENCE) for one in made)
    return recorded("two", Outcome.FLAKY, attempts=attempts, verdicts=made[0].verdicts, seconds=3.0, folder="cases/00002")


@pytest.fixture
def filled(folder: Path) -> None:
    """Add four runs; the second is written without files, so it is added from its journal alone."""
    write_run(Path("r1"), day(1, recorded("one", seconds=9.0), recorded("two")))
    second = day(2, recorded("one", seconds=9.0), flaky(), retries=1, merged=("part-1",))
    with JournalWriter(Path("r2.jsonl")) as journal:
        journal.write_header(second.header)
        for result in second.results:
            journal.write_case(result)
        journal.write_footer(ended(second).footer)
    write_run(Path("r3"), day(3, recorded("one", Outcome.FAIL, seconds=9.0), recorded("two")))
    write_run(Path("r4"), day(4, recorded("one", Outcome.FAIL, seconds=9.0), recorded("two", Outcome.UNAVAILABLE)))
    assert main(["history", "add", "r1", "r2.jsonl", "r3", "r4"]) == 0


def test_add_says_what_became_of_each_run(filled: None, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    write_run(Path("cut"), day(9, recorded("one"), footer=None))
    write_run(Path("new"), day(8, recorded("one")))
    assert main(["history", "add", "r1", "cut", "nowhere", "new"]) == 2
    out, err = capsys.readouterr()
    assert out == "r1: already in the history\nnew: added\n"
    assert "not added: cut: the run was cut off" in err
    assert "not added: no run 'nowhere'" in err
    assert "2 of 4 runs were not added" in err


def test_show_has_the_runs_and_what_fails(filled: None, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["history", "show"]) == 0
    text = capsys.readouterr().out
    assert "4 runs:" in text
    assert "2026-10-03T12:00  run-3  torch 2.13.0+cpu, x86_64: 50 % of 2 executed passed, 1 failed, 1 s" in text
    assert "'area/one[backend=cpu]' on x86_64: first bad run-3 (2026-10-03, torch 2.13.0+cpu); last good run-2 (2026-10-02, torch" in text


def test_show_of_a_case_has_its_results(filled: None, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["history", "show", "*two*"]) == 0
    text = capsys.readouterr().out
    assert "3 of 4 runs executed it: 66.7 % passed, 1 FLAKY (flake rate 33.3 %), mean 1.5 s" in text
    assert "2026-10-04T12:00  UNAVAILABLE       0.0 s  torch 2.13.0+cpu  run-4" in text
    assert "area/one" not in text
    assert main(["history", "show", "*three*"]) == 2


def test_flaky_and_slowest(filled: None, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["history", "flaky"]) == 0
    assert "33.3 % flaky  'area/two[backend=cpu]' on x86_64 (1 FLAKY, 0 changes in 3 executions)  .~.u" in capsys.readouterr().out
    assert main(["history", "slowest", "--limit", "1"]) == 0
    assert capsys.readouterr().out == (
        "       9.0 s  'area/one[backend=cpu]' on x86_64 (2 passes)  ..FF\nand more (--limit N shows more, --json all)\n"
    )


@pytest.mark.parametrize("line", ["show", "show *", "flaky", "slowest"])
def test_the_json_is_valid(line: str, filled: None, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["history", *line.split(), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(schema.validator("history").iter_errors(found)) == []
    assert len(found["runs"]) == 4
    assert found["cases"]


@pytest.mark.parametrize("line", ["add", "show a b", "flaky x", "html", "html a b", "remove x", "show --limit 0"])
def test_wrong_usage(line: str) -> None:
    assert main(["history", *line.split()]) == 2


def test_the_page_has_trends_and_nothing_hostile_becomes_markup(capsys: pytest.CaptureFixture[str]) -> None:
    for number in (1, 2, 3):
        outcome = Outcome.PASS if number == 1 else Outcome.FAIL
        hostile = replace(recorded("one", outcome), name=HOSTILE, case_id=CaseId(f"area/{HOSTILE}[backend=cpu]"))
        environment = {"torch": HOSTILE, "device": HOSTILE}
        write_run(Path(f"r{number}"), day(number, hostile, environment=environment))
    assert main(["history", "add", "r1", "r2", "r3"]) == 0
    assert main(["history", "html", "sub/x.html"]) == 0
    for line in ("show", "show *", "slowest"):
        assert main(["history", *line.split()]) == 0
    text = Path("sub/x.html").read_text("utf-8")
    page = Page(text)
    assert "first bad run-2" in page.text
    assert text.count("<polyline") == 3
    assert text.count("<circle") == 9
    assert text.count("stroke-dasharray") == 0
    assert not page.tags & {"script", "img", "link", "iframe", "object", "base", "form", "a"}
    assert not any(name.startswith("on") or name in ("src", "href", "srcset") for name in page.attributes)
    assert not any("\x1b" in part or "\u202e" in part for part in (page.text, *page.values, capsys.readouterr().out))
    assert "http:" not in text
    assert "https:" not in text


def test_plots_mark_another_torch() -> None:
    runs = [
        day(number, recorded("one"), environment={**MACHINE, "torch": torch})
        for number, torch in enumerate(("2.13.0", "2.13.0", "2.14.0"), 1)
    ]
    put(*runs)
    assert main(["history", "html", "x.html"]) == 0
    text = Path("x.html").read_text("utf-8")
    assert text.count(">torch 2.14.0</text>") == text.count("<polyline") == 3
    assert ">torch 2.13.0</text>" not in text
