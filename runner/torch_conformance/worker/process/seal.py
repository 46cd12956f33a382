"""The seal: detects that code of a case, or the module of a backend, replaced a part of the runner,
or an operation of torch that measures.

Such results are discarded, and what is ours is put back, so that the report of it is ours too.

The seal is taken before the module of a backend is imported and before code of the spec runs, and
checked after the import and after each step. It detects replaced functions, classes, class members
and table entries of ``torch_conformance``, functions whose code was changed in place, and replaced
operations of torch that compare tensors. It does not detect code that undoes its replacement before
the check; SECURITY.md describes this limit.
"""

import re
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.util import find_spec, module_from_spec
from operator import attrgetter, is_
from typing import Any

from torch_conformance.vocabulary.steps.step_base import NotCarriedOut

_PACKAGE = "torch_conformance"

_METHODS = (types.FunctionType, classmethod, staticmethod, property)

_MEASURING = tuple(
    f"{_PACKAGE}.{name}" for name in ("vocabulary", "worker.process", "model.protocol")
)
"""The modules that measure, and send what was measured.

What they call of torch, of numpy and of Python is found by the names in their code.
"""

_OF_TORCH = ("torch", "torch.nn.functional", "torch.utils._pytree")


class Broken(NotCarriedOut):
    """Code of the case, or a module, has replaced a part of the runner."""

    _conformance_phase = "compare"


class Seal:
    """The members of the runner's modules at the time of construction."""

    def __init__(self, packages: tuple[str, ...] = (_PACKAGE,)) -> None:
        self.modules = {
            name: _prepared.get(name) or SealedModule(name, module)
            for name, module in _modules(packages)
        }
        prepared = _prepared.get("called")
        self.called = prepared if isinstance(prepared, SealedCalls) else SealedCalls(self.modules)
        self.modules["called"] = self.called
        self.watchers = _watchers()

    def check(self, by: str = "code of the case") -> None:
        """Put back the replaced parts of the runner, and raise ``Broken`` where there are some."""
        changed = [
            path
            for module in self.modules.values()
            if not module.is_untouched()
            for path in module.changed()
        ]
        changed += sorted(_watchers() - self.watchers)
        if changed:
            more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
            raise Broken(
                f"{by} replaced {changed[0]}{more}: the measurements of this worker are discarded"
            )

    def settle(self) -> None:
        """Check, and let what the spec itself sets up see each call from now on, and what its spies
        wrap of what only eager calls.
        """
        self.watchers |= _watchers()
        self.called.forget_eager()
        self.check()


