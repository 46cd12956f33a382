"""What stands in torch's modules, and in Python's, where a case could have put something else: functions, tables, operators, counters."""

import ast
import functools
import itertools
import sys
import types
from collections.abc import Collection, Iterator, Mapping
from typing import Any

_WATCHED = ("torch", "triton", "builtins", "importlib", "json", "math", "os", "pickle", "shutil", "subprocess", "tempfile", "time")
"""Packages of which all that can be called must stay what it was; those below them too."""

_COUNTED = ("torch._dynamo", "torch._functorch", "torch._inductor")
"""Packages whose counters begin anew with each case: they stand in generated code and in logs."""

_METHODS = (types.FunctionType, classmethod, staticmethod, property)
_CALLED = (types.FunctionType, types.BuiltinFunctionType, type(functools.cache(len)), type)

_DYNAMO_PUTS = ("__compiled_fn", "__resume_at")
"""How the names begin under which dynamo puts what it compiled into the module of a function, and takes it away when it forgets it."""

Held = tuple[Mapping[Any, Any], Any, Any, str]
"""A namespace or table, a key, what stood there, and the path of the namespace."""


class Places:
    """What stood in the watched modules, in their classes, and in those of their tables that hold functions."""

    def __init__(self) -> None:
        self._held = list(_places())

    def replaced(self) -> Iterator[str]:
        """Yield the paths of what is gone, or is another now."""
        for namespace, key, value, path in self._held:
            if namespace.get(key) is not value:
                yield f"{path}.{key}" if isinstance(key, str) else f"{path}[{key}]"


def _places() -> Iterator[Held]:
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] not in _WATCHED or type(module) is not types.ModuleType:
            continue
        for key, value in list(vars(module).items()):
            # isinstance would ask proxies for their class
            if issubclass(type(value), _CALLED) and not str(key).startswith(_DYNAMO_PUTS):
                yield vars(module), key, value, name
            if type(value) is dict:
                yield from _entries(value, f"{name}.{key}")
            if issubclass(type(value), type) and value.__module__ == name:
                members = list(vars(value).items())
                yield from ((vars(value), member, held, f"{name}.{key}") for member, held in members if isinstance(held, _METHODS))


def _entries(table: dict[Any, Any], path: str) -> Iterator[Held]:
    if not path.endswith(".__builtins__"):
        yield from ((table, key, value, path) for key, value in table.items() if issubclass(type(value), types.FunctionType | type))


class Tables:
    """What was registered with torch: what a case adds changes what later ones compile to."""

    def __init__(self) -> None:
        self._held = _tables()

    def grown(self) -> Iterator[str]:
        """Yield the tables that hold something else now."""
        changed = {name: now for name, now in _tables().items() if now != self._held.get(name, now)}
        own = _own_operators() if any(map(_is_of_operators, changed)) else set()
        for name, now in changed.items():
            held = set(self._held[name])
            added = set(now) - held - (own if _is_of_operators(name) else set())
            if words := [*sorted(f"+{one}" for one in added)[:3], *sorted(f"-{one}" for one in held - set(now))[:3]]:
                yield f"{name} changed ({', '.join(words)})"


def _is_of_operators(name: str) -> bool:
    return name.startswith("torch.library.")


def _own_operators() -> set[Any]:
    """Return what modules of torch have registered, which it imports when it needs them."""
    found: set[Any] = set()
    for name, module in list(sys.modules.items()):
        if not name.startswith("torch.") or type(module) is not types.ModuleType:
            continue
        for value in list(vars(module).values()):
            library: Any = getattr(value, "_lib", None) if type(value).__name__ == "CustomOpDef" else value
            if type(library).__name__ == "Library":
                found |= {library, *map(_key, library._op_defs), *library._op_impls}
    return found


def _tables() -> dict[str, Collection[Any]]:
    found: dict[str, Collection[Any]] = {}
    for path in _TABLES:
        module_name, _, key = path.rpartition(".")
        table = getattr(sys.modules.get(module_name), key, None)
        if table is not None:
            found[path] = frozenset(map(_key, table))
    for name, module in list(sys.modules.items()):
        if name.startswith(_COUNTED) and type(module) is types.ModuleType:
            found.update({f"{name}.{key}": held for key, value in list(vars(module).items()) if (held := _registry(value)) is not None})
    return found


