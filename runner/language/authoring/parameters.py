"""Parameters of a test: keys of the matrix, or values of one reading of several."""

import ast
import re
from typing import Any

from runner.language.authoring.binding import bind, unpacked
from runner.language.authoring.evaluate import evaluate
from runner.language.authoring.naming import DTYPES
from runner.language.authoring.reading import Reading, line_of
from runner.language.authoring.values import Device, Dotted, Expression, Known, NotCarried, Parameter, Unknown, Value


def read_parameters(function: ast.FunctionDef, reading: Reading) -> None:
    """Give values to the parameters of a test."""
    arguments = function.args
    names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs) if argument.arg != "self"]
    defaults = dict(zip(reversed([a.arg for a in arguments.args]), reversed(arguments.defaults), strict=False))
    for name in names:
        reading.scope[name] = Unknown(line_of(function))
        if name in ("device", "device_type"):
            reading.scope[name] = Device("backend")
        elif name in defaults:
            reading.scope[name] = evaluate(defaults[name], reading)
    for decorator in (_assigned(part, reading) for part in function.decorator_list):
        word = ast.unparse(decorator.func).rpartition(".")[2] if isinstance(decorator, ast.Call) else ""
        if word in ("parametrize", "dtypes"):
            try:
                _parametrized(decorator, word, reading)
            except NotCarried as error:
                reading.lose(line_of(decorator), f"@{ast.unparse(decorator)[:80]}: {error}")
    if isinstance(reading.scope.get("device"), Device) and "device" in names:
        reading.devices.add("backend")


def _assigned(node: ast.expr, reading: Reading) -> ast.expr:
    """Return the call that a decorator of the file is a name for."""
    found = reading.file.definitions.get(node.id) if isinstance(node, ast.Name) else None
    return found.value if isinstance(found, ast.Assign) and isinstance(found.value, ast.Call) else node


def _parametrized(decorator: ast.expr, word: str, reading: Reading) -> None:
    assert isinstance(decorator, ast.Call)
    if word == "dtypes":
        _parameter("dtype", [evaluate(argument, reading) for argument in decorator.args], reading)
        return
    given = evaluate(decorator.args[0], reading)
    names = given.value if isinstance(given, Known) else ""
    names = [part.strip() for part in names.split(",")] if isinstance(names, str) else list(names)
    outer = set(reading.devices)
    values = [_subtest(value, reading) for value in unpacked(evaluate(decorator.args[1], reading))]
    if names == ["device"]:
        _devices(values, outer, reading)
        return
    if len(names) == 1:
        _parameter(names[0], values, reading)
        return
    _rows(names, values, reading)


def _subtest(value: Value, reading: Reading) -> Value:
    """Return a value that stands within ``subtest(VALUE, name=...)``; marks may skip it."""
    if isinstance(value, Expression) and isinstance(value.node, ast.Call):
        word = ast.unparse(value.node.func).rpartition(".")[2]
        if word in ("subtest", "param"):
            names = {keyword.arg for keyword in value.node.keywords}
            if names - {"name", "id"} or len(value.node.args) != 1:
                raise NotCarried("values with marks of their own")
            return evaluate(value.node.args[0], reading)
    return value


def _devices(values: list[Value], outer: set[str], reading: Reading) -> None:
    kinds = set()
    for value in values:
        text = value.value if isinstance(value, Known) else value.where if isinstance(value, Device) else ""
        kinds.add("cpu" if text == "cpu" else "gpu" if text in ("cuda", "gpu", "xpu", "backend") else "")
    if "" in kinds:
        raise NotCarried("devices that are not understood")
    reading.devices.clear()
    reading.devices.update(outer)
    reading.devices.add("backend")
    if kinds == {"gpu"}:
        reading.vendors -= {"cpu"}
    if kinds == {"cpu"}:
        reading.vendors -= {"cuda", "rocm"}
    reading.scope["device"] = Device("backend")


def _parameter(name: str, values: list[Value], reading: Reading) -> None:
    """Make a parameter a key of the matrix."""
    if not values:
        raise NotCarried("a parameter without values")
    if len(values) > 1:
        reading.axes[name] = [label(value, index) for index, value in enumerate(values)]
    if name in reading.pinned:
        reading.scope[name] = values[reading.pinned[name]]
        return
    if name in ("backend", "facts", "params", "torch") and len(values) > 1:
        raise NotCarried(f"a parameter with the name '{name}'")
    if all(isinstance(value, Dotted) and value.path.removeprefix("torch.") in DTYPES for value in values):
        reading.matrix[name] = [DTYPES[value.path.removeprefix("torch.")] for value in values if isinstance(value, Dotted)]
        reading.scope[name] = Parameter(name, is_dtype=True)
        return
    found = [value.value for value in values if isinstance(value, Known)]
    if len(found) != len(values):
        raise NotCarried("values that are no constants")
    reading.matrix[name] = [_matrix_value(value, index) for index, value in enumerate(found)]
    reading.scope[name] = Known(found[0]) if len(found) == 1 else Parameter(name)
    if len(found) == 1:
        del reading.matrix[name]


def _matrix_value(value: Any, index: int) -> Any:
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple) and all(isinstance(item, int | float | str | bool) for item in value):
        return {"id": "x".join(map(str, value)) or f"empty{index}", "value": list(value)}
    raise NotCarried("values that are no constants")


def _rows(names: list[str], values: list[Value], reading: Reading) -> None:
    """Give values to several parameters that change together: one row of them."""
    axis = ",".join(names)
    if len(values) > 1:
        reading.axes[axis] = [label(value, index) for index, value in enumerate(values)]
        if axis not in reading.pinned:
            raise NotCarried("several parameters that change together")
    row = unpacked(values[reading.pinned.get(axis, 0)])
    if len(row) != len(names):
        raise NotCarried("another number of values than parameters")
    for name, value in zip(names, row, strict=True):
        bind(ast.Name(name, ast.Store()), value, reading)


def label(value: Value, index: int) -> str:
    """Return a word for a value in the name of a file."""
    found = (
        value.value
        if isinstance(value, Known)
        else value.path
        if isinstance(value, Dotted)
        else value.where
        if isinstance(value, Device)
        else None
    )
    parts = found if isinstance(found, list | tuple) else [found]
    if found is None or not all(isinstance(part, int | float | str) for part in parts):
        return str(index + 1)
    text = "-".join(re.sub(r"[^a-z0-9]+", "-", str(part).lower().removeprefix("torch.")).strip("-") for part in parts)
    return text if 0 < len(text) <= _LONGEST_LABEL else str(index + 1)


_LONGEST_LABEL = 24
