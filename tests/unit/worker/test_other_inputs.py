"""The reference's answer to other inputs: had without the case seeing anything of it."""

import copy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import import_torch
from tests.sessions import prepared

# what torch warns of while it compiles is not ours
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

torch: Any = import_torch()

Start = Callable[..., Any]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Return what makes a prepared session of a spec and carries out its steps; nothing of inductor
    is compiled.
    """
    torch._dynamo.reset()

    def run(text: str, **body: Any) -> Any:
        session, plan = prepared(tmp_path, text, body=body)
        for step in plan["steps"]:
            session.begin_step({})
            session.do(step)
        return session

    return run


DOUBLE = "function: |\n  def fn(x, n):\n      return x * n\nexpect: [{close: {to: eager}}]\n"


def test_other_numbers_of_the_same_form(start: Start) -> None:
    session = start(
        DOUBLE + "inputs: [{rand: [3, 4], strides: [1, 3]}, {randint: [3, 4], high: 9}]"
    )
    other = session.additional._with_other_inputs("")()
    assert other.shape == session.reference.output.shape
    assert not torch.equal(other, session.reference.output)
    assert torch.equal(session.additional._with_other_inputs("")(), other), "the same each time"
    assert 0 <= float(other.min()) < float(other.max()) <= 8


def test_numbers_that_are_all_the_same_get_another_value(start: Start) -> None:
    session = start(DOUBLE + "inputs: [{ones: [3]}, 2]")
    assert not torch.equal(session.additional._with_other_inputs("")(), torch.full((3,), 2.0))


def test_nothing_of_it_is_seen(start: Start) -> None:
    session = start(
        "function: |\n  def fn(x):\n      return torch.nn.functional.dropout(x.add_(1))\n"
        "inputs: [{rand: [64]}]\nexpect: [{close: {to: eager}}]"
    )
    before = copy.deepcopy(
        (
            session.eager.arguments,
            session.compiled.arguments,
            session.reference.output,
            session.output,
        )
    )
    state = torch.get_rng_state()
    counters = {name: dict(found) for name, found in torch._dynamo.utils.counters.items()}
    session.additional._with_other_inputs("")()
    after = (
        session.eager.arguments,
        session.compiled.arguments,
        session.reference.output,
        session.output,
    )
    for one, same in zip(
        torch.utils._pytree.tree_leaves(before), torch.utils._pytree.tree_leaves(after), strict=True
    ):
        assert torch.equal(one, same)
    assert torch.equal(torch.get_rng_state(), state)
    assert {name: dict(found) for name, found in torch._dynamo.utils.counters.items()} == counters


def test_the_same_random_numbers_are_drawn_so_that_only_inputs_differ(start: Start) -> None:
    session = start(
        "function: |\n  def fn(x):\n      return torch.rand(9) + 0 * x\ninputs: [{rand: "
        "[9]}]\nexpect: [{close: {to: eager}}]"
    )
    assert torch.equal(session.additional._with_other_inputs("")(), session.reference.output)


def test_gradients_of_other_inputs(start: Start) -> None:
    session = start(
        "function: |\n  def fn(x):\n      return x * x\ninputs: [{rand: [9], requires_grad: "
        "true}]\n"
        "steps: [{call: {}}, {backward: {}, expect: [{close: {to: eager}}]}]"
    )
    (gradient,) = session.additional._with_other_inputs("")()
    (right,) = session.reference.output
    assert gradient.shape == right.shape
    assert not torch.equal(gradient, right)
    assert torch.equal(session.eager.called[1].grad, right)


def test_a_module_with_a_state_of_its_own_keeps_it(start: Start) -> None:
    session = start(
        "function: {module: torch.nn.BatchNorm1d, args: [4]}\ninputs: [{rand: [3, "
        "4]}]\nexpect: [{close: {to: eager}}]"
    )
    target = session.eager.called[0]
    before = target.running_mean.clone()
    assert not torch.equal(session.additional._with_other_inputs("")(), session.reference.output)
    assert torch.equal(target.running_mean, before)


@pytest.mark.parametrize(
    ("text", "body", "why"),
    [
        (DOUBLE + "inputs: [{randint: [3], high: 9}, 2]", {}, "no argument is a floating tensor"),
        (DOUBLE + "inputs: [{rand: [3], on_device: true}, 2]", {}, "on the device"),
        (DOUBLE + "inputs: [{zeros: [4096, 4097]}, 2]", {}, "larger than 64 MiB"),
        (DOUBLE + "inputs: [{rand: [3]}, 2]", {"dead": ["x"]}, "would observe an additional one"),
        (
            DOUBLE + "inputs: [{rand: [3]}, 2]",
            {"handlers": {"ops": 1}},
            "would observe an additional one",
        ),
        *(
            (
                DOUBLE + "inputs: [{rand: [3]}, 2]",
                {"spies": {"spy": {"function": "torch.sum"} | changing}},
                "would observe an additional one",
            )
            for changing in (
                {"result": "given"},
                {"around": "passed_on"},
                {"instead": {"returns": 1}},
                {"method": [{"ref": "x"}, "sum"]},
            )
        ),
    ],
)
def test_where_there_is_none(start: Start, text: str, body: dict[str, Any], why: str) -> None:
    session = start(text)
    session.plan["body"].update(body)
    session.additional = type(session.additional)(session)
    with pytest.raises(LookupError, match=why):
        session.additional._with_other_inputs("")()


def test_the_function_is_called_when_the_case_has_ended(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    # of a module that is not the spec's: nothing sets it back
    monkeypatch.setattr(sys, "conformance_calls", [], raising=False)
    session = start(
        "prelude: |\n  import sys\n  @torch._dynamo.disable\n"
        "  def note(): sys.conformance_calls.append(1)\n"
        "function: |\n  def fn(x):\n      note()\n      return x * 2\n"
        "inputs: [{rand: [3]}]\nexpect: [{close: {to: eager}}]"
    )
    from torch_conformance.vocabulary.expectations import close

    arguments = {"of": "output", "to": "eager", "rtol": None, "atol": None, "equal_nan": True}
    facts = close.measure(arguments, session.names.value)
    calls = len(sys.conformance_calls)
    session.additional.of_measurement({"kind": "close", "arguments": arguments}, facts)
    assert len(sys.conformance_calls) == calls
    assert "other inputs" not in facts["leaves"][0]["stand_ins"]
    session.additional.run()
    assert len(sys.conformance_calls) == calls + 1
    assert facts["leaves"][0]["stand_ins"]["other inputs"]["excess"] > 1e-3
