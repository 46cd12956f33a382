"""Scans the source of torch for the names of options, counters and metrics. Nothing is imported or executed."""

import ast
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

from runner.language.names.name_table import CONFIG_FILES, COUNTER, KINDS, METRIC, Allowed, Names
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


class _Place(NamedTuple):
    namespace: frozenset[Shape]
    name: frozenset[Shape]
    where: str


def scan_counters(source: Source) -> tuple[frozenset[str], dict[str, tuple[str, ...]], tuple[str, ...]]:
    """Return the counters, the patterns of each namespace, and the places with an unknown namespace."""
    places = [place for path in _files_with(source, b"counters") for place in _File(source, path).places()]
    passed = _arguments(source, places)
    names: set[str] = set()
    patterns: dict[str, set[str]] = defaultdict(set)
    unresolved: list[str] = []
    for place in places:
        spaces = [literal(shape) for shape in _filled(place.namespace, passed)]
        if None in spaces:
            unresolved.append(place.where)
        for space, shape in product(filter(None, spaces), _filled(place.name, passed)):
            name = literal(shape)
            patterns[space].update([pattern(shape)] if name is None else [])
            names.update([f"{space}.{name}"] if name is not None else [])
    # a pattern that matches everything replaces all others
    least = {space: (ANYTHING,) if ANYTHING in patterns[space] else tuple(sorted(patterns[space])) for space in sorted(patterns)}
    return frozenset(names), least, tuple(unresolved)


def _files_with(source: Source, mention: bytes) -> list[str]:
    return [path for folder in FOLDERS for path in source.below(folder) if mention in (source.read(path) or b"")]


def _arguments(source: Source, places: Iterable[_Place]) -> dict[Parameter, set[Shape]]:
    """Return for each parameter of a helper function the shapes of its arguments in all files; none if the function is never called."""
    shapes = {shape for place in places for shape in place.namespace | place.name}
    passed: dict[Parameter, set[Shape]] = {part: set() for shape in shapes for part in shape if isinstance(part, Parameter)}
    for function in sorted({parameter.function for parameter in passed}):
        own = [parameter for parameter in passed if parameter.function == function]
        for path in _files_with(source, f"{function}(".encode()):
            for node in ast.walk(parse(source, path)):
                match node:
                    case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) as call if name == function:
                        for parameter in own:
                            passed[parameter] |= _argument(call, parameter)
    return passed


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
        imports = (node for node in statements(self._tree) if isinstance(node, ast.ImportFrom))
        aliases = [alias for node in imports if (node.module or "").split(".")[-1] == "utils" for alias in node.names]
        self._imported = {alias.asname or alias.name for alias in aliases if alias.name == "counters"}
        """The names of dynamo's counters in this file."""
        if path == "_dynamo/utils.py":
            self._imported.add("counters")
        words = {"counters", *self._imported}
        for statement in self._tree.body:
            match statement:  # a module variable that is one namespace's counters
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Subscript(value=owner)) if self._is_counters(owner):
                    words.add(name)
        lines = enumerate(read(source, path).split(b"\n"), 1)
        self._lines = [number for number, line in lines if any(word.encode() in line for word in words)]

    def places(self) -> Iterator[_Place]:
        """Walk the statements that mention counters, which are few."""
        remaining = [*self._tree.body]
        module = Scope.of_module(self._tree)
        while remaining:
            statement = remaining.pop(0)
            if any(statement.lineno <= line <= (statement.end_lineno or 0) for line in self._lines):
                if isinstance(statement, ast.ClassDef):
                    remaining[:0] = statement.body
                else:
                    yield from self._in_node(statement, module)

    def _in_node(self, node: ast.AST, scope: Scope) -> Iterator[_Place]:
        if isinstance(node, Function):
            scope = scope.inside(node)
        counted: list[tuple[ast.expr, Iterable[Shape]]] = []
        """The counters of one namespace, and the names that are counted in it."""
        match node:
            case ast.AugAssign(target=ast.Subscript() as target, op=ast.Add()):
                counted = [(target.value, string_shapes(target.slice, scope))]
            case ast.Assign(targets=targets):
                subscripts = [target for target in targets if isinstance(target, ast.Subscript)]
                counted = [(target.value, string_shapes(target.slice, scope)) for target in subscripts]
            case ast.Subscript(value=owner, slice=key):
                counted = [(owner, string_shapes(key, scope))]
            case ast.Call(func=ast.Attribute(value=owner, attr="update"), args=arguments, keywords=keywords):
                keys = [key for argument in arguments if isinstance(argument, ast.Dict) for key in argument.keys if key]
                names = {shape for key in keys for shape in string_shapes(key, scope)}
                counted = [(owner, names | {(Text(keyword.arg),) for keyword in keywords if keyword.arg})]
            case ast.Call(func=ast.Attribute(value=owner, attr="get"), args=[ast.Constant(value=str() as name), *_]):
                counted = [(owner, {(Text(name),)})]
        for owner, shapes in counted:
            for namespace in self._namespaces(owner, scope):
                place = _Place(frozenset(string_shapes(namespace, scope)), frozenset(shapes), f"{self._path}:{getattr(node, 'lineno', 0)}")
                # a read access with names that are no constants shows none: ``counters["inductor"][key]`` in a loop
                if not isinstance(node, ast.Subscript) or all(literal(shape) is not None for shape in place.namespace | place.name):
                    yield place
        for child in ast.iter_child_nodes(node):
            yield from self._in_node(child, scope)

    def _namespaces(self, node: ast.expr, scope: Scope) -> Iterator[ast.expr]:
        match node:
            case ast.Subscript(value=owner, slice=namespace) if self._is_counters(owner):
                yield namespace
            case ast.Name(id=name):
                values = scope.values(name)
                for value in values if isinstance(values, list) else []:
                    if isinstance(value, ast.Subscript) and self._is_counters(value.value):
                        yield value.slice

    def _is_counters(self, node: ast.expr) -> bool:
        match node:
            case ast.Name(id=name):
                return name in self._imported
            case ast.Attribute(value=ast.Attribute(attr=module) | ast.Name(id=module), attr="counters"):
                return module.endswith("utils")
        return False


