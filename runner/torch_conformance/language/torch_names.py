"""Names of torch: options, counters and metrics of each minor of the committed list, and of the
installed torch.

Its source is scanned for them; nothing of it is imported or executed. What the scan gave is kept in
the cache folder.
"""

import ast
import contextlib
import gc
import hashlib
import json
import os
import re
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import chain, compress, product
from pathlib import Path

from torch_conformance.machine.cache_dirs import cache_folder
from torch_conformance.machine.installed_torch import InstalledTorch, minor, release, version_facts
from torch_conformance.model.diagnostics import (
    Diagnostic,
    UsageError,
    nearest,
    one_of,
    unknown_word,
)
from torch_conformance.model.document import DataPath, Document
from torch_conformance.model.problem_texts import shown_types
from torch_conformance.model.values import frozen

CONFIG_FILES = {
    "config": "_inductor/config.py",
    "dynamo_config": "_dynamo/config.py",
    "functorch_config": "_functorch/config.py",
}
"""The files of the options, by the sections of a spec that set them."""
COUNTER = "counter"
METRIC = "metric"

Allowed = tuple[str, ...]
"""Words of ``KINDS``, and literals in JSON notation; empty if the source does not show the values.
"""

KINDS = ("bool", "int", "float", "str", "null", "list", "map")

PATTERN = "pattern"
MODE = "mode"
OPERATOR = "operator"
DECIDES = "decides"
Entry = tuple[str, str, str]
"""A kind, what is said of a name, and the name, as the committed list groups them.

Of an operator the list says what it takes, of an option that decides others, which.
"""


@dataclass(frozen=True, kw_only=True)
class Names:
    """All names of one torch version."""

    version: str
    entries: frozenset[Entry]
    unresolved: tuple[str, ...] = field(default=(), compare=False)
    """Source positions with an unknown namespace: counters may be lacking."""

    @cached_property
    def names(self) -> Mapping[str, frozenset[str]]:
        """The dotted options of each key of ``CONFIG_FILES``, the metrics, and the counters as
        ``NAMESPACE.NAME``.
        """
        return {
            kind: frozenset(name for entry_kind, _, name in self.entries if entry_kind == kind)
            for kind in (*CONFIG_FILES, METRIC, COUNTER)
        }

    @cached_property
    def patterns(self) -> Mapping[str, tuple[str, ...]]:
        """For each namespace of counters the anchored patterns of names that are made at run
        time.
        """
        by_space = sorted(
            (space, pattern) for kind, space, pattern in self.entries if kind == PATTERN
        )
        spaces = sorted(
            {
                *(space for space, _ in by_space),
                *(name.partition(".")[0] for name in self.names[COUNTER]),
            }
        )
        return {
            space: tuple(pattern for pattern_space, pattern in by_space if pattern_space == space)
            for space in spaces
        }

    @cached_property
    def types(self) -> Mapping[str, Mapping[str, Allowed]]:
        """For each key of ``CONFIG_FILES`` the options with known values, and these values
        (``allowed_values``).
        """
        return {
            kind: {
                name: tuple(types.split(" | "))
                for entry_kind, types, name in self.entries
                if entry_kind == kind and types
            }
            for kind in CONFIG_FILES
        }


METRICS_FILE = "_inductor/metrics.py"
MODES_FILE = "_inductor/__init__.py"
_OF_TORCH = CONFIG_FILES["config"]
"""A file that distinguishes torch's package from other folders with a version.py."""


def scan(path: Path) -> Names:
    """Return all names of the torch in ``path``: its package folder, or the parent of that folder.

    ``UsageError`` if there is none.

    Without Python's garbage collector, which takes two thirds of the time for the nodes of trees.
    """
    roots = (
        root
        for root in (path, path / "torch")
        if (root / "version.py").is_file() and (root / _OF_TORCH).is_file()
    )
    if (root := next(roots, None)) is None:
        raise UsageError(f"{path} contains no torch: version.py or {_OF_TORCH} is missing")
    gc.disable()
    try:
        counters, patterns, unresolved = scan_counters(root)
        trees = {kind: _parse(root / file) for kind, file in CONFIG_FILES.items()}
        options = {kind: _options(trees[kind].body, {}) for kind in CONFIG_FILES}
    finally:
        gc.enable()
    facts = version_facts((root / "version.py").read_text("utf-8"), root.name)
    entries = {
        (kind, " | ".join(allowed), name)
        for kind in CONFIG_FILES
        for name, allowed in options[kind].items()
    }
    entries |= {(COUNTER, "", name) for name in counters} | {
        (METRIC, "", name) for name in scan_metrics(root)
    }
    entries |= {
        (DECIDES, " | ".join(decided), name)
        for name, decided in _decided_at_import(trees["config"].body, options["config"]).items()
    }
    entries |= {(PATTERN, space, pattern) for space in patterns for pattern in patterns[space]}
    entries |= {(MODE, "", mode) for mode in scan_modes(root)}
    return Names(
        version=str(facts["__version__"]).partition("+")[0],
        entries=frozenset(entries),
        unresolved=unresolved,
    )


