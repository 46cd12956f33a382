"""Methods of the values of a test: tensors, modules, constants, results."""

import ast
from dataclasses import replace
from typing import Any

from runner.language.authoring import constants
from runner.language.authoring.binding import plain
from runner.language.authoring.evaluate import evaluate
from runner.language.authoring.expressions import expression
from runner.language.authoring.reading import Reading, line_of
from runner.language.authoring.tensors import device_of, dtype_text, method_of_tensor
from runner.language.authoring.values import (
    Codes,
    Compiled,
    Dotted,
    Expression,
    Known,
    Module,
    NotCarried,
    Parameter,
    Result,
    Step,
    Tensor,
    Value,
)


def method(node: ast.Call, function: ast.Attribute, reading: Reading) -> Value | None:
    """Return the result of a method of a value of the test; None where nothing special is known of it."""
    if isinstance(function.value, ast.Name) and function.value.id == "self" and "self" not in reading.scope:
        return None
    base = evaluate(function.value, reading)
    if isinstance(base, Tensor):
        return method_of_tensor(base, node, reading)
    if isinstance(base, Module):
        return _of_module(base, function.attr, node, reading)
    if isinstance(base, Result):
        return _of_result(base, function.attr, node, reading)
    if isinstance(base, Known) and function.attr in (
        "keys",
        "values",
        "items",
        "format",
        "join",
        "split",
        "strip",
        "append",
        "copy",
        "get",
        "startswith",
        "endswith",
        "upper",
        "lower",
        "replace",
        "index",
        "count",
    ):
        return _of_constant(base, function.attr, node, reading)
    if isinstance(base, Compiled):
        if function.attr in ("eval", "to", "cuda", "train"):
            raise NotCarried(f"'{function.attr}' of a compiled function")
        raise NotCarried(f"the method '{function.attr}' of a compiled function")
    if isinstance(base, Codes):
        raise NotCarried(f"the method '{function.attr}' of the generated code")
    return None


def _of_constant(base: Known, name: str, node: ast.Call, reading: Reading) -> Value:
    values = [evaluate(argument, reading) for argument in node.args]
    if name == "append":
        base.value.append(values[0].value if isinstance(values[0], Known) else values[0])
        return Known(None)
    try:
        made = getattr(base.value, name)(*map(plain, values))
    except (TypeError, ValueError, AttributeError, LookupError) as error:
        raise NotCarried(str(error)) from error
    return Known(constants.bounded(list(made) if name in ("keys", "values", "items") else made))


def _of_module(base: Module, name: str, node: ast.Call, reading: Reading) -> Value | None:
    """Return a module after a method that converts it."""
    if name in ("eval", "train") and not node.args and not node.keywords:
        return replace(base, entry={**base.entry, "eval": name == "eval"})
    if name == "cuda" and not node.args:
        reading.devices.add("gpu")
        return replace(base, device="gpu")
    if name in ("half", "bfloat16", "double", "float"):
        return replace(base, entry={**base.entry, "dtype": {"half": "float16", "double": "float64", "float": "float32"}.get(name, name)})
    if name == "to":
        return _module_to(base, node, reading)
    if name in ("compile", "forward", "__call__"):
        raise NotCarried(f"'{name}' of a module")
    return None


def _module_to(base: Module, node: ast.Call, reading: Reading) -> Module | None:
    made = base
    for argument in (*node.args, *(word.value for word in node.keywords)):
        value = evaluate(argument, reading)
        if isinstance(value, Known) and value.value is None:
            continue
        if isinstance(value, Dotted) and value.path in ("torch.channels_last", "torch.channels_last_3d"):
            return None
        if isinstance(value, Dotted) or (isinstance(value, Parameter) and value.is_dtype):
            made = replace(made, entry={**made.entry, "dtype": dtype_text(value)})
        else:
            where = device_of(value)
            reading.devices.add(where)
            made = replace(made, device=where)
    return made


def _of_result(base: Result, name: str, node: ast.Call, reading: Reading) -> Value:
    """Return what a method of a result makes: a loss, or the gradients after ``backward``."""
    if name in ("sum", "mean") and not node.args and not node.keywords and not base.loss:
        return replace(base, loss=name)
    if name in ("detach", "clone", "cpu") and not node.args and not base.loss:
        return base
    if name == "backward":
        return _backward(base, node, reading)
    if base.loss or name.endswith("_"):
        raise NotCarried(f"the method '{name}' of a result")
    return expression(node, reading)


def _backward(base: Result, node: ast.Call, reading: Reading) -> Value:
    if len(node.args) > 1 or node.keywords or (node.args and base.loss):
        raise NotCarried("arguments of backward")
    arguments: dict[str, Any] = {"loss": base.loss} if base.loss == "mean" else {}
    if node.args:
        gradient = evaluate(node.args[0], reading)
        if not isinstance(gradient, Tensor | Expression):
            raise NotCarried("backward from a gradient that is no tensor of the test")
        arguments["gradient"] = gradient
    if base.path:
        raise NotCarried("backward of a part of a result")
    if base.step is not reading.steps[-1]:
        raise NotCarried("backward of an earlier result")
    reading.add(Step("backward", line_of(node), arguments, of=base.step))
    return Known(None)
