"""Counts of 0: proved by what else was observed, and an ERROR where nothing could have happened."""

from typing import Any

import pytest

from tests.fakes import backend, case, expected, observation, seen, step, verdict_of
from torch_conformance.model.expectation import Status
from torch_conformance.model.outcomes import Outcome

HELD, ERROR, FAILED = Status.HELD, Status.ERROR, Status.FAILED

IDLE: dict[str, Any] = {
    "counters": {},
    "metrics": {"generated_kernel_count": 0},
    "entered": 0,
    "graphs": [],
    "executed": {},
}
"""The facts of a step in which torch compiled and counted nothing."""

NO_MISS = expected("counter", {"inductor.fxgraph_cache_miss": 0})
NO_KERNEL = expected("metric", {"generated_kernel_count": 0})
NO_CODE = expected("generated_files", 0)
RUNS = expected("runs", {})
ONE_KERNEL = expected("metric", {"generated_kernel_count": 1})


def judged(*steps: Any, facts: tuple[dict[str, Any], ...]) -> tuple[Outcome, list[Status]]:
    """Judge steps of a case that compiles nothing."""
    found = verdict_of(
        case(*steps, body={"compiles": False}),
        observation(*facts),
        by=backend("host"),
        code={(0, 0): "x = 1"},
    )
    return found.outcome, [verdict.status for verdict in found.verdicts]


@pytest.mark.parametrize(
    ("claims", "outcome", "statuses"),
    [
        *(((claim,), Outcome.ERROR, [ERROR]) for claim in (NO_MISS, NO_KERNEL, NO_CODE)),
        ((NO_MISS, NO_KERNEL, NO_CODE), Outcome.ERROR, [ERROR, ERROR, ERROR]),
        # another expectation of the step stands beside it
        ((NO_KERNEL, RUNS), Outcome.PASS, [HELD, HELD]),
        ((ONE_KERNEL,), Outcome.FAIL, [FAILED]),
    ],
)
def test_zero_where_nothing_was_compiled_or_counted(
    claims: Any, outcome: Outcome, statuses: list[Status]
) -> None:
    assert judged(step(*claims, kind="api"), facts=(seen(**IDLE),)) == (outcome, statuses)


def test_a_number_of_another_step_shows_that_torch_counts() -> None:
    counted = {**IDLE, "metrics": {"generated_kernel_count": 1}}
    steps = step(NO_KERNEL, kind="api"), step(ONE_KERNEL, kind="api")
    assert judged(*steps, facts=(seen(**IDLE), seen(**counted))) == (Outcome.PASS, [HELD, HELD])


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
    assert judged(step(NO_MISS, kind="api"), facts=(seen(**{**IDLE, **change}),))[0] is (
        Outcome.PASS if active else Outcome.ERROR
    )
