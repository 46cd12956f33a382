"""Makes the arguments of a case: each kind of input in one table. On the CPU, from the case's seed, then moved."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from runner.worker.case.scope import Scope

Spec = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Maker:
    """What making an input needs to know of its case."""

    device: str
    scope: Scope
    closing: contextlib.ExitStack
    """What is closed when the case ends."""


def make(entry: Any, maker: Maker) -> Any:
    """Return one argument as the spec's ``inputs`` describe it; a bare value stands for itself."""
    if not isinstance(entry, Mapping):
        return entry
    kind = next(word for word in INPUTS if word in entry)
    made = INPUTS[kind](entry, maker)
    return _finish(made, entry, maker) if isinstance(made, torch.Tensor) and kind not in ("ref", "call", "value") else made


def value(entry: Any, maker: Maker) -> Any:
    """Return a value written as an input is, at any depth of maps and lists; other maps are data."""
    if isinstance(entry, Mapping):
        if any(word in entry for word in INPUTS):
            return make(entry, maker)
        return {key: value(item, maker) for key, item in entry.items()}
    return [value(item, maker) for item in entry] if isinstance(entry, list) else entry


def _finish(tensor: torch.Tensor, entry: Spec, maker: Maker) -> torch.Tensor:
    """Lay out, move and mark a fresh tensor."""
    if "strides" in entry:
        laid_out = torch.empty_strided(tuple(tensor.shape), tuple(entry["strides"]), dtype=tensor.dtype, device=tensor.device)
        tensor = laid_out.copy_(tensor)
    device = entry.get("device", maker.device)
    if torch.device(device) != tensor.device:
        tensor = tensor.to(device) if tensor.is_nested else _moved(tensor, device)
    if "memory_format" in entry:
        tensor = tensor.to(memory_format=getattr(torch, entry["memory_format"]))
    tensor.requires_grad_(bool(entry.get("requires_grad", False)))
    for dimension in entry.get("mark_dynamic", []):
        torch._dynamo.mark_dynamic(tensor, dimension)
    return tensor


def _moved(tensor: torch.Tensor, device: str) -> torch.Tensor:
    # Tensor.to may pack strides with holes: the layout is part of the claim
    moved = torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device=device)
    return moved.copy_(tensor)


def _options(entry: Spec, maker: Maker) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if "dtype" in entry:
        options["dtype"] = getattr(torch, entry["dtype"])
    if entry.get("on_device"):
        options["device"] = entry.get("device", maker.device)
    return options


def _filled(function: Callable[..., torch.Tensor], kind: str) -> Callable[[Spec, Maker], torch.Tensor]:
    return lambda entry, maker: function(tuple(entry[kind]), **_options(entry, maker))


def _full(entry: Spec, maker: Maker) -> torch.Tensor:
    return torch.full(tuple(entry["full"]), entry["value"], **_options(entry, maker))


def _randint(entry: Spec, maker: Maker) -> torch.Tensor:
    return torch.randint(entry.get("low", 0), entry["high"], tuple(entry["randint"]), **_options(entry, maker))


def _arange(entry: Spec, maker: Maker) -> torch.Tensor:
    bounds = entry["arange"]
    return torch.arange(*(bounds if isinstance(bounds, list) else [bounds]), **_options(entry, maker))


def _values(entry: Spec, maker: Maker) -> torch.Tensor:
    return torch.tensor(entry["values"], **_options(entry, maker))


def module(entry: Spec, maker: Maker) -> torch.nn.Module:
    """Make a module: its class or maker is called on the CPU, from the case's seed, then it is converted and moved."""
    made = maker.scope.find(entry["module"])(*value(entry.get("args", []), maker), **value(entry.get("kwargs", {}), maker))
    if not isinstance(made, torch.nn.Module):
        raise TypeError(f"{entry['module']} made a {type(made).__name__}, not a torch.nn.Module")
    if "dtype" in entry:
        made = made.to(getattr(torch, entry["dtype"]))
    made = made.to(entry.get("device", maker.device))
    return made.eval() if entry.get("eval") else made


def _jagged(entry: Spec, maker: Maker) -> torch.Tensor:
    parts = [torch.rand(tuple(shape), **_options(entry, maker)) for shape in entry["jagged"]]
    return torch.nested.nested_tensor(parts, layout=torch.jagged)


def _call(entry: Spec, maker: Maker) -> Any:
    function = maker.scope.callable(entry["call"])
    made = function(*value(entry.get("args", []), maker), **value(entry.get("kwargs", {}), maker))
    if "close" in entry:
        maker.closing.callback(getattr(made, entry["close"]))
    return made


INPUTS: Mapping[str, Callable[[Spec, Maker], Any]] = {
    "rand": _filled(torch.rand, "rand"),
    "randn": _filled(torch.randn, "randn"),
    "zeros": _filled(torch.zeros, "zeros"),
    "ones": _filled(torch.ones, "ones"),
    "full": _full,
    "randint": _randint,
    "arange": _arange,
    "values": _values,
    "jagged": _jagged,
    "module": module,
    "call": _call,
    "ref": lambda entry, maker: maker.scope.named(entry["ref"]),
    "value": lambda entry, maker: entry["value"],
}
"""The kinds of input. ``value`` stands last: beside ``full`` it is the number to fill with."""
