"""Attempts in the pipeline of a run: jobs of their own, alone when they are run again, each with what others did to it.

The executor is a fake: no worker is started.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.cli.parser import main
from runner.core.exit_codes import ExitCode
from runner.core.observation import Ending
from runner.execute.base import SHARED, Execution, Job
from tests.conftest import GOOD
from tests.fakes import FakeExecutor, use_executor

SPECS = {"one": GOOD, "two": GOOD + "isolation: worker\n"}


class Crashes:
    """Every case crashes: the first ones after others in their worker, the rest alone."""

    after_others = 0

    def answer(self, job: Job) -> Execution:
        after = 3 if self.after_others else 0
        self.after_others = max(0, self.after_others - 1)
        ending = Ending(exit_code=1, phase="import")
        return Execution(job=job, observation=None, ending=ending, seconds=1.0, isolation=SHARED if after else "fork", after=after)


@pytest.fixture
def crashes() -> Crashes:
    return Crashes()


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch, crashes: Crashes) -> FakeExecutor:
    return use_executor(monkeypatch, crashes.answer)


Run = Callable[..., list[list[Job]]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executor: FakeExecutor, crashes: Crashes) -> Run:
    """Return a function that runs the program on a folder of specs and returns the jobs of each round."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "specs").mkdir()
    for name, text in SPECS.items():
        (tmp_path / "specs" / f"{name}.yaml").write_text(text)

    def go(*arguments: str, after_others: int = 0) -> list[list[Job]]:
        crashes.after_others = after_others
        assert main(["run", "specs", "--backend", "cpu", "--out", "out", *arguments]) == ExitCode.FAILED
        return executor.rounds

    return go


def lines(kind: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in Path("out/run.jsonl").read_text().splitlines()]
    return [line for line in found if line["kind"] == kind]


def test_what_is_run_again_has_the_machine_and_a_worker_to_itself(run: Run) -> None:
    first, *later = run("--retries", "2", "--isolation", "worker")
    assert [len(jobs) for jobs in (first, *later)] == [2, 2, 2]
    assert {job.needs.exclusive for job in first} == {False}
    assert {job.shares for job in first} == {True, False}
    assert {(job.needs.exclusive, job.shares) for jobs in later for job in jobs} == {(True, False)}


def test_attempts_of_a_case_are_jobs_of_their_own(run: Run) -> None:
    (jobs,) = run("--repeat", "3")
    assert len({job.name for job in jobs}) == len({job.folder for job in jobs}) == len(jobs) == 6
    assert [len(case["attempts"]) for case in lines("case")] == [3, 3]


def test_what_others_did_to_an_attempt_is_said_of_that_attempt_alone(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run("--repeat", "3", "--select", "two*", after_others=1)
    said = [attempt["company"] for attempt in lines("attempt")]
    # the one that was run again alone ended last
    assert said[:2] == ["", ""]
    assert said[2].startswith("CRASH after 3 other cases in a shared worker: exit code 1")
    assert len(said) == 3
    assert capsys.readouterr().err.count("it was retried alone") == 1


@pytest.mark.parametrize(("factor", "seconds"), [("1", 300.0), ("0.5", 150.0), ("4", 1200.0)])
def test_every_deadline_is_multiplied(run: Run, executor: FakeExecutor, factor: str, seconds: float) -> None:
    (jobs,) = run("--timeout-factor", factor)
    assert {job.timeout for job in jobs} == {seconds}
    assert executor.settings is not None
    assert executor.settings.timeout_factor == float(factor)
