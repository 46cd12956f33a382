"""The values that a call can change, by path: tensors and plain values of arguments, parameters, buffers, attributes and ``.grad``."""

import contextlib
import enum
import hashlib
import random
import types
import warnings
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
_WORDS = (torch.dtype, torch.device, torch.layout, torch.memory_format)
_TORCH_VALUES = (torch.Tensor, *_WORDS)
_LEAF = "*"
"""The form of what is no container."""
_NAMED = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType)
"""Callables of which the name alone is compared."""

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
    for index, argument in enumerate(arguments):
        walk.add_below(f"{ARGUMENT} [{index}]", argument, 0)
    owner = getattr(target, "__self__", target)
    if isinstance(owner, torch.nn.Module) or (owner is not target and not isinstance(owner, types.ModuleType | type)):
        walk.add(FUNCTION, owner, 0)
    return walk.found


class Form(str):
    """What a container is: its type, its length or its keys in their order, and the containers within; or the name of a function."""

    __slots__ = ()


class _Walk:
    """Collects leaves. ``_seen`` holds the objects themselves, so that no id is used twice."""

    def __init__(self, parameters: bool) -> None:
        self.found: Leaves = {}
        self._parameters = parameters
        self._seen: dict[int, Any] = {}
        self._keys: dict[int, tuple[int, Any]] = {}

    def add(self, name: str, leaf: Any, depth: int) -> None:
        """Add the values of a leaf, with attributes of objects down to ``_DEPTH``."""
        if isinstance(leaf, torch.nn.Module):
            self._add_module(name, leaf, depth)
        elif isinstance(leaf, torch.Tensor):
            self._add_tensor(name, leaf)
        elif leaf is None or isinstance(leaf, _VALUES + _TORCH_VALUES):
            self.found[name] = leaf
        elif type(leaf).__module__ == "numpy" and hasattr(leaf, "__array__"):
            self.found[name] = _of_numpy(leaf)
        elif isinstance(leaf, random.Random | torch.Generator):
            state = leaf.getstate() if isinstance(leaf, random.Random) else leaf.get_state().tolist()
            self.found[name] = Form(f"a generator in the state {hashlib.sha256(repr(state).encode()).hexdigest()[:12]}")
        elif isinstance(leaf, types.ModuleType):
            self.found[name] = Form(leaf.__name__)
        elif isinstance(leaf, _NAMED):
            self.found[name] = Form(f"{leaf.__module__}.{leaf.__qualname__}")
        elif self._is_new(leaf) and depth < _DEPTH:
            for part, value in self._parts(leaf):
                self.add_below(f"{name}{part}", value, depth + 1)

    def add_below(self, name: str, value: Any, depth: int) -> None:
        """Add the form of a container, and the values of its parts."""
        parts, form = pytree.tree_flatten_with_path(value)
        if not form.is_leaf():
            self.found[f"{name} as a container"] = Form(self._form(value))
        for path, part in parts:
            self.add(f"{name}{''.join(map(self._step, path))}", part, depth)

    def _step(self, key: Any) -> str:
        return f"[{self._key(key.key)}]" if isinstance(key, pytree.MappingKey) else str(key)

    def _key(self, key: Any) -> str:
        """Return a key of a map as text. A tensor or an object is named by the order of its first use: it has no lasting text."""
        if key is None or isinstance(key, (*_VALUES, *_WORDS)):
            return repr(key)
        if isinstance(key, tuple):
            return f"({', '.join(map(self._key, key))})"
        number, _ = self._keys.setdefault(id(key), (len(self._keys), key))
        return f"{type(key).__name__} #{number}"

    def _form(self, value: Any) -> str:
        kind = type(value).__name__
        if isinstance(value, Mapping):
            return f"{kind}({', '.join(f'{self._key(key)}: {self._form(part)}' for key, part in value.items())})"
        if isinstance(value, list | tuple | deque):
            inner = [form for form in map(self._form, value) if form != _LEAF]
            return f"{kind} of {len(value)}" + (f" with {', '.join(inner)}" if inner else "")
        return _LEAF if pytree.tree_is_leaf(value) else kind

    def _parts(self, leaf: Any) -> Iterator[tuple[str, Any]]:
        """Yield the items and the attributes of an object of a class that pytree does not know."""
        if isinstance(leaf, _ITEMS):
            items = leaf.items() if isinstance(leaf, Mapping) else enumerate(leaf)
            yield from ((f"[{self._key(key)}]", value) for key, value in items)
        yield from _attributes(leaf)

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
                        self.add_below(f"{prefix}.{attribute}", value, depth + 1)


def _of_numpy(value: Any) -> Any:
    """Return a numeric array as a tensor that shares its memory where torch can; any other value of numpy as lists and plain values."""
    if value.shape and value.dtype.kind in "biufc":
        with warnings.catch_warnings(), contextlib.suppress(TypeError, ValueError):
            warnings.simplefilter("ignore")  # an array that cannot be written
            return torch.as_tensor(value if all(stride >= 0 for stride in value.strides) else value.copy())
    return value.tolist()


def _attributes(leaf: Any) -> Iterator[tuple[str, Any]]:
    if type(getattr(leaf, "__dict__", None)) is dict:
        yield from ((f".{name}", value) for name, value in vars(leaf).items())
    for kind in type(leaf).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(leaf, name) and name not in ("__dict__", "__weakref__"):
                yield f".{name}", getattr(leaf, name)
