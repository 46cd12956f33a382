"""The statements of a test, one after the other. What is not understood is remembered as lost."""

import ast
from collections.abc import Callable, Mapping
from typing import Any

from runner.language.authoring import conditions, configs
from runner.language.authoring.assertions import truth
from runner.language.authoring.binding import bind, unpacked
from runner.language.authoring.blocks import read_with
from runner.language.authoring.compiling import compiled, compiled_by, is_compile
from runner.language.authoring.contexts import read_block
from runner.language.authoring.effects import effect
from runner.language.authoring.evaluate import evaluate
from runner.language.authoring.facts import decided
from runner.language.authoring.naming import dotted
from runner.language.authoring.parameters import label
from runner.language.authoring.python_file import imported
from runner.language.authoring.reading import Reading, line_of
from runner.language.authoring.values import Class, Dotted, Function, Known, NotCarried, Unknown, Value


class _Returned(Exception):
    """The body that is read has ended."""


def read_body(body: list[ast.stmt], reading: Reading) -> None:
    """Read the statements of a function."""
    try:
        read_statements(body, reading)
    except _Returned:
        return


def read_statements(body: list[ast.stmt], reading: Reading) -> None:
    """Read statements; a condition with an early return holds for those after it."""
    for index, statement in enumerate(body):
        when = _early_end(statement, reading)
        if when is not None:
            with reading.condition(when):
                read_statements(body[index + 1 :], reading)
            return
        read_statement(statement, reading)


def read_statement(statement: ast.stmt, reading: Reading) -> None:
    """Read a statement; what it makes is unknown when it is not understood."""
    reading.spend()
    handler = _HANDLERS.get(type(statement))
    try:
        (handler or _unknown)(statement, reading)
    except NotCarried as error:
        reading.lose(line_of(statement), f"{_first_line(statement)}: {error}")
        for name in _targets(statement):
            reading.scope[name] = Unknown(line_of(statement))


def _unknown(statement: ast.stmt, reading: Reading) -> None:
    raise NotCarried(f"the statement '{type(statement).__name__.lower()}'")


def _first_line(statement: ast.stmt) -> str:
    line = ast.unparse(statement).partition("\n")[0]
    return line if len(line) <= _WIDTH else line[: _WIDTH - 3] + "..."


_WIDTH = 90


def _targets(statement: ast.stmt) -> list[str]:
    """Return the names that a statement would give values to."""
    return [node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]


def _function(statement: ast.FunctionDef, reading: Reading) -> None:
    made: Value = Function(statement.name, statement, reading.scope)
    options = None
    for decorator in statement.decorator_list:
        path = dotted(decorator.func if isinstance(decorator, ast.Call) else decorator, reading)
        if is_compile(path):
            found = compiled_by(decorator, reading) if isinstance(decorator, ast.Call) else None
            options = getattr(found, "options", {}) if found is not None else {}
        elif path.rpartition(".")[2] not in _HARMLESS_DECORATORS:
            reading.definitions.append(made)
    reading.scope[statement.name] = made if options is None else compiled(made, options)


_HARMLESS_DECORATORS = frozenset(
    ["staticmethod", "contextmanager", "wraps", "no_grad", "jit", "cache", "lru_cache", "disable", "allow_in_graph"]
)
"""Decorators that do nothing unless their function is called."""


def _class(statement: ast.ClassDef, reading: Reading) -> None:
    reading.scope[statement.name] = Class(statement, reading.scope)


def _import(statement: ast.Import | ast.ImportFrom, reading: Reading) -> None:
    for name, path in imported(statement).items():
        reading.scope[name] = Dotted(path)


