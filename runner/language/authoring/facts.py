"""Expressions of a test whose value is the same on every machine where the spec runs: questions about devices, values and torch."""

import ast
from collections.abc import Mapping
from typing import Any

from runner.language.authoring.expressions import expression
from runner.language.authoring.naming import atom, dotted
from runner.language.authoring.reading import Reading, line_of
from runner.language.authoring.values import FALSE, Class, Function, Items, Known, Module, NotCarried, Tensor, Value

TRUE = Known(value=True)

_CAPABILITIES: Mapping[str, Mapping[str, str]] = {
    "torch.ops.mkldnn._is_mkldnn_bf16_supported": {"mkldnn": "bfloat16"},
    "torch.ops.mkldnn._is_mkldnn_fp16_supported": {"mkldnn": "float16"},
}
"""Questions to torch, and the capability of the runner that says the same."""


def decided(test: ast.expr, reading: Reading) -> Value:
    """Return the value of a condition, decided by what every machine of the spec has in common where its values do not say it."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = decided(test.operand, reading)
        return Known(not inner.value) if isinstance(inner, Known) else inner
    if isinstance(test, ast.BoolOp):
        return _joined(test, reading)
    word = atom(test)
    if word in ("true", "false"):
        reading.note(line_of(test), f"read as on Linux with x86: {ast.unparse(test)} is {word}")
        return Known(word == "true")
    if word == "rocm" and "rocm" not in reading.vendors:
        return FALSE
    return reading.rules.evaluate(test, reading)


def _joined(test: ast.BoolOp, reading: Reading) -> Value:
    decisive = isinstance(test.op, ast.Or)
    is_open = False
    for part in test.values:
        value = decided(part, reading)
        if isinstance(value, Known) and bool(value.value) == decisive and not is_open:
            return Known(decisive)
        is_open = is_open or not isinstance(value, Known)
    return expression(test, reading) if is_open else Known(not decisive)


def capability(path: str, node: ast.Call, reading: Reading) -> Known | None:
    """Return the answer to a question about the machine, which the spec then requires."""
    if path not in _CAPABILITIES or node.args or node.keywords:
        return None
    wanted = dict(_CAPABILITIES[path])
    if wanted not in reading.requires:
        reading.requires.append(wanted)
    reading.note(line_of(node), f"read for machines where {ast.unparse(node)} holds; the spec is unavailable elsewhere")
    return TRUE


def is_instance(node: ast.Call, reading: Reading) -> Known | None:
    """Return the answer of ``isinstance`` for a value whose type is known; None for others."""
    if not (isinstance(node.func, ast.Name) and node.func.id == "isinstance" and len(node.args) == 2 and not node.keywords):
        return None
    try:
        value = reading.rules.evaluate(node.args[0], reading)
    except NotCarried:
        return None
    kinds = node.args[1].elts if isinstance(node.args[1], ast.Tuple) else [node.args[1]]
    words = {dotted(kind, reading) or ast.unparse(kind) for kind in kinds}
    own = _words_of(value)
    if own is None or not words <= _TYPES:
        return None
    return Known(bool(own & words))


_TENSOR = frozenset(["torch.Tensor"])
_MODULE = frozenset(["torch.nn.Module"])
_BUILTIN: Mapping[type, frozenset[str]] = {
    bool: frozenset(["bool", "int"]),
    **{kind: frozenset([kind.__name__]) for kind in (int, float, str, list, tuple, dict)},
    type(None): frozenset(),
}
_TYPES = frozenset([*_TENSOR, *_MODULE, "bool", "int", "float", "str", "list", "tuple", "dict"])


def _words_of(value: Value) -> frozenset[str] | None:
    if isinstance(value, Tensor):
        return _TENSOR
    if isinstance(value, Module):
        return _MODULE
    if isinstance(value, Known):
        return _BUILTIN.get(type(value.value))
    if isinstance(value, Function | Class):
        return frozenset()
    return None if not isinstance(value, Items) or not value.kind else frozenset([value.kind])


def constant_call(path: str, values: list[Any]) -> Known | None:
    """Return the value of a question about a constant; None for other calls."""
    import math

    if path in ("math.isinf", "math.isnan", "math.sqrt", "math.log2") and len(values) == 1 and isinstance(values[0], int | float):
        return Known(getattr(math, path.removeprefix("math."))(values[0]))
    return None
