"""The seal: detects that code of a case, or the module of a backend, replaced a part of the runner,
or an operation of torch that measures.

Such results are discarded, and what is ours is put back, so that the report of it is ours too.

The seal is taken before the module of a backend is imported and before code of the spec runs, and
checked after the import and after each step. It detects replaced functions, classes, class members
and table entries of ``torch_conformance``, functions whose code was changed in place, and replaced
operations of torch that compare tensors. It does not detect code that undoes its replacement before
the check; SECURITY.md describes this limit.
"""

import sys
import types
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.util import find_spec, module_from_spec
from inspect import getattr_static
from operator import attrgetter, is_
from typing import Any

_PACKAGE = "torch_conformance"

_METHODS = (types.FunctionType, classmethod, staticmethod, property)

_COMPARING = {
    "copy": "copy deepcopy",
    "torch.utils._pytree": "keystr tree_flatten tree_flatten_with_path tree_leaves "
    "tree_map tree_map_only",
    "torch": (
        "bincount cat equal exp2 frexp full_like isinf isnan maximum minimum nextafter "
        "no_grad stack tensor unravel_index "
        "view_as_real where"
    ),
    "torch.Tensor": (
        "__and__ __eq__ __float__ __ge__ __getitem__ __gt__ __int__ __invert__ __le__ __lt__ "
        "__mul__ __ne__ __or__ __rmul__ "
        "__rsub__ __sub__ __xor__ abs all any argmax clone cpu detach amax argsort clamp "
        "kthvalue median device dtype flip "
        "contiguous element_size is_complex is_contiguous is_floating_point isfinite isnan "
        "item long max min narrow nonzero numel reshape "
        "resolve_conj resolve_neg set_ shape signbit stride sum to tolist unsqueeze view"
    ),
}
"""Operations by which tensors are compared."""


class Broken(Exception):
    """Code of the case, or a module, has replaced a part of the runner."""

    _conformance_phase = "compare"


class Seal:
    """The members of the runner's modules at the time of construction."""

    def __init__(self, packages: tuple[str, ...] = (_PACKAGE,)) -> None:
        self.modules = {
            name: _prepared.get(name) or SealedModule(name, module)
            for name, module in _modules(packages)
        }
        self._comparing = []
        for path, names in _COMPARING.items():
            owner = (
                getattr(sys.modules.get("torch"), "Tensor", None)
                if path == "torch.Tensor"
                else sys.modules.get(path)
            )
            self._comparing += [
                (owner, name, getattr_static(owner, name, None), path) for name in names.split()
            ]

    def check(self, by: str = "code of the case") -> None:
        """Put back the replaced parts of the runner, and raise ``Broken`` where there are some."""
        changed = [
            path
            for module in self.modules.values()
            if not module.is_untouched()
            for path in module.changed()
        ]
        changed += [
            f"{path}.{name}"
            for owner, name, value, path in self._comparing
            if getattr_static(owner, name, None) is not value
        ]
        if changed:
            more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
            raise Broken(
                f"{by} replaced {changed[0]}{more}: the measurements of this worker are discarded"
            )


class SealedModule:
    """The members of one module.

    ``is_untouched`` compares the identities of all members at once, in C. Only where one differs
    are the members compared one by one: some differences are no replacement, such as a new entry in
    a table of values.
    """

    def __init__(self, name: str, module: types.ModuleType) -> None:
        own = {key: value for key, value in list(vars(module).items()) if not key.startswith("__")}
        tables = [(value, f"{name}.{key}") for key, value in own.items() if isinstance(value, dict)]
        self._classes: list[Sealed] = [
            (vars(value), f"{name}.{key}", _ours(vars(value)), partial(setattr, value))
            for key, value in own.items()
            if isinstance(value, type) and value.__module__ == name
        ]
        self._sealed: list[Sealed] = [(vars(module), name, own, vars(module).__setitem__)]
        self._sealed += [
            (
                table,
                path,
                {key: value for key, value in list(table.items()) if callable(value)},
                table.__setitem__,
            )
            for table, path in tables
        ]
        self._sealed += self._classes
        self._namespaces = [
            (namespace, list(namespace), list(namespace.values())) for namespace, *_ in self._sealed
        ]
        bodies = [
            (_function(value), f"{path}.{key}")
            for _, path, members, _ in self._sealed
            for key, value in members.items()
        ]
        self._paths = [
            path for function, path in bodies if isinstance(function, types.FunctionType)
        ]
        functions = [function for function, _ in bodies if isinstance(function, types.FunctionType)]
        self._bodies = [
            (part, functions, list(map(get, functions)))
            for part, get in _PARTS_OF_A_FUNCTION.items()
        ]

    def is_untouched(self) -> bool:
        """Whether each name of the module, of its tables and of its classes still has the same
        object, and each function its code.
        """
        return all(
            len(namespace) == len(keys)
            and all(map(is_, namespace, keys))
            and all(map(is_, namespace.values(), values))
            for namespace, keys, values in self._namespaces
        ) and all(
            all(map(is_, map(_PARTS_OF_A_FUNCTION[part], functions), originals))
            for part, functions, originals in self._bodies
        )

    def changed(self) -> Iterator[str]:
        """Yield the paths of replaced members, of new members of classes, and of functions whose
        code was changed in place; put back what was there.
        """
        for namespace, path, members, put in self._sealed:
            for key, value in members.items():
                if namespace.get(key) is not value:
                    put(key, value)
                    yield f"{path}.{key}" if isinstance(key, str) else f"{path}[{key!r}]"
        for namespace, path, members, _ in self._classes:  # a new member may hide an inherited one
            yield from (
                f"{path}.{name}" for name in sorted(_ours(namespace).keys() - members.keys())
            )
        for part, functions, originals in self._bodies:
            for function, original, path in zip(functions, originals, self._paths, strict=True):
                if _PARTS_OF_A_FUNCTION[part](function) != original:
                    setattr(function, part, original)
                    yield path


Sealed = tuple[Mapping[Any, Any], str, Mapping[Any, Any], Callable[[Any, Any], None]]
"""A namespace, its path, the members in it that must stay, and what puts one back."""

_PARTS_OF_A_FUNCTION = {
    part: attrgetter(part) for part in ("__code__", "__defaults__", "__kwdefaults__")
}

_prepared: dict[str, SealedModule] = {}
"""The modules as the zygote sealed them."""


def prepare(packages: tuple[str, ...] = (_PACKAGE,)) -> None:
    """Seal the modules of this process ahead, for the workers that are forked from it: to list all
    members takes time in each of them.
    """
    _prepared.update(taken(packages).modules)


def taken(packages: tuple[str, ...] = (_PACKAGE,)) -> Seal:
    """Take the seal by a copy of this module that has no name, so that nothing in it is replaced by
    name either.
    """
    spec = find_spec(__name__)
    assert spec is not None
    assert spec.loader is not None
    copy: Any = module_from_spec(spec)
    spec.loader.exec_module(copy)
    copy._prepared = _prepared
    seal: Seal = copy.Seal(packages)
    return seal


def _modules(packages: tuple[str, ...]) -> Iterator[tuple[str, types.ModuleType]]:
    for name, module in list(sys.modules.items()):
        if (
            any(f"{name}.".startswith(f"{package}.") for package in packages)
            and type(module) is types.ModuleType
        ):
            yield name, module


def _ours(members: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the source of a class defines; Python and the standard library add other
    members.
    """
    return {
        name: value
        for name, value in list(members.items())
        if isinstance(value, _METHODS) or not name.startswith("_")
    }


def _function(value: Any) -> Any:
    return getattr(value, "__func__", getattr(value, "fget", value))
