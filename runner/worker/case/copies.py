"""Copies of the values of a case. Later steps and code of the case cannot change them."""

import copy
import enum
import functools
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

_PLAIN = (torch.Tensor, torch.nn.Parameter)

_IMMUTABLE = (
    *(type(None), bool, int, float, complex, str, bytes, range, slice, type, enum.Enum),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format, torch.SymInt),
    *(types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType),
)


class Live:
    """Stands for an object that cannot be copied. Its value at the time of naming is unknown later."""

    def __init__(self, kind: type, why: Exception) -> None:
        self.kind = f"{kind.__module__}.{kind.__qualname__}"
        self.why = f"{type(why).__name__}: {why}"[:200]

    def refuse(self, name: str) -> LookupError:
        """Return the error of a comparison with the named value."""
        return LookupError(
            f"'{name}' holds a {self.kind}, which cannot be copied ({self.why}): its value at the time of naming is unknown; "
            "bind the name to plain values or tensors instead"
        )


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return a plain ``torch.Tensor`` that shares the storage of a tensor of a Python subclass.

    A measurement of it does not call ``__torch_function__`` of the subclass. Wrapper subclasses and nested tensors have no storage of their
    own; they are returned unchanged, and so are sparse tensors.
    """
    kind = type(tensor)
    if kind in _PLAIN or is_traceable_wrapper_subclass(tensor):
        return tensor
    with torch._C.DisableTorchFunctionSubclass():
        if tensor.is_nested or tensor.layout is not torch.strided:
            return tensor
        if kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__ and not _has_memory(tensor):
            return tensor
        found: torch.Tensor = torch.Tensor.as_subclass(tensor, torch.Tensor)
        return found


def _has_memory(tensor: torch.Tensor) -> bool:
    try:
        return bool(torch.Tensor.data_ptr(tensor) != 0)
    except RuntimeError:  # a wrapper without a storage
        return False


def measured(value: Any) -> Any:
    """Return a value with ``plain`` applied to every tensor in it."""
    return pytree.tree_map_only(torch.Tensor, plain, value)


def apart(value: Any) -> Any:
    """Return a deep copy; raise ``TypeError`` where it shares a module or a tensor with the original."""
    made = deep(value)
    ours = {id(part): part for part in _parts(value)}
    for part in _parts(made):
        if ours.get(id(part)) is part:
            raise TypeError(f"a copy of a {type(part).__module__}.{type(part).__qualname__} is the object itself: see its __deepcopy__")
    return made


def deep(value: Any) -> Any:
    """Return a deep copy. A tensor that an operation made becomes one without the history before it, but no leaf: it gets no gradient."""
    made: dict[int, Any] = {
        id(leaf): _result_copy(leaf) for leaf in pytree.tree_leaves(value) if type(leaf) is torch.Tensor and not leaf.is_leaf
    }
    found = copy.deepcopy(value, made)
    for original in made.get(id(made), ()):  # where deepcopy keeps what it has copied
        if isinstance(original, torch.nn.Parameter) and isinstance(copied := made.get(id(original)), torch.Tensor):
            grad = tensor_grad(original)  # the copy of a parameter has none
            if grad is not None and tensor_grad(copied) is None:
                copied.grad = made.get(id(grad)) if id(grad) in made else _copy(grad)
    return found


def _result_copy(tensor: torch.Tensor) -> torch.Tensor:
    with torch.enable_grad():
        return _copy(tensor).requires_grad_().clone()


def _parts(value: Any) -> Iterator[Any]:
    for leaf in pytree.tree_leaves(value):
        if isinstance(leaf, torch.nn.Module):
            yield from leaf.modules()
            yield from (*leaf.parameters(), *leaf.buffers())
        elif isinstance(leaf, torch.Tensor):
            yield leaf


def snapshot(value: Any) -> Any:
    """Return a value with every tensor copied. Shape, dtype, strides and gaps between elements are preserved."""
    return pytree.tree_map_only(torch.Tensor, _copy, value)


def frozen(value: Any) -> Any:
    """Return a copy of a value, of its tensors and of every other object in it. An object that cannot be copied becomes a ``Live``.

    An object, not a tensor, that occurs twice in the value is one object in the copy.
    """
    return pytree.tree_map(functools.partial(_frozen, memo={}), value)


def _frozen(leaf: Any, memo: dict[int, Any]) -> Any:
    if isinstance(leaf, torch.Tensor):
        return _copy(leaf)
    if isinstance(leaf, _IMMUTABLE):
        return leaf
    try:
        # deepcopy refuses a tensor with a history
        memo.update({id(one): _copy(one) for one in _tensors_with_history(leaf) if id(one) not in memo})
        return copy.deepcopy(leaf, memo)
    except Exception as error:  # __deepcopy__ and __reduce__ of an object of a spec may raise anything
        return Live(type(leaf), error)


def _tensors_with_history(leaf: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors with a history among the attributes of an object, such as a dataclass."""
    attributes = vars(leaf) if type(getattr(leaf, "__dict__", None)) is dict else {}
    tensors = (one for one in pytree.tree_leaves(list(attributes.values())) if isinstance(one, torch.Tensor))
    return (one for one in tensors if not one.is_leaf)


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    found = plain(tensor).detach()
    made: torch.Tensor = found.clone()
    if _is_strided(found) and made.stride() != found.stride():
        return _with_gaps(found)
    return made


def _is_strided(tensor: torch.Tensor) -> bool:
    return type(tensor) in _PLAIN and tensor.layout is torch.strided and not tensor.is_nested and tensor.numel() > 0


def _with_gaps(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy of a tensor whose elements overlap or have gaps between them: ``clone`` would give it other strides."""
    memory = tensor.as_strided((extent(tensor),), (1,), tensor.storage_offset()).clone()
    return memory.as_strided(tensor.shape, tensor.stride(), 0)


def extent(tensor: torch.Tensor) -> int:
    """Return the length of a strided tensor's memory from its first element to its last, gaps included, in elements."""
    if not tensor.numel():
        return 0
    found: int = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return found


def same_object(one: Any, other: Any) -> bool:
    """Whether two names refer to one mutable object: a comparison of the two cannot fail."""
    return one is other and not isinstance(one, _IMMUTABLE) and one != ()


def tensor_grad(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the gradient of a leaf tensor, without a call of ``__torch_function__`` of a subclass; None where it has none."""
    with torch._C.DisableTorchFunctionSubclass():
        found: torch.Tensor | None = tensor.grad if tensor.is_leaf else None
        return found


def tensor_version(tensor: torch.Tensor) -> int | None:
    """Return the version counter of a tensor; None for an inference tensor and other tensors without one."""
    with torch._C.DisableTorchFunctionSubclass():
        try:
            return int(tensor._version)
        except (RuntimeError, AttributeError):
            return None


def storage_of(tensor: torch.Tensor) -> int | None:
    """Return the address of a tensor's storage; None where it has no memory of its own."""
    if is_traceable_wrapper_subclass(tensor) or tensor.is_nested or tensor.layout is not torch.strided:
        return None
    with torch._C.DisableTorchFunctionSubclass():
        try:
            return int(tensor.untyped_storage().data_ptr()) or None
        except (RuntimeError, NotImplementedError):  # a wrapper without a storage
            return None
