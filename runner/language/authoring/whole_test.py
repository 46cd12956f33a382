"""Reads a whole test: what its file, its class and its decorators say, then its statements."""

import ast
from typing import Any

from runner.language.authoring import conditions, configs
from runner.language.authoring.binding import bind, unpacked
from runner.language.authoring.blocks import context_word
from runner.language.authoring.evaluate import evaluate
from runner.language.authoring.naming import DTYPES, dotted
from runner.language.authoring.python_file import PythonFile, Test
from runner.language.authoring.reading import Reading, line_of
from runner.language.authoring.statements import read_body, read_statement
from runner.language.authoring.values import Device, Dotted, Known, NotCarried, Parameter, Unknown, Value


def read_test(file: PythonFile, test: Test) -> Reading:
    """Return what is known of a test."""
    reading = Reading(file=file, test=test)
    _file_settings(reading)
    if test.owner is not None:
        for owner in reversed(file.lineage(test.owner)):
            _class_settings(owner, reading)
    _parameters(test.function, reading)
    for decorator in test.function.decorator_list:
        _decorator(decorator, reading)
    if test.owner is not None:
        _set_up(reading)
    read_body(test.function.body, reading)
    return reading


def _file_settings(reading: Reading) -> None:
    """Take over what the file sets for all of its tests."""
    for statement in reading.file.tree.body:
        if isinstance(statement, ast.Assign | ast.Expr):
            _setting_of_file(statement, reading)
    if reading.file.has_default_device:
        reading.default_device = "backend"
        reading.devices.add("gpu")


def _setting_of_file(statement: ast.Assign | ast.Expr, reading: Reading) -> None:
    try:
        setting = configs.torch_setting(statement, reading)
        if setting is not None:
            reading.torch_settings.update(setting)
        elif isinstance(statement, ast.Assign):
            options = configs.assigned(statement.targets[0], statement.value, reading)
            if options is not None:
                configs.merge(reading.config, options)
    except NotCarried as error:
        reading.lose(line_of(statement), f"{ast.unparse(statement)[:80]}: {error}")


def _class_settings(owner: ast.ClassDef, reading: Reading) -> None:
    for decorator in owner.decorator_list:
        _decorator(decorator, reading)
    for method in owner.body:
        if isinstance(method, ast.FunctionDef) and method.name == "setUpClass":
            _entered(method, reading)


