"""Copies of what a case made: nothing that the case does later reaches them."""

import collections
import dataclasses
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fakes import import_torch

pytestmark = pytest.mark.torch

torch: Any = import_torch()

from torch_conformance.worker.case import copies


class Lying(torch.Tensor):  # type: ignore[misc]  # torch is not typed here
    """Answers every question with ones."""

    def detach(self) -> Any:
        return torch.ones(2)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = super().__torch_function__(func, types, args, kwargs or {})
        return (
            torch.ones(2).as_subclass(cls)
            if isinstance(made, torch.Tensor) and made.is_floating_point()
            else made
        )


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.arange(6.0).reshape(2, 3),
        lambda: torch.arange(6.0).reshape(2, 3).t(),
        lambda: torch.arange(12.0).reshape(3, 4)[:, ::2],
        lambda: torch.arange(3.0).expand(4, 3),
        lambda: (
            torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last)[..., 1:3]
        ),
        lambda: torch.tensor(3.0),
        lambda: torch.empty(0, 3),
        lambda: torch.arange(4.0).to_sparse(),
    ],
)
def test_a_snapshot_keeps_numbers_and_strides(make: Any) -> None:
    tensor = make()
    (made,) = copies.frozen([tensor])
    right = tensor.clone()
    tensor.zero_()
    assert torch.equal(made.to_dense(), right.to_dense())
    if tensor.layout is torch.strided:
        assert made.stride() == tensor.stride()


def test_a_subclass_is_measured_by_its_storage() -> None:
    lying = torch.tensor([5.0, 6.0]).as_subclass(Lying)
    for made in (copies.measured({"a": [lying]})["a"][0], copies.frozen(lying)):
        assert type(made) is torch.Tensor
        assert made.tolist() == [5.0, 6.0]


@pytest.mark.parametrize(
    "change", [lambda value: value.update(x=2), lambda value: value["inner"].append(1)]
)
def test_a_named_value_is_a_copy(change: Any) -> None:
    value = collections.Counter(x=1)
    value["inner"] = []  # type: ignore[assignment]  # a counter takes it
    made = copies.frozen({"found": value})
    change(value)
    assert made == {"found": {"x": 1, "inner": []}}


def test_an_object_that_occurs_twice_is_one_object_in_the_copy() -> None:
    one = SimpleNamespace(x=1)
    first, second = copies.frozen((one, one))
    assert first is second
    assert first is not one


def test_what_cannot_be_copied_is_refused_when_it_is_compared() -> None:
    (made,) = copies.frozen([threading.Lock()])
    assert isinstance(made, copies.Live)
    assert "'held' holds a _thread.lock, which cannot be copied" in str(made.refuse("held"))


def test_a_result_is_copied_without_its_history_and_is_no_leaf() -> None:
    leaf = torch.ones(2, 3, requires_grad=True)
    result = (leaf * 2).t()
    (copied, again), original = copies.independent([result, result]), copies.independent(leaf)
    assert copied is again, "one object stays one object"
    assert torch.equal(copied, result)
    assert (copied.stride(), copied.requires_grad, copied.is_leaf) == (result.stride(), True, False)
    assert (original.is_leaf, original.requires_grad) == (True, True)
    copied.sum().backward()
    assert leaf.grad is None


def test_a_copy_keeps_the_gradients_of_parameters_in_objects() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.full((2,), 3.0)
    optimizer = torch.optim.SGD([weight], lr=0.5)
    copied = copies.independent([SimpleNamespace(held=weight), optimizer])
    (of_optimizer,) = copied[1].param_groups[0]["params"]
    assert copied[0].held is of_optimizer is not weight
    assert of_optimizer.grad is not weight.grad
    assert of_optimizer.grad.tolist() == [3.0, 3.0]
    assert copies.independent([torch.nn.Parameter(torch.ones(2))])[0].grad is None


@dataclasses.dataclass
class Out:
    value: Any


def test_a_dataclass_with_a_history_can_be_kept() -> None:
    made = torch.ones(2, requires_grad=True) * 2
    kept = copies.frozen(Out({"a": [made]}))
    assert type(kept) is Out
    assert kept.value["a"][0] is not made
    assert kept.value["a"][0].tolist() == [2.0, 2.0]
