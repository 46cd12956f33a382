"""Methods of the test's class that the file defines."""

import ast

from runner.language.authoring.reading import Reading
from runner.language.authoring.values import Function


def own_function(name: str, reading: Reading) -> Function | None:
    """Return a method of the test's class, without ``self``."""
    method = own_method(name, reading)
    if method is None:
        return None
    is_static = any(isinstance(part, ast.Name) and part.id == "staticmethod" for part in method.decorator_list)
    return Function(name, method if is_static else _without_self(method), {})


def own_method(name: str, reading: Reading) -> ast.FunctionDef | None:
    """Return a method of the test's class or of its bases within the file."""
    if reading.test.owner is None:
        return None
    for owner in reading.file.lineage(reading.test.owner):
        for part in owner.body:
            if isinstance(part, ast.FunctionDef) and part.name == name:
                return part
    return None


def _without_self(method: ast.FunctionDef) -> ast.FunctionDef:
    copied = ast.FunctionDef(**{name: getattr(method, name) for name in method._fields if hasattr(method, name)})
    old = method.args
    positional = [*old.posonlyargs, *old.args][1:]
    copied.args = ast.arguments([], positional, old.vararg, old.kwonlyargs, old.kw_defaults, old.kwarg, old.defaults)
    return ast.copy_location(copied, method)
