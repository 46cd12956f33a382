"""What is known of the type of a result: functions and modules of the file that return no dict and no object of a named class."""

import ast

from runner.language.authoring.reading import Reading
from runner.language.authoring.values import Class, Expression, Function, Module, Result, Value


def is_other_class(node: ast.Compare, reading: Reading) -> bool:
    """Whether a comparison asks for the name of a class that the file does not know, of a result of the file's own function."""
    left, right = node.left, node.comparators[0]
    if not (
        isinstance(left, ast.Attribute) and left.attr == "__name__" and isinstance(left.value, ast.Call) and isinstance(node.ops[0], ast.Eq)
    ):
        return False
    if ast.unparse(left.value.func) != "type" or not isinstance(right, ast.Constant) or not isinstance(right.value, str):
        return False
    is_known = right.value in reading.file.definitions or right.value in reading.file.imports or right.value in reading.scope
    return not is_known and returns_plainly(_argument(left.value, reading), reading)


def _argument(node: ast.Call, reading: Reading) -> Value | None:
    argument = node.args[0] if len(node.args) == 1 else None
    return reading.scope.get(argument.id) if isinstance(argument, ast.Name) else None


def is_no_dict(node: ast.Call, reading: Reading) -> bool:
    """Whether ``isinstance(x, dict)`` asks for a result of the file's own function that returns no dict."""
    if not (
        isinstance(node.func, ast.Name) and node.func.id == "isinstance" and len(node.args) == 2 and ast.unparse(node.args[1]) == "dict"
    ):
        return False
    shortened = ast.Call(node.func, node.args[:1], [])
    return returns_plainly(_argument(shortened, reading), reading)


def returns_plainly(value: Value | None, reading: Reading) -> bool:
    """Whether a value is the result of a function whose returns are operations on tensors, and no dicts or constructions."""
    if isinstance(value, Result):
        made: Value | None = value.step.target
    elif isinstance(value, Expression) and isinstance(value.node, ast.Call) and isinstance(value.node.func, ast.Name):
        made = value.scope.get(value.node.func.id)
    else:
        return False
    body: ast.AST | None = None
    if isinstance(made, Function):
        body = made.node
    elif isinstance(made, Module) and isinstance(made.node.func, ast.Name):
        owner = made.scope.get(made.node.func.id)
        body = (
            next((part for part in owner.node.body if getattr(part, "name", "") == "forward"), None) if isinstance(owner, Class) else None
        )
    if body is None:
        return False
    returned = [part.value for part in ast.walk(body) if isinstance(part, ast.Return) and part.value is not None]
    if isinstance(body, ast.Lambda):
        returned = [body.body]
    return bool(returned) and all(_is_operation(part) for part in returned)


def _is_operation(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return True
    if not isinstance(node, ast.Call):
        return False
    word = ast.unparse(node.func)
    return word.startswith(("torch.", "self.")) or (isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS)


_METHODS = frozenset(["view", "reshape", "sum", "relu", "transpose", "permute", "to", "mean", "softmax"])
