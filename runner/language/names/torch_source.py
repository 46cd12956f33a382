"""The source of a torch, and the shapes of the names in it."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from runner.core.diagnostics import UsageError

VERSION_FILE = "version.py"
_OF_TORCH = "_inductor/config.py"
"""A file that distinguishes torch's package from other folders with a version.py."""


@dataclass(frozen=True, slots=True)
class Source:
    """The Python files of an installed torch or of a checkout, by their paths below the package ``torch``."""

    root: Path

    def read(self, path: str) -> bytes | None:
        """Return a file's bytes; None if there is no such file."""
        file = self.root / path
        return file.read_bytes() if file.is_file() else None

    def below(self, folder: str) -> Iterator[str]:
        """Yield the Python files of a folder and its subfolders."""
        return (file.relative_to(self.root).as_posix() for file in sorted((self.root / folder).rglob("*.py")))


def open_source(path: Path) -> Source:
    """Return the torch in ``path``: its package folder, or the parent of that folder."""
    for root in (path, path / "torch"):
        if (root / VERSION_FILE).is_file() and (root / _OF_TORCH).is_file():
            return Source(root)
    raise UsageError(f"{path} contains no torch: {VERSION_FILE} or {_OF_TORCH} is missing")


def read(source: Source, path: str) -> bytes:
    """Return the bytes of a file that every torch has; raise ``UsageError`` if it is missing."""
    text = source.read(path)
    if text is None:
        raise UsageError(f"{source.root} has no {path}")
    return text


def parse(source: Source, path: str) -> ast.Module:
    """Return the syntax tree of a file that every torch has; raise ``UsageError`` if it cannot be parsed."""
    try:
        return ast.parse(read(source, path))
    except SyntaxError as problem:
        raise UsageError(f"torch/{path} of {source.root.name} is not valid for this Python version: {problem}") from problem


_HOLDERS = (ast.stmt, ast.ExceptHandler, ast.match_case)


def statements(tree: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements of a tree at every depth. Expressions hold none, and are most of a tree: they are not walked."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.stmt):
            yield node
        if isinstance(node, _HOLDERS):
            yield from statements(node)


# -- shapes -----------------------------------------------------------------------------------------------------------


ANYTHING = ".*"
"""The pattern of an unknown string."""
_DEEPEST = 8
"""The maximum number of variables followed in a row, so that ``x = x + "a"`` ends."""


@dataclass(frozen=True, slots=True)
class Text:
    """A known part."""

    text: str


@dataclass(frozen=True, slots=True)
class Hole:
    """A part that is known only at run time."""

    regex: str = ".+"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a function, to be replaced by the arguments of its callers."""

    function: str
    name: str
    index: int | None
    """The index among the positional arguments of a call; None for a keyword-only parameter."""
    default: str | None
    """The default; None if there is none or it is not a constant string."""


Shape = tuple["Text | Hole | Parameter", ...]
"""A string as a sequence of parts."""
UNKNOWN: Shape = (Hole(),)


def literal(shape: Shape) -> str | None:
    """Return the string, or None if a part of it is unknown."""
    texts = [part.text for part in shape if isinstance(part, Text)]
    return "".join(texts) if len(texts) == len(shape) else None


def pattern(shape: Shape) -> str:
    """Return the regular expression that matches the string."""
    if shape == UNKNOWN:
        return ANYTHING
    return "".join(re.escape(part.text) if isinstance(part, Text) else _hole(part) for part in shape)


def _hole(part: "Hole | Parameter") -> str:
    return part.regex if isinstance(part, Hole) else Hole().regex


Function = ast.FunctionDef | ast.AsyncFunctionDef


class Scope:
    """The possible values of names, from the innermost function to the module."""

    def __init__(self, *levels: tuple["Function | None", Mapping[str, list[ast.expr | None]]]) -> None:
        self._levels = levels

    @classmethod
    def of_module(cls, module: ast.Module) -> "Scope":
        """Return the scope of the statements of a module."""
        return cls((None, _bound(statement for statement in module.body if not isinstance(statement, Function | ast.ClassDef))))

    def inside(self, function: Function) -> "Scope":
        """Return the scope of a function's body."""
        return Scope(*self._levels, (function, _bound([function])))

    def values(self, name: str) -> "list[ast.expr | None] | Parameter":
        """Return the expressions bound to a name (None for bindings that are not followed), or the parameter with this name."""
        for function, bound in reversed(self._levels):
            if name in bound:
                return bound[name]
            if function and (parameter := _parameter(function, name)):
                return parameter
        return [None]


def _bound(nodes: Iterable[ast.AST]) -> dict[str, list[ast.expr | None]]:
    """Return the values of each name that is bound below the nodes; None for bindings that are not plain assignments."""
    values: dict[ast.expr, ast.expr] = {}
    bound: dict[str, list[ast.expr | None]] = defaultdict(list)
    for node in (inner for outer in nodes for inner in ast.walk(outer)):  # a statement comes before its parts
        match node:
            case ast.Assign(targets=targets, value=value):
                values |= dict.fromkeys(targets, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(target=target, value=value):
                values[target] = value
            case ast.Name(id=name, ctx=ast.Store()):
                bound[name].append(values.get(node))
    return dict(bound)


def _parameter(function: Function, name: str) -> Parameter | None:
    names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    keyword_only = [argument.arg for argument in function.args.kwonlyargs]
    if name not in names + keyword_only:
        return None
    defaults = dict(zip(reversed(names), reversed(function.args.defaults), strict=False))
    default = (defaults | dict(zip(keyword_only, function.args.kw_defaults, strict=True))).get(name)
    bound_first = names[:1] in (["self"], ["cls"])
    return Parameter(
        function=function.name,
        name=name,
        index=names.index(name) - bound_first if name in names else None,
        default=default.value if isinstance(default, ast.Constant) and isinstance(default.value, str) else None,
    )


def string_shapes(node: ast.expr, scope: Scope, depth: int = 0) -> set[Shape]:
    """Return the possible values of a string expression."""
    match node:
        case ast.Constant(value=str() as text):
            return {(Text(text),)}
        case ast.IfExp(body=first, orelse=second):
            return string_shapes(first, scope, depth) | string_shapes(second, scope, depth)
        case ast.BoolOp(values=values):
            return {shape for value in values for shape in string_shapes(value, scope, depth)}
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _joined([string_shapes(left, scope, depth), string_shapes(right, scope, depth)])
        case ast.JoinedStr(values=values):
            return _joined([string_shapes(value, scope, depth) for value in values])
        case ast.FormattedValue(value=value):
            return string_shapes(value, scope, depth)
        case ast.Name(id=name) if depth < _DEEPEST:
            return _of_name(name, scope, depth)
        case ast.Call(func=function, args=[_, default]) if ast.unparse(function) in ("os.environ.get", "os.getenv"):
            return string_shapes(default, scope, depth)
        case ast.Subscript(value=ast.Call(func=ast.Attribute(attr="split"), args=[ast.Constant(value=str() as mark)])) if len(mark) == 1:
            return {(Hole(f"[^{re.escape(mark)}]+"),)}
    return {UNKNOWN}


def _of_name(name: str, scope: Scope, depth: int) -> set[Shape]:
    values = scope.values(name)
    if isinstance(values, Parameter):
        return {(values,)}
    return {shape for value in values for shape in ({UNKNOWN} if value is None else string_shapes(value, scope, depth + 1))}


def _joined(pieces: list[set[Shape]]) -> set[Shape]:
    return {tuple(part for shape in shapes for part in shape) for shapes in product(*pieces)}
