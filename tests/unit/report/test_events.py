"""The events of a run, and the reporters that listen to them.

The executor is a fake: no worker is started.
"""

import errno
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import GOOD
from tests.fakes import ENDED, observation, seen, use_executor, write_specs
from torch_conformance.cli.parser import main
from torch_conformance.execute.executor_protocol import Execution, Job
from torch_conformance.model import events
from torch_conformance.model.events import RunEvent
from torch_conformance.model.outcomes import ExitCode, Outcome
from torch_conformance.report import ReportSetup, reporters
from torch_conformance.report.reporters import REPORTERS, Reporter

SPEC = GOOD.replace("close: {to: eager}", "counter: {inductor.fxgraph_cache_miss: 1}")
FAILS: dict[str, dict[str, int]] = {"inductor": {"fxgraph_cache_miss": 2}}


class Recorder:
    """A new reporter: it keeps every event."""

    events: list[RunEvent]
    closed = 0

    def __init__(self, setup: ReportSetup) -> None:
        assert setup.folder.path.is_dir()
        Recorder.events, Recorder.closed = [], 0

    def on_event(self, event: RunEvent) -> None:
        Recorder.events.append(event)

    def close(self) -> None:
        Recorder.closed += 1


Play = Callable[[Job], Execution]
Go = Callable[..., int]


def execution(job: Job, outcome: Outcome = Outcome.PASS) -> Execution:
    """Return what an executor says of a case that passes or fails."""
    assert job.plan is not None
    (Path("out") / job.folder).mkdir(parents=True, exist_ok=True)
    facts = seen() if outcome is Outcome.PASS else seen(counters=FAILS)
    return Execution(
        job=job,
        observation=observation(facts, id=job.plan["id"]),
        ending=ENDED,
        seconds=1.0,
        isolation="fork",
    )


@pytest.fixture
def go(here: Path, monkeypatch: pytest.MonkeyPatch) -> Go:
    """Return a function that runs two cases, ``one`` and ``two``, with a recorder as the last
    reporter.
    """
    monkeypatch.setattr(reporters, "REPORTERS", {**REPORTERS, "recorder": Reporter(Recorder)})
    write_specs(here, dict.fromkeys(("one", "two"), SPEC))

    def run(play: Play, *arguments: str) -> int:
        use_executor(monkeypatch, play).warnings = ("something is slow",)
        return main(["run", "specs", "--out", "out", *arguments])

    return run


def names() -> list[str]:
    """Return the events by name, those of cases with the case's; what is waited for is left out."""
    found = []
    for event in Recorder.events:
        case = getattr(event, "case_id", "") or getattr(
            getattr(event, "result", None), "case_id", ""
        )
        found.append(f"{type(event).__name__} {case.partition('[')[0]}".strip())
    return [name for name in found if name != "Activity"]


def kinds() -> list[str]:
    return [json.loads(line)["kind"] for line in Path("out/run.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("table", ["table.md", "table.json"])
def test_no_report_of_an_earlier_run_outlives_the_start_of_another(go: Go, table: str) -> None:
    reports, during = [Path(table), Path("junit.xml")], list[str]()
    for report in reports:
        report.write_text("all is green")

    def play(job: Job) -> Execution:
        during.extend(path.read_text() for path in reports)
        return execution(job)

    go(play, "--support", table, "--junit", "junit.xml")
    assert len(during) == 4
    assert all("did not reach its end" in text or '"truncated": true' in text for text in during)
    assert "did not reach" not in Path(table).read_text()
    assert '"truncated": true' not in Path(table).read_text()


def test_a_new_reporter_gets_every_event_in_its_order(go: Go) -> None:
    assert go(execution) == ExitCode.OK
    cases = ["CaseFinished one", "CaseFinished two"]
    assert names() == [
        "RunStarted",
        "HeaderCompleted",
        *cases,
        "ExecutionEnded",
        "Note",
        "ResultsCompleted",
        "RunEnded",
    ]
    started, ended = Recorder.events[0], Recorder.events[-1]
    assert isinstance(started, events.RunStarted)
    assert isinstance(ended, events.RunEnded)
    assert (started.total, started.is_resumed) == (2, False)
    assert [result.outcome for result in ended.results] == [Outcome.PASS, Outcome.PASS]
    assert ended.footer.exit_code == ExitCode.OK
    assert Recorder.closed == 1
    assert kinds() == ["header", "case", "case", "footer"]


def test_max_failures_counts_cases_and_retries_of_a_spec_first(go: Go, here: Path) -> None:
    write_specs(here, {"two": SPEC + "retries: 1\n", "three": SPEC, "zero": SPEC})
    failed: list[str] = []

    def play(job: Job) -> Execution:
        name = job.name.partition("[")[0]
        outcome = Outcome.PASS if name in failed or name == "zero" else Outcome.FAIL
        failed.append(name)
        return execution(job, outcome)

    def run(*arguments: str) -> dict[str, str]:
        failed.clear()
        assert go(play, *arguments) == ExitCode.FAILED
        text = Path("out/run.jsonl").read_text()
        lines = [line for line in map(json.loads, text.splitlines()) if line["kind"] == "case"]
        junit = Path("out/junit.xml").read_text()
        assert junit.count("<testcase ") == len(lines) == 4
        shutil.rmtree("out")
        return {
            line["case_id"].partition("[")[0]: line["reason"] or line["outcome"] for line in lines
        }

    everything = run("--max-failures", "4")  # one and three fail, two passes when it is retried
    assert "passed when retried alone" in everything["two"]
    assert everything["zero"] == "PASS"
    assert run("--max-failures", "3") == everything
    stopped = dict.fromkeys(("two", "zero"), "stopped after 2 failures")
    assert run("--max-failures", "2") == {**everything, **stopped}
    stopped = dict.fromkeys(("three", "two", "zero"), "stopped at the first failure")
    assert run("--fail-fast") == {"one": everything["one"], **stopped}


def test_an_altered_journal_is_the_last_that_anybody_hears_of_a_run(
    go: Go, capsys: pytest.CaptureFixture[str]
) -> None:
    def play(job: Job) -> Execution:
        if "two[" in str(job.plan):
            with Path("out/run.jsonl").open("ab") as stream:
                stream.write(b"{}\n")
        return execution(job)

    assert go(play) == ExitCode.FAILED
    abandoned = Recorder.events[-1]
    assert isinstance(abandoned, events.RunAbandoned)
    assert [result.name for result in abandoned.results] == ["one"]
    assert "CaseFinished two" not in names()  # the journal is asked first
    assert Recorder.closed == 1
    assert not Path("out/run.jsonl").exists()
    assert Path("out/run.jsonl.altered").exists()
    assert 'type="truncated"' in Path("out/junit.xml").read_text()
    assert "the journal was changed" in capsys.readouterr().err


def test_a_reporter_without_space_ends_the_run_before_its_footer(
    go: Go, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Full(Recorder):
        def on_event(self, event: RunEvent) -> None:
            super().on_event(event)
            if isinstance(event, events.ResultsCompleted):
                raise OSError(errno.ENOSPC, "No space left on device", "page.html")

    monkeypatch.setattr(reporters, "REPORTERS", {**REPORTERS, "page": Reporter(Full)})
    assert go(execution) == ExitCode.FAILED
    assert "cannot write page.html: No space left on device" in capsys.readouterr().err
    assert kinds() == ["header", "case", "case"]