_MOST_KEPT = 16
"""The maximum number of torches whose names are kept in the cache folder."""


def names_of_source(torch: InstalledTorch) -> Names:
    """Return ``scan`` of a torch, from the cache folder where an earlier call with the same files
    kept it.

    The file is named after torch's commit and all sizes and times: the files of a checkout change
    under one commit.
    """
    files = (
        os.path.join(place, name)
        for folder in FOLDERS
        for place, _, names in os.walk(torch.root / folder)
        for name in names
        if name.endswith(".py")
    )
    stats = ((file, os.stat(file)) for file in sorted(files))
    stamps = [(file, stat.st_size, stat.st_mtime_ns) for file, stat in stats]
    key = hashlib.sha256(
        repr([torch.version, stamps, Path(__file__).read_bytes()]).encode()
    ).hexdigest()
    if (folder := cache_folder("names")) is None:
        return scan(torch.root)
    file = folder / f"{torch.git[:12]}-{key[:16]}.json"
    with contextlib.suppress(OSError, ValueError):
        return Names(
            version=torch.version.partition("+")[0],
            entries=frozenset(map(tuple, json.loads(file.read_bytes()))),
        )
    names = scan(torch.root)
    with contextlib.suppress(OSError):  # a full disk
        part = file.with_suffix(f".{secrets.token_hex(4)}")
        part.write_text(json.dumps([*names.entries]), "utf-8")
        part.replace(file)
        for old in sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)[:-_MOST_KEPT]:
            old.unlink()
    return names


def _parse(file: Path) -> ast.Module:
    try:
        return ast.parse(file.read_bytes())
    except OSError as problem:
        raise UsageError(f"torch has no {file}") from problem
    except SyntaxError as problem:
        raise UsageError(f"{file} is not valid for this Python version: {problem}") from problem


# -- counters --------------------------------------------------------------------------------------


FOLDERS = ("_dynamo", "_inductor", "_functorch", "_higher_order_ops", "fx", "_subclasses")
"""The folders below ``torch`` with code that increments torch.compile's counters."""
ANYTHING = ".*"
_DEEPEST = 8
"""The maximum number of variables followed in a row, so that ``x = x + "a"`` ends."""
_DEFINITION = re.compile(rb"^(?:async def|def|class)\b.*\n(?:(?:[ \t#)\]].*)?\n)*", re.MULTILINE)
"""A function or class of a module, by the indentation of its lines."""
_HOLE = "\0"
"""In a text, a part that is known only at run time."""


def scan_counters(root: Path) -> tuple[frozenset[str], dict[str, tuple[str, ...]], tuple[str, ...]]:
    """Return the counters, the patterns of each namespace, and the places with an unknown
    namespace.
    """
    names: set[str] = set()
    patterns: dict[str, set[str]] = defaultdict(set)
    unresolved: list[str] = []
    for place, namespace, text in _Counters(root).used():
        if _HOLE in namespace:
            unresolved += [] if text == _HOLE else [place]
        elif _HOLE not in text:
            names.add(f"{namespace}.{text}")
        elif text == _HOLE:
            patterns[namespace].add(ANYTHING)
        else:
            patterns[namespace].add(".+".join(map(re.escape, text.split(_HOLE))))
    # a pattern that matches everything replaces all others
    least = {
        space: (ANYTHING,) if ANYTHING in patterns[space] else tuple(sorted(patterns[space]))
        for space in sorted(patterns)
    }
    return frozenset(names), least, tuple(dict.fromkeys(unresolved))


