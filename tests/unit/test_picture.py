"""The picture of what a step can reach: what it sees of each kind of object, and sets back."""

import array
import collections
import contextvars
import datetime
import decimal
import io
import itertools
import random
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from tests.fakes import import_torch

pytestmark = pytest.mark.torch

torch: Any = import_torch()

import numpy

from torch_conformance.vocabulary.picture import PREFIX, Picture, shared_state


class Slots:
    __slots__ = ("n",)

    def __init__(self) -> None:
        self.n = 0


class Holder:
    """An object of a class without a protocol of its own."""

    def __init__(self, value: Any) -> None:
        self.value = value


def closure() -> Callable[[], int]:
    count = 0

    def step() -> int:
        nonlocal count
        count += 1
        return count

    return step


VARIABLE: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=1)


def bump(holder: Any, name: str = "n") -> None:
    setattr(holder, name, getattr(holder, name) + 1)


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "namespace": (lambda: types.SimpleNamespace(n=0), bump),
    "slots": (Slots, bump),
    "nested": (lambda: Holder(Holder([1])), lambda holder: holder.value.value.append(2)),
    "list": (lambda: [1, [2]], lambda value: value[1].append(3)),
    "dict": (lambda: {"a": 1}, lambda value: value.update(b=2)),
    "order of keys": (lambda: {"a": 1, "b": 2}, lambda value: value.update(a=value.pop("a"))),
    "default dict": (lambda: collections.defaultdict(list), lambda value: value["a"]),
    "counter": (collections.Counter, lambda value: value.update("a")),
    "deque": (lambda: collections.deque([1, 2], maxlen=2), lambda value: value.append(3)),
    "set": (lambda: {1}, lambda value: value.add(2)),
    "bytearray": (lambda: bytearray(b"a"), lambda value: value.extend(b"b")),
    "array": (lambda: array.array("i", [1]), lambda value: value.append(2)),
    "text buffer": (lambda: io.StringIO("a"), lambda value: value.seek(0, 2) or value.write("b")),
    "Python's generator": (lambda: random.Random(1), lambda value: value.random()),
    "torch's generator": (torch.Generator, lambda value: torch.rand(1, generator=value)),
    "numpy's generator": (lambda: numpy.random.default_rng(0), lambda value: value.random()),
    "array of numpy": (lambda: numpy.zeros(3), lambda value: value.__setitem__(0, 1.0)),
    "context variable": (lambda: VARIABLE, lambda value: value.set(value.get() + 1)),
    "closure": (closure, lambda value: value()),
    "bound method": (lambda: Holder([]).__init__, lambda value: value(5)),
    "tensor": (lambda: torch.zeros(3), lambda value: value.add_(1)),
    "large tensor": (
        lambda: torch.zeros((1 << 20) + 1, dtype=torch.uint8),
        lambda value: value.add_(1),
    ),
    "shape": (lambda: torch.zeros(2, 3), lambda value: value.t_()),
    "gradient": (
        lambda: torch.zeros(3, requires_grad=True),
        lambda value: setattr(value, "grad", torch.ones(3)),
    ),
    "requires_grad": (lambda: torch.zeros(3), lambda value: value.requires_grad_()),
    "freed storage": (
        lambda: torch.zeros(3),
        lambda value: value.untyped_storage().resize_(0),
    ),
    "attribute of a tensor": (
        lambda: torch.zeros(3),
        lambda value: setattr(value, "scale", torch.ones(1)),
    ),
    "sparse values": (
        lambda: torch.eye(2).to_sparse(),
        lambda value: value._values().add_(1),
    ),
    "parameter replaced": (
        lambda: torch.nn.Linear(2, 2),
        lambda value: setattr(value, "weight", torch.nn.Parameter(torch.zeros(2, 2))),
    ),
    "child replaced": (
        lambda: torch.nn.Sequential(torch.nn.ReLU()),
        lambda value: value.__setitem__(0, torch.nn.Tanh()),
    ),
    "hyperparameter": (
        lambda: torch.nn.LeakyReLU(0.1),
        lambda value: setattr(value, "negative_slope", 0.3),
    ),
    "hook of a module": (
        torch.nn.ReLU,
        lambda value: value.register_forward_hook(lambda *_: None),
    ),
    "optimizer": (
        lambda: torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1),
        lambda value: value.param_groups[0].update(lr=0.2),
    ),
}
"""Kinds of objects, each with a change."""


