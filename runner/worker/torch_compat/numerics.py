"""Modes that see each operator: the formats that values were rounded to, and a function in float64."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
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
        operands = _tensors((args, kwargs))
        result = func(*args, **kwargs)
        if isinstance(func, torch._ops.OpOverload):
            known = {storage.cdata for operand in operands if (storage := _storage(operand)) is not None}
            written = [tensor for tensor in _tensors(result) if (storage := _storage(tensor)) is not None and storage.cdata not in known]
            for index, argument in enumerate(func._schema.arguments):
                if (argument.alias_info is not None and argument.alias_info.is_write) or argument.name in _WRITTEN:
                    written += _tensors(args[index] if index < len(args) else kwargs.get(argument.name))
            operator = func._schema.name.rpartition("::")[2]
            takes_shapes_alone = operator.endswith("_like") or operator.startswith("new_")
            before = "" if takes_shapes_alone else min_of(*map(self.narrowest, operands))
            bits = [FORMATS[name].bits for operand in operands if (name := _name(operand)) in FORMATS]
            for tensor in written:
                name, storage = _name(tensor), _storage(tensor)
                if name not in _NARROW or (func._overloadpacket in _COPIES and all(FORMATS[name].bits >= others for others in bits)):
                    name = ""  # not rounded: a wider format, or a copy in the dtype of the original
                name = min_of(before, name)
                if name and storage is not None:
                    self._narrowest[storage.cdata] = storage, min_of(name, self.narrowest(tensor))
        return result

    def narrowest(self, tensor: Any) -> str:
        """Return the narrowest format that values of a tensor were rounded to; empty where no operator rounded them."""
        storage = _storage(tensor)
        return self._narrowest[storage.cdata][1] if storage is not None and storage.cdata in self._narrowest else ""


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


def _name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


_REAL = (torch.float32, torch.float16, torch.bfloat16)
_COMPLEX = (torch.complex64, torch.complex32)


class Widened(TorchDispatchMode):  # type: ignore[misc]  # mypy does not follow torch: this base class has the type Any
    """Replaces narrower floating-point dtypes in arguments of operators by float64, and float32 operands beside float64 ones."""

    def __init__(self) -> None:
        super().__init__()
        self.problem = ""
        """Why the result is no float64 reference; empty if it is one."""

    def __enter__(self) -> "Widened":
        """Set the default dtype too."""
        self._default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        """Restore the default dtype."""
        super().__exit__(*error)
        torch.set_default_dtype(self._default)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the operator with wider arguments."""
        kwargs = kwargs or {}
        if func is torch.ops.aten.view.dtype:
            self.problem = "the function reinterprets the bits of a tensor"
        elif not func._schema.is_mutable:
            args, kwargs = pytree.tree_map_only(torch.dtype, _wider, (args, kwargs))
            tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
            is_view = any(argument.alias_info is not None for argument in func._schema.arguments)
            if not is_view and len(tensors) > 1 and any(tensor.dtype in (torch.float64, torch.complex128) for tensor in tensors):
                args, kwargs = pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to(_wider(tensor.dtype)), (args, kwargs))
        return func(*args, **kwargs)


class Reported(TorchFunctionMode):  # type: ignore[misc]  # mypy does not follow torch: this base class has the type Any
    """Lets the spec's Python read a narrower dtype from the tensors of a run in float64, as it does in the case."""

    def __init__(self, narrow: torch.dtype) -> None:
        super().__init__()
        self._reported = {torch.float64: narrow, torch.complex128: torch.complex32 if narrow is torch.float16 else torch.complex64}
        self.was_read = False
        """Whether the function read a dtype at all."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Replace the result of ``tensor.dtype``."""
        result = func(*args, **(kwargs or {}))
        if func == torch.Tensor.dtype.__get__:
            self.was_read = True
            return self._reported.get(result, result)
        return result