class _Counters:
    """The files of a torch that may use counters, each parsed as far as it is needed: to parse and
    walk all of them takes seconds.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._contents = {
            file: file.read_bytes()
            for folder in FOLDERS
            for file in sorted((root / folder).rglob("*.py"))
        }
        self._parsed: dict[tuple[Path, bytes], list[ast.stmt]] = {}

    def used(self) -> Iterator[tuple[str, str, str]]:
        """Yield the place, namespace and name of each counter that the source increments or reads;
        ``_HOLE`` is in the place of a part that is known only at run time.
        """
        for file, content in self._contents.items():
            if not re.search(rb"counters\s*\[", content):
                continue
            relative = file.relative_to(self._root).as_posix()
            outside = [
                block
                for block in self._blocks_of(file, b"counters")
                if not isinstance(block, _FUNCTION)
            ]
            of_module = _assigned(node for block in outside for node in ast.walk(block))
            for block in self._blocks_with(file, b"counters"):
                nodes = [*ast.walk(block)]
                values = of_module
                if isinstance(block, _FUNCTION):
                    values = of_module | _parameters(nodes, self._passed) | _assigned(nodes)
                for node in nodes:
                    if isinstance(node, ast.Subscript):
                        place = f"{relative}:{node.lineno}"
                        yield from ((place, *counter) for counter in _counters_of(node, values))

    def _blocks_of(self, file: Path, text: bytes) -> list[ast.stmt]:
        """Return the blocks of a file; functions and classes without a text are left empty."""

        def without_body(definition: re.Match[bytes]) -> bytes:
            # within an open string a line may begin as a statement of the module does
            is_cut = definition[0].count(b'"""') % 2
            return (
                definition[0]
                if text in definition[0] or is_cut
                else b"def _(): ..." + b"\n" * definition[0].count(b"\n")
            )

        if (file, text) not in self._parsed:
            try:
                tree = ast.parse(_DEFINITION.sub(without_body, self._contents[file]))
            except SyntaxError:
                tree = _parse(file)
            self._parsed[file, text] = [*_blocks(tree.body)]
        return self._parsed[file, text]

    def _blocks_with(self, file: Path, text: bytes) -> list[ast.stmt]:
        """Return the blocks of a file that have a text in their lines."""
        lines = [
            number
            for number, line in enumerate(self._contents[file].split(b"\n"), 1)
            if text in line
        ]
        return [
            block
            for block in self._blocks_of(file, text)
            if any(block.lineno <= number <= (block.end_lineno or 0) for number in lines)
        ]

    def _passed(
        self, function: str, parameter: str, index: int | None
    ) -> Iterator[ast.expr | None]:
        """Yield what the calls of a function in all files pass for a parameter, which has an index
        among the positional ones; None where a call does not show it.
        """
        call = f"{function}(".encode()
        for file in [file for file, content in self._contents.items() if call in content]:
            for node in chain.from_iterable(map(ast.walk, self._blocks_with(file, call))):
                match node:
                    case ast.Call(
                        func=ast.Name(id=name) | ast.Attribute(attr=name),
                        args=args,
                        keywords=keywords,
                    ) if name == function:
                        if any(isinstance(arg, ast.Starred) for arg in args) or any(
                            keyword.arg is None for keyword in keywords
                        ):
                            yield None
                        yield from [
                            keyword.value for keyword in keywords if keyword.arg == parameter
                        ]
                        yield from [] if index is None else args[index : index + 1]


def _counters_of(node: ast.Subscript, values: "_Values") -> list[tuple[str, str]]:
    """Return the namespaces and names that ``counters[NAMESPACE][NAME]`` may have; none for another
    subscript.
    """
    if not (isinstance(node.value, ast.Subscript) and _is_counters(node.value.value)):
        return []
    counters = [*product(_texts(node.value.slice, values), _texts(node.slice, values))]
    # a read with names that are not constant shows none: ``counters["inductor"][key]`` in a loop
    is_open = any(_HOLE in space + name for space, name in counters)
    return [] if is_open and isinstance(node.ctx, ast.Load) else counters


_FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
_Values = dict[str, list[ast.expr | None]]
"""The values of each name; None is one that is not followed."""


