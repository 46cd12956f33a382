"""Side effects on what is no tensor argument: containers, arrays of numpy, gradients and state of objects."""

import collections
import copy
import dataclasses
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from runner.model.expectation import Status
from tests.compared_effects import compared
from tests.fakes import import_torch

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

torch: Any = import_torch()
numpy: Any = pytest.importorskip("numpy")


class Key:
    """A key whose text is its address."""


def held(**attributes: Any) -> Callable[[], Any]:
    return lambda: SimpleNamespace(**copy.deepcopy(attributes))


def again(given: Any) -> None:
    given.a["x"] = given.a.pop("x")


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "order of a dict": (held(a={"x": 1, "y": 2}), again),
    "order of an OrderedDict": (held(a=collections.OrderedDict(x=1, y=2)), lambda one: one.a.move_to_end("x")),
    "kind of a container": (held(a=[1]), lambda one: setattr(one, "a", (1,))),
    "an empty container": (held(a=[]), lambda one: delattr(one, "a")),
    "an empty container within": (held(a=[[], 1]), lambda one: one.a.__setitem__(0, {})),
    "a function": (held(a=max), lambda one: setattr(one, "a", min)),
    "a module of Python": (lambda: SimpleNamespace(a=numpy), lambda one: setattr(one, "a", random)),
    "a generator of random": (held(a=random.Random(3)), lambda one: one.a.random()),
    "a generator of torch": (lambda: SimpleNamespace(a=torch.Generator().manual_seed(3)), lambda one: torch.rand(1, generator=one.a)),
    "an array beside NaN": (lambda: numpy.array([float("nan"), 1.0]), lambda one: one.__setitem__(1, 2.0)),
    "the dtype of an array": (held(a=numpy.ones(3)), lambda one: setattr(one, "a", one.a.astype("float32"))),
    "an array of texts": (held(a=numpy.array(["a", "b"])), lambda one: one.a.__setitem__(0, "c")),
    "a reversed array": (lambda: numpy.arange(4.0)[::-1], lambda one: one.__setitem__(0, 9.0)),
    "a value by a key without a text": (lambda: {Key(): 1.0, Key(): 2.0}, lambda one: one.__setitem__(list(one)[1], 3.0)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_the_compiled_side_alone_is_seen(name: str) -> None:
    make, change = CHANGES[name]
    ours, _ = compared(lambda eager, _, given: None if eager else (change(given), None)[1], make)
    assert ours.status is Status.FAILED, name
    theirs, _ = compared(lambda eager, _, given: (change(given), None)[1] if eager else None, make)
    assert theirs.status is Status.FAILED, "the change of eager is lost"


@pytest.mark.parametrize("name", CHANGES)
def test_the_same_change_on_both_sides_and_none_pass(name: str) -> None:
    make, change = CHANGES[name]
    both, facts = compared(lambda eager, _, given: (change(given), None)[1], make)
    assert (both.status, facts["apart"]) == (Status.HELD, ()), both
    assert compared(lambda *given: None, make)[0].status is Status.HELD


def test_the_sign_of_zero_in_an_array_that_eager_only_reads_is_kept() -> None:
    judgement, _ = compared(lambda eager, _, given: None if eager else given.__setitem__(1, -0.0), lambda: numpy.zeros(3))
    assert judgement.observed == "changed in 1 of 3 elements: [1] from 0.0 to -0.0"


def test_computed_numbers_of_an_array_are_judged_as_those_of_a_tensor() -> None:
    def change(eager: bool, _: Any, given: Any) -> None:
        given[:] = 1 / 3 if eager else 1 / 3 + 2**-53

    judgement, facts = compared(change, lambda: numpy.ones(3))
    assert (judgement.status, len(facts["leaves"])) == (Status.HELD, 1)


def state() -> Any:
    module = torch.nn.Module()
    module.register_buffer("kept", torch.ones(3))
    return module


def replaced(eager: bool, module: Any) -> None:
    module.kept = module.kept * 2 if not eager else (module.kept + 1).add_(0)


def written(_: bool, module: Any) -> None:
    module.kept.mul_(2)


def test_a_tensor_that_eager_replaces_has_no_version_counter_of_before() -> None:
    assert compared(replaced, target=state)[0].status is Status.HELD
    assert compared(written, target=state)[0].status is Status.HELD


def test_a_tensor_that_eager_writes_must_be_written() -> None:
    def change(eager: bool, module: Any) -> None:
        (written if eager else replaced)(eager, module)

    judgement, _ = compared(change, target=state)
    assert (judgement.expected, judgement.observed) == ("function.kept is written in place, as by eager", "replaced by another tensor")

    def unnoticed(eager: bool, module: Any) -> None:
        if eager:
            written(eager, module)
        else:
            module.kept.data.mul_(2)

    judgement, _ = compared(unnoticed, target=state)
    assert judgement.expected == "version counter of function.kept is advanced"


def test_the_gaps_of_a_tensor_that_eager_writes_in_part_keep_their_bits() -> None:
    def change(eager: bool, _: Any, given: Any) -> None:
        given[0, 0] = 5.0
        if not eager:
            given.as_strided((1,), (1,), 5).fill_(9.0)

    judgement, _ = compared(change, lambda: torch.ones(4, 8)[:, :4])
    assert judgement.observed == "changed between its elements: 1 elements of its memory"
    assert compared(lambda eager, _, given: (given[0].fill_(5.0), None)[1], lambda: torch.ones(4, 8)[:, :4])[0].status is Status.HELD


@pytest.mark.parametrize("where", ["buffer", "attribute", "object"])
def test_gradients_that_close_does_not_judge_are_compared(where: str) -> None:
    def made() -> Any:
        module, tensor = torch.nn.Module(), torch.ones(2, requires_grad=True)
        module.weight = torch.nn.Parameter(torch.ones(2))
        if where == "buffer":
            module.register_buffer("it", tensor)
        else:
            module.it = tensor if where == "attribute" else SimpleNamespace(it=tensor)
        return module

    def change(eager: bool, module: Any) -> None:
        tensor = module.it.it if where == "object" else module.it
        tensor.grad = torch.full((2,), 1.0 if eager else 3.0)

    judgement, _ = compared(change, target=made, tolerance={"gradients": False})
    assert judgement.status is Status.FAILED
    assert ".grad " in judgement.expected

    def of_a_parameter(eager: bool, module: Any) -> None:
        module.weight.grad = torch.full((2,), 1.0 if eager else 3.0)

    assert compared(of_a_parameter, target=made, tolerance={"gradients": False})[0].status is Status.HELD, "close judges it"


def test_a_copy_keeps_the_gradients_of_parameters_in_objects() -> None:
    from runner.worker.case import copies

    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.full((2,), 3.0)
    optimizer = torch.optim.SGD([weight], lr=0.5)
    copied = copies.apart([SimpleNamespace(held=weight), optimizer])
    (of_optimizer,) = copied[1].param_groups[0]["params"]
    assert copied[0].held is of_optimizer is not weight
    assert of_optimizer.grad is not weight.grad
    assert of_optimizer.grad.tolist() == [3.0, 3.0]
    assert copies.apart([torch.nn.Parameter(torch.ones(2))])[0].grad is None


@dataclasses.dataclass
class Out:
    value: Any


def test_a_dataclass_with_a_history_can_be_kept() -> None:
    from runner.worker.case import copies

    made = torch.ones(2, requires_grad=True) * 2
    kept = copies.frozen(Out({"a": [made]}))
    assert type(kept) is Out
    assert kept.value["a"][0] is not made
    assert kept.value["a"][0].tolist() == [2.0, 2.0]


def test_results_in_dataclasses_share_memory_and_have_histories() -> None:
    def change(eager: bool, _: Any, given: Any) -> Any:
        return Out(given if eager else given.clone())

    judgement, _ = compared(change, lambda: torch.ones(3))
    assert judgement.expected == "output['value'] is the tensor argument [0]"
    judgement, _ = compared(
        lambda eager, _, given: Out(given * 2 if eager else (given * 2).detach()), lambda: torch.ones(3, requires_grad=True)
    )
    assert judgement.observed == "requires_grad False"


MODES: dict[str, Callable[[], Any]] = {
    "hooks of saved tensors": lambda: torch._C._autograd._push_saved_tensors_default_hooks(lambda x: x, lambda x: x),
    "plain attention": lambda: torch.backends.cuda.enable_math_sdp(False),
    "threads of autograd": lambda: torch._C._set_multithreading_enabled(False),
    "torch functions": lambda: torch._C._set_torch_function_state(torch._C._TorchFunctionState.ALL_DISABLED),
    "autocast's cache": lambda: torch.set_autocast_cache_enabled(False),
    "filling of new memory": lambda: torch._C._set_deterministic_fill_uninitialized_memory(False),
}


@pytest.mark.parametrize("name", MODES)
def test_other_modes_that_the_compiled_call_leaves_are_seen(name: str) -> None:
    try:
        judgement, _ = compared(lambda eager, _: None if eager else (MODES[name](), None)[1])
    finally:
        if name == "hooks of saved tensors":
            torch._C._autograd._pop_saved_tensors_default_hooks()
    assert (judgement.status, judgement.expected.startswith(f"{name} is ")) == (Status.FAILED, True), judgement