def _assign(statement: ast.Assign, reading: Reading) -> None:
    setting = configs.torch_setting(statement, reading)
    if setting is not None:
        reading.torch_settings.update(setting)
        return
    options = configs.assigned(statement.targets[0], statement.value, reading)
    if options is not None:
        if reading.steps:
            raise NotCarried("an option that is set between calls")
        configs.merge(reading.config, options)
        return
    value = evaluate(statement.value, reading)
    if isinstance(value, Unknown):
        raise NotCarried("a call without a value that is understood")
    for target in statement.targets:
        bind(target, value, reading)


def _annotated(statement: ast.AnnAssign, reading: Reading) -> None:
    if statement.value is not None:
        bind(statement.target, evaluate(statement.value, reading), reading)


def _augmented(statement: ast.AugAssign, reading: Reading) -> None:
    if not isinstance(statement.target, ast.Name):
        raise NotCarried("an assignment to a part of a value")
    name = ast.copy_location(ast.Name(statement.target.id, ast.Load()), statement)
    value = evaluate(ast.copy_location(ast.BinOp(name, statement.op, statement.value), statement), reading)
    if not isinstance(value, Known):
        raise NotCarried("a value that is changed in place")
    reading.scope[statement.target.id] = value


def _expression(statement: ast.Expr, reading: Reading) -> None:
    if isinstance(statement.value, ast.Constant):
        return
    if isinstance(statement.value, ast.Yield):
        read_block(statement.value, reading, read_statements)
        return
    setting = configs.torch_setting(statement, reading)
    if setting is not None:
        reading.torch_settings.update(setting)
        return
    if not isinstance(statement.value, ast.Call):
        raise NotCarried("an expression without an effect that is understood")
    effect(statement.value, reading)


def _assert(statement: ast.Assert, reading: Reading) -> None:
    truth(statement.test, reading, line_of(statement))


def _return(statement: ast.Return, reading: Reading) -> None:
    if statement.value is not None and reading.returned:
        reading.returned[-1] = evaluate(statement.value, reading)
    raise _Returned


_MOST_ROUNDS = 24


def _for(statement: ast.For, reading: Reading) -> None:
    rounds = _rounds(statement, unpacked(evaluate(statement.iter, reading)), reading)
    if len(rounds) > _MOST_ROUNDS or statement.orelse:
        raise NotCarried(f"a loop of {len(rounds)} rounds")
    for value in rounds:
        bind(statement.target, value, reading)
        try:
            read_statements(statement.body, reading)
        except _Continue:
            continue
        except _Break:
            break


def _rounds(statement: ast.For, rounds: list[Value], reading: Reading) -> list[Value]:
    """Return the rounds of a loop that are read: all, or the one that is pinned."""
    axis = f"round of line {line_of(statement)}"
    words = [label(value, index) for index, value in enumerate(rounds)]
    if len(rounds) > 1 and reading.axes.setdefault(axis, words) == words and not _gathers(statement):
        return [rounds[reading.pinned[axis]]] if axis in reading.pinned else rounds
    if axis in reading.pinned:
        raise NotCarried("a loop whose rounds are not alike, or depend on each other")
    return rounds


def _gathers(statement: ast.For) -> bool:
    """Whether rounds of a loop change what other rounds made."""
    own = set(_targets(statement))
    for part in ast.walk(statement):
        if isinstance(part, ast.AugAssign):
            return True
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr in _GATHERING:
            base = part.func.value
            if not isinstance(base, ast.Name) or base.id not in own:
                return True
        if isinstance(part, ast.Assign) and any(isinstance(target, ast.Subscript | ast.Attribute) for target in part.targets):
            return True
    return False


_GATHERING = frozenset(["append", "add", "extend", "insert", "update", "setdefault", "pop"])


class _Continue(Exception):
    """The round of a loop has ended."""


class _Break(Exception):
    """The loop has ended."""


def _raise_continue(statement: ast.stmt, reading: Reading) -> None:
    if reading.when:
        raise NotCarried("the end of a round under a condition on the device")
    raise _Continue


