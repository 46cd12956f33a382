"""Scans the source of torch for the names of options, counters and metrics. Nothing is imported or executed."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path

from runner.language.names.name_table import CONFIG_FILES, Allowed, CounterNames, Names, allowed_values
from runner.language.names.torch_source import (
    ANYTHING,
    UNKNOWN,
    VERSION_FILE,
    Function,
    Parameter,
    Scope,
    Shape,
    Source,
    Text,
    literal,
    open_source,
    parse,
    pattern,
    read,
    statements,
    string_shapes,
)
from runner.system.installed_torch import release, version_facts

# -- counters ---------------------------------------------------------------------------------------------------------


FOLDERS = ("_dynamo", "_inductor", "_functorch", "_higher_order_ops", "fx", "_subclasses")
"""The folders below ``torch`` with code that increments torch.compile's counters."""

_MENTION = b"counters"


@dataclass(frozen=True, slots=True)
class _Place:
    namespace: frozenset[Shape]
    name: frozenset[Shape]
    where: str


def scan_counters(source: Source, mention: str = "") -> tuple[dict[str, CounterNames], tuple[str, ...]]:
    """Return the counters by namespace, and the places with an unknown namespace.

    With ``mention`` only files that contain this text as words of their own are read, which suffices to find one name.
    """
    places = [place for path in _files_with(source, _MENTION, whole=mention) for place in _File(source, path).places()]
    passed = _arguments(source, {part for place in places for part in _parameters(place)})
    places = [_Place(_filled(place.namespace, passed), _filled(place.name, passed), place.where) for place in places]
    return _tables(places), tuple(place.where for place in places if any(literal(space) is None for space in place.namespace))


def _tables(places: Iterable[_Place]) -> dict[str, CounterNames]:
    names: dict[str, set[str]] = defaultdict(set)
    patterns: dict[str, set[str]] = defaultdict(set)
    for place in places:
        for space, name in product((literal(shape) for shape in place.namespace), place.name):
            if space is not None and (known := literal(name)) is not None:
                names[space].add(known)
            elif space is not None:
                patterns[space].add(pattern(name))
    spaces = sorted({*names, *patterns})
    return {space: CounterNames(frozenset(names[space]), _least(patterns[space])) for space in spaces}


def _least(patterns: set[str]) -> tuple[str, ...]:
    """Return the sorted patterns. A pattern that matches everything replaces all others."""
    return (ANYTHING,) if ANYTHING in patterns else tuple(sorted(patterns))


def _files_with(source: Source, mention: bytes, *, whole: str = "") -> list[str]:
    paths = (path for folder in FOLDERS for path in source.below(folder))
    alone = re.compile(rf"(?<!\w){re.escape(whole)}(?!\w)".encode()) if whole else re.compile(b"")
    return [path for path in paths if (text := source.read(path)) and mention in text and alone.search(text)]


# Parameters of helper functions: the arguments of their callers.


def _parameters(place: _Place) -> Iterator[Parameter]:
    for shape in place.namespace | place.name:
        yield from (part for part in shape if isinstance(part, Parameter))


def _arguments(source: Source, parameters: set[Parameter]) -> dict[Parameter, set[Shape]]:
    """Return for each parameter the shapes of its arguments in all files; none if the function is never called."""
    found: dict[Parameter, set[Shape]] = {parameter: set() for parameter in parameters}
    for function in sorted({parameter.function for parameter in parameters}):
        own = [parameter for parameter in parameters if parameter.function == function]
        for path in _files_with(source, f"{function}(".encode()):
            for call, parameter in product(_calls(parse(source, path), function), own):
                found[parameter] |= _argument(call, parameter)
    return found


def _calls(tree: ast.Module, function: str) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name == function:
                yield node


def _argument(call: ast.Call, parameter: Parameter) -> set[Shape]:
    by_keyword = [keyword.value for keyword in call.keywords if keyword.arg == parameter.name]
    by_place = [] if parameter.index is None else call.args[parameter.index : parameter.index + 1]
    spread = any(isinstance(argument, ast.Starred) for argument in call.args) or any(keyword.arg is None for keyword in call.keywords)
    values = by_keyword or by_place
    if spread or (not values and parameter.default is None):
        return {UNKNOWN}
    return string_shapes(values[0], Scope()) if values else {(Text(parameter.default or ""),)}


def _filled(shapes: frozenset[Shape], passed: Mapping[Parameter, set[Shape]]) -> frozenset[Shape]:
    """Replace parameters by the arguments of the callers."""
    filled: set[Shape] = set()
    for shape in shapes:
        choices = [(passed[part] or {UNKNOWN}) if isinstance(part, Parameter) else {(part,)} for part in shape]
        filled |= {tuple(part for piece in pieces for part in piece) for pieces in product(*choices)}
    return frozenset(filled)


