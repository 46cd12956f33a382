"""The seal: detects that code of a case replaced a part of the runner, or an operation of torch
that measures.

Such results are discarded.

The seal is taken before code of the spec runs, and checked after each step. It detects replaced
functions, classes, class members and table entries of ``torch_conformance``, functions whose code
was changed in place, and replaced operations of torch that compare tensors. It does not detect code
that undoes its replacement before the check; SECURITY.md describes this limit.
"""

import sys
import types
from collections.abc import Iterator, Mapping
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
    """Code of the case has replaced a part of the runner."""


class Seal:
    """The members of the runner's modules at the time of construction."""

    def __init__(self, packages: tuple[str, ...] = (_PACKAGE,)) -> None:
        self._modules = []
        for name, module in _modules(packages):
            sealed = _prepared.get(name)
            if sealed is None or sealed.module is not module or not sealed.is_untouched():
                sealed = SealedModule(name, module)
            self._modules.append(sealed)
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

    def check(self) -> None:
        """Raise ``Broken`` when a part of the runner was replaced."""
        changed = [
            path
            for module in self._modules
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
                f"code of the case replaced {changed[0]}{more}: the measurements of this "
                "worker are discarded"
            )


class SealedModule:
    """The members of one module.

    ``is_untouched`` compares the identities of all members at once, in C. Only where one differs
    are the members compared one by one: some differences are no replacement, such as a new entry in
    a table of values.
    """

    def __init__(self, name: str, module: types.ModuleType) -> None:
        self.module = module
        own = {key: value for key, value in list(vars(module).items()) if not key.startswith("__")}
        tables = [(value, f"{name}.{key}") for key, value in own.items() if isinstance(value, dict)]
        classes = [
            (vars(value), f"{name}.{key}")
            for key, value in own.items()
            if isinstance(value, type) and value.__module__ == name
        ]
        self._classes = [(members, path, _ours(members)) for members, path in classes]
        self._sealed: list[tuple[Mapping[Any, Any], str, Mapping[Any, Any]]] = [
            (vars(module), name, own)
        ]
        """Each namespace, its path, and the members in it that must stay."""
        self._sealed += [
            (table, path, {key: value for key, value in list(table.items()) if callable(value)})
            for table, path in tables
        ]
        self._sealed += self._classes
        self._namespaces = [
            (namespace, list(namespace), list(namespace.values()))
            for namespace, _, _ in self._sealed
        ]
        bodies = [
            (_function(value), f"{path}.{key}")
            for _, path, members in self._sealed
            for key, value in members.items()
        ]
        self._paths = [
            path for function, path in bodies if isinstance(function, types.FunctionType)
        ]
        functions = [function for function, _ in bodies if isinstance(function, types.FunctionType)]
        self._bodies = [
            (part, functions, list(map(part, functions))) for part in _PARTS_OF_A_FUNCTION
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
            all(map(is_, map(part, functions), originals))
            for part, functions, originals in self._bodies
        )

    def changed(self) -> Iterator[str]:
        """Yield the paths of replaced members, of new members of classes, and of functions whose
        code was changed in place.
        """
        for namespace, path, members in self._sealed:
            for key, value in members.items():
                if namespace.get(key) is not value:
                    yield f"{path}.{key}" if isinstance(key, str) else f"{path}[{key!r}]"
        for namespace, path, members in self._classes:  # a new member may hide an inherited one
            yield from (
                f"{path}.{name}" for name in sorted(_ours(namespace).keys() - members.keys())
            )
        for part, functions, originals in self._bodies:
            yield from (
                path
                for function, original, path in zip(functions, originals, self._paths, strict=True)
                if part(function) != original
            )


_PARTS_OF_A_FUNCTION = tuple(map(attrgetter, ("__code__", "__defaults__", "__kwdefaults__")))

_prepared: dict[str, SealedModule] = {}
"""The modules as the zygote sealed them."""


def prepare() -> None:
    """Seal the modules of this process ahead, for the workers that are forked from it: to list all
    members takes time in each of them.
    """
    _prepared.update({name: SealedModule(name, module) for name, module in _modules((_PACKAGE,))})


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