def _raise_break(statement: ast.stmt, reading: Reading) -> None:
    if reading.when:
        raise NotCarried("the end of a loop under a condition on the device")
    raise _Break


def _if(statement: ast.If, reading: Reading) -> None:
    skips = _skips(statement.body) and not statement.orelse
    try:
        test = decided(statement.test, reading)
    except NotCarried:
        if not skips:
            raise
        test = Unknown(line_of(statement))
    if isinstance(test, Known):
        read_statements(statement.body if test.value else statement.orelse, reading)
        return
    if skips:
        conditions.apply(conditions.effect_of(statement.test), reading, statement, ast.unparse(statement.test))
        return
    device = device_of_condition(statement.test)
    if device is None and _fails(statement.body) and not statement.orelse:
        truth(statement.test, reading, line_of(statement), negated=True)
        return
    if device is None:
        raise NotCarried("a condition that is not known here")
    other = "cpu" if device == "cuda" else "cuda"
    with reading.condition({"device": device}):
        read_statements(statement.body, reading)
    with reading.condition({"device": other}):
        read_statements(statement.orelse, reading)


def _early_end(statement: ast.stmt, reading: Reading) -> Mapping[str, Any] | None:
    """Return the condition that holds after ``if DEVICE: return``; None for other statements."""
    if not (isinstance(statement, ast.If) and len(statement.body) == 1 and not statement.orelse and not reading.when):
        return None
    if not (isinstance(statement.body[0], ast.Return) and statement.body[0].value is None):
        return None
    device = device_of_condition(statement.test)
    return None if device is None else {"device": "cpu" if device == "cuda" else "cuda"}


def device_of_condition(test: ast.expr) -> str | None:
    """Return the device where a condition on the test's device holds; None for other conditions."""
    found = conditions.effect_of(test)
    is_comparison = isinstance(test, ast.Compare) and found.is_known and not found.requires and not found.always
    if not is_comparison or not found.drops:
        return None
    return "cpu" if found.drops == frozenset(["cpu"]) else "cuda"


def _fails(body: list[ast.stmt]) -> bool:
    """Whether statements let the test fail."""
    text = ast.unparse(body[-1])
    is_plain = all(isinstance(part, ast.Assign | ast.Expr) for part in body[:-1])
    return is_plain and (text.startswith(("self.fail(", "self.assertTrue(False", "assert False", "raise AssertionError")))


def _skips(body: list[ast.stmt]) -> bool:
    if len(body) != 1:
        return False
    text = ast.unparse(body[0])
    return "SkipTest" in text or "skipTest(" in text


def _try(statement: ast.Try, reading: Reading) -> None:
    """Read the way without an exception; the others end the test, or skip it."""
    for handler in statement.handlers:
        text = ast.unparse(handler.body[-1])
        if not (isinstance(handler.body[-1], ast.Raise) or "skipTest(" in text or "self.fail(" in text):
            raise NotCarried("an exception that the test goes on after")
    read_statements([*statement.body, *statement.orelse, *statement.finalbody], reading)


def _nothing(statement: ast.stmt, reading: Reading) -> None:
    """Nothing to do."""


_HANDLERS: Mapping[type[ast.stmt], Callable[[Any, Reading], None]] = {
    ast.FunctionDef: _function,
    ast.ClassDef: _class,
    ast.Import: _import,
    ast.ImportFrom: _import,
    ast.Assign: _assign,
    ast.AnnAssign: _annotated,
    ast.AugAssign: _augmented,
    ast.Expr: _expression,
    ast.Assert: _assert,
    ast.Return: _return,
    ast.For: _for,
    ast.If: _if,
    ast.With: lambda statement, reading: read_with(statement, reading, read_statements),
    ast.Try: _try,
    ast.Continue: _raise_continue,
    ast.Break: _raise_break,
    ast.Pass: _nothing,
    ast.Global: _nothing,
    ast.Nonlocal: _nothing,
    ast.Delete: _nothing,
}
