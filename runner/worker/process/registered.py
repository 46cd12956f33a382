"""What stands in torch's modules, and in Python's and our own, where a case could have put something else: functions, tables, counters."""

import ast
import builtins
import contextlib
import functools
import gc
import itertools
import sys
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

OURS = frozenset({"runner"})
"""This program: of its modules and classes everything is watched, constants and containers too, and no name may be added."""

PYTHON = frozenset(sys.stdlib_module_names)
"""What this program and every spec uses of Python."""

TORCH = frozenset({"torch", "triton"})

_COUNTED = ("torch._dynamo", "torch._functorch", "torch._inductor")
"""Packages whose counters begin anew with each case: they stand in generated code and in logs."""

_METHODS = (types.FunctionType, classmethod, staticmethod, property)
_CALLED = (types.FunctionType, types.BuiltinFunctionType, type(functools.cache(len)), type)

_DYNAMO_PUTS = ("__compiled_fn", "__resume_at")
"""How the names begin under which dynamo puts what it compiled into the module of a function, and takes it away when it forgets it."""

Held = tuple[Mapping[Any, Any], Any, Any, str]
"""A namespace or table, a key, what stood there, and the path of the namespace."""


class Places:
    """What stood in the watched modules, in their classes and in their tables of functions; and what functions are made of.

    ``roots`` names the packages.
    """

    def __init__(self, roots: frozenset[str] = TORCH) -> None:
        with _collector_paused():
            self.replaced: Callable[[], Iterator[str]] = _check_of(roots)
        """Yields the paths of what is gone, is another now, or was added."""


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """Keep the garbage collector from running: while ninety thousand entries are made it would walk the whole heap several times."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _check_of(roots: frozenset[str]) -> Callable[[], Iterator[str]]:
    """Return the check of what stands now in the packages of these names."""
    modules = _modules(roots)
    held = list(_places(modules))
    loaded = {name: module for name, module in modules.items() if name != "__main__"}
    names = [(namespace, _added(namespace, path), path) for namespace, path in _namespaces(modules)]
    functions = list(_functions(held))
    codes = [(function, function.__code__, path, key) for function, path, key in functions]
    parts = [] if roots is TORCH else [(one, _made_of(one), path, key) for one, path, key in itertools.chain(functions, _containers(held))]
    return _check(held, loaded, names, codes, parts)


def _check(
    held: list[Held], modules: Mapping[str, Any], names: list[Any], codes: list[Any], parts: list[Any]
) -> Callable[[], Iterator[str]]:
    """Return the check. What it uses is bound when it is made: a case may have replaced builtins, or what stands in this module."""
    loaded, text, made_of, added = sys.modules, str, _bound(_made_of), _bound(_added)

    def replaced() -> Iterator[str]:
        for name, module in modules.items():
            if loaded.get(name) is not module:
                yield f"sys.modules[{name}]"
        for namespace, key, value, path in held:
            if namespace.get(key) is not value:
                yield f"{path}.{key}" if type(key) is text else f"{path}[{key}]"
        for namespace, known, path in names:
            for key in added(namespace, path) - known:
                yield f"{path}.{key}"
        for function, code, path, key in codes:
            if function.__code__ is not code:
                yield f"{path}.{key}.__code__"
        for thing, wanted, path, key in parts:
            if made_of(thing) != wanted:
                yield f"what is in {path}.{key}"

    checked: Callable[[], Iterator[str]] = _bound(replaced)
    return checked


def _bound(function: Any) -> Any:
    """Return a copy of a function that has its own globals, so that nothing that is put into this module or into builtins reaches it."""
    own = {**globals(), "__builtins__": dict(vars(builtins))}
    own["_content"] = types.FunctionType(_content.__code__, own)
    return types.FunctionType(function.__code__, own, function.__name__, function.__defaults__, function.__closure__)


def _modules(roots: Collection[str]) -> dict[str, Any]:
    found: dict[str, Any] = {name: module for name, module in list(sys.modules.items()) if name.split(".")[0] in roots}
    main = sys.modules.get("__main__")
    if roots is OURS and str(getattr(getattr(main, "__spec__", None), "name", "")).startswith("runner."):
        found["__main__"] = main
    return {name: module for name, module in found.items() if issubclass(type(module), types.ModuleType)}


def _is_ours(path: str) -> bool:
    return path.split(".")[0] in ("runner", "__main__")


def _places(modules: Mapping[str, Any]) -> Iterator[Held]:
    for name, module in modules.items():
        if type(module) is not types.ModuleType:
            continue
        is_ours = _is_ours(name)
        for key, value in list(vars(module).items()):
            if name == "sys" and str(key).startswith("last_"):
                continue  # Python's own note of the last exception
            # isinstance would ask proxies for their class
            if (is_ours and key not in _OF_MODULES) or (issubclass(type(value), _CALLED) and not str(key).startswith(_DYNAMO_PUTS)):
                yield vars(module), key, value, name
            if type(value) is dict:
                yield from _entries(value, f"{name}.{key}")
            if issubclass(type(value), type) and value.__module__ == name:
                wanted = object if is_ours else _METHODS
                members = list(vars(value).items())
                yield from ((vars(value), one, held, f"{name}.{key}") for one, held in members if isinstance(held, wanted))


def _entries(table: dict[Any, Any], path: str) -> Iterator[Held]:
    if not path.endswith(".__builtins__"):
        wanted: Any = object if _is_ours(path) else types.FunctionType | type
        yield from ((table, key, value, path) for key, value in list(table.items()) if issubclass(type(value), wanted))


_OF_MODULES = ("__warningregistry__", "__builtins__", "__cached__")

_OF_DYNAMO = (*_DYNAMO_PUTS, "__import_", "__builtins_dict__")
"""How the names begin that dynamo puts into the module of a function that it traces."""

_MODULE = types.ModuleType

_SHADOWABLE = frozenset(vars(builtins))
"""Names that a module finds in builtins until it has its own."""


def _namespaces(modules: Mapping[str, Any]) -> Iterator[tuple[Any, str]]:
    for name, module in modules.items():
        if type(module) is types.ModuleType:
            yield vars(module), name
            if _is_ours(name):
                for key, value in list(vars(module).items()):
                    if type(value) is dict and key != "__builtins__":
                        yield value, f"{name}.{key}"
                    elif issubclass(type(value), type) and value.__module__ == name:
                        yield vars(value), f"{name}.{key}"


def _added(namespace: Any, path: str) -> set[Any]:
    """Return the names of a namespace to which none may be added: all of ours and of builtins, and elsewhere those that hide a builtin."""
    if path == "builtins":
        return {key for key in namespace if key != "_"}
    if path.split(".")[0] in ("runner", "__main__"):
        known = (key for key, value in list(namespace.items()) if key not in _OF_MODULES and type(value) is not _MODULE)
        return {key for key in known if not (type(key) is str and key.startswith(_OF_DYNAMO))}
    return {key for key in list(namespace) if key in _SHADOWABLE}


def _functions(held: list[Held]) -> Iterator[tuple[Any, str, Any]]:
    """Yield each function with the path and the key of where it stands, not joined: making the text of each would cost most of the scan."""
    for _, key, value, path in held:
        inner = getattr(value, "__func__", None) if type(value) in (classmethod, staticmethod) else value
        inner = value.fget if type(value) is property else inner
        if type(inner) is types.FunctionType:
            yield inner, path, key


def _containers(held: list[Held]) -> Iterator[tuple[Any, str, Any]]:
    yield from ((value, path, key) for _, key, value, path in held if type(value) in (list, set) and _is_ours(path))


def _made_of(thing: Any) -> tuple[Any, ...]:
    """Return the identities of what a function, a list or a set consists of."""
    if type(thing) in (list, set):
        return (*sorted(id(one) for one in thing),)
    cells = [_content(cell) for cell in thing.__closure__ or ()]
    keywords = thing.__kwdefaults__ or {}
    return (*(id(part) for part in [thing.__defaults__, *cells]), *((name, id(keywords[name])) for name in keywords))


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty
        return None


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
