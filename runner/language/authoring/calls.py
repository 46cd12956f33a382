"""What a call in a test stands for: tensors, modules, compiled functions and their results, helpers of the test's class."""

import ast

from runner.language.authoring import constants
from runner.language.authoring.binding import plain, unpacked
from runner.language.authoring.common import common, device_of_check, is_check_model
from runner.language.authoring.compiling import compiled, compiled_by, is_compile
from runner.language.authoring.evaluate import evaluate
from runner.language.authoring.expressions import expression
from runner.language.authoring.facts import capability, constant_call, is_instance
from runner.language.authoring.methods import method
from runner.language.authoring.naming import dotted
from runner.language.authoring.own_methods import own_function
from runner.language.authoring.reading import Reading, line_of
from runner.language.authoring.tensors import tensor_of
from runner.language.authoring.torch_helpers import PATHS, WORDS
from runner.language.authoring.types_of_results import is_no_dict
from runner.language.authoring.values import (
    FALSE,
    Class,
    Codes,
    Compiled,
    Compiler,
    Dotted,
    Function,
    Gradient,
    Items,
    Known,
    Module,
    NotCarried,
    Raised,
    Result,
    Step,
    Tensor,
    Value,
)


def call(node: ast.Call, reading: Reading) -> Value | None:
    """Return what a call stands for; None for a call without a value."""
    path = dotted(node.func, reading)
    if is_no_dict(node, reading):
        return FALSE
    answer = is_instance(node, reading) or capability(path, node, reading)
    if answer is not None:
        return answer
    if isinstance(node.func, ast.Name) and not path and node.func.id not in reading.scope and node.func.id in constants.FUNCTIONS:
        return _builtin(node.func.id, node, reading)
    if path:
        return _of_path(path, node, reading)
    if isinstance(node.func, ast.Attribute):
        made = method(node, node.func, reading)
        if made is not None:
            return made
        owner = _class_within(node.func, reading)
        if owner is not None:
            return of_value(owner, node, reading)
        if isinstance(node.func.value, ast.Name) and node.func.value.id == "self" and "self" not in reading.scope:
            return _own_method(node, node.func.attr, reading)
        return expression(node, reading)
    return of_value(evaluate(node.func, reading), node, reading)


def _class_within(node: ast.Attribute, reading: Reading) -> Class | None:
    """Return a class that a class of the file contains."""
    if not isinstance(node.value, ast.Name) or node.value.id == "self":
        return None
    found = evaluate(node, reading) if isinstance(evaluate(node.value, reading), Class) else None
    return found if isinstance(found, Class) else None


def _builtin(name: str, node: ast.Call, reading: Reading) -> Value:
    values = [evaluate(argument, reading) for argument in node.args]
    if name == "str" and len(values) == 1 and isinstance(values[0], Raised):
        return values[0]
    if name == "len" and len(values) == 1 and isinstance(values[0], Items):
        return Known(len(values[0].items))
    if name in ("list", "tuple", "enumerate", "zip") and any(isinstance(value, Items) for value in values):
        return _of_items(name, values)
    if all(isinstance(value, Known) for value in values) and not any(word.arg is None for word in node.keywords):
        keywords = {str(word.arg): plain(evaluate(word.value, reading)) for word in node.keywords}
        try:
            return Known(constants.bounded(constants.FUNCTIONS[name](*map(plain, values), **keywords)))
        except (TypeError, ValueError, OverflowError) as error:
            raise NotCarried(f"{name}: {error}") from error
    return expression(node, reading)


def _of_items(name: str, values: list[Value]) -> Value:
    lists = [unpacked(value) for value in values]
    if name == "enumerate":
        return Items(tuple(Items((Known(index), item)) for index, item in enumerate(lists[0])))
    if name == "zip":
        return Items(tuple(Items(row) for row in zip(*lists, strict=False)))
    return Items(tuple(lists[0]))


