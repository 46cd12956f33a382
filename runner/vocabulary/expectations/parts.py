"""The parts of values that are no tensors and no containers of pytree, in the worker: objects, closures, iterators, subclasses of dict."""

import contextlib
import copy
import enum
import sys
import types
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

_ATOMS = (*(type(None), bool, int, float, complex, str, bytes, bytearray, range, slice, set, frozenset, type), enum.Enum, types.ModuleType)

_BASES: tuple[Any, ...] = (int, float, complex, str, bytes)
"""Atoms; one of a subclass may have attributes."""

_ITEMS = (Mapping, list, tuple, deque)

_ITERATORS: tuple[type, ...] = (type(iter([])), type(iter(())), type(iter(range(0))), type(reversed([])))
"""Those whose copy can be consumed without a trace in the original."""

_DEEPEST = 50

_EQUAL_BY_VALUE = {*sys.stdlib_module_names, "sympy", "torch"} - {"types", "collections"}
"""Packages whose objects may hold caches in their slots; their ``__eq__`` compares what counts."""


def attributes_of(value: Any) -> dict[str, Any]:
    """Return the attributes that an object itself holds, in ``__dict__`` and in slots; ``__getattr__`` of its class is not called."""
    attributes: dict[str, Any] = {}
    with contextlib.suppress(AttributeError, TypeError):
        attributes.update(object.__getattribute__(value, "__dict__"))
    for kind in type(value).__mro__:
        for name, member in kind.__dict__.items():
            if isinstance(member, types.MemberDescriptorType) and kind.__module__ != "builtins":
                with contextlib.suppress(AttributeError):
                    attributes[name] = object.__getattribute__(value, name)
    return attributes


def items_of(value: Any) -> list[tuple[Any, Any]]:
    """Return keys and values of a map, indices and values of a list or tuple, of any subclass of these; nothing for other values."""
    if not isinstance(value, _ITEMS):
        return []
    return list(value.items() if isinstance(value, Mapping) else enumerate(value))


def is_keyless(value: Any) -> bool:
    """Whether pytree knows the class of a value, but no keys of its parts, or does not make it again: ``torch.Size`` becomes a tuple."""
    import torch
    from torch.utils import _pytree as pytree

    node = pytree.SUPPORTED_NODES.get(type(value))
    return node is not None and (node.flatten_with_keys_fn is None or isinstance(value, torch.Size))


def parts_of(value: Any) -> dict[Any, Any] | None:
    """Return the parts of an object by their names; None for a value without parts, which only its ``__eq__`` compares."""
    import torch
    from torch.utils import _pytree as pytree

    kind = type(value)
    if isinstance(value, _BASES) and kind not in _BASES and not isinstance(value, enum.Enum) and (attributes := attributes_of(value)):
        return {"value": next(base(value) for base in _BASES if isinstance(value, base)), **dict(sorted(attributes.items()))}
    if isinstance(value, (*_ATOMS, torch.Tensor)) or kind.__module__ == "numpy":
        return None
    if is_keyless(value):
        parts, context = pytree.SUPPORTED_NODES[kind].flatten_fn(value)
        return {**dict(enumerate(parts)), **({} if context is None else {"context": context})}
    if isinstance(value, types.FunctionType):
        is_local = "<locals>" in value.__qualname__ or "<lambda>" in value.__qualname__
        return _of_function(value) if is_local else None
    if isinstance(value, types.MethodType):
        return {"function": value.__func__, "object": value.__self__}
    if isinstance(value, _ITERATORS):
        rest: Any = copy.copy(value)
        return dict(enumerate(rest))
    if isinstance(value, (zip, map, filter, enumerate)):
        made_of: Any = value.__reduce__()[1]
        return dict(enumerate(made_of))
    if isinstance(value, torch.Generator):
        return {"device": value.device, "state": value.get_state()}
    if isinstance(value, torch.optim.Optimizer):  # a copy has other attributes beside it
        return dict(value.state_dict())
    if isinstance(value, torch.nn.Module):
        return {**dict(value.named_parameters()), **dict(value.named_buffers()), "training": value.training}
    has_own_equality = has_equality(value)
    attributes = (
        {} if has_own_equality and kind.__module__.partition(".")[0] in _EQUAL_BY_VALUE else dict(sorted(attributes_of(value).items()))
    )
    if isinstance(value, BaseException):
        attributes["args"] = value.args
    items = items_of(value)
    if not (items or attributes or isinstance(value, _ITEMS)):
        return {} if not has_own_equality and kind.__dictoffset__ else None
    known = {id(item) for _, item in items}
    named = {name: part for name, part in attributes.items() if id(part) not in known}
    return {**dict(items), **{(f".{name}" if name in dict(items) else name): part for name, part in named.items()}}


def has_equality(value: Any) -> bool:
    """Whether the class of a value defines when two of them are equal."""
    return any("__eq__" in kind.__dict__ for kind in type(value).__mro__[:-1])


def _of_function(value: types.FunctionType) -> dict[str, Any]:
    closure = {}
    for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # a cell that is not filled yet
            closure[name] = cell.cell_contents
    return {"code": value.__code__, "closure": closure, "defaults": value.__defaults__, "keyword defaults": value.__kwdefaults__}


def opened(value: Any, tensor: Callable[[Any, str], Any], notes: list[str], where: str = "", above: tuple[Any, ...] = ()) -> Any:
    """Return a value with each object as a map of its parts, and ``tensor`` applied to tensors and to arrays of numpy, and their paths.

    ``notes`` receives what the result does not show: the classes of the objects. An object within itself becomes a text.
    """
    from torch.utils import _pytree as pytree

    leaves, form = pytree.tree_flatten_with_path(value, is_leaf=is_keyless)
    return pytree.tree_unflatten([_opened(leaf, tensor, notes, where + pytree.keystr(path), above) for path, leaf in leaves], form)


def _opened(leaf: Any, tensor: Callable[[Any, str], Any], notes: list[str], where: str, above: tuple[Any, ...]) -> Any:
    import torch

    if isinstance(leaf, torch.Tensor) or type(leaf).__module__ == "numpy":
        return tensor(leaf, where)
    for level, other in enumerate(above):
        if other is leaf:
            return f"the object {level} levels above"
    parts = parts_of(leaf) if len(above) < _DEEPEST else None
    if parts is None:
        return leaf
    kind = "iterator" if isinstance(leaf, _ITERATORS) else type(leaf).__qualname__  # Dynamo returns one over a tuple for one over a list
    notes.append(f"{where or 'the value'} of class {kind}")
    return opened(parts, tensor, notes, where, (*above, leaf))
