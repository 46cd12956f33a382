"""Kinds of steps: what their arguments say."""

from typing import Any

import pytest

from tests.fakes import step
from torch_conformance.vocabulary.steps import STEPS, StepKind, parsed


@pytest.mark.parametrize(
    ("kind", "arguments", "runs_graphs", "compares_effects"),
    [
        ("call", {}, True, True),
        ("call", {"eager": True}, False, False),
        ("call", {"side_effects": False}, True, False),
        ("aot", {}, True, True),
        ("aot", {"side_effects": False}, True, False),
        ("backward", {}, True, True),
        ("backward", {"side_effects": False}, True, False),
        ("optimizer", {"call": "torch.optim.SGD"}, False, True),
        ("optimizer", {"call": "torch.optim.SGD", "side_effects": False}, False, False),
        ("api", {"call": "torch.neg", "args": [{"ref": "compiled"}]}, False, False),
        ("script", {"code": {"text": "def run(compiled): pass"}}, True, False),
        ("script", {"code": {"text": "def run(inputs): pass"}}, False, False),
        ("bench", {}, False, False),
        ("reset", {"items": ["dynamo"]}, False, False),
    ],
)
def test_what_a_step_is_asked(
    kind: str, arguments: dict[str, Any], runs_graphs: bool, compares_effects: bool
) -> None:
    found = parsed(step(kind=kind, **arguments))
    assert (found.runs_graphs, found.compares_effects) == (runs_graphs, compares_effects)


@pytest.mark.parametrize(("only", "clears"), [(None, True), ("counters", True), ("metrics", False)])
def test_counters_begin_anew_unless_only_metrics_do(only: str | None, clears: bool) -> None:
    arguments = {} if only is None else {"only": only}
    assert parsed(step(kind="clear_counters", **arguments)).clears_counters is clears
    assert not parsed(step()).clears_counters


CALL, EAGER_CALL = (
    STEPS["call"].parse({"as": "out"}),
    STEPS["call"].parse({"as": "out", "eager": True}),
)
API = STEPS["api"].parse({"call": "torch.neg", "as": "out"})


@pytest.mark.parametrize(
    ("of", "above", "why"),
    [
        (None, [], None),
        ("out.0", [CALL], None),
        ("output", [CALL], None),
        ("{{ name }}", [], None),
        ("out", [EAGER_CALL], "'out' is the result of an eager call"),
        ("out", [CALL, API], "'out' is the result of the step 'api'"),
        ("output.1", [CALL, API], "'output' is the result of the step 'api'"),
        ("box", [CALL], "'box' is no result of a call"),
    ],
)
def test_a_backward_has_a_reference_where_a_call_gave_what_it_runs_on(
    of: str | None, above: list[StepKind], why: str | None
) -> None:
    found = STEPS["backward"].parse({} if of is None else {"of": of}).why_no_reference(above)
    assert found is None if why is None else found is not None and found[0].endswith(why)
