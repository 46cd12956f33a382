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
    if isinstance(left, Tensor) and isinstance(right, Tensor) and left.token is right.token and left is not right:
        _changed_inputs(left, judge, reading, line)
        return
    if not isinstance(result, Result):
        if (is_derived(left) or is_derived(right)) and not (is_plain(left) or is_plain(right)):
            _derived_close(left, right, judge, reading, line)
            return
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


def _changed_inputs(value: Tensor, judge: Mapping[str, Any], reading: Reading, line: int) -> None:
    """Expect that a compiled call changes an argument as the call in eager mode does, which ``close`` compares too."""
    calls = [
        step for step in reading.steps if step.kind == "call" and any(getattr(given, "token", None) is value.token for given in step.values)
    ]
    kept = [called for called in reading.scope.values() if isinstance(called, Expression)]
    if len(calls) != 1 or not any(is_eager_of(called, calls[0]) for called in [*kept, *(value for _, value in reading.eager_calls)]):
        raise NotCarried("a comparison in which nothing is compiled")
    reading.expect(line, {"close": {"to": "eager", **judge}}, calls[0])


def _derived_close(left: Value, right: Value, judge: Mapping[str, Any], reading: Reading, line: int) -> None:
    """Expect that tensors that Python computes of results are close to others."""
    one, other = (left, right) if is_derived(left) else (right, left)
    if not isinstance(one, Expression) or _has_module(other):
        raise NotCarried("a comparison of several values that are computed of results")
    step = _derived_step(one, reading, line)
    if is_derived(other):
        if not isinstance(other, Expression):
            raise NotCarried("a comparison of several values that are computed of results")
        second = _derived_step(other, reading, line)
        reading.expect(line, {"close": {"of": second.name, "to": step.name, **judge}}, second)
        return
    if not isinstance(other, Expression | Tensor):
        raise NotCarried("a comparison with a value that the language cannot name")
    reading.expect(line, {"close": {"of": step.name, "to": other, **judge}}, step)


def of_library(kind: str, left: Value, right: Value, reading: Reading, line: int) -> None:
    """Compare what a library call returns with a constant, or with what another one returns."""
    if isinstance(left, Known):
        left, right = right, left
    if is_derived(left) or is_derived(right):
        _derived(kind, left, right, reading, line)
        return
    if not isinstance(left, Expression) or not isinstance(right, Expression | Known):
        raise NotCarried("a comparison in which nothing is compiled")
    if any(step.kind == "call" for step in reading.steps):
        if not (isinstance(right, Known) and _is_asked_now(left, line)):
            raise NotCarried("a comparison in which nothing is compiled")
        _derived(kind, left, right, reading, line)
        return
    first = _library_step(left, reading, line)
    if isinstance(right, Known):
        if not _is_data(right.value):
            raise NotCarried("a comparison with a constant that YAML does not have")
        reading.expect(line, {kind: {first.name: _data(right.value)}}, first)
        return
    second = _library_step(right, reading, line)
    reading.expect(line, {kind: {second.name: {"ref": first.name}}}, second)


def is_derived(value: Value) -> bool:
    """Whether a value is computed of results of compiled calls."""
    if isinstance(value, Items):
        return any(map(is_derived, value.items))
    if not isinstance(value, Expression):
        return False
    names = {part.id for part in ast.walk(value.node) if isinstance(part, ast.Name)}
    return any(isinstance(given, Result) or is_derived(given) for name, given in value.scope.items() if name in names)


def _derived(kind: str, left: Value, right: Value, reading: Reading, line: int) -> None:
    """Expect that what Python computes of results is equal, or differs: the spec computes the same."""
    scope = {"left_side": left, "right_side": right}
    node = ast.Compare(ast.Name("left_side", ast.Load()), [ast.Eq()], [ast.Name("right_side", ast.Load())])
    wanted, whole = kind == "equals", Expression(_as_bool(node), scope)
    if isinstance(left, Expression) and _is_bool(left.node) and isinstance(right, Known) and isinstance(right.value, bool):
        wanted, whole = (right.value == wanted), left
    step = _derived_step(whole, reading, line)
    reading.expect(line, {"equals": {step.name: wanted}}, step)


def _is_bool(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "bool"


def _as_bool(node: ast.expr) -> ast.expr:
    return ast.Call(ast.Name("bool", ast.Load()), [node], [])


def _is_asked_now(value: Expression, line: int) -> bool:
    """Whether an expression stands in the assertion itself, and computes of nothing that was computed before."""
    names = {part.id for part in ast.walk(value.node) if isinstance(part, ast.Name)}
    before = [given for name, given in value.scope.items() if name in names and isinstance(given, Expression | Module | Tensor)]
    return not before and line <= getattr(value.node, "lineno", 0) <= line + _LONGEST_ASSERTION


_LONGEST_ASSERTION = 4


def _derived_step(value: Expression, reading: Reading, line: int) -> Step:
    if not any(step.kind == "call" for step in reading.steps):
        raise NotCarried("a value that is computed before the first compiled call")
    if _asks_identity(value):
        raise NotCarried("the identity or the memory of a value: the spec's values are copies")
    count = sum(step.kind == "api" and bool(step.values) for step in reading.steps)
    return reading.add(Step("api", line, values=(value,), name=f"value_of_{count + 1}"))


def _asks_identity(value: Value) -> bool:
    if isinstance(value, Items):
        return any(map(_asks_identity, value.items))
    if not isinstance(value, Expression):
        return False
    for part in ast.walk(value.node):
        word = part.id if isinstance(part, ast.Name) else part.attr if isinstance(part, ast.Attribute) else ""
        if word in _IDENTITIES or (isinstance(part, ast.Compare) and any(isinstance(kind, ast.Is | ast.IsNot) for kind in part.ops)):
            return True
    names = {part.id for part in ast.walk(value.node) if isinstance(part, ast.Name)}
    return any(_asks_identity(given) for name, given in value.scope.items() if name in names)


_IDENTITIES = frozenset(
    ["id", "data_ptr", "untyped_storage", "storage", "is_set_to", "_base", "_is_view", "ref", "WeakTensor", "getrefcount"]
)

_TEXTUAL = frozenset(["shape", "dtype", "device", "requires_grad", "is_leaf", "layout", "ndim", "grad_fn", "itemsize", "is_sparse"])
_ASKING = frozenset(
    [
        "len",
        "type",
        "isinstance",
        "stride",
        "size",
        "dim",
        "numel",
        "is_contiguous",
        "storage_offset",
        "data_ptr",
        "item",
        "tolist",
        "bool",
        "int",
        "str",
    ]
)


def is_plain(value: Value) -> bool:
    """Whether what an expression computes is no tensor, by its last word."""
    if isinstance(value, Known):
        return True
    node = value.node if isinstance(value, Expression) else None
    if isinstance(node, ast.Attribute):
        return node.attr in _TEXTUAL
    if isinstance(node, ast.Call):
        return ast.unparse(node.func).rpartition(".")[2] in _ASKING
    return isinstance(node, ast.BoolOp)


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
    if not result.loss and is_derived(other):
        _derived_close(Expression(ast.Name("result", ast.Load()), {"result": result}), other, judge, reading, line)
        return
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
