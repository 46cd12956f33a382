"""What a worker sends becomes frozen values once, and nothing of it is lost on the way."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import ROOT, exception, observation, observed, seen
from torch_conformance.judge.evidence import NoObservation, observation_of
from torch_conformance.model.case_facts import (
    Bench,
    ChildExit,
    Choice,
    Effects,
    Facts,
    Origins,
    Raised,
    SpyCalls,
    Timing,
    Traced,
)

TIMING = {
    "name": "fn",
    "form": "eager",
    "median_ms": 1.5,
    "least_ms": 1,
    "most_ms": 2.0,
    "count": 3,
}
FULL: dict[str, Any] = seen(
    raised=exception("torch.Broken", "no", "lower", "builtins.ValueError"),
    remote={"RemoteFxGraphCache": {"hit": 1}},
    graphs=[["cpu"], ["cuda", "cpu"]],
    executed={"cpu": 2},
    executed_others={"cpu": 3, "cuda": 4},
    dynamo={"frames": 2, "broken": ["why"], "graphs": 3, "calls": 1, "calls_others": 0},
    abandoned=["its limit"],
    uncompiled=["sample 3: why"],
    choices=[[{"name": "a", "class": "b.C"}], [{"name": "d", "class": ""}]],
    tunings={"count": 0, "found": []},
    code=2,
    code_digests=["a1", "b2"],
    code_graphs=[{"arguments": ["float32[2][1]"], "operators": ["aten.add"]}, {}],
    measured={"0": {"excess": {"$float": "inf"}}},
    unmeasured={"1": "no reference"},
    repetitions={
        "0": [
            {"first": 0, "times": 2, "measured": {"leaves": []}},
            {"first": 2, "times": 1, "why_not": "no"},
        ]
    },
    effects={"compared": 3, "apart": ["x"], "leaves": [{"path": ""}]},
    calls={"spy": {"count": 2, "entries": [{"a": 1}]}},
    exit={"code": 3, "stderr": "planted"},
    origins={"eager": ["aten.mm", "aten.sin"], "outside": ["aten.sin"]},
    runtime_calls=4,
    bench={"timings": [TIMING], "attachments": ["trace.json"], "notes": ["why"]},
)
SCHEMA = json.loads(Path(ROOT / "schemas" / "observation.schema.json").read_text())


def read(sent: object) -> Facts:
    facts = observed(sent)
    assert not facts.nonsense
    return facts


def test_every_fact_of_a_step_has_its_attribute() -> None:
    assert set(FULL) == set(SCHEMA["$defs"]["step"]["properties"]), (
        "a fact that this test does not know"
    )
    (step,) = read(observation(FULL)).steps
    assert step.raised == Raised(
        type="torch.Broken",
        ancestors=(
            "torch.Broken",
            "builtins.ValueError",
            "builtins.Exception",
            "builtins.BaseException",
            "builtins.object",
        ),
        message="no",
        traceback=FULL["raised"]["traceback"],
        phase="lower",
    )
    assert (step.counters, step.metrics, step.remote) == (
        FULL["counters"],
        FULL["metrics"],
        FULL["remote"],
    )
    assert (step.entered, step.graphs, step.code_pieces, step.code_digests) == (
        1,
        (("cpu",), ("cuda", "cpu")),
        2,
        ("a1", "b2"),
    )
    assert (step.executed_for("cpu"), step.executed_for("cuda"), step.executed_for("xpu")) == (
        5,
        4,
        0,
    )
    assert step.dynamo == Traced(frames=2, broken=("why",), graphs=3, calls=1, calls_others=0)
    assert (step.abandoned, step.uncompiled) == (("its limit",), ("sample 3: why",))
    assert step.choices == ((Choice(name="a", of_class="b.C"),), (Choice(name="d", of_class=""),))
    assert (step.measurements, step.unmeasured) == (FULL["measured"], {"1": "no reference"})
    measured, missing = step.repetitions["0"]
    assert (measured.first, measured.times, measured.measured) == (0, 2, {"leaves": []})
    assert (missing.first, missing.times, missing.measured, missing.why_not) == (2, 1, None, "no")
    assert step.effects == Effects(compared=3, apart=("x",), leaves=({"path": ""},))
    assert step.calls == {"spy": SpyCalls(count=2, entries=({"a": 1},))}
    assert step.exit == ChildExit(code=3, stderr="planted")
    assert step.origins == Origins(eager=("aten.mm", "aten.sin"), outside=("aten.sin",))
    assert step.runtime_calls == 4
    assert step.bench == Bench(
        timings=(Timing(**TIMING),), attachments=("trace.json",), notes=("why",)
    )


@pytest.mark.parametrize(
    "name", ["remote", "repetitions", "effects", "origins", "calls", "exit", "bench"]
)
def test_what_a_step_need_not_have_is_absent(name: str) -> None:
    assert name not in SCHEMA["$defs"]["step"]["required"]
    (step,) = read(observation({key: value for key, value in FULL.items() if key != name})).steps
    assert not getattr(step, name)


def test_nothing_is_no_observation_and_anything_else_is_a_misfit() -> None:
    assert not observed(None).is_answered
    assert observed([]).nonsense.endswith("$: expected a map, found a list")
    facts = observed(observation(seen(entered="many")))
    assert facts.nonsense.endswith(
        "$.steps[0].entered: expected a whole number, found the text 'many'"
    )


@pytest.mark.parametrize("sent", [None, [], {}, observation(more=1)])
def test_a_record_that_is_no_observation_says_so(sent: object) -> None:
    with pytest.raises(NoObservation):
        observation_of(sent)
