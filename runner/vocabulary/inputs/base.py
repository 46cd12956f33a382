"""What every kind of input is made of: the keys that go with it, and what makes it in the worker."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from runner.core.model import Json

if TYPE_CHECKING:
    import torch

Entry = Mapping[str, Json]
"""A map of a spec that describes an input."""


class Scope(Protocol):
    """Looks up the names of a case."""

    def find(self, path: str) -> Any:
        """Return what a name of the prelude or a dotted path stands for."""
        ...

    def named(self, name: str) -> Any:
        """Return a named value of the case, or a name of the prelude."""
        ...

    def callable(self, entry: Any) -> Any:
        """Return what is called: by a path, or by ``{ref: NAME}``."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Maker:
    """What making an input needs to know of its case."""

    device: str
    scope: Scope
    closing: contextlib.ExitStack
    """What is closed when the case ends."""


class InputKind:
    """A kind of input. ``makes`` is a function beside the class: it runs in the worker and imports torch within."""

    kind: ClassVar[str]
    keys: ClassVar[tuple[str, ...]] = ()
    """What may stand beside the word of the kind."""
    names: ClassVar[bool] = False
    """Whether its word names a class or a function that is looked up."""
    is_finished: ClassVar[bool] = False
    """Whether what it makes is taken as it is: neither laid out nor moved."""

    @staticmethod
    def makes(entry: Entry, maker: Maker, /) -> Any:
        """Make what an entry describes. Each kind has its own."""
        raise NotImplementedError


OF_TENSORS = ("dtype", "device", "requires_grad", "strides", "memory_format", "on_device", "mark_dynamic")
"""What may stand beside most kinds that make a tensor."""

OF_CALLS = ("args", "kwargs")
"""Keys of an input below which other inputs may stand."""


def options(entry: Entry, maker: Maker) -> dict[str, Any]:
    """Return the keyword arguments with which torch makes a tensor: on the CPU, from the case's seed, unless the entry says otherwise."""
    import torch

    found: dict[str, Any] = {}
    if "dtype" in entry:
        found["dtype"] = getattr(torch, entry["dtype"])
    if entry.get("on_device"):
        found["device"] = entry.get("device", maker.device)
    return found


def finish(tensor: "torch.Tensor", entry: Entry, maker: Maker) -> "torch.Tensor":
    """Lay out, move and mark a fresh tensor."""
    import torch
    from torch._dynamo import mark_dynamic

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
        mark_dynamic(tensor, dimension)
    return tensor


def _moved(tensor: "torch.Tensor", device: str) -> "torch.Tensor":
    import torch

    # Tensor.to may pack strides with holes: the layout is part of the claim
    moved = torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device=device)
    return moved.copy_(tensor)
