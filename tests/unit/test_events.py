"""The events of a run, and the reporters that listen to them. The runner of cases is a stand-in: no worker is started."""

import errno
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from runner.cli.parser import main
from runner.machine import capabilities
from runner.machine.capabilities import Machine, Verdict
from runner.machine.installed_torch import facts_of_files, installed_torch
from runner.model import events
from runner.model.case import Case
from runner.model.events import Activity, RunEvent, RunningCase
from runner.model.outcomes import ExitCode, Outcome
from runner.model.results import CaseResult
from runner.record.run_folder import RunFolder
from runner.report import ReportSetup, reporters
from runner.report.reporters import REPORTERS, Reporter
from runner.run import controller
from runner.run.pipeline import result_of_unrun
from tests.conftest import GOOD
from tests.results import as_outcome


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


Play = Callable[["Runner", Case], Iterator[CaseResult]]


class Runner:
    """Stands for ``CaseRunner``: plays what a test wants of each case."""

    play: Play
    warnings = ("something is slow",)
    notes = ()
    unrun: Mapping[str, str] = {}
    checks_machine = True

    def __init__(
        self,
        options: object,
        suite: object,
        cases: object,
        folder: RunFolder,
        workers: int,
        **_: object,
    ) -> None:
        self._machine = capabilities.inspect_files(installed_torch())
        self._number = 0
        self.folder = folder.path

    def facts_of_files(self) -> Mapping[str, str]:
        return facts_of_files(installed_torch())

    def verdict_of(self, case: Case, machine: Machine) -> Verdict:
        return capabilities.availability_of(case, machine)

    def close(self) -> None:
        pass

    def on_interrupt(self, interrupts: object, say: Callable[[str], None], show: Callable[[Activity], None]) -> None:
        self.say, self.show = say, show

    def look_at_machine(self) -> Machine:
        return self._machine

    def run(self, cases: Sequence[Case], known: object, repro: Callable[[Case], str], *, alone: bool = False) -> Iterator[CaseResult]:
        for case in cases:
            yield from Runner.play(self, case)

    def result(self, case: Case, outcome: Outcome) -> CaseResult:
        self._number += 1
        return as_outcome(result_of_unrun(case, "because", ""), outcome, folder=f"cases/{self._number:05d}", evidence={})


def evident(runner: Runner, case: Case, outcome: Outcome) -> CaseResult:
    """Return a result with the file that it was judged by."""
    made = runner.result(case, outcome)
    path = runner.folder / made.folder / "observation.json"
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    return replace(made, evidence={path.name: hashlib.sha256(b"{}").hexdigest()})


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Return a function that runs two cases, ``one`` and ``two``, with a recorder as the last reporter."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(controller, "CaseRunner", Runner)
    monkeypatch.setattr(reporters, "REPORTERS", {**REPORTERS, "recorder": Reporter(Recorder)})
    (tmp_path / "specs").mkdir()
    for name in ("one", "two"):
        (tmp_path / "specs" / f"{name}.yaml").write_text(GOOD)

    def run(play: Play, *arguments: str) -> int:
        monkeypatch.setattr(Runner, "play", staticmethod(play), raising=False)
        return main(["run", "specs", "--out", "out", *arguments])

    return run


Go = Callable[..., int]


def names() -> list[str]:
    """Return the events by name, those of cases with the case's; what is waited for is left out."""
    found = []
    for event in Recorder.events:
        case = getattr(event, "case_id", "") or getattr(getattr(event, "result", None), "case_id", "")
        found.append(f"{type(event).__name__} {case.partition('[')[0]}".strip())
    return [name for name in found if name != "Activity"]


def kinds() -> list[str]:
    return [json.loads(line)["kind"] for line in Path("out/run.jsonl").read_text().splitlines()]


def passes(runner: Runner, case: Case) -> Iterator[CaseResult]:
    yield runner.result(case, Outcome.PASS)


def test_a_new_reporter_gets_every_event_in_its_order(go: Go) -> None:
    def play(runner: Runner, case: Case) -> Iterator[CaseResult]:
        for phase in ("", "trace", "trace", "compile"):
            runner.show(Activity(running=(RunningCase(name=case.id, since=1.0, phase=phase),)))
        runner.say("half of it is done")
        yield runner.result(case, Outcome.PASS)

    assert go(play) == ExitCode.OK
    of_case = ["Note", "CaseFinished {}"]
    assert names() == [
        "RunStarted",
        "HeaderCompleted",
        *(name.format(case) for case in ("one", "two") for name in of_case),
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


def test_an_altered_journal_is_the_last_that_anybody_hears_of_a_run(go: Go, capsys: pytest.CaptureFixture[str]) -> None:
    def play(runner: Runner, case: Case) -> Iterator[CaseResult]:
        yield runner.result(case, Outcome.PASS)
        if case.name == "one":
            with Path("out/run.jsonl").open("ab") as stream:
                stream.write(b"{}\n")

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
    assert go(passes) == ExitCode.FAILED
    assert "cannot write page.html: No space left on device" in capsys.readouterr().err
    assert kinds() == ["header", "case", "case"]
