"""Comparisons of values in tests: of compiled results with eager ones, with each other, and of library calls."""

import ast
from collections.abc import Mapping
from typing import Any

from runner.language.authoring.equivalence import is_eager_of, same_value
from runner.language.authoring.evaluate import evaluate
from runner.language.authoring.reading import Reading
from runner.language.authoring.values import Expression, Gradient, Items, Known, Module, NotCarried, Result, Step, Tensor, Value


def statically(value: Value, *, wanted: bool) -> None:
    """Accept what holds for every run of the test; raise ``NotCarried`` for the rest."""
    if isinstance(value, Known) and bool(value.value) == wanted:
        return
    raise NotCarried("an assertion about a value that the language cannot name")


_IGNORED = frozenset(
    ["msg", "exact_dtype", "check_dtype", "check_stride", "check_device", "equal_nan", "exact_device", "exact_layout", "exact_stride"]
)
"""Arguments that allow differences that ``close`` does not, or what it allows too."""


def close(node: ast.Call, reading: Reading, line: int, *, defaults: Mapping[str, Any] | None = None, exact: bool = False) -> None:
    """Carry a comparison of two results: one compiled, the other of eager mode or compiled too."""
    arguments = list(node.args[:2])
    words = {word.arg: word.value for word in node.keywords}
    for name in ("actual", "expected", "first", "second", "x", "y"):
        if name in words and len(arguments) < 2:
            arguments.append(words.pop(name))
    if len(arguments) != 2:
        raise NotCarried("a comparison without two values")
    if "equal_nan" in words:
        given = evaluate(words.pop("equal_nan"), reading)
        if not (isinstance(given, Known) and given.value is True) and defaults is None:
            raise NotCarried("equal_nan=False")
    tolerances = dict(defaults or {})
    for name in ("atol", "rtol"):
        if name in words:
            value = evaluate(words.pop(name), reading)
            if not (isinstance(value, Known) and (value.value is None or isinstance(value.value, int | float))):
                raise NotCarried("a tolerance that is no constant")
            if value.value is not None:
                tolerances[name] = value.value
    if set(words) - _IGNORED:
        raise NotCarried(f"the argument '{min(str(word) for word in set(words) - _IGNORED)}' of a comparison")
    if len(tolerances) == 1:
        raise NotCarried("one tolerance without the other")
    judge: dict[str, Any] = {"exact": True} if exact else tolerances
    compare_values(evaluate(arguments[0], reading), evaluate(arguments[1], reading), judge, reading, line)


def compare_values(left: Value, right: Value, judge: Mapping[str, Any], reading: Reading, line: int) -> None:
    """Add the expectation that two values are close."""
    if isinstance(left, Items) and isinstance(right, Items) and len(left.items) == len(right.items):
        for one, other in zip(left.items, right.items, strict=True):
            compare_values(one, other, judge, reading, line)
        return
    if isinstance(left, Gradient) and isinstance(right, Gradient):
        _gradients(left, right, judge, reading, line)
        return
    if isinstance(left, Result) and isinstance(right, Result):
        _two_results(left, right, judge, reading, line)
        return
    result, other = (left, right) if isinstance(left, Result) else (right, left)
    if not isinstance(result, Result):
        if isinstance(left, Known) and isinstance(right, Known):
            statically(Known(left.value == right.value), wanted=True)
            return
        if set(judge) - {"exact"}:
            raise NotCarried("a comparison with tolerances in which nothing is compiled")
        of_library("equals", left, right, reading, line)
        return
    base, path = _split(other)
    if result.loss or path != result.path or not is_eager_of(base, result.step):
        _with_expected(result, other, judge, reading, line)
        return
    reading.expect(line, {"close": _close_words(path, judge)}, result.step)


