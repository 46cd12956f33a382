"""The picture of what a step can reach: what it sees of each kind of object, and sets back."""

import array
import collections
import contextvars
import ctypes
import datetime
import decimal
import fractions
import functools
import gc
import io
import itertools
import logging
import random
import threading
import types
import weakref
import xml.etree.ElementTree as ET
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


class Hostile(list[Any]):
    """A list whose own methods cannot be used."""

    def clear(self) -> None:
        raise RuntimeError

    def __iter__(self) -> Any:
        return iter(())


class Counts:
    """An object that counts how often it is taken apart."""

    def __init__(self) -> None:
        self.n = 0

    def __reduce__(self) -> Any:
        self.n += 1
        return Counts, ()


def with_default(*, numbers: list[int] = []) -> int:  # noqa: B006  # the state of the test
    numbers.append(1)
    return len(numbers)


def tagged() -> Any:
    tensor = torch.zeros(3)
    tensor.calls = 0
    return tensor


def local() -> Any:
    value = threading.local()
    value.n = 0
    return value


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
    "object without attributes": (
        lambda: type("Empty", (), {})(),
        lambda value: setattr(value, "n", 1),
    ),
    "slot without a value": (lambda: Slots.__new__(Slots), lambda value: setattr(value, "n", 1)),
    "local of a thread": (local, bump),
    "object that counts copies": (Counts, bump),
    "list with methods of its own": (lambda: Hostile([1]), lambda value: list.append(value, 2)),
    "members of a set": (
        lambda: {Holder(1), Holder(2)},
        lambda value: bump(next(iter(value)), "value"),
    ),
    "key": (lambda: {Holder(1): 0}, lambda value: bump(next(iter(value)), "value")),
    "array of numpy without axes": (
        lambda: numpy.array(0),
        lambda value: value.__setitem__((), 1),
    ),
    "array of records": (
        lambda: numpy.zeros(2, dtype=[("a", "i4")]),
        lambda value: value["a"].__setitem__(0, 1),
    ),
    "array of days": (
        lambda: numpy.zeros(2, "M8[D]"),
        lambda value: value.__setitem__(0, numpy.datetime64(1, "D")),
    ),
    "array backwards": (
        lambda: numpy.zeros(3)[::-1],
        lambda value: value.__setitem__(0, 1.0),
    ),
    "masked array": (
        lambda: numpy.ma.array([1, 2], mask=[0, 1]),
        lambda value: setattr(value, "mask", [1, 0]),
    ),
    "number of C": (lambda: [ctypes.c_int(0)], lambda value: bump(value[0], "value")),
    "context of decimals": (lambda: [decimal.Context(5)], lambda value: bump(value[0], "prec")),
    "element of XML": (lambda: ET.Element("a"), lambda value: value.set("b", "c")),
    "property": (lambda: property(closure()), lambda value: value.fget()),
    "static method": (lambda: staticmethod(with_default), lambda value: value()),
    "view of a map": (
        lambda: types.MappingProxyType({"a": 1}),
        lambda value: gc.get_referents(value)[0].update(a=2),
    ),
    "code of a function": (
        lambda: types.FunctionType(bump.__code__, {}),
        lambda value: setattr(value, "__code__", local.__code__),
    ),
    "level of a logger": (
        lambda: logging.Logger("conformance"),
        lambda value: value.setLevel(5),
    ),
    "attribute of a tensor changed": (tagged, lambda value: bump(value, "calls")),
    "hook of an optimizer": (
        lambda: torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1),
        lambda value: value.register_step_pre_hook(lambda *_: None),
    ),
    "scaler of gradients": (
        lambda: torch.amp.GradScaler("cpu"),
        lambda value: value.scale(torch.ones(1)),
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
    "members": ({datetime.date(2026, 1, 1)}, {datetime.date(2026, 1, 2)}),
    "sets of sets": ({frozenset([1])}, {frozenset([2])}),
    "keys": ({fractions.Fraction(1, 2): 0}, {fractions.Fraction(1, 3): 0}),
    "classes of tensors": (torch.zeros(1), torch.nn.Parameter(torch.zeros(1), requires_grad=False)),
    "dense dimensions": (torch.eye(2).to_sparse(1), torch.eye(2).to_sparse(2)),
    "sharing": ((lambda part: [part, part])([1]), [[1], [1]]),
}


@pytest.mark.parametrize("name", IMMUTABLE)
def test_two_that_differ_have_two_pictures(name: str) -> None:
    left, right = IMMUTABLE[name]
    assert seen(left) == seen(left)
    assert seen(left) != seen(right)


@pytest.mark.filterwarnings("ignore")  # torch's quantized tensors are deprecated
def test_scales_of_quantized_tensors_are_seen() -> None:
    left, right = (
        Picture()
        .add("it", torch.quantize_per_tensor(torch.zeros(1), scale, 0, torch.qint8))
        .leaves["it as an object"]
        for scale in (0.1, 0.2)
    )
    assert left != right


def counted(numbers: Any = itertools.count(1)) -> int:  # noqa: B008  # the state of the test
    drawn: int = next(numbers)
    return drawn


HOLDERS: dict[str, Callable[[], tuple[Any, Callable[[Any], object]]]] = {
    "count": lambda: (itertools.count(3), next),
    "map": lambda: (iter({1: 2}), next),
    "list": lambda: (iter(["a", "b"]), next),
    "cycle": lambda: (itertools.cycle([1, 2]), next),
    "chain": lambda: (itertools.chain([1, 2], [3]), next),
    "zip": lambda: (zip(itertools.count(), "ab", strict=False), next),
    "enumerate": lambda: (enumerate("ab"), next),
    "in a tuple": lambda: ((itertools.count(), 1), lambda value: next(value[0])),
    "bound": lambda: (itertools.count().__next__, lambda value: value()),
    "partial": lambda: (functools.partial(next, itertools.count()), lambda value: value()),
    "default": lambda: (counted, lambda value: value()),
    "shared": lambda: (
        (lambda numbers: [numbers, zip(numbers, "abcd", strict=False)])(itertools.count()),
        lambda value: (next(value[0]), next(value[1])),
    ),
}
"""Iterators and what holds them, each with what draws from it."""


@pytest.mark.parametrize("name", HOLDERS)
def test_an_iterator_of_a_global_is_made_again(name: str) -> None:
    module = types.ModuleType(f"{PREFIX}x")
    vars(module)["held"], draw = HOLDERS[name]()
    kept = shared_state([module], keeps=True)
    drawn = draw(module.held)
    kept.restore()
    assert draw(module.held) == drawn


def test_globals_are_set_back_and_new_ones_removed() -> None:
    module = types.ModuleType(f"{PREFIX}x")
    module.count = 1  # type: ignore[attr-defined]
    kept = shared_state([module], keeps=True)
    vars(module).update(count=2, other=3)
    kept.restore()
    assert {name: value for name, value in vars(module).items() if name[0] != "_"} == {"count": 1}


def test_containers_that_torch_keeps_are_no_globals_of_a_spec() -> None:
    from torch._dynamo.utils import counters

    module = types.ModuleType(f"{PREFIX}x")
    vars(module).update(counted=counters, copied=dict(counters), own=[1])
    names = shared_state([module]).leaves
    assert any("own" in name for name in names)
    assert not any("counted" in name for name in names)
    assert any("copied" in name for name in names)


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
