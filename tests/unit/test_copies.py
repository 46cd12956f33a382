"""Copies of what a case made: nothing that the case does later reaches them."""

import collections
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fakes import import_torch

pytestmark = pytest.mark.torch

torch: Any = import_torch()


class Lying(torch.Tensor):  # type: ignore[misc]  # torch is not typed here
    """Answers every question with ones."""

    def detach(self) -> Any:
        return torch.ones(2)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = super().__torch_function__(func, types, args, kwargs or {})
        return torch.ones(2).as_subclass(cls) if isinstance(made, torch.Tensor) and made.is_floating_point() else made


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.arange(6.0).reshape(2, 3),
        lambda: torch.arange(6.0).reshape(2, 3).t(),
        lambda: torch.arange(12.0).reshape(3, 4)[:, ::2],
        lambda: torch.arange(3.0).expand(4, 3),
        lambda: torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last)[..., 1:3],
        lambda: torch.tensor(3.0),
        lambda: torch.empty(0, 3),
        lambda: torch.arange(4.0).to_sparse(),
    ],
)
def test_a_snapshot_keeps_numbers_and_strides(make: Any) -> None:
    from runner.worker.case.copies import snapshot

    tensor = make()
    (made,) = snapshot([tensor])
    right = tensor.clone()
    tensor.zero_()
    assert torch.equal(made.to_dense(), right.to_dense())
    if tensor.layout is torch.strided:
        assert made.stride() == tensor.stride()


def test_a_subclass_is_measured_by_its_storage() -> None:
    from runner.worker.case.copies import measured, snapshot

    lying = torch.tensor([5.0, 6.0]).as_subclass(Lying)
    for made in (measured({"a": [lying]})["a"][0], snapshot(lying)):
        assert type(made) is torch.Tensor
        assert made.tolist() == [5.0, 6.0]


@pytest.mark.parametrize("change", [lambda value: value.update(x=2), lambda value: value["inner"].append(1)])
def test_a_named_value_is_a_copy(change: Any) -> None:
    from runner.worker.case.copies import frozen

    value = collections.Counter(x=1)
    value["inner"] = []  # type: ignore[assignment]  # a counter takes it
    made = frozen({"found": value})
    change(value)
    assert made == {"found": {"x": 1, "inner": []}}


def test_an_object_that_occurs_twice_is_one_object_in_the_copy() -> None:
    from runner.worker.case.copies import frozen

    one = SimpleNamespace(x=1)
    first, second = frozen((one, one))
    assert first is second
    assert first is not one


def test_what_cannot_be_copied_is_refused_when_it_is_compared() -> None:
    from runner.worker.case.copies import Live, frozen

    (made,) = frozen([threading.Lock()])
    assert isinstance(made, Live)
    assert "'held' holds a _thread.lock, which cannot be copied" in str(made.refuse("held"))


def test_a_result_is_copied_without_its_history_and_is_no_leaf() -> None:
    from runner.worker.case import copies

    leaf = torch.ones(2, 3, requires_grad=True)
    result = (leaf * 2).t()
    (copied, again), original = copies.apart([result, result]), copies.apart(leaf)
    assert copied is again, "one object stays one object"
    assert torch.equal(copied, result)
    assert (copied.stride(), copied.requires_grad, copied.is_leaf) == (result.stride(), True, False)
    assert (original.is_leaf, original.requires_grad) == (True, True)
    copied.sum().backward()
    assert leaf.grad is None
