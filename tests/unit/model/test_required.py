"""``--require NAME``: a name that no executed case uses fails the run."""

from dataclasses import replace

import pytest

from tests.fakes import case, requirement
from tests.recorded import recorded
from torch_conformance.model.header import problems
from torch_conformance.model.outcomes import Outcome
from torch_conformance.model.results import CaseResult

ON_CPU = case(id="a[backend=cpu]")
WITH_REDIS = case(id="b[backend=cpu]", requires=(requirement("redis"),))
ON_CUDA = case(
    id="c[backend=cuda]", backend="cuda", requires=(requirement("cuda"), requirement("triton"))
)


def results(**outcomes: Outcome) -> dict[str, CaseResult]:
    by_letter = {"a": ON_CPU.id, "b": WITH_REDIS.id, "c": ON_CUDA.id}
    return {
        by_letter[letter]: recorded("s", outcome, case_id=by_letter[letter])
        for letter, outcome in outcomes.items()
    }


@pytest.mark.parametrize("name", ["rocm", "triton", "redis", "gpus"])
def test_a_name_that_no_selected_case_uses_is_a_problem_before_and_after_the_run(name):
    for found in (None, results(a=Outcome.PASS)):
        (line,) = problems([name], [ON_CPU], [ON_CPU], found)
        assert line.startswith(f"--require {name}: no selected case uses {name}")


@pytest.mark.parametrize("name", ["cpu", "redis", "torch"])
def test_a_backend_a_capability_or_a_service_of_an_executed_case_is_exercised(name):
    chosen = [ON_CPU, WITH_REDIS]
    assert list(problems([name], chosen, chosen, results(a=Outcome.PASS, b=Outcome.XFAIL))) == []


def test_cases_that_use_it_and_were_not_executed_exercise_nothing():
    chosen = [ON_CPU, ON_CUDA]
    assert list(problems(["triton"], chosen, chosen, None)) == []
    (line,) = problems(["triton"], chosen, chosen, results(a=Outcome.PASS, c=Outcome.UNAVAILABLE))
    assert (
        line == "--require triton: the one selected case that uses it was not executed (the report "
        "has the reasons)"
    )


def test_a_shard_without_such_a_case_is_not_at_fault():
    assert list(problems(["redis"], [ON_CPU, WITH_REDIS], [ON_CPU], results(a=Outcome.PASS))) == []


def test_a_recorded_run_is_judged_as_the_run_itself():
    found = results(a=Outcome.PASS, b=Outcome.PASS, c=Outcome.UNAVAILABLE)
    recorded = [
        replace(found[one.id], requires=tuple(requirement.name for requirement in one.requires))
        for one in (ON_CPU, WITH_REDIS, ON_CUDA)
    ]
    chosen, by_id = [ON_CPU, WITH_REDIS, ON_CUDA], {one.case_id: one for one in recorded}
    for name in ("torch", "cpu", "redis", "triton", "cuda", "rocm", "gpus"):
        assert list(problems([name], recorded, recorded, by_id)) == list(
            problems([name], chosen, chosen, found)
        ), name