def _entered(method: ast.FunctionDef, reading: Reading) -> None:
    """Take over the options that ``setUpClass`` sets."""
    for statement in method.body:
        text = ast.unparse(statement)
        if (
            "super()" in text
            or text.endswith("ExitStack()")
            or (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
        ):
            continue
        try:
            configs.merge(reading.config, _entered_options(statement, reading))
        except NotCarried as error:
            reading.lose(line_of(statement), f"{text.partition(chr(10))[0][:80]}: {error}")


def _entered_options(statement: ast.stmt, reading: Reading) -> configs.Options:
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and len(call.args) == 1:
        options = configs.patched(call.args[0], reading) if call.func.attr in ("enter_context", "enterClassContext") else None
        if options is not None:
            return options
    raise NotCarried("a statement of setUpClass that is not understood")


def _decorator(node: ast.expr, reading: Reading) -> None:
    """Take over a decorator of a test or of its class."""
    try:
        _carry_decorator(node, reading)
    except NotCarried as error:
        reading.lose(line_of(node), f"@{ast.unparse(node)[:80]}: {error}")


def _carry_decorator(node: ast.expr, reading: Reading) -> None:
    options = configs.patched(node, reading)
    word = context_word(node, reading) if options is None else None
    found = conditions.decorator_effect(node) if options is None and word is None else None
    if options is not None:
        configs.merge(reading.config, options)
    elif word is not None:
        reading.contexts.append(word)
    elif found is not None:
        _apply_skip(found, node, reading)
    elif ast.unparse(node.func if isinstance(node, ast.Call) else node).rpartition(".")[2] in _READ_ELSEWHERE:
        return
    elif isinstance(node, ast.Name):
        _assigned_decorator(node, reading)
    else:
        raise NotCarried("a decorator that is not understood")


_READ_ELSEWHERE = frozenset(
    [
        *("parametrize", "instantiate_parametrized_tests", "dtypes", "dtypesIfCUDA", "fresh_inductor_cache", "fresh_cache"),
        *("instantiate_device_type_tests", "functools.wraps", "wraps", "xfail_if_mps"),
    ]
)


def _apply_skip(found: conditions.Effect, node: ast.expr, reading: Reading) -> None:
    test = node.args[0] if isinstance(node, ast.Call) and node.args else node
    if not found.is_known:
        value = _constant_condition(test, reading)
        is_negated = "skipUnless" in ast.unparse(node)
        if value is not None:
            if value != is_negated:
                raise NotCarried("the test is skipped unless something outside it is set")
            return
    conditions.apply(found, reading, node, ast.unparse(test)[:80])


def _constant_condition(test: ast.expr, reading: Reading) -> bool | None:
    """Return whether a condition holds by the defaults of the file; None when that is not known."""
    if isinstance(test, ast.BoolOp):
        parts = [_constant_condition(part, reading) for part in test.values]
        decisive = isinstance(test.op, ast.Or)
        if decisive in parts:
            return decisive
        return None if None in parts else not decisive
    try:
        value = evaluate(test, reading)
    except NotCarried:
        return None
    return bool(value.value) if isinstance(value, Known) else None


def _assigned_decorator(node: ast.Name, reading: Reading) -> None:
    """Take over a decorator that the file gives a name to."""
    found = reading.file.definitions.get(node.id)
    if not isinstance(found, ast.Assign):
        raise NotCarried("a decorator that is not understood")
    inner = found.value
    if isinstance(inner, ast.Call) and dotted(inner.func, reading) == "functools.partial" and inner.args:
        inner = ast.copy_location(ast.Call(inner.args[0], inner.args[1:], inner.keywords), inner)
    effect = conditions.decorator_effect(inner)
    if effect is None:
        raise NotCarried("a decorator that is not understood")
    _apply_skip(effect, inner, reading)


def _set_up(reading: Reading) -> None:
    """Read the ``setUp`` of the test's class and of its bases within the file."""
    assert reading.test.owner is not None
    for owner in reversed(reading.file.lineage(reading.test.owner)):
        for method in owner.body:
            if isinstance(method, ast.FunctionDef) and method.name == "setUp":
                for statement in method.body:
                    read_statement(statement, reading)


def _parameters(function: ast.FunctionDef, reading: Reading) -> None:
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
    for decorator in function.decorator_list:
        word = ast.unparse(decorator.func).rpartition(".")[2] if isinstance(decorator, ast.Call) else ""
        if word in ("parametrize", "dtypes"):
            try:
                _parametrized(decorator, word, reading)
            except NotCarried as error:
                reading.lose(line_of(decorator), f"@{ast.unparse(decorator)[:80]}: {error}")
    if isinstance(reading.scope.get("device"), Device) and "device" in names:
        reading.devices.add("backend")


def _parametrized(decorator: ast.expr, word: str, reading: Reading) -> None:
    assert isinstance(decorator, ast.Call)
    if word == "dtypes":
        _parameter("dtype", [evaluate(argument, reading) for argument in decorator.args], reading)
        return
    given = evaluate(decorator.args[0], reading)
    names = given.value if isinstance(given, Known) else ""
    names = [part.strip() for part in names.split(",")] if isinstance(names, str) else list(names)
    outer = set(reading.devices)
    values = [_subtest(value) for value in unpacked(evaluate(decorator.args[1], reading))]
    if names == ["device"]:
        _devices(values, outer, reading)
        return
    if len(names) == 1:
        _parameter(names[0], values, reading)
        return
    _rows(names, values, reading)


def _subtest(value: Value) -> Value:
    from runner.language.authoring.values import Expression

    if isinstance(value, Expression) and isinstance(value.node, ast.Call) and ast.unparse(value.node.func) in ("subtest", "pytest.param"):
        raise NotCarried("values with names or marks of their own")
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
    if all(isinstance(value, Dotted) and value.path.removeprefix("torch.") in DTYPES for value in values):
        reading.matrix[name] = [DTYPES[value.path.removeprefix("torch.")] for value in values if isinstance(value, Dotted)]
        reading.scope[name] = Parameter(name, is_dtype=True)
        return
    found = [value.value for value in values if isinstance(value, Known)]
    if len(found) != len(values) or name in ("backend", "facts", "params", "torch"):
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
    """Make several parameters that change together one only where one row remains."""
    if len(values) != 1:
        raise NotCarried("several parameters that change together")
    for name, value in zip(names, unpacked(values[0]), strict=True):
        bind(ast.Name(name, ast.Store()), value, reading)
