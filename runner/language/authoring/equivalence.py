"""Whether an expression of a test is what the compiled function computes, in eager mode."""

import ast
import copy
from collections.abc import Mapping, Sequence
from typing import Any

from runner.language.authoring.values import (
    Compiled,
    Device,
    Dotted,
    Expression,
    Function,
    Items,
    Known,
    Module,
    NotCarried,
    Parameter,
    Step,
    Tensor,
    Value,
)

_COPIES = frozenset(["clone", "detach", "contiguous_copy"])


def is_eager_of(value: Value, step: Step) -> bool:
    """Whether a value is the result of a step's function, called in eager mode with the step's inputs."""
    try:
        found = _forms(node_of(value))
        wanted = _forms(_of_step(step))
    except (NotCarried, RecursionError):
        return False
    return bool(found & wanted)


def same_value(left: Value, right: Value) -> bool:
    """Whether two values are the same one, or copies of one."""
    try:
        return ast.dump(node_of(left)) == ast.dump(node_of(right))
    except NotCarried:
        return False


def _of_step(step: Step) -> ast.expr:
    if step.target is None:
        raise NotCarried("a step without a function")
    return _called(step.target, [node_of(value) for value in step.values])


def _forms(node: ast.expr) -> set[str]:
    """Return the text of an expression, as it is and with its functions' bodies in place of their calls."""
    return {ast.dump(node), ast.dump(_Inlining().visit(copy.deepcopy(node)))}


class _Call(ast.Call):
    """A call of a function whose definition is known."""

    target: Function


def _called(target: Value, arguments: Sequence[ast.expr]) -> ast.expr:
    if isinstance(target, Function):
        made = _Call(ast.Name(f"f{id(target.node)}", ast.Load()), list(arguments), [])
        made.target = target
        return made
    return ast.Call(node_of(target), list(arguments), [])


def node_of(value: Value) -> ast.expr:
    """Return an expression in which every name is replaced by what it stands for."""
    if isinstance(value, Tensor | Module):
        return ast.Name(f"v{id(value.token)}", ast.Load())
    if isinstance(value, Known):
        return _constant(value.value)
    if isinstance(value, Items):
        return ast.Tuple([node_of(item) for item in value.items], ast.Load())
    if isinstance(value, Device):
        return ast.Constant(f"device {value.where}")
    if isinstance(value, Dotted):
        return ast.Name(value.path, ast.Load())
    if isinstance(value, Parameter):
        return ast.Name(f"p_{value.name}", ast.Load())
    if isinstance(value, Function):
        return ast.Name(f"f{id(value.node)}", ast.Load())
    if isinstance(value, Compiled):
        raise NotCarried("something compiled")
    if isinstance(value, Expression):
        return _visited(_Replacing(value.scope), copy.deepcopy(value.node))
    raise NotCarried("a value without an expression")


def _constant(found: Any) -> ast.expr:
    if isinstance(found, Value):
        return node_of(found)
    if isinstance(found, list | tuple):
        return ast.Tuple([_constant(item) for item in found], ast.Load())
    return ast.Constant(repr(found))


class _Replacing(ast.NodeTransformer):
    """Replaces names by what they stand for; removes copies."""

    def __init__(self, scope: Mapping[str, Value]) -> None:
        self._scope = scope

    def visit_Name(self, node: ast.Name) -> ast.expr:
        value = self._scope.get(node.id)
        return ast.Name(node.id, ast.Load()) if value is None else node_of(value)

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return _constant(node.value)

    def visit_List(self, node: ast.List) -> ast.expr:
        return ast.Tuple([self.visit(item) for item in node.elts], ast.Load())

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if isinstance(node.func, ast.Attribute) and node.func.attr in _COPIES and not node.args and not node.keywords:
            return _visited(self, node.func.value)
        if ast.unparse(node.func) in ("copy.deepcopy", "deepcopy") and len(node.args) == 1:
            return _visited(self, node.args[0])
        arguments: list[ast.expr] = []
        for argument in node.args:
            made = self.visit(argument.value if isinstance(argument, ast.Starred) else argument)
            arguments += made.elts if isinstance(argument, ast.Starred) and isinstance(made, ast.Tuple) else [made]
        target = self._scope.get(node.func.id) if isinstance(node.func, ast.Name) else None
        given = [word for word in node.keywords if not self._is_empty(word)]
        if isinstance(target, Function) and not given:
            return _called(target, arguments)
        keywords = [ast.keyword(word.arg, self.visit(word.value)) for word in given]
        return ast.Call(self.visit(node.func), arguments, keywords)

    def _is_empty(self, word: ast.keyword) -> bool:
        """Whether a keyword unpacks an empty dict."""
        value = self._scope.get(word.value.id) if word.arg is None and isinstance(word.value, ast.Name) else None
        return isinstance(value, Known) and value.value == {}


class _Inlining(ast.NodeTransformer):
    """Replaces calls of functions that only return an expression by this expression."""

    def visit__Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        assert isinstance(node, _Call)
        body = _returned(node.target)
        names = node.target.parameters
        if body is None or len(names) != len(node.args):
            return node
        scope = {name: value for name, value in node.target.scope.items() if name not in names}
        try:
            inner = _Replacing(scope).visit(copy.deepcopy(body))
        except NotCarried:
            return node
        return _visited(_Arguments(dict(zip(names, node.args, strict=True))), inner)


class _Arguments(ast.NodeTransformer):
    def __init__(self, given: Mapping[str, ast.expr]) -> None:
        self._given = given

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._given.get(node.id, node)


def _returned(function: Function) -> ast.expr | None:
    """Return what a function returns, if it does nothing else."""
    if isinstance(function.node, ast.Lambda):
        return function.node.body
    body = [part for part in function.node.body if not (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))]
    if len(body) == 1 and isinstance(body[0], ast.Return) and body[0].value is not None:
        return body[0].value
    return None


def _visited(transformer: ast.NodeTransformer, node: ast.expr) -> ast.expr:
    """Return what a transformer makes of an expression: another expression, by each of the transformers here."""
    found: ast.expr = transformer.visit(node)
    return found
