"""Inputs that are tensors: made on the CPU from the case's seed, then laid out and moved to the device."""

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from runner.vocabulary.inputs.base import OF_TENSORS, Entry, InputKind, Maker, options

if TYPE_CHECKING:
    import torch


def _of_shape(name: str) -> Callable[[Entry, Maker], "torch.Tensor"]:
    """Return a function that makes a tensor with the torch function of the same name as the kind."""

    def make(entry: Entry, maker: Maker) -> "torch.Tensor":
        import torch

        made: torch.Tensor = getattr(torch, name)(tuple(entry[name]), **options(entry, maker))
        return made

    return make


class Rand(InputKind):
    """``{rand: SHAPE}``: numbers from 0 to 1."""

    kind: ClassVar[str] = "rand"
    keys: ClassVar[tuple[str, ...]] = OF_TENSORS
    makes = staticmethod(_of_shape("rand"))


class Randn(InputKind):
    """``{randn: SHAPE}``: normal numbers."""

    kind: ClassVar[str] = "randn"
    keys: ClassVar[tuple[str, ...]] = OF_TENSORS
    makes = staticmethod(_of_shape("randn"))


class Zeros(InputKind):
    """``{zeros: SHAPE}``."""

    kind: ClassVar[str] = "zeros"
    keys: ClassVar[tuple[str, ...]] = OF_TENSORS
    makes = staticmethod(_of_shape("zeros"))


class Ones(InputKind):
    """``{ones: SHAPE}``."""

    kind: ClassVar[str] = "ones"
    keys: ClassVar[tuple[str, ...]] = OF_TENSORS
    makes = staticmethod(_of_shape("ones"))


def _full(entry: Entry, maker: Maker) -> "torch.Tensor":
    import torch

    return torch.full(tuple(entry["full"]), entry["value"], **options(entry, maker))


class Full(InputKind):
    """``{full: SHAPE, value: NUMBER}``."""

    kind: ClassVar[str] = "full"
    keys: ClassVar[tuple[str, ...]] = ("value", *OF_TENSORS)
    makes = staticmethod(_full)


def _randint(entry: Entry, maker: Maker) -> "torch.Tensor":
    import torch

    return torch.randint(entry.get("low", 0), entry["high"], tuple(entry["randint"]), **options(entry, maker))


class Randint(InputKind):
    """``{randint: SHAPE, low: 0, high: NUMBER}``."""

    kind: ClassVar[str] = "randint"
    keys: ClassVar[tuple[str, ...]] = ("low", "high", *OF_TENSORS)
    makes = staticmethod(_randint)


def _arange(entry: Entry, maker: Maker) -> "torch.Tensor":
    import torch

    bounds = entry["arange"]
    return torch.arange(*(bounds if isinstance(bounds, list) else [bounds]), **options(entry, maker))


class Arange(InputKind):
    """``{arange: END}`` or ``{arange: [START, END, STEP]}``."""

    kind: ClassVar[str] = "arange"
    keys: ClassVar[tuple[str, ...]] = OF_TENSORS
    makes = staticmethod(_arange)


def _values(entry: Entry, maker: Maker) -> "torch.Tensor":
    import torch

    return torch.tensor(entry["values"], **options(entry, maker))


class Values(InputKind):
    """``{values: NESTED_LISTS}``."""

    kind: ClassVar[str] = "values"
    keys: ClassVar[tuple[str, ...]] = OF_TENSORS
    makes = staticmethod(_values)


def _jagged(entry: Entry, maker: Maker) -> "torch.Tensor":
    import torch

    parts = [torch.rand(tuple(shape), **options(entry, maker)) for shape in entry["jagged"]]
    return torch.nested.nested_tensor(parts, layout=torch.jagged)


class Jagged(InputKind):
    """``{jagged: [SHAPE, ...]}``: a nested tensor of jagged layout."""

    kind: ClassVar[str] = "jagged"
    keys: ClassVar[tuple[str, ...]] = ("dtype", "device", "requires_grad", "on_device")
    makes = staticmethod(_jagged)
