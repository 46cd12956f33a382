"""What an expression of a test stands for. Calls are in ``calls``."""

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from runner.language.authoring import constants
from runner.language.authoring.binding import bind, plain, unpacked
from runner.language.authoring.expressions import expression
from runner.language.authoring.facts import decided
from runner.language.authoring.file_names import of_file, of_path
from runner.language.authoring.naming import DTYPES, SIZES, dotted
from runner.language.authoring.reading import Reading, line_of
from runner.language.authoring.types_of_results import is_other_class
from runner.language.authoring.values import (
    FALSE,
    Class,
    Codes,
    Device,
    Dotted,
    Function,
    Gradient,
    Items,
    Known,
    NotCarried,
    Parameter,
    Raised,
    Result,
    Tensor,
    Unknown,
    Value,
)


def evaluate(node: ast.expr, reading: Reading) -> Value:
    """Return what an expression stands for; raise ``NotCarried``."""
    reading.spend()
    handler = _HANDLERS.get(type(node))
    if handler is None:
        return expression(node, reading)
    return handler(node, reading)


def constant(node: ast.expr, reading: Reading) -> Any:
    """Return the constant that an expression is; raise ``NotCarried`` for others."""
    return plain(evaluate(node, reading))


def _constant(node: ast.Constant, reading: Reading) -> Value:
    return Known(node.value)


def _name(node: ast.Name, reading: Reading) -> Value:
    if node.id in reading.scope:
        value = reading.scope[node.id]
        if isinstance(value, Unknown):
            raise NotCarried(f"it uses '{node.id}', which line {value.line} makes")
        return value
    return of_file(node.id, reading)


def _attribute(node: ast.Attribute, reading: Reading) -> Value:
    path = dotted(node, reading)
    if path:
        if path.endswith(".itemsize") and path.startswith("torch."):
            return Known(SIZES[DTYPES[path.split(".")[1]]]) if path.split(".")[1] in DTYPES else Dotted(path)
        return of_path(path, node, reading)
    if isinstance(node.value, ast.Name) and node.value.id == "self" and "self" not in reading.scope:
        return _of_self(node.attr, reading)
    base = evaluate(node.value, reading)
    if node.attr == "grad":
        return Gradient(base)
    if isinstance(base, Parameter) and base.is_dtype and node.attr == "itemsize":
        raise NotCarried("the size of a dtype of the matrix")
    if isinstance(base, Tensor) and node.attr in ("shape", "device", "dtype"):
        return _of_tensor(base, node, reading)
    if isinstance(base, Class):
        return _of_class(base, node.attr, reading) or expression(node, reading)
    if isinstance(base, Raised) and node.attr == "exception":
        return base
    return expression(node, reading)


def _of_class(base: Class, name: str, reading: Reading) -> Value | None:
    """Return a class or a function within a class of the file."""
    for part in base.node.body:
        if isinstance(part, ast.ClassDef) and part.name == name:
            return Class(part, base.scope)
    return None


def _of_tensor(base: Tensor, node: ast.Attribute, reading: Reading) -> Value:
    if node.attr == "device":
        return Device("backend" if base.device in ("backend", "gpu") else base.device)
    shape = next((base.entry[kind] for kind in ("rand", "randn", "zeros", "ones", "full", "randint") if kind in base.entry), None)
    if node.attr == "shape" and isinstance(shape, list) and all(isinstance(size, int) for size in shape):
        return Known(tuple(shape))
    return expression(node, reading)


def _of_self(name: str, reading: Reading) -> Value:
    """Return an attribute of the test's class, as far as the class says it."""
    if name in ("device", "device_type"):
        reading.devices.add("backend")
        return Device("backend")
    if f"self.{name}" in reading.scope:
        value = reading.scope[f"self.{name}"]
        if isinstance(value, Unknown):
            raise NotCarried(f"it uses 'self.{name}', which line {value.line} makes")
        return value
    if reading.test.owner is not None:
        for owner in reading.file.lineage(reading.test.owner):
            for part in owner.body:
                if isinstance(part, ast.Assign) and any(isinstance(to, ast.Name) and to.id == name for to in part.targets):
                    return evaluate(part.value, reading)
    raise NotCarried(f"'self.{name}' is not defined in the file")


def _sequence(node: ast.Tuple | ast.List, reading: Reading) -> Value:
    items: list[Value] = []
    for element in node.elts:
        if isinstance(element, ast.Starred):
            items += unpacked(evaluate(element.value, reading))
        else:
            items.append(evaluate(element, reading))
    if all(isinstance(item, Known) for item in items):
        made = [item.value for item in items if isinstance(item, Known)]
        return Known(tuple(made) if isinstance(node, ast.Tuple) else made)
    return Items(tuple(items), "tuple" if isinstance(node, ast.Tuple) else "list")


def _dict(node: ast.Dict, reading: Reading) -> Value:
    made: dict[Any, Any] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None:
            inner = constant(value, reading)
            if not isinstance(inner, dict):
                raise NotCarried("an unpacked value that is no dict")
            made.update(inner)
            continue
        found = evaluate(value, reading)
        made[constant(key, reading)] = found.value if isinstance(found, Known) else found
    return Known(made)


def _binary(node: ast.BinOp, reading: Reading) -> Value:
    left, right = evaluate(node.left, reading), evaluate(node.right, reading)
    if isinstance(left, Known) and isinstance(right, Known):
        return Known(constants.binary(node.op, left.value, right.value))
    if isinstance(left, Items | Known) and isinstance(right, Items | Known) and isinstance(node.op, ast.Add):
        return Items((*unpacked(left), *unpacked(right)))
    return expression(node, reading)


