"""Counts of 0: proved by what else was observed, and an ERROR where nothing could have happened."""

from typing import Any

import pytest

from runner.judge import verdicts
from runner.model.expectation import Status
from runner.model.outcomes import Outcome
from tests.fakes import backend, case, expected, observation, observed_steps, seen, step, verdict_of

HELD, ERROR = Status.HELD, Status.ERROR

IDLE: dict[str, Any] = {"counters": {}, "metrics": {"generated_kernel_count": 0}, "entered": 0, "graphs": [], "executed": {}}
"""The facts of a step in which torch compiled and counted nothing."""

NO_MISS = expected("counter", {"inductor.fxgraph_cache_miss": 0})
NO_KERNEL = expected("metric", {"generated_kernel_count": 0})
NO_CODE = expected("generated_files", 0)
RUNS = expected("runs", {})


def judged(*steps: Any, facts: tuple[dict[str, Any], ...]) -> tuple[Outcome, list[Status]]:
    """Judge steps of a case that compiles nothing."""
    found = verdict_of(case(*steps, body={"compiles": False}), observation(*facts), by=backend("host"))
    return found.outcome, [verdict.status for verdict in found.verdicts]


@pytest.mark.parametrize("claim", [NO_MISS, NO_KERNEL, NO_CODE])
def test_zero_is_an_error_where_nothing_was_compiled_or_counted(claim: Any) -> None:
    outcome, statuses = judged(step(claim, kind="api"), facts=(seen(**IDLE),))
    assert (outcome, statuses) == (Outcome.ERROR, [ERROR])


def test_several_zeros_prove_each_other_nothing() -> None:
    outcome, statuses = judged(step(NO_MISS, NO_KERNEL, NO_CODE, kind="api"), facts=(seen(**IDLE),))
    assert (outcome, statuses) == (Outcome.ERROR, [ERROR, ERROR, ERROR])


def test_the_error_says_what_to_expect_besides() -> None:
    found = verdict_of(case(step(NO_MISS, kind="api"), body={"compiles": False}), observation(seen(**IDLE)), by=backend("host"))
    assert "expect something else of this step too" in found.verdicts[0].observed
    assert found.verdicts[0].expected == "inductor.fxgraph_cache_miss 0"


def test_another_expectation_of_the_step_stands_beside_zero() -> None:
    assert judged(step(NO_KERNEL, RUNS, kind="api"), facts=(seen(**IDLE),)) == (Outcome.PASS, [HELD, HELD])


def test_a_number_of_another_step_shows_that_torch_counts() -> None:
    counted = {**IDLE, "metrics": {"generated_kernel_count": 1}}
    steps = step(NO_KERNEL, kind="api"), step(expected("metric", {"generated_kernel_count": 1}), kind="api")
    assert judged(*steps, facts=(seen(**IDLE), seen(**counted))) == (Outcome.PASS, [HELD, HELD])


def test_a_wrong_zero_fails_as_before() -> None:
    outcome, statuses = judged(step(expected("metric", {"generated_kernel_count": 1}), kind="api"), facts=(seen(**IDLE),))
    assert (outcome, statuses) == (Outcome.FAIL, [Status.FAILED])


@pytest.mark.parametrize(
    ("change", "active"),
    [
        ({}, False),
        ({"counters": {"stats": {"unique_graphs": 0}}}, False),
        ({"counters": {"stats": {"unique_graphs": 1}}}, True),
        ({"metrics": {"generated_kernel_count": 2}}, True),
        ({"entered": 1}, True),
        ({"graphs": [[]]}, True),
        ({"executed": {"cpu": 1}}, True),
        ({"executed_others": {"cuda": 1}}, True),
        ({"code": 1}, True),
    ],
)
def test_what_shows_that_torch_did_something(change: dict[str, Any], active: bool) -> None:
    (facts,) = observed_steps(seen(**{**IDLE, **change}))
    assert verdicts.is_active(facts) is active
