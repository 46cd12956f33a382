"""What the README's first command runs: each shipped case that this machine can run passes, and no case is left out in silence.

CI installs once and runs the tests alone, so this is where it runs the shipped specs: all but those tagged ``slow``, a tenth of the cases
that takes half of the time. A nightly test runs these. It is the longest test by far: it is begun first, beside the other tests, and
leaves them the other cores. ``SUITE_REPORT`` names a second file for its JUnit report.
"""

import json
import os
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from junitparser import JUnitXml

from runner.core.outcomes import Outcome
from tests.fakes import ROOT, program
from tests.fences import every_fence
from tests.ran import Ran

pytestmark = [pytest.mark.torch, pytest.mark.timeout(2400)]


SLOW = "slow"
"""The tag of specs that take more than about ten times as long as the median."""


def jobs() -> int:
    """Return how many cases run in parallel: the other workers of pytest keep their cores."""
    cores = len(os.sched_getaffinity(0))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return max(1, cores - workers + 1, cores // 2)


def ran(tmp_path_factory: pytest.TempPathFactory, tag: str) -> Ran:
    (command,) = {fence.text for fence in every_fence() if fence.mark == "command-run"}
    name, *arguments = shlex.split(command.rpartition("&&")[2])
    assert Path(name).name == "torch-conformance"
    out = tmp_path_factory.mktemp("suite") / "out"
    report = ["--junit", os.environ["SUITE_REPORT"]] if os.environ.get("SUITE_REPORT") else []
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    done = program(*arguments, "--tag", tag, "--jobs", jobs(), "--out", out, *report, env=variables, timeout=2300)
    return Ran(out, done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return ran(tmp_path_factory, f"!{SLOW}")


def listed_cases() -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads(program("list", "--json").stdout)
    return [case for case in cases if not case["on_request"]]


def test_every_case_passes_or_fails_as_its_waiver_says(suite: Ran) -> None:
    red = {name: result.reason for name, result in suite.results.items() if result.outcome.is_failure}
    assert (red, suite.code) == ({}, 0), suite.stdout
    assert {result.outcome for result in suite.results.values()} <= {Outcome.PASS, Outcome.XFAIL, Outcome.UNAVAILABLE}


def test_every_case_that_is_listed_as_available_was_executed(suite: Ran) -> None:
    listed = [case for case in listed_cases() if SLOW not in case["tags"]]
    available = {case["id"] for case in listed if case["available"]}
    executed = {name for name, result in suite.results.items() if result.outcome.is_executed}
    refused = {case["id"] for case in listed if case["available"] is False}
    assert len(executed) > 140
    assert available <= executed
    assert not executed & refused
    assert set(suite.results) == {case["id"] for case in listed}


def test_slow_cases_are_few_and_others_stand_beside_them() -> None:
    here = [case for case in listed_cases() if case["available"] is not False]
    slow = [case for case in here if SLOW in case["tags"]]
    assert len(slow) < len(here) / 6
    areas = Counter(case["area"] for case in here if SLOW not in case["tags"])
    assert all(areas[case["area"]] >= 10 for case in slow)


@pytest.mark.nightly(reason="half of the time of the suite for a tenth of its cases; the other test runs the others of each area")
def test_every_slow_case_passes_or_fails_as_its_waiver_says(tmp_path_factory: pytest.TempPathFactory) -> None:
    slow = ran(tmp_path_factory, SLOW)
    assert ({name: result.reason for name, result in slow.results.items() if result.outcome.is_failure}, slow.code) == ({}, 0), slow.stdout
    available = {case["id"] for case in listed_cases() if SLOW in case["tags"] and case["available"]}
    assert available <= {name for name, result in slow.results.items() if result.outcome.is_executed}


def test_nothing_that_this_project_installs_is_missing(suite: Ran) -> None:
    missing = {name: result.reason for name, result in suite.results.items() if "not installed" in result.reason}
    assert missing == {}


def test_the_report_has_every_case(suite: Ran) -> None:
    names = [case.name for part in JUnitXml.fromfile(str(suite.out / "junit.xml")) for case in part]
    assert sorted(names) == sorted(suite.results)
    assert suite.last_line.startswith(f"executed {sum(result.outcome.is_executed for result in suite.results.values())} of ")
    assert "Traceback" not in suite.stderr