def _unary(node: ast.UnaryOp, reading: Reading) -> Value:
    value = evaluate(node.operand, reading)
    if not isinstance(value, Known):
        return expression(node, reading)
    try:
        return Known(_UNARY[type(node.op)](value.value))
    except TypeError as error:
        raise NotCarried(str(error)) from error


_UNARY: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
    ast.Invert: operator.invert,
}


def _compare(node: ast.Compare, reading: Reading) -> Value:
    if is_other_class(node, reading):
        return FALSE
    values = [evaluate(part, reading) for part in (node.left, *node.comparators)]
    if all(isinstance(value, Known) for value in values):
        return Known(constants.compare(node.ops, [plain(value) for value in values]))
    paths = [value.path for value in values if isinstance(value, Dotted)]
    if len(paths) == len(values) and all(
        isinstance(kind, ast.Eq | ast.NotEq | ast.In | ast.NotIn | ast.Is | ast.IsNot) for kind in node.ops
    ):
        return Known(constants.compare(node.ops, paths))
    return expression(node, reading)


def _bool(node: ast.BoolOp, reading: Reading) -> Value:
    decisive = isinstance(node.op, ast.Or)
    values = []
    for part in node.values:
        values.append(evaluate(part, reading))
        if isinstance(values[-1], Known) and bool(values[-1].value) == decisive:
            return Known(decisive)
    if not all(isinstance(value, Known) for value in values):
        return expression(node, reading)
    outcomes = [plain(value) for value in values]
    return Known(any(outcomes) if decisive else all(outcomes))


def _choice(node: ast.IfExp, reading: Reading) -> Value:
    test = decided(node.test, reading)
    if isinstance(test, Known):
        return evaluate(node.body if test.value else node.orelse, reading)
    return expression(node, reading)


def _subscript(node: ast.Subscript, reading: Reading) -> Value:
    base = evaluate(node.value, reading)
    if isinstance(base, Known | Items | Result | Codes):
        if isinstance(node.slice, ast.Slice) and isinstance(base, Known | Items):
            return _sliced(base, node.slice, reading)
        index = evaluate(node.slice, reading) if not isinstance(node.slice, ast.Slice) else None
        if index is not None and isinstance(index, Known):
            return _item(base, index.value)
        if isinstance(base, Codes):
            raise NotCarried("a slice of the generated code")
    return expression(node, reading)


def _sliced(base: Known | Items, node: ast.Slice, reading: Reading) -> Value:
    bounds = [None if part is None else constant(part, reading) for part in (node.lower, node.upper, node.step)]
    try:
        if isinstance(base, Items):
            return Items(base.items[slice(*bounds)], base.kind)
        return Known(base.value[slice(*bounds)])
    except (TypeError, ValueError) as error:
        raise NotCarried(f"a slice that is not understood: {error}") from error


def _item(base: Known | Items | Result | Codes, index: Any) -> Value:
    if isinstance(base, Result):
        if not isinstance(index, int | str) or base.loss:
            raise NotCarried("a part of a result that has no name")
        return Result(base.step, (*base.path, index))
    if isinstance(base, Codes):
        if not isinstance(index, int) or not base.is_list:
            raise NotCarried("a part of the generated code")
        return Codes(base.step, index, is_list=False)
    try:
        found = base.items[index] if isinstance(base, Items) else base.value[index]
    except (LookupError, TypeError) as error:
        raise NotCarried(f"an item that is not there: {error}") from error
    return found if isinstance(found, Value) else Known(found)


def _text(node: ast.JoinedStr, reading: Reading) -> Value:
    made = ""
    for part in node.values:
        if isinstance(part, ast.Constant):
            made += str(part.value)
        elif isinstance(part, ast.FormattedValue) and part.format_spec is None and part.conversion == -1:
            value = evaluate(part.value, reading)
            if not isinstance(value, Known):
                raise NotCarried("a text that depends on more than constants")
            made += str(value.value)
        else:
            raise NotCarried("a formatted text")
    return Known(made)


def _lambda(node: ast.Lambda, reading: Reading) -> Value:
    return Function("function", node, reading.scope)


def _comprehension(node: ast.ListComp | ast.GeneratorExp, reading: Reading) -> Value:
    if len(node.generators) != 1 or node.generators[0].ifs:
        return expression(node, reading)
    loop = node.generators[0]
    source = evaluate(loop.iter, reading)
    if not isinstance(source, Known | Items):
        return expression(node, reading)
    outer, made = dict(reading.scope), []
    for item in unpacked(source):
        bind(loop.target, item, reading)
        made.append(evaluate(node.elt, reading))
    reading.scope.clear()
    reading.scope.update(outer)
    return Known([plain(item) for item in made]) if all(isinstance(item, Known) for item in made) else Items(tuple(made))


_HANDLERS: Mapping[type[ast.expr], Callable[[Any, Reading], Value]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Tuple: _sequence,
    ast.List: _sequence,
    ast.Dict: _dict,
    ast.BinOp: _binary,
    ast.UnaryOp: _unary,
    ast.Compare: _compare,
    ast.BoolOp: _bool,
    ast.IfExp: _choice,
    ast.Subscript: _subscript,
    ast.JoinedStr: _text,
    ast.Lambda: _lambda,
    ast.ListComp: _comprehension,
    ast.GeneratorExp: _comprehension,
    ast.Call: lambda node, reading: _called(node, reading),
}


def _called(node: ast.Call, reading: Reading) -> Value:
    value = reading.rules.call(node, reading)
    return value if value is not None else Unknown(line_of(node))
