"""Attempts on their way through the session: jobs of their own, alone when they are run again, each with what others did to it.

The engine is a stand-in: no worker is started.
"""

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.cli.parser import main
from runner.core.exit_codes import ExitCode
from runner.core.model import Ending
from runner.execute.local.engine import Limits
from runner.plan.jobs import FACTS, SHARED, Execution, Job
from runner.run import session
from tests.conftest import GOOD

SPECS = {"one": GOOD, "two": GOOD + "isolation: worker\n"}


class Engine:
    """Answers what the machine is, and lets every case crash: the first executions after others in their worker, the rest alone."""

    rounds: list[list[Job]]
    limits: Limits
    in_company = 0

    def __init__(self, limits: Limits) -> None:
        Engine.limits = limits
        self.broken: dict[str, str] = {}
        self.left_over: tuple[str, ...] = ()
        self._waiting: deque[Job] = deque()

    def run(self, jobs: Iterable[Job], *_: object) -> Iterator[Execution]:
        self._waiting.extend(jobs)
        if self._waiting[0].plan != FACTS:
            Engine.rounds.append(list(self._waiting))
        while self._waiting:
            job = self._waiting.popleft()
            facts = {"torch": "2.13.0", "gpus": 0} if job.plan == FACTS else None
            after = 0
            if job.plan != FACTS and Engine.in_company:
                Engine.in_company -= 1
                after = 3
            ending = Ending(exit_code=1, phase="import")
            isolation = SHARED if after else "fork"
            yield Execution(job=job, observation=facts, ending=ending, seconds=1.0, isolation=isolation, after=after)

    def again(self, job: Job) -> None:
        self._waiting.append(job)

    def retire(self, number: int) -> None:
        """End no worker: there is none."""

    def heed(self, wake: int, asked: Callable[[], None]) -> None:
        """Hear of no signal: nothing is waited for."""

    def close(self) -> None:
        """End nothing: nothing was started."""


Run = Callable[..., list[list[Job]]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs the program on a folder of specs and returns the jobs of each round."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(session, "Engine", Engine)
    (tmp_path / "specs").mkdir()
    for name, text in SPECS.items():
        (tmp_path / "specs" / f"{name}.yaml").write_text(text)

    def go(*arguments: str, in_company: int = 0) -> list[list[Job]]:
        Engine.rounds, Engine.in_company = [], in_company
        assert main(["run", "specs", "--backend", "cpu", "--out", "out", *arguments]) == ExitCode.FAILED
        return Engine.rounds

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
    run("--repeat", "3", "--select", "two*", in_company=1)
    said = [attempt["company"] for attempt in lines("attempt")]
    # the one that was run again alone ended last
    assert said[:2] == ["", ""]
    assert said[2].startswith("CRASH after 3 other cases in a worker: exit code 1")
    assert len(said) == 3
    assert capsys.readouterr().err.count("it was run again alone") == 1


@pytest.mark.parametrize(("factor", "seconds"), [("1", 300.0), ("0.5", 150.0), ("4", 1200.0)])
def test_every_deadline_is_multiplied(run: Run, factor: str, seconds: float) -> None:
    (jobs,) = run("--timeout-factor", factor)
    assert {job.timeout for job in jobs} == {seconds}
    assert Engine.limits.patience == float(factor)
