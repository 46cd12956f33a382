"""Which floating-point format the values of a tensor were rounded to on their way, in a run of eager: the narrowest one."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from runner.vocabulary.expectations.calibrated import FORMATS

_COPIES = (torch.ops.aten.clone, torch.ops.aten._to_copy, torch.ops.aten.copy_)
"""Operators that round only where they change the dtype."""

_NARROW = ("bfloat16", "float16")
"""The formats that are recorded. The float64 reference rounds to float8 too: that is a part of the function."""

_WRITTEN = ("running_mean", "running_var")
"""Arguments that batch norms change although some schemas do not say so."""


class Roundings(TorchDispatchMode):  # type: ignore[misc]  # mypy does not follow torch: this base class has the type Any
    """Records for each storage the narrowest format below float32 that operators rounded its values to, or what they were computed from.

    Inputs are not rounded by the call. Values that follow from indices, masks or shapes alone are not rounded either.
    """

    def __init__(self) -> None:
        super().__init__()
        # a weak reference keeps the address of a storage that was freed from being used again
        self._narrowest: dict[int, tuple[StorageWeakRef, str]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the operator, then record what it rounded."""
        kwargs = kwargs or {}
        given = _tensors((args, kwargs))
        found = func(*args, **kwargs)
        if isinstance(func, torch._ops.OpOverload):
            known = {storage.cdata for one in given if (storage := _storage(one)) is not None}
            own = [one for one in _tensors(found) if (storage := _storage(one)) is not None and storage.cdata not in known]
            before = "" if _takes_shapes_alone(func) else min_of(*(self.narrowest(one) for one in given))
            for tensor in (*own, *_written(func, args, kwargs)):
                self._note(tensor, min_of(before, _rounded_to(func, tensor, given)))
        return found

    def narrowest(self, tensor: Any) -> str:
        """Return the narrowest format that values of a tensor were rounded to; empty where no operator rounded them."""
        storage = _storage(tensor)
        return self._narrowest[storage.cdata][1] if storage is not None and storage.cdata in self._narrowest else ""

    def _note(self, tensor: torch.Tensor, name: str) -> None:
        storage = _storage(tensor)
        if name and storage is not None:
            self._narrowest[storage.cdata] = storage, min_of(name, self.narrowest(tensor))


def min_of(*names: str) -> str:
    """Return the format with the fewest bits; an empty name is none."""
    return min((name for name in names if name), key=lambda name: FORMATS[name].bits, default="")


def _tensors(value: Any) -> list[torch.Tensor]:
    leaves = pytree.tree_leaves(value)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]


def _storage(tensor: Any) -> StorageWeakRef | None:
    try:
        return StorageWeakRef(tensor.untyped_storage())
    except (AttributeError, RuntimeError, NotImplementedError):  # no tensor, or one without a storage of its own
        return None


def _takes_shapes_alone(func: Any) -> bool:
    name = func._schema.name.rpartition("::")[2]
    return bool(name.endswith("_like") or name.startswith("new_"))


def _written(func: Any, args: Any, kwargs: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors that an operator changes."""
    for index, argument in enumerate(func._schema.arguments):
        is_written = (argument.alias_info is not None and argument.alias_info.is_write) or argument.name in _WRITTEN
        if is_written:
            yield from _tensors(args[index] if index < len(args) else kwargs.get(argument.name))


def _rounded_to(func: Any, tensor: torch.Tensor, given: list[torch.Tensor]) -> str:
    """Return the format of a tensor that an operator computed; empty for another one, and for a copy in the dtype of the original."""
    name, bits = _name(tensor), {FORMATS[_name(one)].bits for one in given if _name(one) in FORMATS}
    is_copy = func._overloadpacket in _COPIES and name in _NARROW and all(FORMATS[name].bits >= others for others in bits)
    return "" if is_copy or name not in _NARROW else name


def _name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