class SealedModule:
    """The members of one module.

    ``is_untouched`` compares the identities of all members at once, in C. Only where one differs
    are the members compared one by one: some differences are not replacements, such as a new entry
    in a table of values.
    """

    def __init__(self, name: str, module: types.ModuleType) -> None:
        variables = {
            key: value for key, value in list(vars(module).items()) if not key.startswith("__")
        }
        tables = [
            (value, f"{name}.{key}") for key, value in variables.items() if isinstance(value, dict)
        ]
        self._classes: list[Sealed] = [
            (vars(value), f"{name}.{key}", _ours(vars(value)), partial(setattr, value))
            for key, value in variables.items()
            if isinstance(value, type) and value.__module__ == name
        ]
        self._sealed: list[Sealed] = [(vars(module), name, variables, vars(module).__setitem__)]
        self._sealed += [
            (
                table,
                path,
                {
                    key: value
                    for key, value in list(table.items())
                    if callable(value) or path.rpartition(".")[2].isupper()
                },
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
        self.functions = functions
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


class SealedCalls:
    """What the functions that measure call outside of the runner: members of builtins, of the
    standard library, of numpy, torch and its tensors.
    """

    functions: tuple[types.FunctionType, ...] = ()

    def __init__(self, modules: Mapping[str, "SealedModule | SealedCalls"]) -> None:
        codes = [
            function.__code__
            for name, module in modules.items()
            if name.startswith(_MEASURING)
            for function in module.functions
        ]
        names: set[str] = set()
        while codes:
            code = codes.pop()
            # names with one underscore are private, and ``os._exit`` is the worker's own
            names |= {name for name in code.co_names if not re.match("_[^_]", name)}
            codes += [value for value in code.co_consts if isinstance(value, types.CodeType)]
        self._names = names
        owners: dict[str, Any] = {
            name: sys.modules.get(name)
            for name in (*names, *_OF_TORCH, "builtins")
            if name in _OF_TORCH or name == "numpy" or name in sys.stdlib_module_names
        }
        tensor = getattr(owners["torch"], "Tensor", object)
        owners |= {f"torch.{kind.__name__}": kind for kind in tensor.__mro__}
        self._members: list[tuple[Mapping[str, Any], str, list[str], list[Any]]] = []
        for path, owner in owners.items():
            if isinstance(owner, type) or type(owner) is types.ModuleType:
                of_owner = vars(owner)
                is_torch = path.startswith("torch")
                # operators have no name in code; eager, the reference, calls any other function
                used = [
                    name
                    for name in (dir(owner) if isinstance(owner, type) else of_owner)
                    if (name in names or (is_torch and not isinstance(of_owner.get(name), type)))
                    and (name not in of_owner or callable(of_owner[name]))
                ]
                self._members.append((of_owner, path, used, list(map(of_owner.get, used))))
        self._codes = self._read_codes()

    def forget_eager(self) -> None:
        """Keep of functions of torch only those that measuring calls."""
        self._members = [
            (members, path, [*members_kept], [*members_kept.values()])
            for members, path, names, values in self._members
            for members_kept in [
                {
                    name: value
                    for name, value in zip(names, values, strict=True)
                    if name in self._names or name.startswith("__")
                }
            ]
        ]
        self._codes = self._read_codes()

    def _read_codes(self) -> list[Any]:
        return [
            _PARTS_OF_A_FUNCTION["__code__"](function)
            for *_, values in self._members
            for value in values
            if isinstance(function := _function(value), types.FunctionType)
        ]

    def is_untouched(self) -> bool:
        """Whether each name has the same object, and each function its code."""
        return all(
            all(map(is_, map(members.get, names), values))
            for members, _, names, values in self._members
        ) and all(map(is_, self._codes, self._read_codes()))

    def changed(self) -> Iterator[str]:
        """Yield the paths of what was replaced."""
        for members, path, names, values in self._members:
            for name, value in zip(names, values, strict=True):
                if members.get(name) is not value:
                    yield f"{path}.{name}"
        for code, current in zip(self._codes, self._read_codes(), strict=True):
            if code is not current:
                yield code.co_qualname


Sealed = tuple[Mapping[Any, Any], str, Mapping[Any, Any], Callable[[Any, Any], None]]
"""A namespace, its path, the members in it that must stay, and what puts one back."""

_PARTS_OF_A_FUNCTION = {
    part: attrgetter(part) for part in ("__code__", "__defaults__", "__kwdefaults__")
}

_prepared: dict[str, "SealedModule | SealedCalls"] = {}
"""The modules as the zygote sealed them."""


def prepare(packages: tuple[str, ...] = (_PACKAGE,)) -> None:
    """Seal the modules of this process ahead, for the workers that are forked from it: to list all
    members takes time in each of them.
    """
    _prepared.update(take_seal(packages).modules)


def take_seal(packages: tuple[str, ...] = (_PACKAGE,)) -> Seal:
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


def _watchers() -> frozenset[str]:
    """Return what else sees or serves the calls of the functions that measure."""
    watchers = [
        f"sys.{name}"
        for name in ("settrace", "setprofile")
        if getattr(sys, name.replace("s", "g", 1))()
    ]
    if (torch := sys.modules.get("torch")) is not None:
        modes = {
            "torch functions": torch._C._len_torch_function_stack(),
            "dispatch": torch._C._len_torch_dispatch_stack(),
        }
        watchers += [
            f"mode {number} of {kind}" for kind, count in modes.items() for number in range(count)
        ]
        watchers += [
            f"the kernel {key}"
            for key in torch.library._impls
            if key.startswith("aten/") and key.endswith("/CPU")
        ]
    return frozenset(watchers)


def _ours(members: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the source of a class defines; Python and the standard library add other
    members.
    """
    return {
        name: value
        for name, value in list(members.items())
        if isinstance(value, _METHODS) or not name.startswith("_")
    }


def _function(value: object) -> Any:
    return getattr(value, "__func__", getattr(value, "fget", value))