def narrow_dtypes(tensors: Iterable[torch.Tensor]) -> list[torch.dtype]:
    """Return the dtypes that a function of these tensors may read in the case, and not in float64."""
    real = {torch.complex64: torch.float32, torch.complex32: torch.float16}
    found = dict.fromkeys(real.get(one.dtype, one.dtype) for one in tensors)
    return [dtype for dtype in found if dtype in _REAL] or [torch.float32]


def is_same_function(result: Any, other: Any, narrow: torch.dtype) -> bool:
    """Whether two results of float64 differ by no more than rounded constants of a narrower dtype explain."""
    rtol = 8 * torch.finfo(narrow).eps
    first, second = (pytree.tree_flatten(value) for value in (result, other))
    if first[1] != second[1]:
        return False
    for ours, theirs in zip(first[0], second[0], strict=True):
        if not isinstance(ours, torch.Tensor) or not isinstance(theirs, torch.Tensor):
            continue
        if ours.layout is not torch.strided or ours.is_nested or not (ours.is_floating_point() or ours.is_complex()):
            continue  # it has no float64 reference
        if ours.shape != theirs.shape:
            return False
        finite = ours[ours.isfinite()].abs()
        atol = rtol * float(finite.max()) if finite.numel() else 0.0
        if not torch.allclose(ours, theirs.to(ours.dtype), rtol=rtol, atol=atol, equal_nan=True):
            return False
    return True


def _wider(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype in _REAL else torch.complex128 if dtype in _COMPLEX else dtype


def widened(called: Sequence[Any]) -> list[Any]:
    """Return a target and its arguments in float64; one tensor remains one tensor. Modules are changed in place: pass copies."""
    return _changed(called, lambda tensor: tensor.detach().to(_wider(tensor.dtype)).requires_grad_(tensor.requires_grad))


def narrowed(called: Sequence[Any]) -> list[Any]:
    """Return a target and its arguments with float64 in float32, as ``widened`` does."""
    narrower = {torch.float64: torch.float32, torch.complex128: torch.complex64}
    return _changed(called, lambda leaf: leaf.detach().to(narrower.get(leaf.dtype, leaf.dtype)).requires_grad_(leaf.requires_grad))


def changed_values(called: Sequence[Any], change: Any) -> list[Any]:
    """Return a target and its arguments with each floating-point tensor changed by a function of it, as ``widened`` does."""
    return _changed(called, lambda one: change(one).requires_grad_(one.requires_grad) if one.is_floating_point() and one.numel() else one)


def _changed(called: Sequence[Any], change: Any) -> list[Any]:
    known: dict[int, Any] = {}

    def of(leaf: Any) -> Any:
        if isinstance(leaf, torch.nn.Module):
            with torch.no_grad():
                for module in leaf.modules():
                    for parameter in module.parameters(recurse=False):
                        parameter.data = of(parameter).detach()
                    for name, buffer in list(module.named_buffers(recurse=False)):
                        module._buffers[name] = of(buffer)
            return leaf
        if not isinstance(leaf, torch.Tensor) or not (leaf.is_floating_point() or leaf.is_complex()):
            return leaf
        if type(leaf) not in (torch.Tensor, torch.nn.Parameter) or leaf.layout is not torch.strided or leaf.is_nested:
            raise TypeError(f"an input is a tensor of another kind: {type(leaf).__name__}, {leaf.layout}")
        if id(leaf) not in known:
            known[id(leaf)] = leaf, _in_memory_of(leaf, change)
        return known[id(leaf)][1]

    return [pytree.tree_map(of, leaf) for leaf in called]


def _in_memory_of(tensor: torch.Tensor, change: Any) -> torch.Tensor:
    """Return a changed tensor with the strides of the original; elements that share memory, or lie in gaps, are changed in their place."""
    changed: torch.Tensor = change(tensor)
    if changed.stride() == tensor.stride() or not tensor.numel():
        return changed
    extent = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    memory = tensor.detach().as_strided((extent,), (1,), tensor.storage_offset())
    return change(memory).detach().as_strided(tensor.shape, tensor.stride()).requires_grad_(tensor.requires_grad)
