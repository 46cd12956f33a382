"""Makes the arguments of a case: each kind of input in one table. On the CPU, from the case's seed, then moved."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

Spec = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Maker:
    """What making an input needs to know of its case."""

    device: str
    find: Callable[[str], Any]
    """Looks up a name of the prelude or a dotted path."""
    named: Callable[[str], Any]
    """Looks up a named value."""


def make(entry: Any, maker: Maker) -> Any:
    """Return one argument as the spec's ``inputs`` describe it; a bare value stands for itself."""
    if not isinstance(entry, Mapping):
        return entry
    kind = next(word for word in INPUTS if word in entry)
    value = INPUTS[kind](entry, maker)
    return _finish(value, entry, maker) if isinstance(value, torch.Tensor) and kind != "ref" else value


def _finish(tensor: torch.Tensor, entry: Spec, maker: Maker) -> torch.Tensor:
    """Lay out, move and mark a fresh tensor."""
    if "strides" in entry:
        laid_out = torch.empty_strided(tuple(tensor.shape), tuple(entry["strides"]), dtype=tensor.dtype, device=tensor.device)
        tensor = laid_out.copy_(tensor)
    device = entry.get("device", maker.device)
    if torch.device(device) != tensor.device:
        tensor = _moved(tensor, device)
    if "memory_format" in entry:
        tensor = tensor.to(memory_format=getattr(torch, entry["memory_format"]))
    return tensor.requires_grad_(bool(entry.get("requires_grad", False)))


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
    made = maker.find(entry["module"])(*entry.get("args", []), **entry.get("kwargs", {}))
    if not isinstance(made, torch.nn.Module):
        raise TypeError(f"{entry['module']} made a {type(made).__name__}, not a torch.nn.Module")
    if "dtype" in entry:
        made = made.to(getattr(torch, entry["dtype"]))
    made = made.to(entry.get("device", maker.device))
    return made.eval() if entry.get("eval") else made


INPUTS: Mapping[str, Callable[[Spec, Maker], Any]] = {
    "rand": _filled(torch.rand, "rand"),
    "randn": _filled(torch.randn, "randn"),
    "zeros": _filled(torch.zeros, "zeros"),
    "ones": _filled(torch.ones, "ones"),
    "full": _full,
    "randint": _randint,
    "arange": _arange,
    "values": _values,
    "module": module,
    "ref": lambda entry, maker: maker.named(entry["ref"]),
    "value": lambda entry, maker: entry["value"],
}
"""The kinds of input. ``value`` stands last: beside ``full`` it is the number to fill with."""
