"""Makes the inputs that a spec describes: tensors on the CPU from the case's seed, then laid out and moved to the device."""

import contextlib
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._dynamo import mark_dynamic

from runner.model.protocol import Json
from runner.vocabulary.inputs import INPUTS, Entry, kind_of, times
from runner.worker.case.step_scope import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Maker:
    """The context of a case for making inputs."""

    device: str
    scope: Scope
    closing: contextlib.ExitStack
    """Callbacks for the end of the case."""


def make(entry: Json, maker: Maker) -> Any:
    """Return the argument that an entry of ``inputs`` describes; a plain value is returned as it is."""
    if not isinstance(entry, Mapping):
        return entry
    kind = next(word for word in INPUTS if word in entry)
    input_value = MAKERS[kind](entry, maker)
    return _finished(input_value, entry, maker) if isinstance(input_value, torch.Tensor) and not INPUTS[kind].is_finished else input_value


def make_all(entries: Iterable[Json], maker: Maker) -> list[Any]:
    """Return the arguments that a list of inputs describes; an entry with ``repeat`` is made as often as it says."""
    return [make(entry, maker) for entry in entries for _ in range(times(entry))]


def value(entry: Json, maker: Maker) -> Any:
    """Return a value with every input description in it replaced, at any depth of maps and lists; other maps are data."""
    if isinstance(entry, Mapping):
        if kind_of(entry) is not None:
            return make(entry, maker)
        return {key: value(item, maker) for key, item in entry.items()}
    return [value(item, maker) for item in entry for _ in range(times(item))] if isinstance(entry, list) else entry


def _finished(tensor: torch.Tensor, entry: Entry, maker: Maker) -> torch.Tensor:
    """Set strides, device, memory format, ``requires_grad`` and dynamic dimensions of a new tensor."""
    if "strides" in entry:
        tensor = _laid_out(tensor, entry["strides"], tensor.device)
    device = entry.get("device", maker.device)
    if torch.device(device) != tensor.device:
        if tensor.is_nested:
            tensor = tensor.to(device)
        else:  # Tensor.to may pack strides with holes: the layout is part of the claim
            tensor = _laid_out(tensor, tensor.stride(), device)
    if "memory_format" in entry:
        tensor = tensor.to(memory_format=getattr(torch, entry["memory_format"]))
    tensor.requires_grad_(bool(entry.get("requires_grad", False)))
    for dimension in entry.get("mark_dynamic", []):
        marked = dimension if isinstance(dimension, Mapping) else {"dim": dimension}
        mark_dynamic(tensor, marked["dim"], min=marked.get("min"), max=marked.get("max"))
    return tensor


def _laid_out(tensor: torch.Tensor, strides: Sequence[int], device: torch.device | str) -> torch.Tensor:
    """Return a tensor with these strides; of a dimension with stride 0 it has the first element. It is no view."""
    laid_out = torch.empty_strided(tuple(tensor.shape), tuple(strides), dtype=tensor.dtype, device=device)
    written = tuple(slice(None) if stride else slice(1) for stride in strides)
    laid_out[written].copy_(tensor[written])
    return laid_out


# -- tensors --------------------------------------------------------------------------------------------------------


def _options(entry: Entry, maker: Maker) -> dict[str, Any]:
    """Return torch's keyword arguments for making a tensor: on the CPU, unless the entry has ``on_device``."""
    dtype = {"dtype": getattr(torch, entry["dtype"])} if "dtype" in entry else {}
    return {**dtype, "device": entry.get("device", maker.device)} if entry.get("on_device") else dtype


def _made(draw: Callable[..., torch.Tensor], options: dict[str, Any], *, wider_integers: bool = True) -> torch.Tensor:
    """Make a tensor. Where torch cannot make one of this dtype, make it in a wider dtype and convert: draws of float8 are of float32.

    Without ``wider_integers`` what torch refuses for an integer dtype stays refused: numbers from 0 to 1 would all become 0.
    """
    try:
        return draw(**options)
    except NotImplementedError:
        dtype = options.get("dtype")
        is_integer = dtype is not None and not (dtype.is_floating_point or dtype.is_complex or dtype is torch.bool)
        if dtype is None or not (dtype.is_floating_point or (is_integer and wider_integers)):
            raise
        return draw(**{**options, "dtype": torch.int64 if is_integer else torch.float32}).to(dtype)


def _of_shape(kind: str, entry: Entry, maker: Maker) -> torch.Tensor:
    """Make a tensor with the torch function of the same name as the kind."""
    return _made(functools.partial(getattr(torch, kind), tuple(entry[kind])), _options(entry, maker), wider_integers=False)


def _randint(entry: Entry, maker: Maker) -> torch.Tensor:
    draw = functools.partial(torch.randint, entry.get("low", 0), entry["high"], tuple(entry["randint"]))
    return _made(draw, _options(entry, maker))


def _arange(entry: Entry, maker: Maker) -> torch.Tensor:
    bounds = entry["arange"] if isinstance(entry["arange"], list) else [entry["arange"]]
    return _made(functools.partial(torch.arange, *bounds), _options(entry, maker))


def _jagged(entry: Entry, maker: Maker) -> torch.Tensor:
    draws = [functools.partial(torch.rand, tuple(shape)) for shape in entry["jagged"]]
    parts = [_made(draw, _options(entry, maker), wider_integers=False) for draw in draws]
    return torch.nested.nested_tensor(parts, layout=torch.jagged)


# -- objects --------------------------------------------------------------------------------------------------------


def _called(function: Any, entry: Entry, maker: Maker) -> Any:
    return function(*value(entry.get("args", []), maker), **value(entry.get("kwargs", {}), maker))


def module(entry: Entry, maker: Maker) -> torch.nn.Module:
    """Make a module: its class or maker is called on the CPU, from the case's seed, then it is converted and moved."""
    instance = _called(maker.scope.find(entry["module"]), entry, maker)
    if not isinstance(instance, torch.nn.Module):
        raise TypeError(f"{entry['module']} made a {type(instance).__name__}, not a torch.nn.Module")
    if "dtype" in entry:
        instance = instance.to(getattr(torch, entry["dtype"]))
    instance = instance.to(entry.get("device", maker.device))
    return instance.eval() if entry.get("eval") else instance


def _call(entry: Entry, maker: Maker) -> Any:
    returned = _called(maker.scope.callable(entry["call"]), entry, maker)
    if "close" in entry:
        maker.closing.callback(getattr(returned, entry["close"]))
    return returned


MAKERS: Mapping[str, Callable[[Entry, Maker], Any]] = {
    **{kind: functools.partial(_of_shape, kind) for kind in ("rand", "randn", "zeros", "ones")},
    "full": lambda entry, maker: torch.full(tuple(entry["full"]), entry["value"], **_options(entry, maker)),
    "randint": _randint,
    "arange": _arange,
    "values": lambda entry, maker: torch.tensor(entry["values"], **_options(entry, maker)),
    "jagged": _jagged,
    "module": module,
    "call": _call,
    "ref": lambda entry, maker: maker.scope.named(entry["ref"]),
    "value": lambda entry, maker: entry["value"],
}
"""What makes an input of each kind."""
