"""Kinds of steps: what their arguments say, and that every stage asks the kind, so that a planted one is known everywhere."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from runner.judge import verdicts
from runner.plan.schedule import is_exclusive, needs_of
from runner.plan.selection import without_benches
from runner.plan.worker_plan import python_of, step_names
from runner.system.capabilities import Machine
from runner.vocabulary import steps
from runner.vocabulary.inputs import INPUTS, kind_of
from runner.vocabulary.steps import STEPS, StepKind, Traits, parsed, traits_of
from tests.fakes import case, observed_steps, seen, step

HOST = Machine(python=(3, 11), torch="2.13.0", release=(2, 13), gpus=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest(StepKind):
    """``rest: {until: {ref: NAME}, code: PYTHON}``: a kind that no spec has."""

    kind: ClassVar[str] = "rest"
    traits: ClassVar[Traits] = Traits(is_optional=True, is_last=True, is_exclusive=True, children=2, python="code", has_result=True)
    until: Any = None
    code: Any = None


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mapping[str, type[StepKind]]]:
    monkeypatch.setitem(steps.STEPS, "rest", Rest)  # type: ignore[arg-type]  # the table is a dict
    return STEPS


@pytest.mark.usefixtures("planted")
def test_a_kind_in_the_table_is_known_to_every_stage() -> None:
    block = {"name": "rest", "file": "x.yaml", "line": 3, "text": "def rest(): pass"}
    resting = step(kind="rest", until={"ref": "first.0"}, code=block)
    mine = case(step(), resting, body={"config": {}})
    assert is_exclusive(mine)
    assert not is_exclusive(case(step()))
    assert without_benches(mine).left_out == (resting,)
    assert python_of(resting) == block
    assert list(step_names(resting)) == ["first.0"]
    assert needs_of(mine, HOST).memory > needs_of(case(step()), HOST).memory
    assert verdicts.counted_by_torch([resting], observed_steps(seen())) == verdicts.Counted()


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
def test_what_a_step_is_asked(kind: str, arguments: dict[str, Any], runs_graphs: bool, compares_effects: bool) -> None:
    found = parsed(step(kind=kind, **arguments))
    assert (found.runs_graphs, found.compares_effects) == (runs_graphs, compares_effects)


@pytest.mark.parametrize(("only", "clears"), [(None, True), ("counters", True), ("metrics", False)])
def test_counters_begin_anew_unless_only_metrics_do(only: str | None, clears: bool) -> None:
    arguments = {} if only is None else {"only": only}
    assert parsed(step(kind="clear_counters", **arguments)).clears_counters is clears
    assert not parsed(step()).clears_counters


CALL, EAGER_CALL = STEPS["call"].parse({"as": "out"}), STEPS["call"].parse({"as": "out", "eager": True})
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
def test_a_backward_has_a_reference_where_a_call_gave_what_it_runs_on(of: str | None, above: list[StepKind], why: str | None) -> None:
    found = STEPS["backward"].parse({} if of is None else {"of": of}).why_no_reference(above)
    assert found is None if why is None else found is not None and found[0].endswith(why)


def test_a_step_without_a_reference_says_so() -> None:
    assert STEPS["api"].parse({"call": "torch.neg"}).why_no_reference([]) == (
        "the step 'api' has no eager reference",
        "compare with a named value",
    )
    assert CALL.why_no_reference([]) is None
    assert EAGER_CALL.why_no_reference([]) is not None


def test_kinds_that_are_left_out_stand_last_and_prove_nothing() -> None:
    for word, kind in STEPS.items():
        traits = kind.traits
        assert traits.is_last or not traits.is_optional, f"{word}: a step that is left out must change no other step's number"
        assert not (traits.is_optional and traits.is_proof), word
        assert traits_of(step(kind=word, **_needed(word))) is traits


def _needed(word: str) -> dict[str, Any]:
    return {"optimizer": {"call": "torch.optim.SGD"}, "script": {"code": {"text": "def run(): pass"}}}.get(word, {})


@pytest.mark.parametrize("word", INPUTS)
def test_the_word_of_an_input_is_its_kind(word: str) -> None:
    entry = {word: [2], **({"value": 7} if word == "full" else {})}
    assert kind_of(entry) == word
    assert kind_of({"data": 1}) is None
