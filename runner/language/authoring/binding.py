"""Gives names to values, and takes values apart."""

import ast
from typing import Any

from runner.language.authoring.reading import Reading
from runner.language.authoring.values import Codes, Expression, Items, Known, NotCarried, Result, Value


def plain(value: Value) -> Any:
    """Return a value as a Python constant; raise ``NotCarried`` for others."""
    if isinstance(value, Known):
        return value.value
    if isinstance(value, Items):
        return [plain(item) for item in value.items]
    raise NotCarried("a value that is no constant")


def unpacked(value: Value) -> list[Value]:
    """Return the items of a list; raise ``NotCarried`` for others."""
    if isinstance(value, Items):
        return list(value.items)
    if isinstance(value, Known) and isinstance(value.value, list | tuple | range):
        return [Known(item) for item in value.value]
    raise NotCarried("a list whose items are not known")


def bind(target: ast.expr, value: Value, reading: Reading) -> None:
    """Give names to a value, or to its items."""
    if isinstance(target, ast.Name):
        reading.scope[target.id] = value
        return
    if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
        reading.scope[f"self.{target.attr}"] = value
        return
    if isinstance(target, ast.Tuple | ast.List):
        items = _parts(value, len(target.elts))
        for part, item in zip(target.elts, items, strict=True):
            bind(part, item, reading)
        return
    raise NotCarried("an assignment to a part of a value")


def _parts(value: Value, count: int) -> list[Value]:
    if isinstance(value, Codes) and value.is_list and value.index is None:
        return [Codes(value.step, index if count > 1 else None, is_list=False) for index in range(count)]
    if isinstance(value, Result) and not value.loss:
        return [Result(value.step, (*value.path, index)) for index in range(count)]
    if isinstance(value, Expression):
        return [Expression(ast.Subscript(value.node, ast.Constant(index), ast.Load()), value.scope) for index in range(count)]
    items = unpacked(value)
    if len(items) != count:
        raise NotCarried("another number of values than names")
    return items
