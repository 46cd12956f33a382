"""Reads a whole test: what its file, its class and its decorators say, then its statements."""

import ast

from runner.language.authoring import conditions, configs
from runner.language.authoring.blocks import context_word
from runner.language.authoring.contexts import entered
from runner.language.authoring.equivalence import is_eager_of
from runner.language.authoring.evaluate import evaluate
from runner.language.authoring.naming import dotted
from runner.language.authoring.parameters import read_parameters
from runner.language.authoring.reading import Reading, line_of
from runner.language.authoring.statements import read_body, read_statement
from runner.language.authoring.values import Function, Known, NotCarried, Unknown


def read_surroundings(reading: Reading) -> list[ast.expr]:
    """Read what a test has around its body; return the decorators that are contexts of it."""
    file, test = reading.file, reading.test
    _file_settings(reading)
    owners = list(reversed(file.lineage(test.owner))) if test.owner is not None else []
    contexts: list[ast.expr] = []
    for owner in owners:
        _class_settings(owner, reading)
    read_parameters(test.function, reading)
    for decorator in [*(part for owner in owners for part in owner.decorator_list), *test.function.decorator_list]:
        before = len(reading.contexts)
        if decorator in test.function.decorator_list:
            _decorator(decorator, reading)
        elif not _enters(decorator, reading):
            continue
        if len(reading.contexts) > before or decorator not in test.function.decorator_list:
            contexts.append(decorator)
    return contexts


def _enters(decorator: ast.expr, reading: Reading) -> bool:
    """Whether a decorator of a class is a context of its tests."""
    return configs.patched(decorator, reading) is None and (
        context_word(decorator, reading) is not None or entered(decorator, reading) is not None
    )


def read_test(reading: Reading) -> None:
    """Read a test; of the pinned axes it takes one value alone."""
    test = reading.test
    read_surroundings(reading)
    if test.owner is not None:
        _set_up(reading)
    read_body(test.function.body, reading)
    for line, value in reading.eager_calls:
        if not any(step.kind == "call" and is_eager_of(value, step) for step in reading.steps):
            reading.lose(line, "a call in eager mode that is not one of the compiled calls")


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
        if not isinstance(statement, ast.Expr):
            _computed(statement, reading)
            continue
        try:
            configs.merge(reading.config, _entered_options(statement, reading))
        except NotCarried as error:
            reading.lose(line_of(statement), f"{text.partition(chr(10))[0][:80]}: {error}")


def _computed(statement: ast.stmt, reading: Reading) -> None:
    """Forget what ``setUpClass`` computes: a test that uses it is not whole."""
    for part in ast.walk(statement):
        if (
            isinstance(part, ast.Call)
            and isinstance(part.func, ast.Attribute)
            and part.func.attr.startswith(("enter_", "register", "define", "impl"))
        ):
            raise NotCarried("a statement of setUpClass that is not understood")
    for part in ast.walk(statement):
        if (
            isinstance(part, ast.Attribute)
            and isinstance(part.ctx, ast.Store)
            and isinstance(part.value, ast.Name)
            and part.value.id == "cls"
        ):
            reading.scope[f"self.{part.attr}"] = Unknown(line_of(statement))


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
    elif (manager := entered(node, reading)) is not None:
        reading.contexts.append(manager)
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
    if isinstance(found, ast.FunctionDef):
        own = {part.name: Function(part.name, part, {}) for part in found.body if isinstance(part, ast.FunctionDef)}
        reading.scope, outer = {**reading.scope, **own}, reading.scope
        try:
            for patcher in _patchers(found):
                _carry_decorator(patcher, reading)
        finally:
            reading.scope = outer
        for statement in _wrapped(found):
            read_statement(statement, reading)
        return
    path = dotted(node, reading)
    if path and conditions.is_skip(path):
        _apply_skip(conditions.UNKNOWN, node, reading)
        return
    if not isinstance(found, ast.Assign):
        raise NotCarried("a decorator that is not understood")
    inner = found.value
    if isinstance(inner, ast.Call) and ast.unparse(inner.func).rpartition(".")[2] in _READ_ELSEWHERE:
        return
    if isinstance(inner, ast.Call) and dotted(inner.func, reading) == "functools.partial" and inner.args:
        inner = ast.copy_location(ast.Call(inner.args[0], inner.args[1:], inner.keywords), inner)
    effect = conditions.decorator_effect(inner)
    if effect is None:
        raise NotCarried("a decorator that is not understood")
    _apply_skip(effect, inner, reading)


def _patchers(function: ast.FunctionDef) -> list[ast.expr]:
    """Return the decorators that a function of the file puts around a test, one after the other."""
    body = [part for part in function.body if not isinstance(part, ast.FunctionDef)]
    if len(body) == 2 and isinstance(body[0], ast.For) and isinstance(body[1], ast.Return) and isinstance(body[0].iter, ast.List):
        name = ast.unparse(body[1])
        assigned = [ast.unparse(part) for part in body[0].body]
        argument = function.args.args[0].arg
        if (name == f"return {argument}" or _wrapped(function)) and assigned == [f"{argument} = {ast.unparse(body[0].target)}({argument})"]:
            return body[0].iter.elts
    argument = function.args.args[0].arg if function.args.args else ""
    if len(body) > 1 and argument and ast.unparse(body[-1]) == f"return {argument}":
        found = [_around(part, argument) for part in body[:-1]]
        if None not in found:
            return [part for part in found if part is not None]
    raise NotCarried("a decorator that is not understood")


def _around(statement: ast.stmt, argument: str) -> ast.expr | None:
    """Return the decorator of a statement ``f = DECORATOR(f)``."""
    if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call) and ast.unparse(statement.targets[0]) == argument:
        call = statement.value
        if len(call.args) == 1 and not call.keywords and ast.unparse(call.args[0]) == argument:
            return call.func
    return None


def _wrapped(function: ast.FunctionDef) -> list[ast.stmt]:
    """Return what a decorator does before it calls the test: its wrapper calls the test last, and checks settings of torch at most."""
    last = function.body[-1]
    name = last.value.id if isinstance(last, ast.Return) and isinstance(last.value, ast.Name) else ""
    inner = next((part for part in function.body if isinstance(part, ast.FunctionDef) and part.name == name), None)
    if inner is None or ast.unparse(inner.body[-1]) != f"return {function.args.args[0].arg}(*args, **kwargs)":
        return []
    return [part for part in inner.body[:-1] if not isinstance(part, ast.Assert)]


def _set_up(reading: Reading) -> None:
    """Read the ``setUp`` of the test's class and of its bases within the file."""
    assert reading.test.owner is not None
    for owner in reversed(reading.file.lineage(reading.test.owner)):
        for method in owner.body:
            if isinstance(method, ast.FunctionDef) and method.name == "setUp":
                read_body(method.body, reading)
