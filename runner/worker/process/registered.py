"""Detects replaced functions and table entries in the modules of torch, Python and this program, and registrations; resets counters."""

import ast
import builtins
import functools
import itertools
import sys
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

OURS = frozenset({"runner"})
"""This program. All members of its modules and classes are compared, also constants and containers, and no name may be added."""

PYTHON = frozenset(sys.stdlib_module_names)
"""The standard library."""

TORCH = frozenset({"torch", "triton"})

_COUNTED = ("torch._dynamo", "torch._functorch", "torch._inductor")
"""Packages whose counters are reset for each case: their values occur in generated code and in logs."""

_METHODS = (types.FunctionType, classmethod, staticmethod, property)
_CALLED = (types.FunctionType, types.BuiltinFunctionType, type(functools.cache(len)), type)

_DYNAMO_PUTS = ("__compiled_fn", "__resume_at")
"""Prefixes of the names under which dynamo stores compiled code in the module of a function. A reset of dynamo removes these names."""

Held = tuple[Mapping[Any, Any], Any, Any, str]
"""A namespace or table, a key, the value at the time of the baseline, and the path of the namespace."""


class Places:
    """A record of the members of modules, of their classes and of their tables of functions, and of the functions' code.

    ``roots`` holds the top-level names of the packages.
    """

    def __init__(self, roots: frozenset[str] = TORCH) -> None:
        self.replaced: Callable[[], Iterator[str]] = _check_of(roots)
        """Yields the paths of members that were removed, replaced or added."""


def _check_of(roots: frozenset[str]) -> Callable[[], Iterator[str]]:
    """Record the state of these packages; return the check that compares a later state with it."""
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
    """Return the check. Its names are bound now: a case may replace builtins or names of this module later."""
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
                yield f"the content of {path}.{key}"

    checked: Callable[[], Iterator[str]] = _bound(replaced)
    return checked


def _bound(function: Any) -> Any:
    """Return a copy of a function with its own globals and builtins: later changes of this module or of builtins do not affect the copy."""
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
                continue  # Python stores the last exception there
            # not isinstance: it reads __class__, which proxies forward
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
"""Prefixes of the names that dynamo adds to the module of a function that it traces."""

_MODULE = types.ModuleType

_SHADOWABLE = frozenset(vars(builtins))
"""Names of builtins, which a module-level name would hide."""


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
    """Return the names that are compared for additions: all in our modules and in builtins, elsewhere those that hide a builtin."""
    if path == "builtins":
        return {key for key in namespace if key != "_"}
    if path.split(".")[0] in ("runner", "__main__"):
        known = (key for key, value in list(namespace.items()) if key not in _OF_MODULES and type(value) is not _MODULE)
        return {key for key in known if not (type(key) is str and key.startswith(_OF_DYNAMO))}
    return {key for key in list(namespace) if key in _SHADOWABLE}


def _functions(held: list[Held]) -> Iterator[tuple[Any, str, Any]]:
    """Yield each function with the path and key of its place. The two are not joined: formatting would take most of the scan's time."""
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
    except ValueError:  # an empty cell
        return None


class Tables:
    """A record of the registrations with torch. A registration by one case changes the code that later cases compile to."""

    def __init__(self) -> None:
        self._held = _tables()

    def grown(self) -> Iterator[str]:
        """Yield the tables that have changed, each with at most three added and three removed entries."""
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
    """Return the registrations made by modules of torch itself, some of which torch imports late."""
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
        case "FunctionIdSet" if value.function_ids is not None:  # None until torch first uses it
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
"""Tables and hooks of torch that hold registrations."""


class Counters:
    """The monotonic counters of torch's modules and classes. Their values occur in names, in generated code and in logs."""

    def __init__(self) -> None:
        self._held = {(id(owner), name): repr(value) for owner, name, value in _counters()}

    def set_back(self, *, also_names: bool = False) -> None:
        """Set each counter to its recorded value, and those of modules that were imported later to 0.

        ``also_names`` also resets the numbers in dynamo's names of compiled functions. That is safe only where no compiled code is alive.
        """
        for owner, name, value in list(_counters()):
            wanted = self._held.get((id(owner), name), _FROM_ZERO[type(value)])
            if repr(value) != wanted and (also_names or name != _OF_NAMES):
                setattr(owner, name, _counter(wanted))


_OF_NAMES = "_unique_id_counter"

_FROM_ZERO: Mapping[type, str] = {int: "0", itertools.count: "count(0)"}

_NUMBERS = (("torch._functorch._aot_autograd.logging_utils", "nth_graph"), ("torch._dynamo.utils", "op_count"))
"""Counters that are plain integers: module and name."""


def _counter(text: str) -> Any:
    """Return a counter from its ``repr``: ``itertools.count`` is stored as text, not as a copy."""
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