class _File:
    """The places of one file."""

    def __init__(self, source: Source, path: str) -> None:
        self._path = path
        self._tree = parse(source, path)
        words = [word.encode() for word in {"counters", *self._imported, *self._aliases()}]
        lines = enumerate(read(source, path).split(b"\n"), 1)
        self._lines = [number for number, line in lines if any(word in line for word in words)]

    def places(self) -> Iterator[_Place]:
        yield from self._in_body(self._tree.body, Scope.of_module(self._tree))

    def _in_body(self, body: list[ast.stmt], scope: Scope) -> Iterator[_Place]:
        """Walk the statements that mention counters, which are few."""
        for statement in body:
            if not any(statement.lineno <= line <= (statement.end_lineno or 0) for line in self._lines):
                continue
            if isinstance(statement, ast.ClassDef):
                yield from self._in_body(statement.body, scope)
            else:
                yield from self._in_node(statement, scope)

    def _in_node(self, node: ast.AST, scope: Scope) -> Iterator[_Place]:
        if isinstance(node, Function):
            scope = scope.inside(node)
        yield from self._at(node, scope)
        for child in ast.iter_child_nodes(node):
            yield from self._in_node(child, scope)

    def _at(self, node: ast.AST, scope: Scope) -> Iterator[_Place]:
        match node:
            case ast.AugAssign(target=ast.Subscript() as target, op=ast.Add()):
                yield from self._counted(target, scope)
            case ast.Assign(targets=targets):
                for assigned in targets:
                    if isinstance(assigned, ast.Subscript):
                        yield from self._counted(assigned, scope)
            case ast.Subscript():
                yield from (place for place in self._counted(node, scope) if _is_known(place))
            case ast.Call(func=ast.Attribute(value=owner, attr="update"), args=arguments, keywords=keywords):
                keys = [key for argument in arguments if isinstance(argument, ast.Dict) for key in argument.keys]
                names = {shape for key in keys if key for shape in string_shapes(key, scope)}
                names |= {(Text(keyword.arg),) for keyword in keywords if keyword.arg}
                yield from self._named(owner, names, scope, node.lineno)
            case ast.Call(func=ast.Attribute(value=owner, attr="get"), args=[ast.Constant(value=str() as name), *_]):
                yield from self._named(owner, {(Text(name),)}, scope, node.lineno)

    def _counted(self, target: ast.Subscript, scope: Scope) -> Iterator[_Place]:
        return self._named(target.value, string_shapes(target.slice, scope), scope, target.lineno)

    def _named(self, owner: ast.expr, names: set[Shape], scope: Scope, line: int) -> Iterator[_Place]:
        """Yield the place of ``names`` in ``owner`` if that is one namespace's counters."""
        for namespace in self._namespaces(owner, scope):
            yield _Place(frozenset(string_shapes(namespace, scope)), frozenset(names), f"{self._path}:{line}")

    def _namespaces(self, node: ast.expr, scope: Scope) -> Iterator[ast.expr]:
        match node:
            case ast.Subscript(value=owner, slice=namespace) if self._is_counters(owner):
                yield namespace
            case ast.Name(id=name):
                values = scope.values(name)
                for value in values if isinstance(values, list) else []:
                    if isinstance(value, ast.Subscript) and self._is_counters(value.value):
                        yield value.slice

    def _aliases(self) -> Iterator[str]:
        """Yield the module variables that are one namespace's counters."""
        for statement in self._tree.body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Subscript(value=owner)) if self._is_counters(owner):
                    yield name

    def _is_counters(self, node: ast.expr) -> bool:
        match node:
            case ast.Name(id=name):
                return name in self._imported
            case ast.Attribute(value=ast.Attribute(attr=module) | ast.Name(id=module), attr="counters"):
                return module.endswith("utils")
        return False

    @cached_property
    def _imported(self) -> frozenset[str]:
        """The names of dynamo's counters in this file."""
        own = {"counters"} if self._path == "_dynamo/utils.py" else set()
        imports = (node for node in statements(self._tree) if isinstance(node, ast.ImportFrom))
        aliases = (alias for node in imports if (node.module or "").split(".")[-1] == "utils" for alias in node.names)
        return frozenset(own | {alias.asname or alias.name for alias in aliases if alias.name == "counters"})


def _is_known(place: _Place) -> bool:
    """Whether a read access has constant names; ``counters["inductor"][key]`` in a loop has none."""
    return all(literal(shape) is not None for shape in place.namespace | place.name)


# -- all names --------------------------------------------------------------------------------------------------------


METRICS_FILE = "_inductor/metrics.py"
MODES_FILE = "_inductor/__init__.py"


def scan(path: Path) -> Names:
    """Return all names of the torch in ``path``."""
    source = open_source(path)
    counters, unresolved = scan_counters(source)
    options = {kind: scan_types(source, kind) for kind in CONFIG_FILES}
    facts = version_facts(read(source, VERSION_FILE).decode(), source.root.name)
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
