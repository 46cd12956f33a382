"""What the README's first command runs: each shipped case that this machine can run passes, and no
case is left out in silence.

CI installs once and runs the tests alone, so this is where it runs the shipped specs: all but those
tagged ``slow``, about 40 % of the cases that a machine without a GPU can run. A nightly test runs
the others. It is the longest test by far: it is begun first, beside the other tests, and leaves
them the other cores. ``SUITE_REPORT`` names a second file for its JUnit report.
"""

import os
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest
from junitparser import JUnitXml

from tests.fakes import PACKAGE, ROOT, program, shipped_suite
from tests.fences import every_fence
from tests.ran import Ran
from torch_conformance.machine import capabilities
from torch_conformance.machine.installed_torch import installed_torch
from torch_conformance.model.case import Availability, Case
from torch_conformance.model.outcomes import Outcome

pytestmark = [pytest.mark.torch, pytest.mark.timeout(2400)]


SLOW = "slow"
"""The tag of specs of which a case takes a core for 1.5 s or more; the cheapest five cases of an
area stay without it.
"""

COVERED_BESIDE = {
    ("step", "aot"): "tests/acceptance/test_words.py",
    ("step", "delete_modules"): "tests/acceptance/test_false_passes.py",
    ("step", "optimizer"): "tests/unit/vocabulary/test_calibrated_effects.py",
    ("step", "spawn"): "tests/acceptance/test_observed_compiles.py",
    ("expectation", "choices"): "tests/unit/worker/test_choice_census.py",
    ("expectation", "exit"): "tests/acceptance/test_observed_compiles.py",
    ("expectation", "log"): "tests/unit/vocabulary/test_expectations.py",
    ("input", "jagged"): "tests/unit/worker/test_worker_inputs.py",
}
"""What slow specs alone use, with the file of a test that always runs and uses it too."""


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
    variables = {**os.environ, "PYTHONPATH": str(PACKAGE.parent), "NO_COLOR": "1"}
    done = program(
        *arguments,
        "--tag",
        tag,
        "--jobs",
        jobs(),
        "--out",
        out,
        *report,
        env=variables,
        timeout=2300,
    )
    return Ran(out, done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return ran(tmp_path_factory, f"!{SLOW}")


@cache
def usual_cases() -> tuple[tuple[Case, Availability], ...]:
    """Return each case that a run without arguments selects, and whether it can run here, as
    ``list`` says it.
    """
    machine = capabilities.inspect_files(installed_torch())
    return tuple(
        (case, capabilities.availability_of(case, machine).availability)
        for case in shipped_suite().cases
        if not case.on_request
    )


def names(cases: Iterable[Case]) -> set[str]:
    return {str(case.id) for case in cases}


def cases_here(*, slow: bool) -> list[Case]:
    return [
        case
        for case, found in usual_cases()
        if found is not Availability.NO and (SLOW in case.tags) is slow
    ]


def uses(case: Case) -> Iterator[tuple[str, str]]:
    """Yield each part of the language, and each capability, that a case uses."""
    yield "isolation", case.body.isolation
    yield from (("requires", requirement.name) for requirement in case.requires)
    yield from (("service", name) for name in case.body.services)
    yield from (
        ("section", name) for name, options in case.body.settings.by_section.items() if options
    )
    yield from (("function", type(function).__name__) for function in case.body.functions.values())
    for value in (*case.body.inputs, *case.body.let.values()):
        yield "input", next(iter(value)) if isinstance(value, dict) else "value"
    for step in case.steps:
        yield "step", step.kind
        yield from (("expectation", expectation.kind) for expectation in step.expectations)


def test_every_case_passes_or_fails_as_its_waiver_says(suite: Ran) -> None:
    red = {
        name: result.reason for name, result in suite.results.items() if result.outcome.is_failure
    }
    assert (red, suite.code) == ({}, 0), suite.stdout
    assert {result.outcome for result in suite.results.values()} <= {
        Outcome.PASS,
        Outcome.XFAIL,
        Outcome.UNAVAILABLE,
    }


def test_every_case_that_is_listed_as_available_was_executed(suite: Ran) -> None:
    listed = [(case, found) for case, found in usual_cases() if SLOW not in case.tags]
    executed = {name for name, result in suite.results.items() if result.outcome.is_executed}
    assert len(executed) > 75
    assert names(case for case, found in listed if found is Availability.YES) <= executed
    assert not executed & names(case for case, found in listed if found is Availability.NO)
    assert set(suite.results) == names(case for case, _ in listed)


def test_each_area_keeps_five_cases_that_are_not_slow() -> None:
    slow, others = (Counter(case.area for case in cases_here(slow=slow)) for slow in (True, False))
    assert slow
    for area in slow | others:
        assert others[area] >= (5 if slow[area] + others[area] >= 5 else 2), area


def test_what_slow_cases_use_is_used_by_others_too() -> None:
    slow, others = (
        {use for case in cases_here(slow=slow) for use in uses(case)} for slow in (True, False)
    )
    assert slow - others == set(COVERED_BESIDE)
    assert [place for place in COVERED_BESIDE.values() if not (ROOT / place).is_file()] == []


@pytest.mark.nightly(
    reason="four fifths of the suite's time; the other test always "
    "runs at least five cases of each "
    "area that has them"
)
def test_every_slow_case_passes_or_fails_as_its_waiver_says(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    slow = ran(tmp_path_factory, SLOW)
    assert (
        {name: result.reason for name, result in slow.results.items() if result.outcome.is_failure},
        slow.code,
    ) == ({}, 0), slow.stdout
    available = names(
        case for case, found in usual_cases() if SLOW in case.tags and found is Availability.YES
    )
    assert available
    assert available <= {
        name for name, result in slow.results.items() if result.outcome.is_executed
    }


def test_nothing_that_this_project_installs_is_missing(suite: Ran) -> None:
    missing = {
        name: result.reason
        for name, result in suite.results.items()
        if "not installed" in result.reason
    }
    assert missing == {}


def test_the_report_has_every_case(suite: Ran) -> None:
    names = [case.name for part in JUnitXml.fromfile(str(suite.out / "junit.xml")) for case in part]
    assert sorted(names) == sorted(suite.results)
    assert suite.last_line.startswith(
        f"executed {sum(result.outcome.is_executed for result in suite.results.values())} of "
    )
    assert "Traceback" not in suite.stderr
