"""The seal: detects that code of a case replaced a part of the runner, or an operation of torch that measures. Such results are discarded.

The seal is taken before code of the spec runs, and checked after each step. It detects replaced functions, classes, class members and
table entries of ``runner``, functions whose code was changed in place, and replaced operations of torch that compare tensors. It does not
detect code that undoes its replacement before the check; SECURITY.md describes this limit.
"""

import operator
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
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


class Broken(Exception):
    """Code of the case has replaced a part of the runner."""


class _Namespace:
    """A module, a class or a table as it was sealed. That nothing in it changed is seen without a step of Python for each member."""

    __slots__ = ("_keys", "_values", "holds", "is_class", "members", "path")

    def __init__(self, members: Mapping[Any, Any], path: str, holds: "_Holds", *, is_class: bool = False) -> None:
        self.members = members
        self.path = path
        self.holds = holds
        self.is_class = is_class
        self._keys, self._values = tuple(members), tuple(members.values())

    def is_unchanged(self) -> bool:
        """Whether it has the members that it had, in their order."""
        return tuple(self.members) == self._keys and all(map(operator.is_, self.members.values(), self._values))

    def sealed(self) -> Iterator[tuple[Any, Any]]:
        """Yield the members that are sealed, as they were."""
        holds = self.holds
        return ((key, value) for key, value in self.members_then() if holds(key, value))

    def members_then(self) -> Iterator[tuple[Any, Any]]:
        """Yield all members as they were."""
        return zip(self._keys, self._values, strict=True)


class Seal:
    """The members of the runner's modules at the time of construction."""

    def __init__(self, packages: tuple[str, ...] = (_PACKAGE,)) -> None:
        self._namespaces = list(_namespaces(_modules(packages)))
        self._comparing = list(_comparing())
        self._code = [(*_body(function), function, path) for function, path in _functions(self._namespaces)]

    def check(self) -> None:
        """Raise ``Broken`` when a part of the runner was replaced."""
        differing = [space for space in self._namespaces if not space.is_unchanged()]
        changed = [*_replaced(differing), *_added(differing), *self._replaced_in_torch(), *self._altered()]
        if changed:
            more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
            raise Broken(f"code of the case replaced {changed[0]}{more}: the measurements of this worker are discarded")

    def _altered(self) -> Iterator[str]:
        for code, defaults, of_keywords, function, path in self._code:
            if function.__code__ is code and function.__defaults__ is defaults and function.__kwdefaults__ is of_keywords:
                continue
            if _body(function) != (code, defaults, of_keywords):
                yield path

    def _replaced_in_torch(self) -> Iterator[str]:
        for members, name, value, path in self._comparing:
            if members.get(name) is not value:
                yield f"{path}.{name}"


def _replaced(differing: Iterable[_Namespace]) -> Iterator[str]:
    for space in differing:
        for key, value in space.sealed():
            if space.members.get(key) is not value:
                yield f"{space.path}.{key}" if isinstance(key, str) else f"{space.path}[{key!r}]"


def _added(differing: Iterable[_Namespace]) -> Iterator[str]:
    """Yield new members of classes: a new member may hide an inherited one."""
    for space in differing:
        if space.is_class:
            known = {name for name, _ in space.sealed()}
            now = {name for name, held in list(space.members.items()) if _is_ours(name, held)}
            yield from (f"{space.path}.{name}" for name in sorted(now - known))


def _comparing() -> Iterator[tuple[Mapping[str, Any], str, Any, str]]:
    """Yield where each operation is looked up: a module, or every class that a method may come from, with what stands there."""
    for path, names in _COMPARING.items():
        owner = getattr(sys.modules.get("torch"), "Tensor", None) if path == "torch.Tensor" else sys.modules.get(path)
        places = [] if owner is None else [vars(one) for one in (owner.__mro__ if isinstance(owner, type) else [owner])]
        yield from ((members, name, members.get(name), path) for members in places for name in names)


def _modules(packages: tuple[str, ...]) -> Iterator[tuple[str, types.ModuleType]]:
    below = tuple(f"{package}." for package in packages)
    for name, module in list(sys.modules.items()):
        if f"{name}.".startswith(below) and type(module) is types.ModuleType:
            yield name, module


def _namespaces(modules: Iterable[tuple[str, types.ModuleType]]) -> Iterator[_Namespace]:
    """Yield the modules, the tables in them, and the classes that they define."""
    for name, module in modules:
        yield _Namespace(vars(module), name, _is_of_module)
        for key, value in list(vars(module).items()):
            if key.startswith("__"):
                continue
            if isinstance(value, dict):
                yield _Namespace(value, f"{name}.{key}", _is_entry)
            if isinstance(value, type) and value.__module__ == name:
                yield _Namespace(vars(value), f"{name}.{key}", _is_ours, is_class=True)


_Holds = Callable[[Any, Any], bool]
"""Whether a member of a namespace is sealed, by its key and value."""


def _is_of_module(key: Any, value: Any) -> bool:
    return not key.startswith("__")


def _is_entry(key: Any, value: Any) -> bool:
    return callable(value)


def _is_ours(key: Any, value: Any) -> bool:
    """Whether the source of a class defines a member; Python and the standard library add others."""
    return isinstance(value, _METHODS) or not key.startswith("_")


_WITHOUT_BODY = frozenset(
    [type(None), bool, dict, float, frozenset, int, list, set, str, tuple, type, types.ModuleType, types.GenericAlias]
)
"""Types of most members that are no functions; every other member is asked for one."""


def _functions(namespaces: Iterable[_Namespace]) -> Iterator[tuple[types.FunctionType, str]]:
    for space in namespaces:
        for key, value in space.members_then():
            kind = type(value)
            if kind in _WITHOUT_BODY:
                continue
            found = value if kind is types.FunctionType else getattr(value, "__func__", getattr(value, "fget", value))
            if isinstance(found, types.FunctionType) and space.holds(key, value):
                yield found, f"{space.path}.{key}"


def _body(function: types.FunctionType) -> tuple[Any, ...]:
    return function.__code__, function.__defaults__, function.__kwdefaults__