# -- all names --------------------------------------------------------------------------------------------------------


METRICS_FILE = "_inductor/metrics.py"
MODES_FILE = "_inductor/__init__.py"


def scan(path: Path) -> Names:
    """Return all names of the torch in ``path``."""
    source = open_source(path)
    counters, patterns, unresolved = scan_counters(source)
    options = {kind: scan_types(source, kind) for kind in CONFIG_FILES}
    facts = version_facts(read(source, VERSION_FILE).decode(), source.root.name)
    return Names(
        version=".".join(str(number) for number in release(facts["__version__"] or "")),
        names={**{kind: frozenset(options[kind]) for kind in CONFIG_FILES}, METRIC: scan_metrics(source), COUNTER: counters},
        patterns=patterns,
        types={kind: {name: allowed for name, allowed in options[kind].items() if allowed} for kind in CONFIG_FILES},
        modes=scan_modes(source),
        unresolved=unresolved,
    )


def scan_kind(root: Path, kind: str) -> tuple[frozenset[str], Mapping[str, tuple[str, ...]]]:
    """Return the names of one kind in the torch in ``root``, and the patterns of counters."""
    source = Source(root)
    if kind == COUNTER:
        return scan_counters(source)[:2]
    return frozenset(scan_types(source, kind)) if kind in CONFIG_FILES else scan_metrics(source), {}


def scan_types(source: Source, kind: str) -> dict[str, Allowed]:
    """Return the dotted options of one config module with their allowed values; empty if the source does not show them."""
    return _options(parse(source, CONFIG_FILES[kind]).body, {})


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
    metrics = {name for name, value in assigned.items() if isinstance(value, ast.Constant) and type(value.value) in (int, float)}
    for node in (node for node in body if isinstance(node, ast.FunctionDef) and node.name == "reset"):
        for leaf in ast.walk(node):
            match leaf:
                case ast.Name(id=name, ctx=ast.Store()) | ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="clear")):
                    metrics.update([name] if name in assigned else [])
    return frozenset(metrics)


