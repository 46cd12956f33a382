"""``repeat``: each repetition of a step is compared with eager, equal ones once; what the worker
left out is an ERROR.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import (
    case,
    close_facts,
    close_leaf,
    expected,
    import_torch,
    observation,
    seen,
    step,
    verdict_of,
)
from tests.sessions import prepared
from torch_conformance.model.expectation import Status
from torch_conformance.model.outcomes import Outcome
from torch_conformance.model.protocol import dumps, encode, loads

CLOSE = expected("close", {"to": "eager"})


def outcome(repetitions: Any, *, repeat: int = 3, **facts: Any) -> Any:
    """Judge a step that was repeated, and whose last repetition is right."""
    made = case(dataclasses.replace(step(CLOSE), repeat=repeat))
    measured = {
        "measured": {"0": close_facts(close_leaf())},
        **({} if repetitions is None else {"repetitions": {"0": repetitions}}),
    }
    found = verdict_of(made, observation(seen(**{**measured, **facts})))
    return found.outcome, next(
        (one for one in found.verdicts if one.status is not Status.HELD), None
    )


def entry(first: int = 0, times: int = 1, **leaf: Any) -> dict[str, Any]:
    return {"first": first, "times": times, "measured": close_facts(close_leaf(**leaf))}


WRONG = {"excess": 1.0, "max_abs": 1.0, "mismatches": 1}


def test_each_repetition_is_judged() -> None:
    assert outcome([entry(times=2)])[0] is Outcome.PASS
    assert outcome([entry(), entry(1)])[0] is Outcome.PASS
    assert outcome(None, repeat=1)[0] is Outcome.PASS
    found, verdict = outcome([entry(), entry(1, **WRONG)])
    assert found is Outcome.FAIL
    assert verdict.expected.startswith("repetition 2 of 3: output within atol")


@pytest.mark.parametrize(
    ("entries", "observed"),
    [
        (None, "1 of 3 repetitions were measured"),
        ([entry()], "2 of 3 repetitions were measured"),
        ([entry(times=3)], "4 of 3 repetitions were measured"),
        ([entry(), {"first": 1, "times": 1, "why_not": "TypeError: no"}], "TypeError: no"),
        ([entry(), {"first": 1, "times": 1, "measured": {}}], "the measurement makes no sense"),
    ],
)
def test_a_repetition_that_was_not_measured_is_an_error(entries: Any, observed: str) -> None:
    found, verdict = outcome(entries)
    assert found is Outcome.ERROR
    assert verdict.observed.startswith(observed)


def run(
    folder: Path, text: str, change: Callable[[int, Any], Any] = lambda number, output: output
) -> dict[str, list[dict[str, Any]]]:
    """Carry out the repeated step of a spec; ``change`` makes the answer of each repetition.

    Return the facts of those before the last.
    """
    import_torch()._dynamo.reset()
    session, plan = prepared(folder, text)
    (step,) = plan["steps"]
    do_once, numbers = session.do, iter(range(10))

    def do(step: Any) -> None:
        do_once(step)
        session.output = change(next(numbers), session.output)

    session.do = do
    session.begin_step(step)
    session.carry_out(step)
    session.additional.run()
    found: dict[str, list[dict[str, Any]]] = loads(dumps(encode(session.repetitions.facts)))
    return found


SPEC = """\
inputs: [{{rand: [64]}}]
function: |
  def fn(x):
      return {0}
steps: [{{call: {{}}, repeat: 4, expect: [{{close: {{to: eager}}}}]}}]
"""


@pytest.mark.torch
def test_equal_repetitions_are_measured_once(tmp_path: Path) -> None:
    found = run(tmp_path, SPEC.format("x.sin()"))
    assert [(one["first"], one["times"]) for one in found["0"]] == [(0, 3)]
    (leaf,) = found["0"][0]["measured"]["leaves"]
    assert "numel" in leaf["calibrated"]
    assert "stand_ins" not in leaf


@pytest.mark.torch
def test_a_wrong_repetition_is_refused(tmp_path: Path) -> None:
    found = run(
        tmp_path,
        SPEC.format("x.sin()"),
        lambda number, output: output * 1.01 if number == 1 else output,
    )
    assert [(one["first"], one["times"]) for one in found["0"]] == [(0, 2), (1, 1)]
    result, verdict = outcome(found["0"], repeat=4)
    assert result is Outcome.FAIL
    assert verdict.expected.startswith(
        "repetition 2 of 4: output within 2 x eager's error against float64"
    )


@pytest.mark.torch
def test_repetitions_with_other_inputs_are_each_measured(tmp_path: Path) -> None:
    found = run(tmp_path, SPEC.format("x.mul_(1.5).sin()"))
    assert [(one["first"], one["times"]) for one in found["0"]] == [(0, 1), (1, 1), (2, 1)]
    assert all("numel" in one["measured"]["leaves"][0]["calibrated"] for one in found["0"])
    assert outcome(found["0"], repeat=4)[0] is Outcome.PASS
