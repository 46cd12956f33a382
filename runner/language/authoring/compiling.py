"""``torch.compile`` in a test, as a call, a decorator or an older spelling."""

import ast
from collections.abc import Mapping
from typing import Any

from runner.language.authoring.evaluate import evaluate
from runner.language.authoring.naming import dotted
from runner.language.authoring.reading import Reading
from runner.language.authoring.values import (
    Compiled,
    Compiler,
    Counting,
    Dotted,
    Expression,
    Function,
    Known,
    Module,
    NotCarried,
    Parameter,
    Value,
)

_COMPILE = frozenset(["torch.compile", "torch._dynamo.optimize"])
COUNTED = " counted"
"""A mark among the arguments of torch.compile: the backend counts its graphs."""

_KEYS = frozenset(["dynamic", "fullgraph", "mode", "options", "backend"])


def is_compile(path: str) -> bool:
    """Whether a path is ``torch.compile``, or what it was before."""
    return path in _COMPILE


def compiled_by(node: ast.Call, reading: Reading) -> Value:
    """Return what a call of ``torch.compile`` makes: a compiled function, or what compiles one."""
    path = dotted(node.func, reading)
    if path == "torch._dynamo.optimize":
        return Compiler(_older(node, reading))
    keywords = {word.arg: word.value for word in node.keywords}
    target = node.args[0] if node.args else keywords.pop("model", None)
    options = compile_options(keywords, reading)
    return Compiler(options) if target is None else compiled(evaluate(target, reading), options)


def compiled(target: Value, options: Mapping[str, Any]) -> Compiled:
    """Return a compiled function."""
    if (
        isinstance(target, Expression)
        and isinstance(target.node, ast.Call)
        and ast.unparse(target.node.func).rpartition(".")[2] == "partial"
    ):
        target = _of_partial(target)
    if isinstance(target, Compiled) or not isinstance(target, Function | Module | Dotted):
        raise NotCarried("torch.compile of something that is neither a function nor a module of the file")
    return Compiled(target, options)


def _of_partial(partial: Expression) -> Function:
    """Return a function that calls what ``functools.partial`` made."""
    node = ast.parse("def compiled_partial(*inputs):\n    return partial_function(*inputs)").body[0]
    assert isinstance(node, ast.FunctionDef)
    return Function("compiled_partial", node, {"partial_function": partial})


def _older(node: ast.Call, reading: Reading) -> dict[str, Any]:
    keywords: dict[str | None, ast.expr] = {word.arg: word.value for word in node.keywords}
    if "nopython" in keywords:
        keywords["fullgraph"] = keywords.pop("nopython")
    if node.args:
        keywords["backend"] = node.args[0]
    return compile_options(keywords, reading)


def compile_options(keywords: Mapping[str | None, ast.expr], reading: Reading) -> dict[str, Any]:
    """Return the arguments of ``torch.compile`` as the spec's key ``compile``."""
    made: dict[str, Any] = {}
    for name, node in keywords.items():
        if name not in _KEYS:
            raise NotCarried(f"the argument '{name}' of torch.compile")
        value = evaluate(node, reading)
        if isinstance(value, Counting) and name == "backend":
            made[COUNTED] = True
            continue
        found = value.template if isinstance(value, Parameter) else value.value if isinstance(value, Known) else None
        if found is None and not (isinstance(value, Known) and value.value is None):
            raise NotCarried(f"the argument '{name}' of torch.compile is no constant")
        if isinstance(found, dict) and not all(isinstance(item, str | int | float | bool | None) for item in found.values()):
            raise NotCarried("options of torch.compile that are no constants")
        if (name == "backend" and found == "inductor") or (found is None and name != "dynamic") or (name == "fullgraph" and found is False):
            continue
        if name == "dynamic" and found is None:
            continue
        made[str(name)] = found
    return made
