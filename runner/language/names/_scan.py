"""Reads the names of a torch from its source, without importing it: options, counters, metrics."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from runner.language.names._name_table import CONFIG_FILES, Names
from runner.language.names._scan_counters import scan_counters
from runner.language.names._scan_types import Allowed, allowed_values
from runner.language.names._torch_source import VERSION_FILE, Source, open_source, parse, read
from runner.system.installed_torch import release, version_facts

METRICS_FILE = "_inductor/metrics.py"
MODES_FILE = "_inductor/__init__.py"


def scan(path: Path) -> Names:
    """Return all names of the torch in ``path``."""
    source = open_source(path)
    counters, unresolved = scan_counters(source)
    options = {kind: scan_types(source, kind) for kind in CONFIG_FILES}
    facts = version_facts(read(source, VERSION_FILE).decode(), source.label)
    return Names(
        version=".".join(str(number) for number in release(facts["__version__"] or "")),
        options={kind: frozenset(found) for kind, found in options.items()},
        types={kind: {name: allowed for name, allowed in found.items() if allowed} for kind, found in options.items()},
        modes=scan_modes(source),
        metrics=scan_metrics(source),
        counters=counters,
        unresolved=unresolved,
    )


def scan_options(source: Source, kind: str) -> frozenset[str]:
    """Return the dotted options of one config module (a key of ``CONFIG_FILES``)."""
    return frozenset(scan_types(source, kind))


def scan_types(source: Source, kind: str) -> dict[str, Allowed]:
    """Return the dotted options of one config module with their allowed values; empty if the source does not show them."""
    return dict(_dotted(_Fields().run(parse(source, CONFIG_FILES[kind]).body).found))


def scan_modes(source: Source) -> tuple[str, ...]:
    """Return the modes of ``torch.compile``; empty if the source does not show them."""
    if source.read(MODES_FILE) is None:
        return ()
    for node in ast.walk(parse(source, MODES_FILE)):
        match node:
            case (
                ast.AnnAssign(target=ast.Name(id="mode_options"), value=ast.Dict(keys=keys))
                | ast.Assign(targets=[ast.Name(id="mode_options")], value=ast.Dict(keys=keys))
            ):
                return tuple(key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str))
    return ()


def scan_metrics(source: Source) -> frozenset[str]:
    """Return inductor's metrics: module variables that start as a number or that ``reset`` resets."""
    body = parse(source, METRICS_FILE).body
    assigned = {name: value for statement in body for name, value in _assigned(statement)}
    numbers = {name for name, value in assigned.items() if _is_number(value)}
    reset = (node for node in body if isinstance(node, ast.FunctionDef) and node.name == "reset")
    return frozenset(numbers | {name for function in reset for name in _touched(function) if name in assigned})


def _is_number(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and isinstance(value.value, int | float) and not isinstance(value.value, bool)


def _touched(function: ast.FunctionDef) -> Iterator[str]:
    for node in ast.walk(function):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="clear")):
                yield name


_Found = dict[str, "_Found | Allowed"]
"""The result of a module or class body: options with their allowed values, and classes with their contents."""


def _dotted(found: _Found, prefix: str = "") -> Iterator[tuple[str, Allowed]]:
    for name, inner in found.items():
        if isinstance(inner, tuple):
            yield prefix + name, inner
        else:
            yield from _dotted(inner, f"{prefix}{name}.")


class _Fields:
    """Evaluates a body statement by statement, without executing it, with the result of ``install_config_module``.

    Options are variables with data as values, private ones included. Dunders, functions, lambdas, imports and names of types are not
    options. Classes become groups; ``@inherit_fields_from(parent)`` copies the parent's public options.
    """

    def __init__(self, outer: Mapping[str, "_Found | Allowed"] | None = None) -> None:
        self.found: _Found = {}
        self._outer = outer or {}

    def run(self, body: Iterable[ast.stmt]) -> "_Fields":
        for statement in body:
            self._statement(statement)
        return self

    def _statement(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Assign() | ast.AnnAssign():
                self._assignment(statement)
            case ast.ClassDef():
                self.found[statement.name] = self._group(statement)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                self.found.pop(name, None)
            case ast.Delete(targets=targets):
                for target in targets:
                    self.found.pop(ast.unparse(target), None)
            case _:
                self.run(_inner_statements(statement))

    def _assignment(self, statement: ast.Assign | ast.AnnAssign) -> None:
        annotation = statement.annotation if isinstance(statement, ast.AnnAssign) else None
        whole = statement.value if isinstance(statement, ast.AnnAssign) or isinstance(statement.targets[0], ast.Name) else None
        for name, value in _assigned(statement):
            if not name.startswith("__") and _is_data(value):
                self._option(name, allowed_values(annotation, whole))

    def _option(self, name: str, allowed: Allowed) -> None:
        """Add an option. If it is assigned twice, as under an ``if``, it takes the values of both assignments."""
        before = self.found.get(name)
        if not isinstance(before, tuple):
            self.found[name] = allowed
        else:
            self.found[name] = tuple(dict.fromkeys([*before, *allowed])) if before and allowed else ()

    def _group(self, definition: ast.ClassDef) -> _Found:
        known = {**self._outer, **self.found}
        own = _Fields(known).run(definition.body).found
        for decorator in definition.decorator_list:
            match decorator:
                case ast.Call(func=ast.Name(id="inherit_fields_from"), args=[ast.Name(id=parent)]):
                    parents = known.get(parent)
                    fields = parents if isinstance(parents, dict) else {}
                    inherited = {name: inner for name, inner in fields.items() if not name.startswith("_")}
                    own = {**inherited, **own}
        return own


def _inner_statements(statement: ast.stmt) -> list[ast.stmt]:
    """Return the statements inside an if, try, with or loop, without branches that never run in a public torch."""
    if isinstance(statement, ast.If):
        taken = _known_test(statement.test)
        return (statement.body if taken is not False else []) + (statement.orelse if taken is not True else [])
    bodies = [getattr(statement, part, []) for part in ("body", "orelse", "finalbody")]
    bodies += [handler.body for handler in getattr(statement, "handlers", [])]
    return [inner for body in bodies for inner in body]


def _known_test(test: ast.expr) -> bool | None:
    """Return the result of a test that is the same for every public torch, else None."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = _known_test(operand)
            return None if inner is None else not inner
        case ast.Constant(value=value):
            return bool(value)
        case ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING") | ast.Call(func=ast.Name(id="is_fbcode")):
            return False
    return None


def _assigned(statement: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names that an assignment binds, each with its value (for ``a, b = ...`` the whole right side)."""
    match statement:
        case ast.Assign(targets=targets, value=value):
            names = (node for target in targets for node in ast.walk(target))
            yield from ((node.id, value) for node in names if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
        case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=ast.expr() as value):
            if ast.unparse(annotation).rpartition(".")[2] != "TypeAlias":
                yield name, value


def _is_data(value: ast.expr) -> bool:
    """Whether a value can be that of an option: not a lambda, and not a type such as ``Callable[..., Any]``."""
    match value:
        case ast.Lambda():
            return False
        case ast.Subscript(value=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name not in {"Literal", "Callable", "Union", "Optional", "Annotated"}
    return True
