"""The values that a call can change, by path: tensors and plain values of arguments, parameters, buffers, attributes and ``.grad``."""

import enum
import types
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from runner.worker.case.copies import tensor_grad

_DEPTH = 4
"""The maximum depth to which attributes of objects are followed."""

ARGUMENT = "argument"
"""The first word of the path of an argument."""

FUNCTION = "function"
"""The first word of the path of a parameter, a buffer or an attribute of the function's module."""

GRAD = ".grad"
"""The end of the path of a gradient."""

Leaves = dict[str, Any]


class Absent:
    """The value of a path that one side does not have."""

    def __repr__(self) -> str:
        return "absent"


_VALUES = (bool, int, float, complex, str, bytes, bytearray, range, slice, enum.Enum, set, frozenset, Absent)
_TORCH_VALUES = (torch.Tensor, torch.dtype, torch.device, torch.layout, torch.memory_format)
_ITEMS = (Mapping, list, tuple, deque)
"""Containers whose subclasses are leaves for pytree."""

_OF_EVERY_MODULE = frozenset(vars(torch.nn.Module())) - {"training"}
"""Attributes in which torch keeps parameters, buffers, modules and hooks."""

_OF_TORCH = ("_dynamo", "_torchdynamo", "_compiled_call_impl", "_is_torch_compile", "_orig_mod", "_is_fsdp")
"""Prefixes of attributes that torch's compiler sets on modules."""


def changeable(called: Sequence[Any], *, parameters: bool) -> Leaves:
    """Return the values that a call of ``called`` (the target, then its arguments) can change. Each tensor occurs once.

    Without ``parameters`` modules are left out: a package compiled ahead of time has its own.
    """
    target, *arguments = called
    walk = _Walk(parameters)
    for path, leaf in pytree.tree_flatten_with_path(list(arguments))[0]:
        walk.add(f"{ARGUMENT} {pytree.keystr(path)}", leaf, 0)
    owner = getattr(target, "__self__", target)
    if isinstance(owner, torch.nn.Module) or (owner is not target and not isinstance(owner, types.ModuleType | type)):
        walk.add(FUNCTION, owner, 0)
    return walk.found


class _Walk:
    """Collects leaves. ``_seen`` holds the objects themselves, so that no id is used twice."""

    def __init__(self, parameters: bool) -> None:
        self.found: Leaves = {}
        self._parameters = parameters
        self._seen: dict[int, Any] = {}

    def add(self, name: str, leaf: Any, depth: int) -> None:
        """Add the values of a leaf, with attributes of objects down to ``_DEPTH``."""
        if isinstance(leaf, torch.nn.Module):
            self._add_module(name, leaf, depth)
        elif isinstance(leaf, torch.Tensor):
            self._add_tensor(name, leaf)
        elif leaf is None or isinstance(leaf, _VALUES + _TORCH_VALUES):
            self.found[name] = leaf
        elif type(leaf).__module__ == "numpy" and hasattr(leaf, "__array__"):
            self.found[name] = leaf.tolist()
        elif self._is_new(leaf) and depth < _DEPTH:
            for part, value in _parts(leaf):
                self._add_below(f"{name}{part}", value, depth + 1)

    def _add_below(self, name: str, value: Any, depth: int) -> None:
        for path, part in pytree.tree_flatten_with_path(value)[0]:
            self.add(f"{name}{pytree.keystr(path)}", part, depth)

    def _is_new(self, leaf: Any) -> bool:
        known = id(leaf) in self._seen
        self._seen[id(leaf)] = leaf
        return not known

    def _add_tensor(self, name: str, tensor: torch.Tensor) -> None:
        if tensor.is_nested:
            # compared by component: a nested tensor has no regular shape
            self.found.update({f"{name}[{index}]": part for index, part in enumerate(tensor.unbind())})
        elif self._is_new(tensor):
            self.found[name] = tensor
            if (grad := tensor_grad(tensor)) is not None:
                self.found[f"{name}{GRAD}"] = grad

    def _add_module(self, name: str, module: torch.nn.Module, depth: int) -> None:
        if not self._parameters:
            return
        for path, tensor in [*module.named_parameters(), *module.named_buffers()]:
            self._add_tensor(f"{name}.{path}", tensor)
        for path, part in module.named_modules():
            if self._is_new(part) and depth < _DEPTH:
                prefix = f"{name}.{path}" if path else name
                for attribute, value in vars(part).items():
                    if attribute not in _OF_EVERY_MODULE and not attribute.startswith(_OF_TORCH):
                        self._add_below(f"{prefix}.{attribute}", value, depth + 1)


def _parts(leaf: Any) -> Iterator[tuple[str, Any]]:
    """Yield the items and the attributes of an object of a class that pytree does not know."""
    if callable(leaf) and isinstance(leaf, type | types.FunctionType | types.BuiltinFunctionType | types.MethodType | types.ModuleType):
        return
    if isinstance(leaf, _ITEMS):
        items = leaf.items() if isinstance(leaf, Mapping) else enumerate(leaf)
        yield from ((f"[{key!r}]", value) for key, value in items)
    if type(getattr(leaf, "__dict__", None)) is dict:
        yield from ((f".{name}", value) for name, value in vars(leaf).items())
    for kind in type(leaf).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(leaf, name) and name not in ("__dict__", "__weakref__"):
                yield f".{name}", getattr(leaf, name)
