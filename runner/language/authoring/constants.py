"""Operations on constants of a test, without executing anything of it."""

import ast
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from runner.language.authoring.values import NotCarried

_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}

_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda item, items: item in items,
    ast.NotIn: lambda item, items: item not in items,
}

_LARGEST = 10**12
"""Numbers beyond it are no sizes."""

_LONGEST = 10_000
"""The greatest length of a text or list that is made of constants."""


def binary(kind: ast.operator, left: Any, right: Any) -> Any:
    """Return the value of an operation."""
    if isinstance(kind, ast.Pow) and all(isinstance(side, int | float) and abs(side) <= 64 for side in (left, right)):
        return left**right
    if isinstance(kind, ast.LShift) and isinstance(left, int) and isinstance(right, int) and 0 <= right <= 40:
        return left << right
    if isinstance(kind, ast.Mult) and not all(isinstance(side, int | float) for side in (left, right)):
        length, times = (len(left), right) if isinstance(left, str | list | tuple) else (len(right), left)
        if not isinstance(times, int) or length * times > _LONGEST:
            raise NotCarried("a long repetition")
    if type(kind) not in _BINARY:
        raise NotCarried("an operation that is not understood")
    return bounded(_guarded(_BINARY[type(kind)], left, right))


def compare(kinds: Iterable[ast.cmpop], values: list[Any]) -> bool:
    """Return the value of a comparison."""
    pairs = itertools.pairwise(values)
    return all(bool(_guarded(_COMPARE[type(kind)], left, right)) for kind, (left, right) in zip(kinds, pairs, strict=True))


def _guarded(operation: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    try:
        return operation(left, right)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise NotCarried(f"an operation on constants: {error}") from error


def bounded(value: Any) -> Any:
    """Return a value unless it is too large to write down."""
    if isinstance(value, int | float) and not isinstance(value, bool) and not math.isinf(value) and abs(value) > _LARGEST:
        raise NotCarried("a number that is too large")
    if isinstance(value, str | list | tuple | dict) and len(value) > _LONGEST:
        raise NotCarried("a long constant")
    return value


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "len": len,
    "int": int,
    "float": float,
    "str": str,
    "bool": bool,
    "list": list,
    "tuple": tuple,
    "min": min,
    "max": max,
    "abs": abs,
    "sum": sum,
    "dict": dict,
    "set": lambda items=(): list(dict.fromkeys(items)),
    "sorted": sorted,
    "round": round,
    "any": any,
    "all": all,
    "reversed": lambda items: list(reversed(items)),
    "range": lambda *bounds: _range(*bounds),
    "itertools.product": lambda *lists, repeat=1: _product(*lists, repeat=repeat),
    "enumerate": lambda items: list(enumerate(items)),
    "zip": lambda *lists: list(zip(*lists, strict=False)),
    "math.prod": math.prod,
    "math.ceil": math.ceil,
}
"""Functions of constants that are computed while a test is read."""

_MOST = 4096


def _range(*bounds: int) -> list[int]:
    made = range(*bounds)
    if len(made) > _MOST:
        raise NotCarried("a long range")
    return list(made)


def _product(*lists: Any, repeat: int) -> list[Any]:
    size = math.prod(len(items) for items in lists) ** repeat
    if size > _MOST:
        raise NotCarried("a long product")
    return list(itertools.product(*lists, repeat=repeat))
