"""What failed in a worker of several cases: whether it is believed, run again alone, and where it is told.

The executor is a fake that gives the answers of a test; judging, journal and reports are real.
"""

import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from runner.cli.parser import main
from runner.core.exit_codes import ExitCode
from runner.core.observation import Ending, ServiceReport
from runner.core.outcomes import Outcome
from runner.core.results import CaseResult
from runner.execute.base import SHARED, Execution, Job
from runner.record.journal import read_run
from tests.conftest import GOOD
from tests.fakes import ENDED, FakeExecutor, close_facts, close_leaf, exception, observation, seen, use_executor

SHARES = GOOD + "isolation: worker\n"

WAIVER = """\
waivers:
  - cases: spec[backend=cpu]
    reason: It is known
    issue: https://example.org/1
    until: 2099-12-31
    failure: {type: raised, match: broken}
"""


@dataclass(frozen=True)
class Answer:
    """What becomes of a job."""

    steps: tuple[Mapping[str, Any], ...] = ()
    ending: Ending = ENDED
    after: int = 0
    isolation: str = SHARED
    worker: int = 7
    contaminated: str = ""
    services: tuple[ServiceReport, ...] = ()

    def of(self, job: Job) -> Execution:
        facts = observation(*self.steps, id=job.name.rpartition(" (")[0]) if self.steps else None
        return Execution(
            job=job,
            observation=facts,
            ending=self.ending,
            seconds=1.5,
            isolation=self.isolation,
            after=self.after,
            worker=self.worker,
            contaminated=self.contaminated,
            services=self.services,
        )


HELD = Answer((seen(measured={"0": close_facts(close_leaf())}),))
DIFFERS = Answer((seen(measured={"0": close_facts(close_leaf(mismatches=2, excess=1.0, max_abs=1.0))}),))
RAISED = Answer((seen(raised=exception(), measured={}, unmeasured={"0": "the step raised"}),))
CRASHED = Answer(ending=Ending(signal=11, phase="run"))
LATE = Answer(ending=Ending(signal=9, timed_out=True, phase="trace"))


def company(answer: Answer, after: int = 3) -> Answer:
    return replace(answer, after=after)


def alone(answer: Answer) -> Answer:
    return replace(answer, isolation="fork", worker=8)


@dataclass(frozen=True)
class Ran:
    """A run of one spec."""

    code: int
    result: CaseResult
    out: Path
    err: str
    shown: str
    executor: FakeExecutor

    @property
    def junit(self) -> ElementTree.Element:
        return next(ElementTree.parse(self.out / "junit.xml").iter("testcase"))


