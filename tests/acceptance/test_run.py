"""Real runs of the program: every outcome, exit code and file that a user or a CI system holds on
to.

Most of it looks at one run of ``tests/specs/judged``; the others compile nothing, or nothing is run
at all.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from junitparser import Error, Failure, JUnitXml, Skipped

from tests.fakes import ROOT, prestarted
from tests.ran import Ran, called
from torch_conformance.model.outcomes import JUnitTag, Outcome
from torch_conformance.record.journal import read_run

pytestmark = pytest.mark.torch

JUDGED = ROOT / "tests" / "specs" / "judged"
UNAVAILABLE = JUDGED / "unavailable.yaml"

OUTCOMES = {
    "error-eager[backend=cpu]": Outcome.ERROR,
    "error-inputs[backend=cpu]": Outcome.ERROR,
    "error-prelude[backend=host]": Outcome.ERROR,
    "fail-close[backend=cpu]": Outcome.FAIL,
    "fail-counter[backend=cpu]": Outcome.FAIL,
    "fail-filecheck[backend=cpu]": Outcome.FAIL,
    "fail-raised[backend=cpu]": Outcome.FAIL,
    "fell-back[backend=cpu]": Outcome.FELL_BACK,
    "host-crash[backend=host,way=segv]": Outcome.CRASH,
    "host-crash[backend=host,way=abort]": Outcome.CRASH,
    "host-crash[backend=host,way=exit0]": Outcome.CRASH,
    "host-crash[backend=host,way=exit3]": Outcome.CRASH,
    "host-crash[backend=host,way=sysexit]": Outcome.CRASH,
    "host-fail[backend=host,value=a%20b]": Outcome.FAIL,
    "host-fail[backend=host,value=%24HOME%27%60%22%2A]": Outcome.FAIL,
    "host-pass[backend=host,value=1]": Outcome.PASS,
    "host-pass[backend=host,value=two%20words]": Outcome.PASS,
    "host-pass[backend=host,value=it%27s]": Outcome.PASS,
    "host-timeout[backend=host]": Outcome.TIMEOUT,
    "own-cache[backend=cpu,repeat=1]": Outcome.PASS,
    "own-cache[backend=cpu,repeat=2]": Outcome.PASS,
    "pass[backend=cpu]": Outcome.PASS,
    "raises-before-inductor[backend=cpu]": Outcome.FELL_BACK,
    "raises-in-inductor[backend=cpu]": Outcome.PASS,
    "relu[backend=cpu]": Outcome.PASS,
    "unavailable[backend=host]": Outcome.UNAVAILABLE,
}
EXECUTED = f"executed {len(OUTCOMES) - 1} of {len(OUTCOMES)} selected, 1 unavailable; report: "
ODD = "host-fail[backend=host,value=%24HOME%27%60%22%2A]"
"""A case whose values a shell would take apart."""


def run(out: Path, *arguments: object, **options: Any) -> Ran:
    done = called("run", *arguments, "--out", out, **{"env": prestarted(), **options})
    return Ran(out, done.returncode, done.stdout, done.stderr)


def junit(ran: Ran) -> Any:
    return JUnitXml.fromfile(str(ran.out / "junit.xml"))


def junit_cases(ran: Ran) -> dict[str, Any]:
    return {case.name: case for suite in junit(ran) for case in suite}


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    out = tmp_path_factory.mktemp("judged") / "out"
    return run(out, JUDGED, "--junit", out.parent / "more" / "report.xml")


# -- outcomes --------------------------------------------------------------------------------------


def test_every_case_has_the_outcome_that_its_spec_was_written_for(judged):
    assert judged.outcomes == OUTCOMES, judged.stdout
    assert judged.code == 1


# -- reports ---------------------------------------------------------------------------------------


def test_junit_has_every_case_once_with_the_element_of_its_outcome(judged):
    found = junit_cases(judged)
    assert set(found) == set(OUTCOMES)
    kinds = {JUnitTag.FAILURE: Failure, JUnitTag.ERROR: Error, JUnitTag.SKIPPED: Skipped}
    for name, outcome in OUTCOMES.items():
        results = found[name].result
        assert [type(result) for result in results] == (
            [kinds[outcome.junit]] if outcome.junit in kinds else []
        )
        assert (ROOT / found[name]._elem.get("file")).is_file()
        assert int(found[name]._elem.get("line")) >= 1


def test_the_journal_has_a_head_and_a_foot(judged):
    header, footer = judged.run.header, judged.run.footer
    assert header.selected == len(OUTCOMES)
    assert header.environment["torch"]
    assert header.variables["TORCHINDUCTOR_VEC_ISA_OK"] == "0"
    assert any(name.endswith("judged/pass.yaml") for name in header.specs)
    assert (footer.exit_code, footer.interrupted) == (1, False)


def test_the_repro_command_runs_that_case_and_fails_the_same_way(judged, tmp_path):
    shim = tmp_path / "bin" / "torch-conformance"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m torch_conformance "$@"\n')
    shim.chmod(0o755)
    variables = prestarted(PATH=f"{shim.parent}{os.pathsep}{os.environ['PATH']}")
    result = judged.results[ODD]
    repro = next(
        line
        for line in junit_cases(judged)[ODD].result[0].text.splitlines()
        if line.startswith("repro: ")
    )
    assert repro == f"repro: {result.repro}"
    done = subprocess.run(
        ["sh", "-c", result.repro],
        cwd=tmp_path,
        env=variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    again = read_run(tmp_path / "reports" / "latest" / "run.jsonl")
    assert [(one.case_id, one.outcome, one.reason) for one in again.results] == [
        (ODD, result.outcome, result.reason)
    ]
    assert re.fullmatch(
        "executed 1 of 1 selected, 0 unavailable; report: reports/latest/junit.xml; [0-9]+ s",
        done.stdout.splitlines()[-1],
    )


# -- going on --------------------------------------------------------------------------------------


MISSING = {name for name in OUTCOMES if name.startswith("host-pass")}
"""Cases that ended before others did: their folders are not the last ones."""


def truncated(judged: Ran, out: Path) -> None:
    """Copy a run without its foot and without some cases, one of which is torn."""
    shutil.copytree(judged.out, out)
    head, *cases, _ = (judged.out / "run.jsonl").read_bytes().splitlines(keepends=True)
    gone = [line for line in cases if json.loads(line)["case_id"] in MISSING]
    (out / "run.jsonl").write_bytes(
        b"".join([head, *(line for line in cases if line not in gone), gone[0][:-50]])
    )


def test_a_resumed_run_runs_only_what_is_missing_and_ends_as_if_nothing_had_happened(
    judged, tmp_path
):
    out = tmp_path / "out"
    truncated(judged, out)
    done = called("run", JUDGED, "--resume", out, env=prestarted())
    resumed = Ran(out, done.returncode, done.stdout, done.stderr)
    progress = [
        line
        for line in resumed.stderr.splitlines()
        if line.startswith(tuple(outcome.label for outcome in Outcome))
    ]
    assert [line.split()[1] for line in progress] == ["1/3", "2/3", "3/3"]
    assert all(any(shlex.quote(name) in line for line in progress) for name in MISSING)
    before, after = judged.results, resumed.results
    assert {name: after[name] for name in before.keys() - MISSING} == {
        name: before[name] for name in before.keys() - MISSING
    }
    assert not {after[name].folder for name in MISSING} & {
        result.folder for result in before.values()
    }
    for result in after.values():
        if result.folder:
            assert (
                json.loads((out / result.folder / "plan.json").read_text())["id"] == result.case_id
            )
    assert (resumed.code, resumed.outcomes, resumed.run.footer is None) == (1, OUTCOMES, False)
    assert resumed.run.header == judged.run.header
    assert resumed.last_line.startswith(EXECUTED)
    assert set(junit_cases(resumed)) == set(OUTCOMES)


# -- runs that execute nothing ---------------------------------------------------------------------


def test_nothing_executed_is_no_success(tmp_path):
    ran = run(tmp_path / "out", UNAVAILABLE)
    assert (ran.code, ran.outcomes) == (4, {"unavailable[backend=host]": Outcome.UNAVAILABLE})
    assert ran.last_line.startswith("executed 0 of 1 selected, 1 unavailable")
    assert ran.run.footer is not None
    (suite,) = junit(ran)
    assert (suite.tests, suite.skipped, suite.failures, suite.errors) == (1, 1, 0, 0)


@pytest.mark.parametrize(("name", "code"), [("module", 1), ("cuda", 4)])
def test_what_is_required_may_not_be_unavailable(tmp_path, name, code):
    ran = run(tmp_path / "out", UNAVAILABLE, "--require", name)
    assert ran.code == code
    (result,) = ran.results.values()
    assert result.outcome is (Outcome.ERROR if code == 1 else Outcome.UNAVAILABLE)
    assert "no_such_module_anywhere" in result.reason
    if code == 1:
        assert result.reason.startswith(f"--require {name}: ")
        assert f" --require {name} " in f" {result.repro} "
        assert junit_cases(ran)["unavailable[backend=host]"].result[0].type == "unavailable"


def test_a_required_name_that_no_case_uses_fails_the_run(tmp_path):
    done = called(
        "run",
        JUDGED / "host-pass.yaml",
        "--require",
        "host",
        "--require",
        "gpus",
        "--out",
        tmp_path / "out",
        env=prestarted(),
    )
    assert done.returncode == read_run(tmp_path / "out" / "run.jsonl").footer.exit_code == 4
    assert (
        done.stderr.count("--require gpus: no selected case uses gpus") == 2
    )  # a warning before the run, the reason after it
    assert "--require host" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--backend", "cpx"], "did you mean 'cpu'?"),
        (["--require", "tritn"], "did you mean 'triton'?"),
        (["--shard", "3/2"], "is not a shard"),
        (["--jobs", "none"], "--jobs none"),
        (["--timeout", "0"], "'0' is not a number above 0"),
        (["--min-executed", "-1"], "'-1' is not a whole number from 0 on"),
        (["--resume", "nowhere"], "no run 'nowhere'"),
        (["--no-such-option"], "unrecognized arguments"),
        (["no/such/path.yaml"], "no such file"),
    ],
)
def test_wrong_usage_runs_nothing(tmp_path, arguments, words):
    done = called("run", UNAVAILABLE, *arguments, "--out", tmp_path / "out")
    assert (done.returncode, words in done.stderr) == (2, True), done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


# -- runs that compile nothing ---------------------------------------------------------------------


def test_fail_fast_stops_after_the_first_failure(tmp_path):
    ran = run(tmp_path / "out", JUDGED, "--select", "host-?a*", "--fail-fast", "--jobs", "1")
    assert ran.code == 1
    outcomes = list(ran.outcomes.values())
    assert outcomes == [Outcome.FAIL] + [Outcome.NOT_RUN] * 4
    waiting = [result for result in ran.results.values() if result.outcome is Outcome.NOT_RUN]
    assert {result.reason for result in waiting} == {"stopped at the first failure"}
    assert {junit_cases(ran)[str(result.case_id)].result[0].type for result in waiting} == {
        "not-run"
    }
    assert ran.run.footer is not None


def test_fewer_executed_than_asked_for_is_no_success(tmp_path):
    ran = run(
        tmp_path / "out", JUDGED, "--select", "host-pass*", "--min-executed", "4", "--jobs", "3"
    )
    assert (ran.code, set(ran.outcomes.values())) == (4, {Outcome.PASS})
    assert ran.run.footer is not None
    assert ran.run.footer.exit_code == 4