def _of_path(path: str, node: ast.Call, reading: Reading) -> Value | None:
    """Return the value of a call of something that was imported."""
    last = path.rpartition(".")[2]
    if is_compile(path):
        return compiled_by(node, reading)
    if path in constants.FUNCTIONS:
        return _product(path, node, reading)
    if path.startswith("math."):
        made = _of_constants(path, node, reading)
        if made is not None:
            return made
    special = PATHS.get(path) or WORDS.get(last)
    if special is not None:
        return special(node, reading)
    tensor = tensor_of(path, node, reading)
    if tensor is not None:
        return tensor
    if path.startswith("torch.nn.") and last[:1].isupper():
        return Module(node, dict(reading.scope), {})
    return expression(node, reading)


def _of_constants(path: str, node: ast.Call, reading: Reading) -> Value | None:
    values = [evaluate(argument, reading) for argument in node.args]
    if node.keywords or not all(isinstance(value, Known) for value in values):
        return None
    return constant_call(path, [plain(value) for value in values])


def _product(path: str, node: ast.Call, reading: Reading) -> Value:
    """Return what a function of lists makes, whose items may be more than constants."""
    lists = [unpacked(evaluate(argument, reading)) for argument in node.args]
    if path != "itertools.product" or node.keywords:
        return _builtin(path, node, reading)
    if all(isinstance(item, Known) for items in lists for item in items):
        return _builtin(path, node, reading)
    return Items(tuple(Items(row) for row in constants.FUNCTIONS[path](*lists)))


def of_value(function: Value, node: ast.Call, reading: Reading) -> Value | None:
    """Return the result of calling a value."""
    if isinstance(function, Compiled):
        return _compiled_call(function, node, reading)
    if isinstance(function, Compiler) and len(node.args) == 1:
        return compiled(evaluate(node.args[0], reading), function.options)
    if isinstance(function, Class):
        if any(ast.unparse(base).rpartition(".")[2] in _MODULE_BASES for base in function.node.bases):
            return Module(node, {**reading.scope, function.node.name: function}, {})
        return expression(node, reading)
    if isinstance(function, Dotted):
        return expression(node, reading)
    if isinstance(function, Function) and _needs_inlining(function, node, reading):
        return inline(function, node, reading)
    if isinstance(function, Function):
        return _of_helper(function, node, reading) or expression(node, reading)
    return expression(node, reading)


def _of_helper(function: Function, node: ast.Call, reading: Reading) -> Value | None:
    """Return the inputs, constants or copies that a helper makes; None where it computes more."""
    if reading.depth > 1 or _DOES_MORE & {type(part) for part in ast.walk(function.node)}:
        return None
    kept = (list(reading.lost), list(reading.notes), list(reading.requires), set(reading.devices), len(reading.steps), dict(reading.axes))
    calls = list(reading.eager_calls)
    made: Value | None = None
    try:
        made = inline(function, node, reading)
    except NotCarried:
        made = None
    if reading.lost == kept[0] and len(reading.steps) == kept[4] and reading.eager_calls == calls and _is_made(made):
        return made
    reading.lost, reading.notes, reading.requires, reading.devices = kept[:4]
    reading.axes, reading.eager_calls = kept[5], calls
    del reading.steps[kept[4] :]
    return None


_DOES_MORE = frozenset(
    [ast.Global, ast.Nonlocal, ast.Yield, ast.While, ast.With, ast.AugAssign, ast.Try, ast.Raise, ast.Assert, ast.Delete]
)


def _is_made(value: Value | None) -> bool:
    if isinstance(value, Items):
        return all(map(_is_made, value.items))
    return isinstance(value, Tensor | Known)


_MODULE_BASES = frozenset(["Module", "Sequential"])


def arguments_of(node: ast.Call, reading: Reading) -> tuple[list[Value], dict[str, Value]]:
    """Return the values of a call's arguments."""
    positional: list[Value] = []
    for argument in node.args:
        if isinstance(argument, ast.Starred):
            positional += unpacked(evaluate(argument.value, reading))
        else:
            positional.append(evaluate(argument, reading))
    keywords: dict[str, Value] = {}
    for word in node.keywords:
        value = evaluate(word.value, reading)
        if word.arg is not None:
            keywords[word.arg] = value
            continue
        found = plain(value)
        if not isinstance(found, dict):
            raise NotCarried("unpacked keyword arguments")
        keywords.update({str(key): item if isinstance(item, Value) else Known(item) for key, item in found.items()})
    return positional, keywords


