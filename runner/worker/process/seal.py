"""The seal: detects that code of a case replaced a part of the runner, or an operation of torch that measures. Such results are discarded.

The seal is taken before code of the spec runs, and checked after each step. It detects replaced functions, classes, class members and
table entries of ``runner``, functions whose code was changed in place, and replaced operations of torch that compare tensors. It does not
detect code that undoes its replacement before the check; SECURITY.md describes this limit.
"""

import inspect
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

_PACKAGE = "runner"

_METHODS = (types.FunctionType, classmethod, staticmethod, property)

_COMPARING = {
    "copy": ("copy", "deepcopy"),
    "torch.utils._pytree": ("keystr", "tree_flatten", "tree_flatten_with_path", "tree_leaves", "tree_map", "tree_map_only"),
    "torch": (
        *(
            "bincount",
            "cat",
            "equal",
            "exp2",
            "frexp",
            "full_like",
            "isinf",
            "isnan",
            "maximum",
            "minimum",
            "nextafter",
            "no_grad",
            "stack",
        ),
        *("tensor", "unravel_index", "view_as_real", "where"),
    ),
    "torch.Tensor": (
        *("__and__", "__eq__", "__float__", "__ge__", "__getitem__", "__gt__", "__int__", "__invert__", "__le__", "__lt__", "__mul__"),
        *("__ne__", "__or__", "__rmul__", "__rsub__", "__sub__", "__xor__", "abs", "all", "any", "argmax", "clone", "cpu", "detach"),
        *("amax", "argsort", "clamp", "kthvalue", "median"),
        *("device", "dtype", "flip", "is_contiguous", "isfinite", "isnan", "item", "long", "max", "min", "narrow", "numel", "reshape"),
        *("shape", "stride", "sum", "to", "tolist", "unsqueeze", "view"),
    ),
}
"""Operations by which tensors are compared."""

Held = tuple[Mapping[Any, Any], Any, Any, str]
"""A namespace, a key, the sealed value, and the path of the namespace."""


class Broken(Exception):
    """Code of the case has replaced a part of the runner."""


class Seal:
    """The members of the runner's modules at the time of construction."""

    def __init__(self, packages: tuple[str, ...] = (_PACKAGE,)) -> None:
        modules = list(_modules(packages))
        self._held = list(_held(modules))
        self._members = [(members, _names(members), path) for members, path in _classes(modules)]
        self._comparing = list(_comparing())
        self._code = [(value, _body(value), path) for _, key, value, path in self._held for path in [f"{path}.{key}"] if _has_body(value)]

    def check(self) -> None:
        """Raise ``Broken`` when a part of the runner was replaced."""
        altered = (path for function, body, path in self._code if _body(function) != body)
        changed = [*self._replaced(), *self._added(), *self._replaced_in_torch(), *altered]
        if changed:
            more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
            raise Broken(f"code of the case replaced {changed[0]}{more}: the measurements of this worker are discarded")

    def _replaced(self) -> Iterator[str]:
        for namespace, key, value, path in self._held:
            if namespace.get(key) is not value:
                yield f"{path}.{key}" if isinstance(key, str) else f"{path}[{key!r}]"

    def _added(self) -> Iterator[str]:
        """Yield new members of classes: a new member may hide an inherited one."""
        for members, known, path in self._members:
            yield from (f"{path}.{name}" for name in sorted(_names(members) - known))

    def _replaced_in_torch(self) -> Iterator[str]:
        for owner, name, value, path in self._comparing:
            if inspect.getattr_static(owner, name, None) is not value:
                yield f"{path}.{name}"


def _comparing() -> Iterator[tuple[Any, str, Any, str]]:
    for path, names in _COMPARING.items():
        owner = getattr(sys.modules.get("torch"), "Tensor", None) if path == "torch.Tensor" else sys.modules.get(path)
        yield from ((owner, name, inspect.getattr_static(owner, name, None), path) for name in names)


Modules = list[tuple[str, types.ModuleType]]


def _modules(packages: tuple[str, ...]) -> Iterator[tuple[str, types.ModuleType]]:
    for name, module in list(sys.modules.items()):
        if any(f"{name}.".startswith(f"{package}.") for package in packages) and type(module) is types.ModuleType:
            yield name, module


def _classes(modules: Modules) -> Iterator[tuple[Mapping[str, Any], str]]:
    for name, module in modules:
        for key, value in list(vars(module).items()):
            if isinstance(value, type) and value.__module__ == name:
                yield vars(value), f"{name}.{key}"


def _names(members: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(name for name, held in list(members.items()) if _is_ours(name, held))


def _held(modules: Modules) -> Iterator[Held]:
    for name, module in modules:
        for key, value in list(vars(module).items()):
            if key.startswith("__"):
                continue
            yield vars(module), key, value, name
            if isinstance(value, dict):
                yield from ((value, entry, held, f"{name}.{key}") for entry, held in list(value.items()) if callable(held))
            if isinstance(value, type) and value.__module__ == name:
                members = list(vars(value).items())
                yield from ((vars(value), member, held, f"{name}.{key}") for member, held in members if _is_ours(member, held))


def _is_ours(member: str, held: Any) -> bool:
    """Whether the source of a class defines a member; Python and the standard library add others."""
    return isinstance(held, _METHODS) or not member.startswith("_")


def _function(value: Any) -> Any:
    return getattr(value, "__func__", getattr(value, "fget", value))


def _has_body(value: Any) -> bool:
    return isinstance(_function(value), types.FunctionType)


def _body(value: Any) -> tuple[Any, ...]:
    function = _function(value)
    return function.__code__, function.__defaults__, function.__kwdefaults__
