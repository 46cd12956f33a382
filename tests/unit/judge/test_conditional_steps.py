"""``when`` and ``repeat`` of steps, and conditions on generated code: planned, judged and audited
without torch.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from tests.fakes import (
    ELSEWHERE,
    HERE,
    case,
    exception,
    expected,
    observation,
    seen,
    step,
    verdict_of,
)
from torch_conformance.judge.evidence import carried_out, read_facts
from torch_conformance.judge.mutants import Fate, try_case
from torch_conformance.language.load import Suite
from torch_conformance.model.case import Step
from torch_conformance.model.expectation import Status
from torch_conformance.model.outcomes import Outcome
from torch_conformance.plan.worker_plan import digest_of, make_plan

HOLDS = expected("counter", {"inductor.fxgraph_cache_miss": 1})
FAILS = expected("counter", {"inductor.fxgraph_cache_miss": 2}, line=11)
IDLE = {"entered": 0, "graphs": [], "executed": {}}
"""What a worker reports of a step that it left out."""

TWO = """\
summary: Two calls of which one is left out
backends: [cpu]
function: |
  def fn(x):
      return x
inputs: [{rand: [2]}]
steps:
  - call: {}
    expect: [{close: {to: eager}}]
  - call: {}
    BESIDE
    expect: [{close: {to: eager}}]
"""


def left_out(*expectations: Any, **arguments: Any) -> Step:
    return dataclasses.replace(step(*expectations, **arguments), when=ELSEWHERE)


# -- steps that are left out -----------------------------------------------------------------------


def test_expectations_of_a_step_that_is_left_out_do_not_apply() -> None:
    found = verdict_of(case(step(HOLDS), left_out(FAILS)), observation(seen(), seen(**IDLE)))
    assert found.outcome is Outcome.PASS
    assert [verdict.status for verdict in found.verdicts[:2]] == [
        Status.HELD,
        Status.NOT_APPLICABLE,
    ]


def test_a_case_whose_every_step_is_left_out_is_an_error() -> None:
    found = verdict_of(case(left_out(HOLDS)), observation(seen()))
    assert (found.outcome, found.reason) == (
        Outcome.ERROR,
        "no expectation applies here: the case claims nothing",
    )


def test_a_step_that_is_left_out_proves_nothing() -> None:
    found = verdict_of(
        case(step(HOLDS, kind="api"), left_out(HOLDS)), observation(seen(**IDLE), seen())
    )
    assert found.outcome is Outcome.FELL_BACK


def test_an_exception_of_a_step_that_is_left_out_is_not_expected() -> None:
    raises = expected("raises", {"type": "RuntimeError"})
    found = verdict_of(
        case(step(HOLDS), left_out(raises)), observation(seen(), seen(raised=exception()))
    )
    assert (found.outcome, found.failure_type) == (Outcome.FAIL, "raised")


def test_a_step_that_is_left_out_is_not_audited() -> None:
    facts = read_facts(observation(seen(**IDLE), seen()), lambda *_: CODE)
    of = case(left_out(HOLDS), step(HOLDS))
    trials = try_case(of, HERE, carried_out(of, facts.steps))
    assert len(trials) == 2


@pytest.mark.parametrize(
    ("beside", "planned"),
    [("when: {torch: '<2.5'}", {"skipped": True}), ("repeat: 3", {"repeat": 3}), ("", {})],
)
def test_the_plan_says_what_is_beside_a_kind(
    load_suite: Callable[..., Suite], beside: str, planned: dict[str, Any]
) -> None:
    (one,) = load_suite(TWO.replace("    BESIDE\n", f"    {beside}\n" if beside else "")).cases
    first, second = make_plan(one, HERE, {})["steps"]
    assert {key: second[key] for key in second if key not in first} == planned
    assert bool(second["measure"]) is ("skipped" not in planned)


def test_what_is_beside_a_kind_is_part_of_the_digest(load_suite: Callable[..., Suite]) -> None:
    texts = [
        TWO.replace("    BESIDE\n", line)
        for line in ("", "    repeat: 3\n", "    repeat: 4\n", "    when: {torch: '>2'}\n")
    ]
    assert len({digest_of(load_suite(text).cases[0]) for text in texts}) == len(texts)


# -- conditions on generated code ------------------------------------------------------------------


CODE = "import torch\n# triton in a comment\ndef call(args):\n    extern_kernels.mm(a, b)\n"


@pytest.mark.parametrize(
    ("condition", "outcome"),
    [
        ({"contains": "extern_kernels.mm"}, Outcome.FAIL),
        ({"contains": "triton"}, Outcome.PASS),
        ({"lacks": "triton"}, Outcome.FAIL),
        ({"lacks": "extern_kernels"}, Outcome.PASS),
    ],
)
def test_a_count_applies_by_the_code_of_its_step(
    condition: dict[str, str], outcome: Outcome
) -> None:
    wrong = expected(
        "counter",
        {"inductor.fxgraph_cache_miss": [{"when": {"code": condition}, "value": 2}, {"value": 1}]},
    )
    assert (
        verdict_of(case(step(wrong)), observation(seen(code=1)), code={(0, 0): CODE}).outcome
        is outcome
    )


def test_an_expectation_applies_by_the_code_of_its_own_step_alone() -> None:
    checked = expected(
        "filecheck", {"when": {"code": {"contains": "cpp_fused"}}, "checks": "CHECK: no such line"}
    )
    code = {(0, 0): "def call():\n    cpp_fused_add()\n", (1, 0): CODE}
    found = verdict_of(
        case(step(HOLDS), step(HOLDS, checked)), observation(seen(code=1), seen(code=1)), code=code
    )
    assert found.outcome is Outcome.PASS
    assert Status.NOT_APPLICABLE in [verdict.status for verdict in found.verdicts]


def test_a_condition_that_looks_at_no_code_is_an_error() -> None:
    checked = expected("runs", {"when": {"code": {"lacks": "triton"}}})
    found = verdict_of(case(step(HOLDS, checked)), observation(seen()))
    assert (found.outcome, "the step generated no code" in found.reason) == (Outcome.ERROR, True)


def test_a_case_whose_every_condition_on_code_is_false_is_an_error() -> None:
    checked = expected("runs", {"when": {"code": {"contains": "triton"}}})
    found = verdict_of(case(step(checked)), observation(seen(code=1)), code={(0, 0): CODE})
    assert (found.outcome, found.reason) == (
        Outcome.ERROR,
        "no expectation applies here: the case claims nothing",
    )


def test_mutants_of_code_are_judged_under_the_condition_of_the_real_code() -> None:
    of = case(
        step(
            expected(
                "filecheck",
                {
                    "when": {"code": {"contains": "extern_kernels"}},
                    "checks": "CHECK: extern_kernels.mm",
                },
            )
        )
    )
    facts = read_facts(observation(seen(code=1)), lambda *_: CODE)
    fates = {trial.mutant: trial.fate for trial in try_case(of, HERE, carried_out(of, facts.steps))}
    assert fates
    assert set(fates.values()) == {Fate.KILLED}