Run = Callable[..., Ran]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a spec with an executor that gives these answers."""
    monkeypatch.chdir(tmp_path)

    def go(*answers: Answer, spec: str = SHARES, isolation: str = "worker", more: tuple[str, ...] = ()) -> Ran:
        Path("spec.yaml").write_text(spec)
        left = deque(answers)
        executor = use_executor(monkeypatch, lambda job: left.popleft().of(job))
        capsys.readouterr()
        code = main(["run", "spec.yaml", "--isolation", isolation, "--out", "out", *more])
        said = capsys.readouterr()
        assert not left
        (result,) = read_run(Path("out/run.jsonl")).results
        return Ran(code, result, tmp_path / "out", said.err, said.out, executor)

    return go


def test_a_pass_of_a_case_that_changed_what_measures_it_is_not_believed(run: Run) -> None:
    ran = run(replace(company(HELD), contaminated="runner.vocabulary.expectations.close.measure"), alone(DIFFERS))
    assert ran.result.outcome is Outcome.FAIL
    assert (
        ran.result.company
        == "PASS after 3 other cases in a shared worker, with contamination: runner.vocabulary.expectations.close.measure"
    )
    assert "with contamination" in ran.err
    assert not ran.executor.jobs[-1].shares


def test_the_cases_of_a_folder_are_a_group_unless_all_are_one(run: Run) -> None:
    (apart,) = {job.group for job in run(HELD).executor.jobs}
    assert apart == "."
    ran = run(HELD, more=("--share-across-folders", "--out", "other"))
    assert {job.group for job in ran.executor.jobs} == {""}


def test_a_pass_in_company_is_believed(run: Run) -> None:
    ran = run(company(HELD))
    assert (ran.code, ran.result.outcome) == (ExitCode.OK, Outcome.PASS)
    assert (ran.result.isolation, ran.result.after, ran.result.company) == ("shared", 3, "")
    assert ran.executor.retired == []
    assert "retried alone" not in ran.err
    assert ran.junit.find("system-out") is None


def test_what_fails_in_company_and_passes_alone_passes(run: Run) -> None:
    ran = run(company(DIFFERS), alone(HELD))
    assert (ran.code, ran.result.outcome) == (ExitCode.OK, Outcome.PASS)
    assert ran.result.company.startswith("FAIL after 3 other cases in a shared worker: close: ")
    assert (ran.result.isolation, ran.result.after) == ("fork", 0)
    assert ran.executor.retired == [7]
    (warning,) = [line for line in ran.err.splitlines() if "retried alone" in line]
    assert warning.startswith("warning: spec[backend=cpu] was FAIL after 3 other cases in a shared worker: close: ")
    assert warning.endswith("; it was retried alone. If it cannot share a worker, write 'isolation: case' in its spec")


def test_what_fails_in_company_and_alone_fails(run: Run) -> None:
    ran = run(company(DIFFERS), alone(DIFFERS))
    assert (ran.code, ran.result.outcome) == (ExitCode.FAILED, Outcome.FAIL)
    assert ran.result.company.startswith("FAIL after 3 other cases")
    assert "it was retried alone" in ran.err


def test_what_fails_first_in_its_worker_is_believed_at_once(run: Run) -> None:
    ran = run(company(DIFFERS, after=0))
    assert (ran.code, ran.result.outcome, ran.result.company) == (ExitCode.FAILED, Outcome.FAIL, "")
    assert ran.executor.retired == [7]  # worker 7 gets no further case after a failure
    assert len(ran.executor.jobs) == 1


def test_what_fails_in_a_fork_is_believed_at_once(run: Run) -> None:
    ran = run(alone(DIFFERS), isolation="case")
    assert (ran.result.outcome, ran.result.company) == (Outcome.FAIL, "")
    assert ran.executor.retired == []


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (RAISED, "FAIL after 3 other cases in a shared worker: raised: "),
        (CRASHED, "CRASH after 3 other cases in a shared worker: killed by SIGSEGV while in phase 'run'"),
        (LATE, "TIMEOUT after 3 other cases in a shared worker: outlived its deadline while in phase 'trace'"),
        (Answer((seen(measured={}),)), "ERROR after 3 other cases in a shared worker: "),
        (
            Answer((replace_steps := seen(graphs=[], executed={}, entered=0, measured={"0": close_facts(close_leaf())}),)),
            "FELL_BACK after 3",
        ),
    ],
)
def test_whatever_is_no_pass_is_run_again(first: Answer, said: str, run: Run) -> None:
    ran = run(company(first), alone(HELD))
    assert ran.result.outcome is Outcome.PASS
    assert ran.result.company.startswith(said)
    assert len(ran.executor.jobs) == 2


def test_one_case_before_it_is_one_case(run: Run) -> None:
    assert run(company(DIFFERS, after=1), alone(HELD)).result.company.startswith("FAIL after 1 other case in a shared worker: ")


def test_a_known_failure_in_company_is_run_again(run: Run, tmp_path: Path) -> None:
    (tmp_path / "waivers.yaml").write_text(WAIVER)
    ran = run(company(RAISED), alone(RAISED), more=("--waivers", "waivers.yaml"))
    assert ran.result.outcome is Outcome.XFAIL
    assert ran.result.company.startswith("XFAIL after 3 other cases in a shared worker: It is known")


def test_a_waived_case_that_passes_in_company_is_run_again(run: Run, tmp_path: Path) -> None:
    (tmp_path / "waivers.yaml").write_text(WAIVER)
    ran = run(company(HELD), alone(RAISED), more=("--waivers", "waivers.yaml"))
    assert ran.result.outcome is Outcome.XFAIL
    assert ran.result.company.startswith("XPASS after 3 other cases in a shared worker: ")


def test_the_second_time_is_a_job_of_its_own(run: Run) -> None:
    ran = run(company(DIFFERS), alone(HELD))
    first, second = ran.executor.jobs
    assert (first.shares, second.shares) == (True, False)
    assert first.folder != second.folder
    assert first.name != second.name
    assert ran.result.folder == second.folder
    for job in (first, second):  # what both left stays for who looks into it
        assert (ran.out / job.folder / "observation.json").is_file()


@pytest.mark.parametrize(("isolation", "spec", "shares"), [("none", GOOD, True), ("worker", GOOD, False), ("worker", SHARES, True)])
def test_who_shares(isolation: str, spec: str, shares: bool, run: Run) -> None:
    ran = run(HELD, spec=spec, isolation=isolation)
    assert ran.executor.jobs[0].shares is shares


def test_with_one_worker_for_all_a_failure_is_run_again_alone_too(run: Run) -> None:
    ran = run(company(DIFFERS), alone(HELD), spec=GOOD, isolation="none")
    assert (ran.result.outcome, ran.executor.jobs[1].shares) == (Outcome.PASS, False)


def test_the_retry_of_a_case_is_judged_by_its_own_service(run: Run) -> None:
    remote = {"RemoteFxGraphCache": {"hit": 0, "miss": 1, "put": 0, "exception": 0}}
    asked = seen(measured={"0": close_facts(close_leaf())}, remote=remote)
    used, unused = ServiceReport(name="redis", answered={"GET": 1}), ServiceReport(name="redis")
    retry = replace(alone(Answer((asked,))), services=(used,))
    ran = run(replace(company(DIFFERS), services=(unused,)), retry, spec=GOOD + "services: [redis]\n", isolation="none")
    assert [job.services for job in ran.executor.jobs] == [("redis",)] * 2
    reports = [json.loads((ran.out / job.folder / "services.json").read_text()) for job in ran.executor.jobs]
    assert [report["answered"] for (report,) in reports] == [{}, {"GET": 1}]
    assert ran.result.outcome is Outcome.PASS


# -- where it is told -----------------------------------------------------------------------------------------------


def test_the_junit_report_tells_it_of_a_pass(run: Run) -> None:
    ran = run(company(DIFFERS), alone(HELD))
    text = ran.junit.findtext("system-out") or ""
    assert text.startswith("shared worker: FAIL after 3 other cases in a shared worker: close: ")
    assert text.endswith("; retried alone, only the retry counts")
    assert [child.tag for child in ran.junit] == ["system-out"]


def test_the_junit_report_tells_it_of_a_failure(run: Run) -> None:
    ran = run(company(CRASHED), alone(DIFFERS))
    assert [child.tag for child in ran.junit] == ["failure", "system-out"]
    text = ran.junit.findtext("system-out") or ""
    assert text.startswith("shared worker: CRASH after 3 other cases in a shared worker: killed by SIGSEGV")


def test_what_a_case_said_in_company_drives_no_terminal(run: Run) -> None:
    loud = Answer((seen(raised=exception(message="\x1b]0;owned\x07\x1b[31mred\x00\n" * 400), unmeasured={"0": "the step raised"}),))
    ran = run(company(loud), alone(HELD))
    assert "\x1b" not in (ran.junit.findtext("system-out") or "")
    assert "\x1b" not in ran.err
    assert "\x1b" not in ran.shown
    assert "\x00" not in ran.err