def of_library(kind: str, left: Value, right: Value, reading: Reading, line: int) -> None:
    """Compare what a library call returns with a constant, or with what another one returns."""
    if isinstance(left, Known):
        left, right = right, left
    if not isinstance(left, Expression) or not isinstance(right, Expression | Known):
        raise NotCarried("a comparison in which nothing is compiled")
    first = _library_step(left, reading, line)
    if isinstance(right, Known):
        if not _is_data(right.value):
            raise NotCarried("a comparison with a constant that YAML does not have")
        reading.expect(line, {kind: {first.name: _data(right.value)}}, first)
        return
    second = _library_step(right, reading, line)
    reading.expect(line, {kind: {second.name: {"ref": first.name}}}, second)


def _library_step(value: Expression, reading: Reading, line: int) -> Step:
    for step in reading.steps:
        if step.of_host and step.values == (value,):
            return step
    count = sum(step.of_host for step in reading.steps)
    return reading.add(Step("api", line, values=(value,), name=f"value_of_{count + 1}", of_host=True))


def _is_data(found: Any) -> bool:
    if isinstance(found, list):
        return all(_is_data(item) for item in found)
    return found is None or isinstance(found, str | int | bool)


def _data(found: Any) -> Any:
    return [_data(item) for item in found] if isinstance(found, list) else found


def _close_words(path: tuple[int | str, ...], judge: Mapping[str, Any]) -> dict[str, Any]:
    if not path:
        return {"to": "eager", **judge}
    part = ".".join(map(str, path))
    return {"of": f"output.{part}", "to": f"eager.{part}", **judge}


def _with_expected(result: Result, other: Value, judge: Mapping[str, Any], reading: Reading, line: int) -> None:
    """Compare a result with a value that the test makes of constants and inputs."""
    if result.loss or not isinstance(other, Expression | Tensor):
        raise NotCarried("a comparison with a value that is not the eager result of the same call")
    if _has_module(other):
        raise NotCarried("a comparison with a result of another module, or of the module in another state")
    path = ".".join(map(str, ("output", *result.path)))
    reading.expect(line, {"close": {"of": path, "to": other, **judge}}, result.step)


def _has_module(value: Value) -> bool:
    """Whether a value is made with a module, whose state and context at that moment a named value would not have."""
    if isinstance(value, Module):
        return True
    if isinstance(value, Items):
        return any(map(_has_module, value.items))
    if not isinstance(value, Expression):
        return False
    names = {part.id for part in ast.walk(value.node) if isinstance(part, ast.Name)}
    return any(_has_module(given) for name, given in value.scope.items() if name in names)


def _split(value: Value) -> tuple[Value, tuple[int | str, ...]]:
    """Return a value without the parts that are taken of it, and these parts."""
    path: list[int | str] = []
    while isinstance(value, Expression) and isinstance(value.node, ast.Subscript):
        index = value.node.slice
        if not (isinstance(index, ast.Constant) and isinstance(index.value, int | str)):
            break
        path.append(index.value)
        inner = value.node.value
        bound = value.scope.get(inner.id) if isinstance(inner, ast.Name) else None
        value = bound if bound is not None else Expression(inner, value.scope)
    return value, tuple(reversed(path))


def _two_results(left: Result, right: Result, judge: Mapping[str, Any], reading: Reading, line: int) -> None:
    if left.loss or right.loss or left.step is right.step:
        raise NotCarried("a comparison of a result with itself")
    later, earlier = (left, right) if reading.steps.index(left.step) > reading.steps.index(right.step) else (right, left)
    of, to = (".".join(map(str, (named(found.step, reading), *found.path))) for found in (later, earlier))
    reading.expect(line, {"close": {"of": of, "to": to, **judge}}, later.step)


def named(step: Step, reading: Reading) -> str:
    """Return the name of a step's result, which it gets now if it has none."""
    if not step.name:
        step.name = f"result_{reading.steps.index(step) + 1}"
    return step.name


def _gradients(left: Gradient, right: Gradient, judge: Mapping[str, Any], reading: Reading, line: int) -> None:
    if not reading.steps or reading.steps[-1].kind != "backward" or not same_value(left.of, right.of):
        raise NotCarried("a comparison of gradients that are not of one backward")
    if not reading.eager_backwards:
        raise NotCarried("a comparison of gradients without an eager backward")
    reading.expect(line, {"close": {"to": "eager", **judge}}, reading.steps[-1])
