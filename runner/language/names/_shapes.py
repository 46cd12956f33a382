"""What a string expression can be, as far as its source says: texts, and holes where something is only known at run time.

Followed are local and module variables, ``a if b else c``, ``or``, concatenations, f-strings and the default of an
environment variable; a parameter stays a part of its own until somebody says what callers hand in.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product

ANYTHING = ".*"
"""The pattern of a string of which nothing is known."""
_DEEPEST = 8
"""Variables followed in a row, so that ``x = x + "a"`` ends."""


@dataclass(frozen=True, slots=True)
class Text:
    """A part that is known."""

    text: str


@dataclass(frozen=True, slots=True)
class Hole:
    """A part that only the run knows."""

    regex: str = ".+"


@dataclass(frozen=True, slots=True)
class Parameter:
    """What callers hand in."""

    function: str
    name: str
    index: int | None
    """Counts the positional arguments of a call; None for one that only a keyword gives."""
    default: str | None
    """None when it has none, or none that is a constant string."""


Shape = tuple["Text | Hole | Parameter", ...]
"""A string as far as it is known: its parts in a row."""
UNKNOWN: Shape = (Hole(),)


def literal(shape: Shape) -> str | None:
    """Return the string, or None when a part of it is unknown."""
    texts = [part.text for part in shape if isinstance(part, Text)]
    return "".join(texts) if len(texts) == len(shape) else None


def pattern(shape: Shape) -> str:
    """Return the regular expression that the string fits."""
    if shape == UNKNOWN:
        return ANYTHING
    return "".join(re.escape(part.text) if isinstance(part, Text) else _hole(part) for part in shape)


def _hole(part: "Hole | Parameter") -> str:
    return part.regex if isinstance(part, Hole) else Hole().regex


Function = ast.FunctionDef | ast.AsyncFunctionDef


class Scope:
    """What a name may stand for, from the innermost function out to the module."""

    def __init__(self, *levels: tuple["Function | None", Mapping[str, list[ast.expr | None]]]) -> None:
        self._levels = levels

    @classmethod
    def of_module(cls, module: ast.Module) -> "Scope":
        """Return the scope of a module's own statements."""
        return cls((None, _bound(statement for statement in module.body if not isinstance(statement, Function | ast.ClassDef))))

    def inside(self, function: Function) -> "Scope":
        """Return the scope of a function's body."""
        return Scope(*self._levels, (function, _bound([function])))

    def values(self, name: str) -> "list[ast.expr | None] | Parameter":
        """Return the expressions bound to a name (None: something that is not followed), or the parameter it is."""
        for function, bound in reversed(self._levels):
            if name in bound:
                return bound[name]
            if function and (parameter := _parameter(function, name)):
                return parameter
        return [None]


def _bound(nodes: Iterable[ast.AST]) -> dict[str, list[ast.expr | None]]:
    """Return what each name is bound to anywhere below the nodes; None where it is no plain assignment."""
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
    """Return what a string expression can be."""
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