def seen(value: Any) -> dict[str, str]:
    leaves = Picture().add("it", value).leaves
    return {
        path: str(leaf.to_dense().tolist()) if isinstance(leaf, torch.Tensor) else repr(leaf)
        for path, leaf in leaves.items()
    }


@pytest.mark.filterwarnings("ignore")  # torch's sparse tensors are in beta
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_seen_and_set_back(name: str) -> None:
    make, change = CHANGES[name]
    value = make()
    before = seen(value)
    kept = Picture(keeps=True).add("it", value)
    change(value)
    assert seen(value) != before
    kept.restore()
    assert seen(value) == before
    kept.restore()
    assert seen(value) == before, "a picture is set back as often as it is needed"


IMMUTABLE: dict[str, tuple[Any, Any]] = {
    "decimals": (decimal.Decimal("1.5"), decimal.Decimal("1.50")),
    "dates": (datetime.date(2026, 1, 1), datetime.date(2026, 1, 2)),
    "exceptions": (ValueError("a"), ValueError("b")),
    "functions": (lambda x: x, lambda x: x * 2),
    "limits of deques": (collections.deque([1]), collections.deque([1], maxlen=1)),
    "types of arrays": (array.array("i", [1]), array.array("l", [1])),
    "zeros": (0.0, -0.0),
    "classes of tensors": (torch.zeros(1), torch.nn.Parameter(torch.zeros(1), requires_grad=False)),
    "dense dimensions": (torch.eye(2).to_sparse(1), torch.eye(2).to_sparse(2)),
    "sharing": ((lambda part: [part, part])([1]), [[1], [1]]),
}


@pytest.mark.parametrize("name", IMMUTABLE)
def test_two_that_differ_have_two_pictures(name: str) -> None:
    left, right = IMMUTABLE[name]
    assert seen(left) == seen(left)
    assert seen(left) != seen(right)


def test_an_iterator_of_a_global_is_made_again() -> None:
    module = types.ModuleType(f"{PREFIX}x")
    vars(module).update(numbers=itertools.count(3), items=iter({1: 2}), texts=iter(["a", "b"]))
    kept = shared_state([module], keeps=True)
    drawn = [next(module.numbers), next(module.items), next(module.texts)]
    kept.restore()
    assert [next(module.numbers), next(module.items), next(module.texts)] == drawn


def test_globals_are_set_back_and_new_ones_removed() -> None:
    module = types.ModuleType(f"{PREFIX}x")
    module.count = 1  # type: ignore[attr-defined]
    kept = shared_state([module], keeps=True)
    vars(module).update(count=2, other=3)
    kept.restore()
    assert {name: value for name, value in vars(module).items() if name[0] != "_"} == {"count": 1}


def test_what_nothing_sets_back_is_opaque() -> None:
    value = {"lock": threading.Lock(), "numbers": (n for n in range(3)), "kept": [1]}
    picture = Picture().add("it", value)
    assert set(picture.opaque) == {"it['lock']", "it['numbers']"}
    assert picture.digest() is None
    assert (
        Picture().add("it", {"kept": [1]}).digest() == Picture().add("it", {"kept": [1]}).digest()
    )


def test_a_later_picture_says_which_object_it_is() -> None:
    box = Holder([1])
    before = Picture().add("box", box)
    box.value = [1]
    after = Picture(before=before).add("box", box)
    assert after.leaves["identity of box"] == "the object at box"
    assert after.leaves["identity of box.value"] == "another object"


def test_an_object_within_itself_ends_the_walk() -> None:
    value: list[Any] = []
    value.append(value)
    assert Picture().add("it", value).leaves["identity of it[0]"] == "the object at it"


def test_a_deep_list_needs_no_stack() -> None:
    value: list[Any] = []
    for _ in range(20_000):
        value = [value]
    assert len(Picture().add("it", value).leaves) > 20_000


def test_a_weak_reference_is_no_copy_of_what_it_refers_to() -> None:
    owner = torch.nn.ReLU()
    picture = Picture().add("owner", owner).add("weak", weakref.ref(owner))
    assert picture.leaves["identity of weak()"] == "the object at owner"