def _registry(value: Any) -> Collection[Any] | None:
    if type(value) is list and value and type(value[0]).__name__ == "PatternMatcherPass":
        return tuple(itertools.chain.from_iterable(map(_patterns, value)))
    match type(value).__name__:
        case "PatternMatcherPass":
            return _patterns(value)
        case "FunctionIdSet" if value.function_ids is not None:  # else torch has not looked it up yet
            return frozenset(value.function_ids)
    return None


def _key(entry: Any) -> Any:
    try:
        hash(entry)
    except TypeError:
        return id(entry)
    return entry


def _patterns(found: Any) -> tuple[Any, ...]:
    return tuple((str(key), len(entries)) for key, entries in found.patterns.items())


_TABLES = (
    "torch._inductor.lowering.lowerings",
    "torch._inductor.lowering.user_lowerings",
    "torch._inductor.lowering.fallbacks",
    "torch._inductor.lowering.needs_realized_inputs",
    "torch._inductor.lowering.layout_constraints",
    "torch._inductor.decomposition.decompositions",
    "torch._inductor.decomposition.extra_random_decomps",
    "torch._decomp.global_decomposition_table",
    "torch._decomp.decomposition_table",
    "torch._decomp.pre_autograd_decomposition_table",
    "torch._decomp.meta_table",
    "torch._dynamo.backends.registry._BACKENDS",
    "torch.library._defs",
    "torch.library._impls",
    "torch.library._keep_alive",
    "torch.nn.modules.module._global_backward_hooks",
    "torch.nn.modules.module._global_backward_pre_hooks",
    "torch.nn.modules.module._global_forward_hooks",
    "torch.nn.modules.module._global_forward_pre_hooks",
    "torch.nn.modules.module._global_module_registration_hooks",
    "torch.nn.modules.module._global_parameter_registration_hooks",
    "torch.nn.modules.module._global_buffer_registration_hooks",
)
"""Where torch keeps what is registered with it."""


class Counters:
    """The counters of torch's modules and classes that only go up: what they count stands in names, in generated code and in logs."""

    def __init__(self) -> None:
        self._held = {(id(owner), name): repr(value) for owner, name, value in _counters()}

    def set_back(self, *, also_names: bool = False) -> None:
        """Let each count from where it stood, those of modules that were imported since from 0.

        ``also_names`` is for a process in which nothing compiled is alive: dynamo puts what it compiled into modules, under numbered names.
        """
        for owner, name, value in list(_counters()):
            wanted = self._held.get((id(owner), name), _FROM_ZERO[type(value)])
            if repr(value) != wanted and (also_names or name != _OF_NAMES):
                setattr(owner, name, _counter(wanted))


_OF_NAMES = "_unique_id_counter"

_FROM_ZERO: Mapping[type, str] = {int: "0", itertools.count: "count(0)"}

_NUMBERS = (("torch._functorch._aot_autograd.logging_utils", "nth_graph"), ("torch._dynamo.utils", "op_count"))
"""Numbers that are counters, by their module and name."""


def _counter(text: str) -> Any:
    """Return the counter whose representation this is: it cannot be copied."""
    numbers = ast.literal_eval(text.removeprefix("count"))
    if not text.startswith("count"):
        return numbers
    return itertools.count(*(numbers if isinstance(numbers, tuple) else (numbers,)))


def _counters() -> Iterator[tuple[Any, str, Any]]:
    for name, module in list(sys.modules.items()):
        if not name.startswith(_COUNTED) or type(module) is not types.ModuleType:
            continue
        for key, value in list(vars(module).items()):
            if type(value) is itertools.count:
                yield module, key, value
            elif issubclass(type(value), type) and value.__module__ == name:
                yield from ((value, member, held) for member, held in list(vars(value).items()) if type(held) is itertools.count)
    for name, key in _NUMBERS:
        if type(number := vars(sys.modules.get(name, object)).get(key)) is int:
            yield sys.modules[name], key, number