def _options(body: Sequence[ast.stmt], outer: Mapping[str, Allowed]) -> dict[str, Allowed]:
    """Evaluate a body statement by statement, without executing it, with the result of ``install_config_module``.

    Options are variables with data as values, private ones included. Dunders, functions, lambdas, imports and names of types are not
    options. Classes become groups, whose options are dotted; ``@inherit_fields_from(parent)`` copies the parent's public options.
    ``outer`` are the options around a class.
    """
    options: dict[str, Allowed] = {}
    remaining = [*reversed(body)]
    while remaining:
        statement = remaining.pop()
        match statement:
            case ast.Assign() | ast.AnnAssign():
                annotation = statement.annotation if isinstance(statement, ast.AnnAssign) else None
                whole = statement.value if isinstance(statement, ast.AnnAssign) or isinstance(statement.targets[0], ast.Name) else None
                for name, value in _assigned(statement):
                    if not name.startswith("__") and _is_data(value):
                        # an option that is assigned twice, as under an ``if``, takes the values of both assignments
                        before, allowed = options.get(name), allowed_values(annotation, whole)
                        is_known = before is None or (before and allowed)
                        options[name] = tuple(dict.fromkeys([*(before or ()), *allowed])) if is_known else ()
            case ast.ClassDef(name=group):
                known = {**outer, **options}
                own = _options(statement.body, known)
                for decorator in statement.decorator_list:
                    match decorator:
                        case ast.Call(func=ast.Name(id="inherit_fields_from"), args=[ast.Name(id=parent)]):
                            inherited = {name.removeprefix(f"{parent}."): known[name] for name in known if name.startswith(f"{parent}.")}
                            own = {**{name: inherited[name] for name in inherited if not name.startswith("_")}, **own}
                options |= {f"{group}.{name}": allowed for name, allowed in own.items()}
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                options.pop(name, None)
            case ast.Delete(targets=targets):
                for target in targets:
                    options.pop(ast.unparse(target), None)
            case ast.If(test=test):
                taken = _known_test(test)
                branches = [*(statement.body if taken is not False else []), *(statement.orelse if taken is not True else [])]
                remaining.extend(reversed(branches))
            case _:
                bodies = [getattr(statement, part, []) for part in ("body", "orelse", "finalbody")]
                bodies += [handler.body for handler in getattr(statement, "handlers", [])]
                remaining.extend(reversed([inner for inner_body in bodies for inner in inner_body]))
    return options


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


# -- values of options -----------------------------------------------------------------------------------------------


_NAMES = {"bool": "bool", "int": "int", "float": "float", "str": "str", "None": "null", "dict": "map", "Dict": "map", "Mapping": "map"}
_NAMES |= dict.fromkeys(("list", "List", "tuple", "Tuple", "set", "Set", "frozenset", "Sequence"), "list")
_UNKNOWN = "?"


def allowed_values(annotation: ast.expr | None, default: ast.expr | None) -> Allowed:
    """Return the allowed values of an option, from its annotation and its default."""
    of_default = _kind_of(default)
    words = [*_annotated(annotation), *of_default] if annotation is not None else of_default
    if not words or _UNKNOWN in words or (annotation is None and "null" in words):
        return ()
    literals = [text for text in words if text not in KINDS]
    kinds = [kind for kind in KINDS if kind in words]
    if literals and annotation is not None:
        # the default is one of the literals and does not allow its whole kind
        kinds = [kind for kind in KINDS if kind in _annotated(annotation)]
    return (*sorted(set(literals)), *kinds)


def _annotated(annotation: ast.expr | None) -> list[str]:
    match annotation:
        case ast.Constant(value=None):
            return ["null"]
        case ast.Constant(value=str(text)):
            return _annotated(ast.parse(text, mode="eval").body)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return [_NAMES.get(name, _UNKNOWN)]
        case ast.BinOp(op=ast.BitOr(), left=left, right=right):
            return [*_annotated(left), *_annotated(right)]
        case ast.Subscript(value=ast.Name(id=name) | ast.Attribute(attr=name), slice=inner):
            parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            if name in ("Optional", "Union", "ClassVar", "Final"):
                return [word for part in parts for word in _annotated(part)] + (["null"] if name == "Optional" else [])
            if name == "Literal":
                return [json.dumps(part.value) if isinstance(part, ast.Constant) else _UNKNOWN for part in parts]
            return [_NAMES.get(name, _UNKNOWN)]
    return [_UNKNOWN]


def _kind_of(value: ast.expr | None) -> list[str]:
    """Return the kind of a default if its expression shows it, else nothing."""
    match value:
        case ast.Constant(value=None):
            return ["null"]
        case ast.Constant(value=bool()) | ast.Compare() | ast.UnaryOp(op=ast.Not()) | ast.Call(func=ast.Name(id="bool")):
            return ["bool"]
        case ast.Constant(value=int()) | ast.Call(func=ast.Name(id="int")) | ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int())):
            return ["int"]
        case ast.Constant(value=float()) | ast.Call(func=ast.Name(id="float")):
            return ["float"]
        case ast.Constant(value=str()) | ast.JoinedStr() | ast.Call(func=ast.Attribute(attr="upper" | "lower" | "strip")):
            return ["str"]
        case ast.Call(func=ast.Attribute(attr="get", value=ast.Attribute(attr="environ")), args=[_, ast.Constant(value=str())]):
            return ["str"]
        case ast.List() | ast.Tuple() | ast.Set():
            return ["list"]
        case ast.Dict():
            return ["map"]
    return []
