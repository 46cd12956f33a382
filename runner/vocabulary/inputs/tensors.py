"""Inputs that are tensors: made on the CPU from the case's seed, then laid out and moved to the device."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from runner.vocabulary.inputs.base import OF_TENSORS, Entry, InputKind, Maker, options

if TYPE_CHECKING:
    import torch


def _made(make: Callable[..., "torch.Tensor"], options: dict[str, Any], *, wider_integers: bool = True) -> "torch.Tensor":
    """Make a tensor. Where torch cannot make one of this dtype, make it in a wider dtype and convert: draws of float8 are of float32.

    Without ``wider_integers`` what torch refuses for an integer dtype stays refused: numbers from 0 to 1 would all become 0.
    """
    import torch

    try:
        return make(**options)
    except NotImplementedError:
        dtype = options.get("dtype")
        is_integer = dtype is not None and not (dtype.is_floating_point or dtype.is_complex or dtype is torch.bool)
        if dtype is None or not (dtype.is_floating_point or (is_integer and wider_integers)):
            raise
        return make(**{**options, "dtype": torch.int64 if is_integer else torch.float32}).to(dtype)


def _of_shape(name: str) -> Callable[[Entry, Maker], "torch.Tensor"]:
    """Return a function that makes a tensor with the torch function of the same name as the kind."""

    def make(entry: Entry, maker: Maker) -> "torch.Tensor":
        import torch

        return _made(functools.partial(getattr(torch, name), tuple(entry[name])), options(entry, maker), wider_integers=False)

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

    draw = functools.partial(torch.randint, entry.get("low", 0), entry["high"], tuple(entry["randint"]))
    return _made(draw, options(entry, maker))


class Randint(InputKind):
    """``{randint: SHAPE, low: 0, high: NUMBER}``."""

    kind: ClassVar[str] = "randint"
    keys: ClassVar[tuple[str, ...]] = ("low", "high", *OF_TENSORS)
    makes = staticmethod(_randint)


def _arange(entry: Entry, maker: Maker) -> "torch.Tensor":
    import torch

    bounds = entry["arange"]
    return _made(functools.partial(torch.arange, *(bounds if isinstance(bounds, list) else [bounds])), options(entry, maker))


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

    made = (functools.partial(torch.rand, tuple(shape)) for shape in entry["jagged"])
    parts = [_made(make, options(entry, maker), wider_integers=False) for make in made]
    return torch.nested.nested_tensor(parts, layout=torch.jagged)


class Jagged(InputKind):
    """``{jagged: [SHAPE, ...]}``: a nested tensor of jagged layout."""

    kind: ClassVar[str] = "jagged"
    keys: ClassVar[tuple[str, ...]] = ("dtype", "device", "requires_grad", "on_device")
    makes = staticmethod(_jagged)
