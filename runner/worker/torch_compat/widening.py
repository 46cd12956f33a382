"""Runs a function of the case in float64, also where it names narrower dtypes itself."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

_REAL = (torch.float32, torch.float16, torch.bfloat16)
_COMPLEX = (torch.complex64, torch.complex32)


class Widened(TorchDispatchMode):  # type: ignore[misc]  # torch is not typed here
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
        elif not _is_in_place(func):
            args, kwargs = pytree.tree_map_only(torch.dtype, _wider, (args, kwargs))
            if not _is_view(func) and _has_wide(args, kwargs):
                args, kwargs = pytree.tree_map_only(torch.Tensor, _widened, (args, kwargs))
        return func(*args, **kwargs)


def _wider(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype in _REAL else torch.complex128 if dtype in _COMPLEX else dtype


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(_wider(tensor.dtype))


def _is_in_place(func: Any) -> bool:
    return bool(func._schema.is_mutable)


def _is_view(func: Any) -> bool:
    return any(argument.alias_info is not None for argument in func._schema.arguments)


def _has_wide(*arguments: Any) -> bool:
    tensors = [leaf for leaf in pytree.tree_leaves(arguments) if isinstance(leaf, torch.Tensor)]
    return len(tensors) > 1 and any(tensor.dtype in (torch.float64, torch.complex128) for tensor in tensors)


def widened(called: Sequence[Any]) -> list[Any]:
    """Return a target and its arguments in float64; one tensor remains one tensor. Modules are changed in place: pass copies."""
    return _changed(called, _widened_leaf)


def _widened_leaf(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to(_wider(tensor.dtype)).requires_grad_(tensor.requires_grad)


def narrowed(called: Sequence[Any]) -> list[Any]:
    """Return a target and its arguments with float64 in float32, as ``widened`` does."""
    narrower = {torch.float64: torch.float32, torch.complex128: torch.complex64}
    return _changed(called, lambda one: one.detach().to(narrower.get(one.dtype, one.dtype)).requires_grad_(one.requires_grad))


def changed_values(called: Sequence[Any], change: Any) -> list[Any]:
    """Return a target and its arguments with each floating-point tensor changed by a function of it, as ``widened`` does."""
    return _changed(called, lambda one: change(one).requires_grad_(one.requires_grad) if one.is_floating_point() and one.numel() else one)


def _changed(called: Sequence[Any], change: Any) -> list[Any]:
    known: dict[int, Any] = {}

    def of(leaf: Any) -> Any:
        if isinstance(leaf, torch.nn.Module):
            for module in leaf.modules():
                _change_module(module, of)
            return leaf
        if not isinstance(leaf, torch.Tensor) or not (leaf.is_floating_point() or leaf.is_complex()):
            return leaf
        if type(leaf) not in (torch.Tensor, torch.nn.Parameter) or leaf.layout is not torch.strided or leaf.is_nested:
            raise TypeError(f"an input is a tensor of another kind: {type(leaf).__name__}, {leaf.layout}")
        if id(leaf) not in known:
            known[id(leaf)] = leaf, change(leaf)
        return known[id(leaf)][1]

    return [pytree.tree_map(of, leaf) for leaf in called]


def _change_module(module: torch.nn.Module, of: Any) -> None:
    with torch.no_grad():
        for parameter in module.parameters(recurse=False):
            parameter.data = of(parameter).detach()
        for name, buffer in list(module.named_buffers(recurse=False)):
            module._buffers[name] = of(buffer)