def _compiled_call(function: Compiled, node: ast.Call, reading: Reading) -> Result:
    values, keywords = arguments_of(node, reading)
    if keywords:
        names = function.target.parameters if isinstance(function.target, Function) else []
        rest = names[len(values) : len(values) + len(keywords)]
        if set(rest) != set(keywords):
            raise NotCarried("keyword arguments of a compiled call")
        values += [keywords[name] for name in rest]
    if any(isinstance(value, Compiled | Codes | Gradient | Function | Class) for value in values):
        raise NotCarried("an argument of a compiled call that is no input")
    check_options(function, reading)
    step = Step("call", line_of(node), {}, function.target, tuple(values))
    return Result(reading.add(step))


def check_options(function: Compiled, reading: Reading) -> None:
    """Raise ``NotCarried`` where two compiled functions have different options."""
    before = reading.matrix.setdefault(" compile", [])
    options = dict(function.options)
    if before and before[0] != options:
        raise NotCarried("compiled calls with different arguments of torch.compile")
    if not before:
        before.append(options)


def _needs_inlining(function: Function, node: ast.Call, reading: Reading) -> bool:
    """Whether a call of a function calls something compiled, or compiles."""
    given = [evaluate(part.value if isinstance(part, ast.Starred) else part, reading) for part in node.args]
    given += [evaluate(word.value, reading) for word in node.keywords]
    if any(isinstance(value, Compiled | Result | Codes) for value in given):
        return True
    body = function.node
    names = {part.id for part in ast.walk(body) if isinstance(part, ast.Name)}
    if any(isinstance(function.scope.get(name), Compiled) for name in names):
        return True
    text = ast.unparse(body)
    return any(word in text for word in ("torch.compile(", "run_and_get_", "self.assert", "assert_close", "self.common(", "optimize("))


_DEEPEST = 8


def inline(function: Function, node: ast.Call, reading: Reading) -> Value | None:
    """Read the body of a function with the arguments of a call; return what it returns."""
    if reading.depth >= _DEEPEST:
        raise NotCarried("helpers that call each other deeply")
    values, keywords = arguments_of(node, reading)
    outer = reading.scope
    own = {name: value for name, value in outer.items() if name.startswith("self.")}
    reading.scope = {**own, **function.scope, **_bound(function, values, keywords, reading)}
    reading.depth += 1
    try:
        if isinstance(function.node, ast.Lambda):
            return evaluate(function.node.body, reading)
        reading.returned.append(None)
        reading.rules.read_body(function.node.body, reading)
        return reading.returned.pop()
    finally:
        outer.update({name: value for name, value in reading.scope.items() if name.startswith("self.")})
        reading.scope = outer
        reading.depth -= 1


def _bound(function: Function, values: list[Value], keywords: dict[str, Value], reading: Reading) -> dict[str, Value]:
    arguments = function.node.args
    names = function.parameters
    bound = dict(zip(names, values, strict=False))
    rest = values[len(names) :]
    if arguments.vararg:
        bound[arguments.vararg.arg] = Items(tuple(rest))
    elif rest:
        raise NotCarried("more arguments than the function takes")
    others = {name: value for name, value in keywords.items() if name not in names and name not in {a.arg for a in arguments.kwonlyargs}}
    bound.update({name: value for name, value in keywords.items() if name not in others})
    if arguments.kwarg:
        bound[arguments.kwarg.arg] = Known(others)
    elif others:
        raise NotCarried("keyword arguments that the function does not take")
    defaults = dict(zip(reversed(names), reversed(arguments.defaults), strict=False))
    defaults.update({a.arg: d for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None})
    for name, default in defaults.items():
        if name not in bound:
            bound[name] = evaluate(default, reading)
    return bound


def _own_method(node: ast.Call, name: str, reading: Reading) -> Value | None:
    """Read a helper method of the test's class."""
    if name == "common" and is_check_model(reading):
        return common(node, reading)
    if device_of_check(name, reading):
        return common(node, reading, device_of_check(name, reading))
    function = own_function(name, reading)
    if function is None:
        raise NotCarried(f"'self.{name}' is not defined in the file")
    return inline(function, node, reading)
