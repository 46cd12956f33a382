"""A run's folder: never somebody else's, always writable before anything is run, and gone on with only where that makes sense."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from runner.model.diagnostics import UsageError
from runner.model.header import RunFooter, RunHeader
from runner.model.outcomes import Outcome
from runner.model.results import CaseResult
from runner.plan.worker_plan import digest_of
from runner.record.journal import JournalWriter, digest_of_selection
from runner.record.run_folder import find_run, open_run
from runner.run.earlier_runs import resume_run
from tests.fakes import COUNTED, case, step
from tests.results import as_outcome, footer_of

FOOTER = RunFooter(ended="2026-01-01T00:00:01+00:00", seconds=1.0, exit_code=0)
CASES = [case(step(COUNTED), id=f"area/{name}[backend=cpu]", name=name) for name in "ab"]
FILES = {"waivers.yaml": "1" * 64}


def digests_of(cases) -> dict[str, str]:
    return {one.id: digest_of(one) for one in cases}


def header_of(cases, **changes) -> RunHeader:
    """Return the header that a run of these cases would write."""
    made = RunHeader(
        run_id="r1",
        started="2026-01-01T00:00:00+00:00",
        version="0",
        command=(),
        environment={},
        variables={"TORCH_LOGS": "+dynamo"},
        specs={"spec.yaml": "0" * 64, **FILES},
        selected=len(cases),
        selected_whole=len(cases),
        selection=digest_of_selection(digests_of(cases)),
        options={"backend": "cpu", "jobs": "2", "timeout": "300.0"},
    )
    return replace(made, **changes)


HEADER = header_of(CASES)


def resumed(name, cases, *, files=FILES, out=None, **changes):
    return resume_run(name, header_of(cases, **changes), digests_of(cases), files, out)


def result_of(one, outcome=Outcome.PASS, **changes) -> CaseResult:
    made = CaseResult(
        case_id=one.id,
        spec=one.spec,
        area=one.area,
        name=one.name,
        backend=one.backend,
        outcome=outcome,
        reason=changes.pop("reason", ""),
        failure_type="",
        verdicts=(),
        position=one.position,
        seconds=1.0,
        digest=digest_of(one),
        folder=f"cases/{ord(one.name[0]):05d}",
    )
    return as_outcome(made, outcome, **changes)


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def recorded(folder: Path, *results: CaseResult, header: RunHeader = HEADER, footer: RunFooter | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with JournalWriter(folder / "run.jsonl") as journal:
        journal.write_header(header)
        for one in results:
            journal.write_case(one)
        if footer is not None:
            journal.write_footer(footer_of(results, interrupted=footer.interrupted))
    return folder


def test_a_run_without_a_name_lies_in_reports_and_is_the_latest():
    first = open_run(None)
    assert first.path == Path("reports").absolute() / first.run_id
    assert first.is_latest
    assert os.readlink("reports/latest") == first.run_id
    second = open_run(None)
    assert second.run_id != first.run_id
    assert os.readlink("reports/latest") == second.run_id
    assert sorted(os.listdir("reports")) == sorted([first.run_id, second.run_id, "latest"])


def test_a_folder_that_holds_a_run_is_refused():
    recorded(Path("out"))
    before = Path("out/run.jsonl").read_bytes()
    with pytest.raises(UsageError, match="holds a run already"):
        open_run(Path("out"))
    assert Path("out/run.jsonl").read_bytes() == before


def test_a_run_is_found_by_folder_by_id_and_as_latest():
    folder = open_run(None)
    recorded(folder.path)
    for name in (str(folder.path), folder.run_id, "latest", f"reports/{folder.run_id}"):
        assert find_run(name).resolve() == folder.path
    for name in ("nothing", "reports", "", "x" * 300):
        with pytest.raises(UsageError, match="no run"):
            find_run(name)


# -- going on -------------------------------------------------------------------------------------------------------


def test_a_truncated_run_goes_on_with_what_it_has():
    recorded(Path("out"), result_of(CASES[0]))
    folder = resumed("out", CASES)
    assert (folder.run_id, folder.header) == ("r1", HEADER)
    assert [one.case_id for one in folder.finished] == [CASES[0].id]


def test_attempts_of_a_case_that_did_not_end_are_gone_on_with():
    attempt = result_of(CASES[0], outcome=Outcome.FAIL, reason="at first")
    recorded(Path("out"), result_of(CASES[1]))
    with JournalWriter(Path("out/run.jsonl")) as journal:
        journal.write_attempt(attempt)
    folder = resumed("out", CASES)
    assert [one.case_id for one in folder.finished] == [CASES[1].id]
    assert folder.attempts == {CASES[0].id: (attempt,)}


def test_attempts_of_another_case_are_refused():
    recorded(Path("out"))
    with JournalWriter(Path("out/run.jsonl")) as journal:
        journal.write_attempt(result_of(CASES[0], digest="0" * 64))
    with pytest.raises(UsageError, match="is not the case that was run then"):
        resumed("out", CASES)


def test_a_run_that_ended_is_refused():
    recorded(Path("out"), *map(result_of, CASES), footer=FOOTER)
    with pytest.raises(UsageError, match="came to its end"):
        resumed("out", CASES)


@pytest.mark.parametrize(
    "selected",
    [
        [CASES[1]],
        [CASES[0]],
        [],
        [*CASES, case(id="area/c[backend=cpu]")],
        [replace(CASES[0], params={"changed": 1}), CASES[1]],
        [case(id="area/c[backend=cpu]"), CASES[1]],
    ],
    ids=["without the first", "without the second", "none", "one more", "one changed", "one exchanged"],
)
def test_other_cases_than_those_of_the_run_are_refused(selected):
    recorded(Path("out"), result_of(CASES[0]))
    with pytest.raises(UsageError, match="--resume out"):
        resumed("out", selected)


UNRUN = {"outcome": Outcome.NOT_RUN, "reason": "interrupted"}


@pytest.mark.parametrize("footer", [None, replace(FOOTER, interrupted=True, exit_code=130)], ids=["killed", "interrupted"])
def test_what_was_not_run_is_run_when_the_run_goes_on(footer):
    recorded(Path("out"), result_of(CASES[0]), result_of(CASES[1], **UNRUN), footer=footer)
    folder = resumed("out", CASES)
    assert (folder.header, [one.case_id for one in folder.finished]) == (HEADER, [CASES[0].id])


@pytest.mark.parametrize("footer", [None, replace(FOOTER, interrupted=True, exit_code=130)], ids=["killed", "interrupted"])
def test_a_run_that_finished_nothing_begins_anew_under_its_name(footer):
    recorded(Path("out"), *[result_of(one, **UNRUN) for one in CASES], footer=footer)
    folder = resumed("out", CASES)
    assert (folder.header, folder.finished, folder.run_id) == (None, (), "r1")


@pytest.mark.parametrize("footer", [None, replace(FOOTER, interrupted=True, exit_code=130)], ids=["killed", "interrupted"])
def test_a_run_that_finished_nothing_but_an_attempt_keeps_it(footer):
    attempt = result_of(CASES[0], outcome=Outcome.FAIL, reason="at first")
    recorded(Path("out"))
    with JournalWriter(Path("out/run.jsonl")) as journal:
        journal.write_attempt(attempt)
        if footer is not None:
            unrun = [result_of(one, **UNRUN) for one in CASES]
            for one in unrun:
                journal.write_case(one)
            journal.write_footer(footer_of(unrun, interrupted=footer.interrupted))
    folder = resumed("out", CASES)
    assert (folder.header, folder.finished, folder.attempts) == (HEADER, (), {CASES[0].id: (attempt,)})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"version": "1"}, "the version of this program is '1' now, '0' then"),
        ({"options": {**HEADER.options, "timeout": "600.0"}}, "--timeout is '600.0' now, '300.0' then"),
        ({"options": {**HEADER.options, "require": "cuda"}}, "--require is 'cuda' now, none then"),
        ({"options": {**HEADER.options, "retries": "2"}}, "--retries is '2' now, none then"),
        ({"options": {**HEADER.options, "timeout-factor": "2.0"}}, "--timeout-factor is '2.0' now, none then"),
        ({"variables": {}}, "$TORCH_LOGS is none now, '+dynamo' then"),
        ({"selected_whole": 3, "selection": "f" * 64}, "2 then, 3 now"),
        ({"files": {"waivers.yaml": "2" * 64}}, "the file waivers.yaml is '222222222222' now, '111111111111' then"),
        ({"files": {**FILES, "vendor.yaml": "3" * 64}}, "the file vendor.yaml is '333333333333' now, none then"),
    ],
)
def test_a_run_goes_on_as_it_began(changes, words):
    recorded(Path("out"), result_of(CASES[0]))
    before = Path("out/run.jsonl").read_bytes()
    with pytest.raises(UsageError) as caught:
        resumed("out", CASES, **changes)
    assert words in str(caught.value)
    assert str(caught.value).startswith("--resume out: ")
    assert Path("out/run.jsonl").read_bytes() == before


@pytest.mark.parametrize("text", ["", "nonsense\n", "[]\n", '{"kind": "case"}\n'])
def test_a_journal_that_is_none_is_a_usage_error(text):
    Path("out").mkdir()
    Path("out/run.jsonl").write_text(text)
    with pytest.raises(UsageError):
        resumed("out", CASES)
