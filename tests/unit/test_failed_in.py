"""``run --last-failed`` and ``--failed-in``: what failed in an earlier run is selected.

The executor is a fake: every case that can run here crashes.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from runner.cli.parser import main, parse
from runner.execute.executor_protocol import Execution, Job
from runner.model.case_facts import Ending
from runner.model.options import RunOptions
from runner.model.outcomes import ExitCode, Outcome
from runner.record.run_folder import REPORTS
from runner.run.earlier_runs import with_failed
from tests.conftest import GOOD
from tests.fakes import FakeExecutor, use_executor
from tests.recorded import recorded, run_of, write_run

ABSENT = GOOD + "requires: [{module: no_such_module_here}]\n"
SPECS = {"one": GOOD, "two": GOOD, "three": ABSENT, "later": GOOD + "on_request: true\n"}


def crash(job: Job) -> Execution:
    return Execution(job=job, observation=None, ending=Ending(exit_code=1, phase="import"), seconds=1.0, isolation="fork")


@pytest.fixture
def executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeExecutor:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "specs").mkdir()
    for name, text in SPECS.items():
        (tmp_path / "specs" / f"{name}.yaml").write_text(text)
    return use_executor(monkeypatch, crash)


def recorded_run(folder: str, **outcomes: Outcome) -> str:
    """Write a run with these outcomes of the specs, and return its name."""
    results = [
        recorded(name, outcome, case_id=f"{name}[backend=cpu]", area="", spec=f"specs/{name}.yaml") for name, outcome in outcomes.items()
    ]
    write_run(Path(folder), run_of(*results, run_id="earlier", options={"min-executed": "1", "paths": "specs"}))
    return folder


def latest() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (REPORTS / "latest" / "run.jsonl").read_text().splitlines()]


def ran() -> set[str]:
    return {line["case_id"].partition("[")[0] for line in latest() if line["kind"] == "case"}


# the selection


def test_what_failed_in_the_latest_run_is_selected(executor: FakeExecutor, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "specs", "--backend", "cpu"]) == ExitCode.FAILED
    assert ran() == {"one", "two", "three"}
    first = latest()[0]["run_id"]
    assert main(["run", "specs/three.yaml", "--backend", "cpu", "--out", "elsewhere"]) == ExitCode.NOTHING
    assert main(["run", "specs/three.yaml", "--last-failed"]) == ExitCode.NOTHING, "of its own last run"
    assert main(["run", "specs/one.yaml", "--last-failed", "--select", "o*"]) == ExitCode.FAILED
    assert ran() == {"one"}
    header = latest()[0]
    assert (header["options"]["failed-in"], header["options"]["last-failed"], header["options"]["paths"]) == (first, "", "specs/one.yaml")
    assert main(["run", "--failed-in", first]) == ExitCode.FAILED
    assert ran() == {"one", "two"}
    assert main(["run", "--last-failed", "--select", "three*"]) == ExitCode.NOTHING
    assert "0 of the 2 cases that failed in" in capsys.readouterr().err


def test_only_what_fails_a_run_is_selected(executor: FakeExecutor, capsys: pytest.CaptureFixture[str]) -> None:
    every = [outcome for outcome in Outcome if outcome is not Outcome.FLAKY]  # FLAKY needs lines of attempts
    name = recorded_run("old", **{outcome.label: outcome for outcome in every})
    _, options = parse(["run", "--failed-in", name])
    assert isinstance(options, RunOptions)
    changed, failed = with_failed(options)
    assert (changed.failed_in, changed.paths) == ("earlier", (Path("specs"),))
    assert {case_id.partition("[")[0] for case_id in failed} == {
        outcome.label for outcome in every if outcome.is_failure and outcome is not Outcome.NOT_RUN
    }
    assert "1 case was not run in earlier, and is not selected (--resume runs what is left)" in capsys.readouterr().err


def test_shards_of_failed_cases_are_the_whole_selection(executor: FakeExecutor) -> None:
    name = recorded_run("old", one=Outcome.FAIL, two=Outcome.CRASH, three=Outcome.PASS)
    whole: set[str] = set()
    for number in (1, 2):
        main(["run", "--failed-in", name, "--shard", f"{number}/2"])
        header = latest()[0]
        assert header["selected_whole"] == 2
        whole |= ran()
    assert whole == {"one", "two"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--last-failed", "no run 'latest'"),
        ("--failed-in nowhere", "no run 'nowhere'"),
        ("--last-failed --failed-in old", "--last-failed with --failed-in old: each selects the failed cases of a run"),
        ("--last-failed --resume old", "--last-failed with --resume: the latest run may be another one than then"),
        ("--failed-in broken", "broken/run.jsonl:1: "),
        ("--failed-in old --profile inductor-cpu", "--failed-in does not go with it: the profile selects its cases"),
    ],
)
def test_what_cannot_be_selected(line: str, message: str, executor: FakeExecutor, capsys: pytest.CaptureFixture[str]) -> None:
    recorded_run("old", one=Outcome.FAIL)
    Path("broken").mkdir()
    Path("broken/run.jsonl").write_text("{}\n")
    assert main(["run", *line.split()]) == ExitCode.USAGE
    assert message in capsys.readouterr().err


def test_a_run_of_failed_cases_is_resumed(executor: FakeExecutor, capsys: pytest.CaptureFixture[str]) -> None:
    name = recorded_run("old", one=Outcome.FAIL, two=Outcome.FAIL)
    assert main(["run", "--failed-in", name, "--fail-fast", "--out", "new"]) == ExitCode.FAILED
    lines = Path("new/run.jsonl").read_text().splitlines()
    Path("new/run.jsonl").write_text("\n".join(lines[:2]) + "\n")  # as after a kill: no result of the second case, no footer
    assert main(["run", "--failed-in", name, "--fail-fast", "--resume", "new"]) == ExitCode.FAILED, capsys.readouterr().err
    kinds = [json.loads(line)["kind"] for line in Path("new/run.jsonl").read_text().splitlines()]
    assert kinds == ["header", "case", "case", "footer"]
    assert main(["run", "specs", "--fail-fast", "--resume", "new"]) == ExitCode.USAGE
