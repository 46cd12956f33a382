"""Real runs of cases that do not do the same every time: run again alone, repeated, killed in
between and gone on with.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from junitparser import xunit2

from tests.fakes import ROOT, prestarted
from tests.ran import Ran, called
from torch_conformance.model.outcomes import Outcome
from torch_conformance.record.journal import read_run

pytestmark = pytest.mark.torch

SPECS = ROOT / "tests" / "specs" / "attempts"
ALWAYS, HOLDS = "always-fails[backend=host]", "always-passes[backend=host]"
FAIL, CRASH, HANG = (
    f"passes-second-time[backend=host,way={way}]" for way in ("fail", "crash", "hang")
)
CROWDED = [f"fails-in-parallel[backend=host,one={one}]" for one in "ab"]


def command(folder: Path, *arguments: object) -> list[object]:
    return ["run", SPECS, "--out", folder / "out", *arguments]


def marks(folder: Path) -> dict[str, str]:
    """Return the environment of specs that tell their first time by marks in a folder."""
    (folder / "marks").mkdir(exist_ok=True)
    return prestarted(MARKS=str(folder / "marks"))


def run(folder: Path, *arguments: object) -> Ran:
    done = called(*command(folder, *arguments), env=marks(folder))
    assert "Traceback" not in done.stderr
    return Ran(folder / "out", done.returncode, done.stdout, done.stderr)


def junit_cases(ran: Ran) -> dict[str, Any]:
    return {
        case.name: case
        for suite in xunit2.JUnitXml.fromfile(str(ran.out / "junit.xml"))
        for case in suite
    }


def selected(*names: str) -> list[str]:
    return [word for name in names for word in ("--select", name)]


# -- retries ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def retried(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return run(tmp_path_factory.mktemp("retried"), "--retries", "2", "--jobs", "2")


def test_what_passes_when_run_again_alone_is_flaky(retried):
    expected = {
        ALWAYS: Outcome.FAIL,
        HOLDS: Outcome.PASS,
        **dict.fromkeys([FAIL, CRASH, HANG, *CROWDED], Outcome.FLAKY),
    }
    assert {name: result.outcome for name, result in retried.results.items()} == expected
    assert retried.code == 1


@pytest.mark.parametrize(
    ("name", "first"), [(FAIL, Outcome.FAIL), (CRASH, Outcome.CRASH), (HANG, Outcome.TIMEOUT)]
)
def test_a_flaky_case_keeps_both_attempts(retried, name, first):
    result = retried.results[name]
    assert [attempt.outcome for attempt in result.attempts] == [first, Outcome.PASS]
    assert result.reason.startswith("failed 1 of 2 attempts: ")
    assert result.reason.endswith("; passed when retried alone")
    folders = [attempt.folder for attempt in result.attempts]
    assert len(set(folders)) == 2
    assert result.folder == folders[0]
    for folder in folders:
        assert "this is" in (retried.out / folder / "stdout.txt").read_text()


def test_what_never_passes_is_its_first_failure(retried):
    result = retried.results[ALWAYS]
    assert [attempt.outcome for attempt in result.attempts] == [
        Outcome.FAIL,
        Outcome.CRASH,
        Outcome.CRASH,
    ]
    assert result.reason.startswith(
        "failed 3 of 3 attempts: equals: expected found equal to 1, observed 2; another "
        "failure in attempt 2: CRASH"
    )
    assert (result.failure_type, [verdict.kind for verdict in result.failed]) == (
        "equals",
        ["equals"],
    )


def test_junit_says_what_was_seen(retried):
    cases = junit_cases(retried)
    assert set(cases) == set(retried.results)
    (flaky,) = cases[CRASH].result
    assert (flaky.type, type(flaky).__name__) == ("flaky", "Failure")
    assert "killed by SIGABRT" in flaky.text
    assert [one.message for one in cases[ALWAYS].rerun_failures()] == [
        "exit code 3 while in phase 'api', in act at line 6 of the spec"
    ] * 2
    assert cases[HOLDS].is_passed


@pytest.mark.parametrize(("names", "code"), [((HOLDS, FAIL, ALWAYS), 1), ((FAIL,), 0)])
def test_flaky_passes_where_the_user_lets_it(tmp_path, names, code):
    ran = run(tmp_path, *selected(*names), "--retries", "1", "--flaky", "pass")
    assert (ran.code, ran.results[FAIL].outcome) == (code, Outcome.FLAKY)
    case = junit_cases(ran)[FAIL]
    assert case.is_passed
    (failure,) = case.flaky_failures()
    assert failure.type == "raised"
    assert "the first time" in failure.stack_trace
    assert "this is fail" in failure.system_out
    assert "FLAKY cases do not fail this run" in ran.stdout


# -- repeat ----------------------------------------------------------------------------------------


def test_what_differs_when_it_is_repeated_is_flaky(tmp_path):
    ran = run(tmp_path, *selected(HOLDS, FAIL), "--repeat", "3", "--jobs", "1")
    assert ran.code == 1
    assert ran.results[FAIL].outcome is Outcome.FLAKY
    assert ran.results[FAIL].reason.startswith(
        "3 attempts had the outcomes 2 PASS, 1 FAIL: raised: "
    )
    assert ran.results[HOLDS].outcome is Outcome.PASS
    assert [attempt.outcome for attempt in ran.results[HOLDS].attempts] == [Outcome.PASS] * 3
    assert len(list(junit_cases(ran))) == 2
    assert ran.stdout.splitlines()[-1].startswith("executed 2 of 2 selected")


# -- runs that were ended in between ---------------------------------------------------------------


SHORT = ["--retries", "2", "--jobs", "1", *selected(ALWAYS, HOLDS, HANG)]
SLOW = [*SHORT, "--timeout-factor", "20"]
"""The last of these hangs for 40 seconds; the first has failed by then."""


def stopped(folder: Path, *signals: int, arguments: Sequence[str] = SLOW) -> Ran:
    """Begin a run and send it signals as soon as its last case hangs."""
    words = [sys.executable, "-m", "torch_conformance", *map(str, command(folder, *arguments))]
    process = subprocess.Popen(
        words,
        cwd=ROOT,
        env=marks(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        end = time.monotonic() + 120
        while not (folder / "marks" / "hang").exists():
            assert process.poll() is None, process.communicate(timeout=60)
            assert time.monotonic() < end, "the run never came so far"
            time.sleep(0.05)
        for number in signals:
            os.kill(process.pid, number)
            time.sleep(1)  # two that are sent at once are one
        stdout, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait(timeout=60)
    return Ran(folder / "out", process.returncode, stdout, stderr)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("killed")
    ran = stopped(folder, signal.SIGKILL)
    assert ran.code == -signal.SIGKILL
    return folder


def test_a_killed_run_goes_on_with_its_attempts(killed):
    before = read_run(killed / "out" / "run.jsonl")
    done = called("run", SPECS, "--resume", killed / "out", *SLOW, env=marks(killed))
    ran = Ran(killed / "out", done.returncode, done.stdout, done.stderr)
    assert ran.run.footer is not None
    assert {name: result.outcome for name, result in ran.results.items()} == {
        ALWAYS: Outcome.FAIL,
        HOLDS: Outcome.PASS,
        HANG: Outcome.PASS,
    }
    first, *others = ran.results[ALWAYS].attempts
    assert (first.outcome, first.folder) == (Outcome.FAIL, "cases/00001")
    assert [attempt.outcome for attempt in others] == [Outcome.CRASH] * 2
    assert ran.results[HOLDS] in before.results
    assert ran.code == 1


def test_a_case_that_had_all_its_attempts_when_the_run_was_killed_gets_its_result(
    retried, tmp_path
):
    shutil.copytree(retried.out, tmp_path / "out")
    lines = (retried.out / "run.jsonl").read_bytes().splitlines(keepends=True)
    missing = [
        line
        for line in lines[:-1]
        if (record := json.loads(line))["kind"] == "case" and record["case_id"] in (ALWAYS, CRASH)
    ]
    (tmp_path / "out" / "run.jsonl").write_bytes(
        b"".join(line for line in lines[:-1] if line not in missing)
    )
    done = called("run", SPECS, "--resume", tmp_path / "out", "--retries", "2", env=marks(tmp_path))
    resumed = Ran(tmp_path / "out", done.returncode, done.stdout, done.stderr)
    assert len(missing) == 2
    assert resumed.results == retried.results
    assert (resumed.code, resumed.run.footer is None) == (1, False)
    assert "  attempt " not in resumed.stderr


def test_an_interrupted_run_says_what_had_failed(tmp_path):
    ran = stopped(tmp_path, signal.SIGINT, signal.SIGINT)
    assert ran.code == 130
    assert ran.results[ALWAYS].outcome is Outcome.NOT_RUN
    assert ran.results[ALWAYS].reason.startswith(
        "interrupted after 1 of at most 3 attempts: equals: expected found equal to 1"
    )
    assert [attempt.outcome for attempt in ran.results[ALWAYS].attempts] == [Outcome.FAIL]
    assert [len(made) for made in ran.run.attempts.values()] == [1]
    assert ran.results[HANG].outcome is Outcome.NOT_RUN
    assert ran.run.footer is not None
