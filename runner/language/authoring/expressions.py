"""Expressions of which nothing else is known: the spec has them as they are written."""

import ast

from runner.language.authoring.reading import Reading
from runner.language.authoring.values import Codes, Expression, Gradient, NotCarried, Raised, Result, Unknown, Value


def expression(node: ast.expr, reading: Reading) -> Expression:
    """Return an expression that nothing else is known of, with what its names stand for."""
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    scope: dict[str, Value] = {}
    for name in names & reading.scope.keys():
        value = reading.scope[name]
        if isinstance(value, Unknown):
            raise NotCarried(f"it uses '{name}', which line {value.line} makes")
        if isinstance(value, Codes | Gradient | Raised) or (isinstance(value, Result) and value.loss):
            raise NotCarried(f"it computes with '{name}', a result of a compiled call")
        scope[name] = value
    return Expression(node, scope, options=repr(reading.inner))