def _blocks(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module, and those of its classes in their place."""
    for statement in body:
        yield from _blocks(statement.body) if isinstance(statement, ast.ClassDef) else [statement]


def _is_counters(node: ast.expr) -> bool:
    match node:
        case ast.Name(id="counters"):
            return True
        case ast.Attribute(value=ast.Attribute(attr=module) | ast.Name(id=module), attr="counters"):
            return module.endswith("utils")
    return False


def _assigned(nodes: Iterable[ast.AST]) -> _Values:
    """Return what the nodes bind to each name; a statement comes before its parts."""
    values: dict[ast.expr, ast.expr] = {}
    assigned: _Values = defaultdict(list)
    for node in nodes:
        match node:
            case ast.Assign(targets=targets, value=value):
                values |= dict.fromkeys(targets, value)
            case (
                ast.AnnAssign(target=target, value=ast.expr() as value)
                | ast.NamedExpr(target=target, value=value)
            ):
                values[target] = value
            case ast.Name(id=name, ctx=ast.Store()):
                assigned[name].append(values.get(node))
    return dict(assigned)


def _parameters(
    nodes: Sequence[ast.AST], passed: Callable[[str, str, int | None], Iterable[ast.expr | None]]
) -> _Values:
    """Return what callers pass for each parameter that a function uses in the name of a counter,
    and its default.
    """
    used: set[str] = set()
    for node in nodes:
        match node:
            case ast.Subscript(value=ast.Subscript(value=owner)) if _is_counters(owner):
                used |= {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
    values: _Values = {}
    for function in nodes:
        if isinstance(function, _FUNCTION):
            arguments = function.args
            positional = [*arguments.posonlyargs, *arguments.args]
            defaults = [
                *[None] * (len(positional) - len(arguments.defaults)),
                *arguments.defaults,
                *arguments.kw_defaults,
            ]
            receiver = [argument.arg for argument in positional[:1]] in (["self"], ["cls"])
            for index, argument in enumerate([*positional, *arguments.kwonlyargs]):
                if argument.arg in used - {"self", "cls"}:  # an object has no text
                    at = index - receiver if index < len(positional) else None
                    values[argument.arg] = [
                        *passed(function.name, argument.arg, at),
                        *filter(None, [defaults[index]]),
                    ] or [None]
    return values


def _texts(node: ast.expr | None, values: _Values, depth: int = 0) -> set[str]:
    """Return the possible values of a string expression."""
    match node:
        case ast.Constant(value=str() as text):
            return {text}
        case ast.IfExp(body=first, orelse=second):
            return _texts(first, values, depth) | _texts(second, values, depth)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return set(
                map("".join, product(_texts(left, values, depth), _texts(right, values, depth)))
            )
        case ast.JoinedStr(values=parts):
            return set(map("".join, product(*(_texts(part, values, depth) for part in parts))))
        case ast.FormattedValue(value=value):
            return _texts(value, values, depth)
        case ast.Name(id=name) if depth < _DEEPEST:
            return {
                text
                for value in values.get(name, [None])
                for text in _texts(value, values, depth + 1)
            }
        case ast.Call(func=ast.Attribute(attr="get" | "getenv"), args=[_, default]):
            return _texts(default, values, depth)
    return {_HOLE}


# -- options and metrics ---------------------------------------------------------------------------


def scan_modes(root: Path) -> list[str]:
    """Return the modes of ``torch.compile``; empty if the source does not show them."""
    values = (
        _assigned(ast.walk(_parse(root / MODES_FILE))).get("mode_options", [])
        if (root / MODES_FILE).is_file()
        else []
    )
    keys = [
        key.value
        for value in values
        if isinstance(value, ast.Dict)
        for key in value.keys
        if isinstance(key, ast.Constant)
    ]
    return [key for key in keys if isinstance(key, str)]


def scan_metrics(root: Path) -> frozenset[str]:
    """Return inductor's metrics: module variables that start as a number or that ``reset``
    resets.
    """
    body = _parse(root / METRICS_FILE).body
    assigned = {name: value for statement in body for name, value in _bound(statement)}
    metrics = {
        name
        for name, value in assigned.items()
        if isinstance(value, ast.Constant) and type(value.value) in (int, float)
    }
    for node in (
        node for node in body if isinstance(node, ast.FunctionDef) and node.name == "reset"
    ):
        for leaf in ast.walk(node):
            match leaf:
                case (
                    ast.Name(id=name, ctx=ast.Store())
                    | ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="clear"))
                ):
                    metrics.update([name] if name in assigned else [])
    return frozenset(metrics)


def _options(body: Sequence[ast.stmt], outer: Mapping[str, Allowed]) -> dict[str, Allowed]:
    """Evaluate a body without executing it, with the result of ``install_config_module``.

    Options are variables with data as values, private ones included. Dunders, functions, lambdas,
    imports and names of types are not options. Classes become groups, whose options are dotted;
    A decorator that is called with a group gives the public options of that group, whatever its
    name: ``@inherit_fields_from(parent)`` copies them, ``@alias_fields_from(parent)`` refers to
    them. ``outer`` are the options around a class.
    """
    options: dict[str, Allowed] = {}
    for statement in _flat(body):
        match statement:
            case ast.Assign() | ast.AnnAssign():
                annotation = statement.annotation if isinstance(statement, ast.AnnAssign) else None
                whole = (
                    statement.value
                    if isinstance(statement, ast.AnnAssign)
                    or isinstance(statement.targets[0], ast.Name)
                    else None
                )
                for name, value in _bound(statement):
                    if not name.startswith("__") and _is_data(value):
                        # an option that is assigned twice, as under an ``if``, takes the values of
                        # both assignments
                        before, allowed = options.get(name), allowed_values(annotation, whole)
                        is_known = before is None or (before and allowed)
                        options[name] = (
                            tuple(dict.fromkeys([*(before or ()), *allowed])) if is_known else ()
                        )
            case ast.ClassDef(name=group):
                visible = {**outer, **options}
                members = _options(statement.body, visible)
                for decorator in statement.decorator_list:
                    match decorator:
                        case ast.Call(args=[ast.Name(id=parent)]):
                            inherited = {
                                name.removeprefix(f"{parent}."): visible[name]
                                for name in visible
                                if name.startswith(f"{parent}.")
                            }
                            members = {
                                **{
                                    name: inherited[name]
                                    for name in inherited
                                    if not name.startswith("_")
                                },
                                **members,
                            }
                options |= {f"{group}.{name}": allowed for name, allowed in members.items()}
    return options


def _decided_at_import(
    body: Iterable[ast.stmt], options: Iterable[str], test: frozenset[str] = frozenset()
) -> dict[str, list[str]]:
    """Return the options from which others get their values while the module is imported, with
    these others, at the top of the module. ``test`` are the options of an ``if`` around the body.

    To set such an option later does not set the others.
    """
    names = frozenset(options)
    decided: dict[str, list[str]] = defaultdict(list)

    def read(node: ast.expr) -> frozenset[str]:
        return frozenset(ast.unparse(part) for part in ast.walk(node) if _is_loaded(part)) & names

    for statement in body:
        match statement:
            case ast.If(test=condition, body=then, orelse=otherwise):
                for inner in (then, otherwise):
                    of_branch = _decided_at_import(inner, names, test | read(condition))
                    for name, others in of_branch.items():
                        decided[name] += others
            case (
                ast.Assign(targets=[target], value=value)
                | ast.AnnAssign(target=target, value=ast.expr() as value)
            ):
                for name in (test | read(value)) - {ast.unparse(target)}:
                    decided[name] += [ast.unparse(target)] if ast.unparse(target) in names else []
    return {name: sorted({*others}) for name, others in decided.items() if others}


def _is_loaded(node: ast.AST) -> bool:
    return isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load)


def _flat(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a body, those of compound statements in their place; without what no
    public torch executes.
    """
    for statement in body:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                continue
            case ast.If(
                test=ast.Name(id="TYPE_CHECKING") | ast.Call(func=ast.Name(id="is_fbcode")),
                orelse=otherwise,
            ):
                yield from _flat(otherwise)
            case ast.If() | ast.Try() | ast.With() | ast.For():
                handlers = [handler.body for handler in getattr(statement, "handlers", [])]
                for inner in (
                    statement.body,
                    *handlers,
                    getattr(statement, "orelse", []),
                    getattr(statement, "finalbody", []),
                ):
                    yield from _flat(inner)
            case _:
                yield statement


def _bound(statement: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names that an assignment binds, each with its value (for ``a, b = ...`` the whole
    right side).
    """
    match statement:
        case ast.Assign(targets=targets, value=value):
            names = (node for target in targets for node in ast.walk(target))
            yield from (
                (node.id, value)
                for node in names
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            )
        case ast.AnnAssign(
            target=ast.Name(id=name), annotation=annotation, value=ast.expr() as value
        ):
            if ast.unparse(annotation).rpartition(".")[2] != "TypeAlias":
                yield name, value


def _is_data(value: ast.expr) -> bool:
    """Whether a value can be that of an option: not a lambda, and not a type such as
    ``Callable[..., Any]``.
    """
    match value:
        case ast.Lambda():
            return False
        case ast.Subscript(value=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name not in {"Literal", "Callable", "Union", "Optional", "Annotated"}
    return True


# -- values of options -----------------------------------------------------------------------------


_NAMES = {
    "bool": "bool",
    "int": "int",
    "float": "float",
    "str": "str",
    "None": "null",
    "dict": "map",
    "Dict": "map",
    "Mapping": "map",
}
_NAMES |= dict.fromkeys(
    ("list", "List", "tuple", "Tuple", "set", "Set", "frozenset", "Sequence"), "list"
)
_UNKNOWN = "?"


def allowed_values(annotation: ast.expr | None, default: ast.expr | None) -> Allowed:
    """Return the allowed values of an option, from its annotation and its default."""
    of_annotation = _annotated(annotation) if annotation is not None else []
    of_default = _kind_of(default)
    words = [*of_annotation, *of_default]
    if not words or _UNKNOWN in words or (annotation is None and "null" in words):
        return ()
    literals = [text for text in words if text not in KINDS]
    # with literals, the default is one of them and does not allow its whole kind
    kinds = [
        kind
        for kind in KINDS
        if kind in (of_annotation if literals and annotation is not None else words)
    ]
    return (*sorted(set(literals)), *kinds)


def _annotated(annotation: ast.expr | None) -> list[str]:
    match annotation:
        case ast.Constant(value=None):
            return ["null"]
        case ast.Constant(value=str(text)):
            return _annotated(ast.parse(text, mode="eval").body)
        case ast.BinOp(op=ast.BitOr(), left=left, right=right):
            return [*_annotated(left), *_annotated(right)]
        case ast.Subscript(
            value=ast.Name(id=name) | ast.Attribute(attr=name) as outer, slice=inner
        ):
            parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            if name == "Literal":
                return [
                    json.dumps(part.value) if isinstance(part, ast.Constant) else _UNKNOWN
                    for part in parts
                ]
            if name in ("Optional", "Union", "ClassVar", "Final"):
                return [word for part in parts for word in _annotated(part)] + (
                    ["null"] if name == "Optional" else []
                )
            return _annotated(outer)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return [_NAMES.get(name, _UNKNOWN)]
    return [_UNKNOWN]


def _kind_of(value: ast.expr | None) -> list[str]:
    """Return the kind of a default if its expression shows it, else nothing."""
    match value:
        case ast.Constant(value=constant) if type(constant) in _OF_TYPES:
            return [_OF_TYPES[type(constant)]]
        case ast.Call(func=ast.Name(id="bool" | "int" | "float" as name)):
            return [name]
        case ast.Compare() | ast.UnaryOp(op=ast.Not()):
            return ["bool"]
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int())):
            return ["int"]
        case ast.JoinedStr() | ast.Call(func=ast.Attribute(attr="upper" | "lower" | "strip")):
            return ["str"]
        case ast.Call(
            func=ast.Attribute(attr="get", value=ast.Attribute(attr="environ")),
            args=[_, ast.Constant(value=str())],
        ):
            return ["str"]
        case ast.List() | ast.Tuple() | ast.Set():
            return ["list"]
        case ast.Dict():
            return ["map"]
    return []


_OF_TYPES: Mapping[type, str] = {
    type(None): "null",
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
}


# -- the committed list ----------------------------------------------------------------------------


LIST = Path(__file__).parent / "data" / "names.json"


def matches(patterns: Mapping[str, tuple[str, ...]], counter: str) -> bool:
    """Whether a pattern matches the counter. The name of a graph break is a text of many lines."""
    space, _, name = counter.partition(".")
    return bool(name) and any(
        re.fullmatch(pattern, name, re.DOTALL) for pattern in patterns.get(space, ())
    )


@cache
def committed_tables() -> Mapping[str, Names]:
    """Return what the committed list says of each minor version of torch, oldest first."""
    content = json.loads(LIST.read_text("utf-8"))
    versions = {minor(version): version for version in content["torch"]}
    minors, entries = [*versions], defaultdict[str, set[Entry]](set)
    for kind, span, types, names in content["names"]:
        since, dash, until = span.partition("-")
        last = until or (minors[-1] if dash else since)
        for name in minors[minors.index(since) : minors.index(last) + 1]:
            entries[name].update((kind, types, entry) for entry in names)
    return {
        name: Names(version=versions[name], entries=frozenset(entries[name])) for name in minors
    }


# -- values of options: kinds of JSON values, and literals -----------------------------------------


def fits(value: object, allowed: Allowed) -> bool:
    """Whether a value of a spec is allowed for an option."""
    kind = {**_OF_TYPES, list: "list", dict: "map"}.get(type(value))
    is_of_kind = kind is None or kind in allowed or (kind == "int" and "float" in allowed)
    return is_of_kind or (isinstance(value, str | int | float) and json.dumps(value) in allowed)


# -- look-ups --------------------------------------------------------------------------------------

LONGEST_VALUE = 60
"""The maximum length of a value in a message, in characters."""


@frozen
class Lookup:
    """The result of a lookup."""

    is_known: bool
    """Whether a minor of the committed list or the installed source has the name."""
    is_installed: bool
    """Whether the installed torch has the name. Without torch it equals ``known``."""
    versions: tuple[str, ...]
    """The minor versions of the list that have the name, oldest first."""
    hints: Mapping[str, str]
    """What is meant by an unknown name, or by one that only matches a pattern and resembles a
    listed one: arguments of its problem.
    """
    by_pattern: bool = False
    """Whether the name is known only by a pattern of a counter with run-time names; such a counter
    may never be incremented.
    """


class NameTables:
    """The committed list and the installed torch's source, each read at its first use.

    The kind of a name is the key above it in specs and tables: one of ``CONFIG_FILES``,
    ``COUNTER`` or ``METRIC``.
    """

    def __init__(self, installed: InstalledTorch | None) -> None:
        self.installed = installed
        self._tables = committed_tables()
        self.untested = ""
        """Why names are checked only against the installed torch: the list does not have its
        minor; else empty.
        """
        if installed is not None and installed.minor not in self._tables:
            oldest, *_, newest = self._tables
            is_newer = release(installed.minor) > release(newest)
            which = (
                f"newer than the newest tested, {newest}"
                if is_newer
                else f"older than the oldest tested, {oldest}"
            )
            self.untested = (
                f"torch {installed.version} is {which}: names are checked only against its source"
            )
        self._lookups: dict[tuple[str, str], Lookup] = {}

    def lookup(self, kind: str, name: str) -> Lookup:
        """Look a name up; results are cached."""
        if (kind, name) in self._lookups:
            return self._lookups[kind, name]
        has_name = [
            name in table.names[kind] or (kind == COUNTER and matches(table.patterns, name))
            for table in self._all
        ]
        versions = tuple(compress(self._tables, has_name))
        is_installed = (
            bool(versions) if self.installed is None else self.installed.minor in versions
        )
        if len(has_name) > len(self._tables):  # by its own source
            is_installed = has_name[-1]
        by_name = any(name in table.names[kind] for table in self._all)
        is_known = is_installed or bool(versions)
        hints = {} if by_name else self._hints(kind, name, is_known=is_known)
        self._lookups[kind, name] = Lookup(
            is_known=is_known,
            is_installed=is_installed,
            versions=versions,
            hints=hints,
            by_pattern=is_known and not by_name,
        )
        return self._lookups[kind, name]

    def absence(self, kind: str, name: str) -> str:
        """Return why a known name makes a case unavailable here; empty if the installed torch has
        it.
        """
        lookup = self.lookup(kind, name)
        if lookup.is_installed or not lookup.is_known or self.installed is None:
            return ""
        return (
            f"{kind} {name} is not in torch {self.installed.minor}, only in "
            f"{', '.join(lookup.versions)}"
        )

    def absent_argument(self, name: str) -> str:
        """Return why an argument of ``torch.compile`` makes a case unavailable here; empty if the
        installed torch has it.
        """
        if self.installed is None or name in self._compile_arguments:
            return ""
        return f"torch.compile of torch {self.installed.minor} has no argument {name}"

    def absent_operator(self, op: str) -> str:
        """Return why an operator of the newest minor makes a case unavailable with a torch that the
        list does not have; else empty.
        """
        if (
            not self.untested
            or self.installed is None
            or op in (operators := database_of(self.installed.root))
            or not operators
        ):
            return ""
        return f"operator {op} is not in torch {self.installed.minor}"

    def decided_at_import(self, name: str) -> str:
        """Return the options that an option of Inductor decides while torch is imported; empty for
        none.
        """
        tables = self._all[-1:] if self.installed is not None else self._all
        return next(
            (
                others.replace(" | ", ", ")
                for table in reversed(tables)
                for kind, others, deciding in table.entries
                if kind == DECIDES and deciding == name
            ),
            "",
        )

    def value_problem(self, kind: str, name: str, value: object) -> Diagnostic | None:
        """Return the problem of a value that no torch with known types allows for an option; None
        if it is allowed or unknown.
        """
        allowed_types = [
            table.types[kind][name] for table in self._all if name in table.types.get(kind, {})
        ]
        if not allowed_types or any(fits(value, allowed) for allowed in allowed_types):
            return None
        written = json.dumps(value, default=str)
        shortened = written if len(written) <= LONGEST_VALUE else f"{written[:LONGEST_VALUE]}..."
        literals = [json.loads(word) for word in allowed_types[-1] if word not in KINDS]
        near = (
            nearest(value, [word for word in literals if isinstance(word, str)])
            if isinstance(value, str)
            else ""
        )
        return Diagnostic.of(
            "option-value",
            kind=kind,
            name=name,
            value=shortened,
            near=near,
            types=shown_types(allowed_types[-1]),
        )

    def mode_problem(self, mode: object) -> Diagnostic | None:
        """Return the problem of an unknown mode of torch.compile."""
        if mode is None or any((MODE, "", mode) in table.entries for table in self._all):
            return None
        return unknown_word(
            "mode",
            str(mode),
            sorted(
                {name for table in self._all for kind, _, name in table.entries if kind == MODE}
            ),
        )

    @cached_property
    def _compile_arguments(self) -> frozenset[str]:
        """The keyword arguments of ``torch.compile`` in the installed torch: of the last
        definition, which the overloads precede.
        """
        assert self.installed is not None
        definitions = re.findall(
            r"^def compile\(\n(.*?)^\)",
            (self.installed.root / "__init__.py").read_text("utf-8"),
            re.DOTALL | re.MULTILINE,
        )
        return frozenset(
            re.findall(r"^    (\w+):", definitions[-1] if definitions else "", re.MULTILINE)
        )

    @cached_property
    def _all(self) -> list[Names]:
        """Those of each minor, oldest first, then of the installed torch, where its source is on
        this machine: not that of a lab's node.
        """
        has_source = self.installed is not None and (self.installed.root / _OF_TORCH).is_file()
        return [
            *self._tables.values(),
            *(
                [names_of_source(self.installed)]
                if self.installed is not None and has_source
                else []
            ),
        ]

    def names(self, kind: str) -> list[str]:
        """Return the names of every minor, and those of the installed torch."""
        return sorted(frozenset[str]().union(*(table.names[kind] for table in self._all)))

    def _hints(self, kind: str, name: str, *, is_known: bool) -> dict[str, str]:
        """Return what was probably meant by an unknown name.

        Of a counter, the namespace, the name, or both may be wrong.
        """
        names = self.names(kind)
        if kind == METRIC:
            return {"near": nearest(name, names)}
        if kind != COUNTER:
            members = [option for option in names if option.startswith(f"{name}.")]
            homes = [other for other in CONFIG_FILES if other != kind and name in self.names(other)]
            same = [
                option for option in names if option.rpartition(".")[2] == name.rpartition(".")[2]
            ]
            if members or homes:
                return {
                    "word": name,
                    "members": one_of(members) if members else "",
                    "home": "" if members else homes[0],
                }
            return {"near": nearest(name, same, cutoff=0.0) or nearest(name, names)}
        spaces = sorted({space for table in self._all for space in table.patterns})
        space, _, bare = name.partition(".")
        names_of_space = {
            counter.partition(".")[2]: counter
            for counter in names
            if counter.startswith(f"{space}.")
        }
        if is_known:  # by a pattern, as ``batch_layernrm`` by ``batch_.+``
            return {"near": names_of_space.get(nearest(bare, names_of_space, cutoff=0.9), "")}
        if not bare and space in spaces:
            return {"space": space}
        if not bare and name in self.names(METRIC):
            return {"metric": name}
        near_space = nearest(space, spaces) if bare else ""
        if near_space != space and any(
            matches(table.patterns, f"{near_space}.{bare}") for table in self._all
        ):
            return {"near": f"{near_space}.{bare}"}
        same = [counter for counter in names if counter.partition(".")[2] == (bare or name)]
        choices = (
            names_of_space
            if space in spaces and not same
            else {counter.partition(".")[2]: counter for counter in same or names}
        )
        if near := nearest(bare or name, choices):
            return {"near": choices[near]}
        return (
            {"in_space": space, "known": one_of(names_of_space)}
            if space in spaces
            else {"spaces": one_of(spaces)}
        )


# -- operators of torch's database, and of ATen ----------------------------------------------------

_OPERATORS = "torchgen/packaged/ATen/native/native_functions.yaml"
"""ATen's own list, which torch is installed with."""

_LINE_OF_OPERATORS = re.compile(r"^- func: (\w+)|^  autogen: (.+)$", re.MULTILINE)


_OPERATOR_OF_DATABASE = re.compile(r"""(?:Info|_opinfo)\(\s*(?:name=)?["']([\w.]+)["']""")


@cache
def database_of(root: Path) -> frozenset[str]:
    """Return the operators that the source of torch's database (OpInfo) names; empty where it is
    missing.

    The dtypes, calls and kinds of operators are made while torch is imported, which takes half a
    minute: the list has them.
    """
    folder = root / "testing" / "_internal"
    files = [*folder.glob("common_methods_invocations.py"), *(folder / "opinfo").rglob("*.py")]
    return frozenset(
        name for file in files for name in _OPERATOR_OF_DATABASE.findall(file.read_text("utf-8"))
    )


@cache
def operators_of(root: Path) -> frozenset[str]:
    """Return the operators of ATen of the torch in ``root``, ``aten.mm``, without their overloads;
    empty where its list is missing.
    """
    try:
        text = (root.parent / _OPERATORS).read_text("utf-8")
    except OSError:
        return frozenset()
    lines = _LINE_OF_OPERATORS.findall(text)
    return frozenset(
        f"aten.{name.partition('.')[0]}"
        for declared, others in lines
        for name in (declared, *others.split(", "))
        if name
    )


def operator_problems(
    document: Document, path: DataPath, names: Sequence[str], root: Path
) -> Iterator[Diagnostic]:
    """Yield the operators of a list at a path that ATen of the torch in ``root`` does not have."""
    operators = operators_of(root) if names else frozenset()
    for index, name in enumerate(names):
        if operators and name.startswith("aten.") and name not in operators:
            # other libraries than ATen have no list
            near = nearest(name, operators)
            yield document.diagnostic((*path, index), "unknown-operator", name=name, near=near)
