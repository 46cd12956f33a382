"""The base class of the kinds of inputs: their keys, and the function that makes them in the worker."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from runner.core.protocol import Json

if TYPE_CHECKING:
    import torch

Entry = Mapping[str, Json]
"""A map of a spec that describes an input."""


class Scope(Protocol):
    """Looks up the names of a case."""

    def find(self, path: str) -> Any:
        """Return the object of a name of the prelude or a dotted path."""
        ...

    def named(self, name: str) -> Any:
        """Return a named value of the case, or a name of the prelude."""
        ...

    def callable(self, entry: Any) -> Any:
        """Return a callable, by a path or by ``{ref: NAME}``."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Maker:
    """The context of a case for making inputs."""

    device: str
    scope: Scope
    closing: contextlib.ExitStack
    """Callbacks for the end of the case."""
    value: Callable[[Json, "Maker"], Any]
    """``making.value``: makes a value that may hold inputs, as the arguments of a call do."""


class InputKind:
    """A kind of input. ``makes`` is a function of the same module: it runs in the worker and imports torch locally."""

    kind: ClassVar[str]
    keys: ClassVar[tuple[str, ...]] = ()
    """The keys that are allowed beside the word of the kind."""
    names: ClassVar[bool] = False
    """Whether the value of its word is the name of a class or a function."""
    is_finished: ClassVar[bool] = False
    """Whether the made value is final: strides and device are not changed."""

    @staticmethod
    def makes(entry: Entry, maker: Maker, /) -> Any:
        """Make the value that an entry describes. Each kind overrides it."""
        raise NotImplementedError


OF_TENSORS = ("dtype", "device", "requires_grad", "strides", "memory_format", "on_device", "mark_dynamic")
"""The keys of most kinds that make a tensor."""

OF_CALLS = ("args", "kwargs")
"""The keys of an input that may contain other inputs."""


def options(entry: Entry, maker: Maker) -> dict[str, Any]:
    """Return torch's keyword arguments for making a tensor: on the CPU, unless the entry has ``on_device``."""
    import torch

    found: dict[str, Any] = {}
    if "dtype" in entry:
        found["dtype"] = getattr(torch, entry["dtype"])
    if entry.get("on_device"):
        found["device"] = entry.get("device", maker.device)
    return found


def finish(tensor: "torch.Tensor", entry: Entry, maker: Maker) -> "torch.Tensor":
    """Set strides, device, memory format, ``requires_grad`` and dynamic dimensions of a new tensor."""
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
