"""The seal: detects that code of a case replaced a part of the runner, or an operation of torch that measures. Such results are discarded.

The seal is taken before code of the spec runs, and checked after each step. It detects replaced functions, classes, class members and
table entries of ``runner``, functions whose code was changed in place, and replaced operations of torch that compare tensors. It does not
detect code that undoes its replacement before the check; SECURITY.md describes this limit.
"""

import inspect
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import is_
from typing import Any

_PACKAGES = ("runner",)

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

_Code = tuple[Any, Any, Any]
"""The code, the defaults and the keyword defaults of a function."""


class Broken(Exception):
    """Code of the case has replaced a part of the runner."""


@dataclass(frozen=True, slots=True)
class _Namespace:
    """The members of a module, of a class, or of a table, at the time of construction."""

    members: Mapping[Any, Any]
    path: str
    keys: tuple[Any, ...]
    values: tuple[Any, ...]
    is_sealed: Callable[[Any, Any], bool]
    """Whether a member may not be replaced, by its key and its value."""
    is_class: bool

    @classmethod
    def of(cls, members: Mapping[Any, Any], path: str, is_sealed: Callable[[Any, Any], bool], *, is_class: bool = False) -> "_Namespace":
        items = list(members.items())
        return cls(members, path, tuple(key for key, _ in items), tuple(value for _, value in items), is_sealed, is_class)

    @property
    def is_untouched(self) -> bool:
        """Whether all members are the same, in the same order: a worker asks this of thousands, so no Python is executed for each."""
        members = self.members
        return len(members) == len(self.keys) and all(map(is_, members, self.keys)) and all(map(is_, members.values(), self.values))

    @property
    def sealed(self) -> list[tuple[Any, Any]]:
        """The members that may not be replaced."""
        return [(key, value) for key, value in zip(self.keys, self.values, strict=True) if self.is_sealed(key, value)]

    def changes(self) -> Iterator[str]:
        """Yield the paths of replaced members, and of members that were added to a class: a new member may hide an inherited one."""
        if self.is_untouched:
            return
        sealed = self.sealed
        for key, value in sealed:
            if self.members.get(key) is not value:
                yield f"{self.path}.{key}" if isinstance(key, str) else f"{self.path}[{key!r}]"
        if self.is_class:
            known = {key for key, _ in sealed}
            yield from sorted(
                f"{self.path}.{key}" for key, value in list(self.members.items()) if self.is_sealed(key, value) and key not in known
            )


@dataclass(frozen=True, slots=True)
class _Module:
    """The namespaces of a module, and its functions with what they execute."""

    namespaces: tuple[_Namespace, ...]
    functions: tuple[tuple[types.FunctionType, str], ...]
    codes: tuple[_Code, ...]

    @classmethod
    def of(cls, name: str, module: types.ModuleType) -> "_Module":
        namespaces = tuple(_namespaces(name, module))
        functions = tuple(_functions(namespaces))
        return cls(namespaces, functions, tuple(_code(function) for function, _ in functions))

    @property
    def is_untouched(self) -> bool:
        return all(namespace.is_untouched for namespace in self.namespaces)

    def altered(self) -> Iterator[str]:
        """Yield the paths of functions whose code was changed in place."""
        for (function, path), code in zip(self.functions, self.codes, strict=True):
            if _code(function) != code:
                yield path


class Seal:
    """The members of the runner's modules at the time of construction."""

    def __init__(self, packages: tuple[str, ...] = _PACKAGES) -> None:
        made = _take_made() if packages == _PACKAGES else {}
        found = {name: (module, made.get(name)) for name, module in _modules(packages)}
        # what a module does itself, for example at its first call, is not a change by the case
        self._modules = [known if known and known.is_untouched else _Module.of(name, module) for name, (module, known) in found.items()]
        self._comparing = list(_comparing())

    def check(self) -> None:
        """Raise ``Broken`` when a part of the runner was replaced."""
        namespaces = (namespace for module in self._modules for namespace in module.namespaces)
        replaced = (path for namespace in namespaces for path in namespace.changes())
        altered = (path for module in self._modules for path in module.altered())
        changed = [*replaced, *self._replaced_in_torch(), *altered]
        if changed:
            more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
            raise Broken(f"code of the case replaced {changed[0]}{more}: the measurements of this worker are discarded")

    def _replaced_in_torch(self) -> Iterator[str]:
        for owner, name, value, path in self._comparing:
            if inspect.getattr_static(owner, name, None) is not value:
                yield f"{path}.{name}"


_made: dict[str, _Module] = {}


def make() -> None:
    """In a zygote: look at the modules that are imported, so that its workers look only at those that are new or have changed since."""
    _made.update((name, _Module.of(name, module)) for name, module in _modules(_PACKAGES))


def _take_made() -> dict[str, _Module]:
    """Return what the zygote made, once: a second case of a worker relies on nothing that the code of the first could reach."""
    made = dict(_made)
    _made.clear()
    return made


def _comparing() -> Iterator[tuple[Any, str, Any, str]]:
    for path, names in _COMPARING.items():
        owner = getattr(sys.modules.get("torch"), "Tensor", None) if path == "torch.Tensor" else sys.modules.get(path)
        yield from ((owner, name, inspect.getattr_static(owner, name, None), path) for name in names)


def _modules(packages: tuple[str, ...]) -> Iterator[tuple[str, types.ModuleType]]:
    below = tuple(f"{package}." for package in packages)
    for name, module in list(sys.modules.items()):
        if (name in packages or name.startswith(below)) and type(module) is types.ModuleType:
            yield name, module


def _namespaces(name: str, module: types.ModuleType) -> Iterator[_Namespace]:
    """Yield a module, its tables and its own classes."""
    yield _Namespace.of(vars(module), name, _is_public)
    for key, value in list(vars(module).items()):
        if _is_public(key, value) and isinstance(value, dict):
            yield _Namespace.of(value, f"{name}.{key}", _is_callable)
        if isinstance(value, type) and value.__module__ == name:
            yield _Namespace.of(vars(value), f"{name}.{key}", _is_ours, is_class=True)


def _is_public(name: Any, _: Any) -> bool:
    """Whether a member of a module is no name of Python's own."""
    return not str(name).startswith("__")


def _is_callable(_: Any, held: Any) -> bool:
    return callable(held)


def _is_ours(member: Any, held: Any) -> bool:
    """Whether the source of a class defines a member; Python and the standard library add others."""
    return isinstance(held, _METHODS) or not member.startswith("_")


def _functions(namespaces: Iterable[_Namespace]) -> Iterator[tuple[types.FunctionType, str]]:
    for namespace in namespaces:
        for key, value in namespace.sealed:
            function = value if type(value) is types.FunctionType else getattr(value, "__func__", getattr(value, "fget", value))
            if isinstance(function, types.FunctionType):
                yield function, f"{namespace.path}.{key}"


def _code(function: types.FunctionType) -> _Code:
    return function.__code__, function.__defaults__, function.__kwdefaults__
