"""Attempts in the pipeline of a run: jobs of their own, alone when they are run again.

The executor is a fake: no worker is started.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.cli.parser import main
from runner.execute.executor_protocol import Execution, Job
from runner.model.case_facts import Ending
from runner.model.outcomes import ExitCode
from tests.conftest import GOOD
from tests.fakes import FakeExecutor, use_executor

SPECS = {"one": GOOD, "two": GOOD}


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch) -> FakeExecutor:
    def crash(job: Job) -> Execution:
        return Execution(job=job, observation=None, ending=Ending(exit_code=1, phase="import"), seconds=1.0, isolation="fork")

    return use_executor(monkeypatch, crash)


Run = Callable[..., list[list[Job]]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executor: FakeExecutor) -> Run:
    """Return a function that runs the program on a folder of specs and returns the jobs of each round."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "specs").mkdir()
    for name, text in SPECS.items():
        (tmp_path / "specs" / f"{name}.yaml").write_text(text)

    def go(*arguments: str) -> list[list[Job]]:
        assert main(["run", "specs", "--backend", "cpu", "--out", "out", *arguments]) == ExitCode.FAILED
        return executor.rounds

    return go


def lines(kind: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in Path("out/run.jsonl").read_text().splitlines()]
    return [line for line in found if line["kind"] == kind]


def test_what_is_run_again_has_the_machine_and_a_worker_to_itself(run: Run) -> None:
    first, *later = run("--retries", "2")
    assert [len(jobs) for jobs in (first, *later)] == [2, 2, 2]
    assert {job.needs.exclusive for job in first} == {False}
    assert {job.needs.exclusive for jobs in later for job in jobs} == {True}


def test_attempts_of_a_case_are_jobs_of_their_own(run: Run) -> None:
    (jobs,) = run("--repeat", "3")
    assert len({job.name for job in jobs}) == len({job.folder for job in jobs}) == len(jobs) == 6
    assert [len(case["attempts"]) for case in lines("case")] == [3, 3]


@pytest.mark.parametrize(("factor", "seconds"), [("1", 300.0), ("0.5", 150.0), ("4", 1200.0)])
def test_every_deadline_is_multiplied(run: Run, executor: FakeExecutor, factor: str, seconds: float) -> None:
    (jobs,) = run("--timeout-factor", factor)
    assert {job.timeout for job in jobs} == {seconds}
    assert executor.settings is not None
    assert executor.settings.timeout_factor == float(factor)
