"""Assertions of tests as expectations."""

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from runner.language.authoring import constants
from runner.language.authoring.comparisons import close, is_derived, named, of_library, statically
from runner.language.authoring.compiling import COUNTED
from runner.language.authoring.evaluate import evaluate
from runner.language.authoring.filechecks import contains, lacks, times
from runner.language.authoring.naming import dotted
from runner.language.authoring.reading import Reading, line_of
from runner.language.authoring.values import Codes, Counting, Dotted, Expression, Known, NotCarried, Raised, Result, Step, Value

Number = tuple[str, str]
"""A counter or a metric: the expectation's kind and the name."""


def assertion(name: str, node: ast.Call, reading: Reading) -> None:
    """Carry ``self.NAME(...)`` over to the spec."""
    handler = _ASSERTIONS.get(name)
    if handler is None:
        raise NotCarried(f"the assertion '{name}'")
    handler(node, reading)


def truth(test: ast.expr, reading: Reading, line: int, *, negated: bool = False) -> None:
    """Carry ``assert TEST`` over to the spec, or ``assert not TEST``."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        truth(test.operand, reading, line, negated=not negated)
    elif isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or if negated else ast.And):
        for part in test.values:
            truth(part, reading, line, negated=negated)
    elif isinstance(test, ast.Compare) and len(test.ops) == 1:
        kind = type(test.ops[0])
        word = (_OPPOSITES if negated else _SAME).get(kind)
        if word is None:
            _truth_of_value(evaluate(test, reading), reading, line, wanted=not negated)
            return
        _compared(word, test.left, test.comparators[0], reading, line)
    elif isinstance(test, ast.Call):
        _truth_of_call(test, reading, line, negated=negated)
    else:
        _truth_of_value(evaluate(test, reading), reading, line, wanted=not negated)


def _truth_of_value(value: Value, reading: Reading, line: int, *, wanted: bool) -> None:
    """Expect that a value counts as true, or as false."""
    if isinstance(value, Expression):
        node = ast.Call(ast.Name("bool", ast.Load()), [value.node], [])
        of_library("equals", Expression(node, value.scope, options=value.options), Known(wanted), reading, line)
        return
    statically(value, wanted=wanted)


_SAME: Mapping[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.In: "in",
    ast.NotIn: "not in",
}
_OPPOSITES: Mapping[type[ast.cmpop], str] = {
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Lt: ">=",
    ast.LtE: ">",
    ast.Gt: "<=",
    ast.GtE: "<",
    ast.In: "not in",
    ast.NotIn: "in",
}
_TURNED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _compared(word: str, left: ast.expr, right: ast.expr, reading: Reading, line: int) -> None:
    for one, other, sign in ((left, right, word), (right, left, _TURNED.get(word, ""))):
        number = number_named(one, reading)
        if number is not None and sign in _TURNED:
            _count(number, sign, _whole(evaluate(other, reading)), reading, line)
            return
        if _about_code(one, other, sign, reading, line):
            return
    first, second = evaluate(left, reading), evaluate(right, reading)
    first, second = _of_loss(first), _of_loss(second)
    if word in _ORDERS and any(is_derived(side) or isinstance(side, Result) for side in (first, second)):
        kind = next(kind for kind, sign in _SAME.items() if sign == word)
        node = ast.Compare(ast.Name("left_side", ast.Load()), [kind()], [ast.Name("right_side", ast.Load())])
        scope = {"left_side": first, "right_side": second}
        of_library("equals", Expression(ast.Call(ast.Name("bool", ast.Load()), [node], []), scope), Known(value=True), reading, line)
        return
    if word in ("in", "not in"):
        _contained(first, second, word, reading, line)
    elif isinstance(first, Known) and isinstance(second, Known):
        kind = next(kind for kind, sign in _SAME.items() if sign == word)
        statically(Known(constants.compare([kind()], [first.value, second.value])), wanted=True)
    elif isinstance(first, Dotted) and isinstance(second, Dotted) and word in ("==", "!="):
        statically(Known((first.path == second.path) == (word == "==")), wanted=True)
    elif word in ("==", "!="):
        of_library("equals" if word == "==" else "differs", first, second, reading, line)
    else:
        raise NotCarried("a comparison of values that the language cannot name")


_ORDERS = frozenset(["<", "<=", ">", ">=", "in", "not in"])


def _of_loss(value: Value) -> Value:
    """Return the sum or the mean of a result as the Python that computes it."""
    if not (isinstance(value, Result) and value.loss):
        return value
    node = ast.Call(ast.Attribute(ast.Name("result", ast.Load()), value.loss, ast.Load()), [], [])
    return Expression(node, {"result": replace(value, loss="")})


def number_named(node: ast.expr, reading: Reading) -> Number | None:
    """Return the counter or the metric that an expression reads; None for others."""
    inner = node.value if isinstance(node, ast.Subscript) else None
    is_counter = isinstance(inner, ast.Subscript) and dotted(inner.value, reading).endswith("_dynamo.utils.counters")
    if is_counter and isinstance(node, ast.Subscript) and isinstance(inner, ast.Subscript):
        space, name = evaluate(inner.slice, reading), evaluate(node.slice, reading)
        if isinstance(space, Known) and isinstance(name, Known):
            return "counter", f"{space.value}.{name.value}"
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and isinstance(reading.scope.get(node.value.id), Counting):
        options = reading.matrix.get(" compile") or [{}]
        if node.attr != "frame_count" or not options[0].get(COUNTED):
            raise NotCarried("what a counting backend counted, other than graphs")
        return "counter", "stats.unique_graphs"
    path = dotted(node, reading)
    if path.startswith("torch._inductor.metrics."):
        return "metric", path.removeprefix("torch._inductor.metrics.")
    if isinstance(node, ast.Name) and isinstance(reading.scope.get(node.id), Expression):
        bound = reading.scope[node.id]
        assert isinstance(bound, Expression)
        return (
            number_named(bound.node, reading)
            if isinstance(bound.node, ast.Subscript | ast.Attribute) and "counters" in ast.unparse(bound.node)
            else None
        )
    return None


def _whole(value: Value) -> int:
    if isinstance(value, Known) and isinstance(value.value, int) and not isinstance(value.value, bool):
        return value.value
    raise NotCarried("a count that is no constant")


def _count(number: Number, sign: str, count: int, reading: Reading, line: int) -> None:
    kind, name = number
    reading.expect(line, {kind: {name: count_of(sign, count)}})


def count_of(sign: str, count: int) -> Any:
    """Return a comparison with a number as a count of the language."""
    ranges = {"==": count, ">": {"min": count + 1}, ">=": {"min": count}, "<": {"max": count - 1}, "<=": {"max": count}}
    if sign == "!=" and count == 0:
        return {"min": 1}
    if sign not in ranges or (sign == ">=" and count <= 0) or (sign == ">" and count < 0):
        raise NotCarried("a comparison that no count can say")
    return ranges[sign]


def _about_code(one: ast.expr, other: ast.expr, sign: str, reading: Reading, line: int) -> bool:
    """Carry comparisons of numbers of generated files and of texts in them."""
    if not isinstance(one, ast.Call):
        return False
    if isinstance(one.func, ast.Name) and one.func.id == "len" and len(one.args) == 1:
        codes = evaluate(one.args[0], reading)
        if isinstance(codes, Codes) and codes.is_list:
            reading.expect(line, {"generated_files": count_of(sign, _whole(evaluate(other, reading)))}, codes.step)
            return True
    if isinstance(one.func, ast.Attribute) and one.func.attr == "count" and len(one.args) == 1:
        base = evaluate(one.func.value, reading)
        text = evaluate(one.args[0], reading)
        if isinstance(base, Codes) and isinstance(text, Known) and sign == "==":
            times(base, str(text.value), _whole(evaluate(other, reading)), reading, line)
            return True
    return False


def _contained(item: Value, whole: Value, word: str, reading: Reading, line: int) -> None:
    if isinstance(item, Known) and isinstance(whole, Known):
        kind = ast.In() if word == "in" else ast.NotIn()
        statically(Known(constants.compare([kind], [item.value, whole.value])), wanted=True)
        return
    if isinstance(whole, Codes) and isinstance(item, Known) and isinstance(item.value, str):
        (contains if word == "in" else lacks)(whole, item.value, reading, line)
        return
    if word == "in" and isinstance(item, Known) and isinstance(item.value, str) and _raised_step(whole) is not None:
        step = _raised_step(whole)
        assert step is not None
        first = next(found.body["raises"] for found in step.expects if "raises" in found.body)
        reading.expect(line, {"raises": {"type": first["type"], "match": re.escape(item.value)}}, step)
        return
    raise NotCarried("an assertion about what a value contains")


def _raised_step(value: Value) -> Step | None:
    if isinstance(value, Raised):
        return value.step_holder[0] if value.step_holder else None
    if isinstance(value, Expression) and isinstance(value.node, ast.Call):
        raise NotCarried("an assertion about a text that is computed")
    return None


def _truth_of_call(node: ast.Call, reading: Reading, line: int, *, negated: bool) -> None:
    path = dotted(node.func, reading)
    last = path.rpartition(".")[2]
    if path == "torch.allclose" and not negated:
        close(node, reading, line, defaults={"atol": 1e-8, "rtol": 1e-5})
    elif path == "torch.equal" and not negated:
        close(node, reading, line, exact=True)
    elif path == "torch.equal":
        _differ(node, reading, line)
    elif last == "same" and path.startswith("torch._dynamo") and not negated:
        tolerance = next((evaluate(word.value, reading) for word in node.keywords if word.arg == "tol"), Known(1e-4))
        if not isinstance(tolerance, Known) or {word.arg for word in node.keywords} - {"tol"}:
            raise NotCarried("arguments of 'same'")
        close(ast.Call(node.func, node.args, []), reading, line, defaults={"atol": tolerance.value, "rtol": tolerance.value})
    else:
        _truth_of_value(evaluate(node, reading), reading, line, wanted=not negated)


def _equal(node: ast.Call, reading: Reading) -> None:
    line = line_of(node)
    if len(node.args) >= 2:
        left, right = node.args[:2]
        for one, other in ((left, right), (right, left)):
            number = number_named(one, reading)
            if number is not None:
                second = number_named(other, reading)
                if second is not None:
                    raise NotCarried("a comparison of two counters")
                _count(number, "==", _whole(evaluate(other, reading)), reading, line)
                return
            if _about_code(one, other, "==", reading, line):
                return
            if isinstance(one, ast.Compare) and isinstance(other, ast.expr):
                value = evaluate(other, reading)
                if isinstance(value, Known) and isinstance(value.value, bool):
                    truth(one, reading, line, negated=not value.value)
                    return
    close(node, reading, line)


def _not_equal(node: ast.Call, reading: Reading) -> None:
    line = line_of(node)
    if len(node.args) >= 2:
        for one, other in ((node.args[0], node.args[1]), (node.args[1], node.args[0])):
            number = number_named(one, reading)
            if number is not None:
                _count(number, "!=", _whole(evaluate(other, reading)), reading, line)
                return
    _differ(node, reading, line)


def _differ(node: ast.Call, reading: Reading, line: int) -> None:
    left, right = (evaluate(argument, reading) for argument in node.args[:2])
    if not isinstance(left, Result) and not isinstance(right, Result):
        of_library("differs", left, right, reading, line)
        return
    if not (isinstance(left, Result) and isinstance(right, Result)) or left.path or right.path or left.loss or right.loss:
        raise NotCarried("a difference of values that the language cannot name")
    later, earlier = (left, right) if reading.steps.index(left.step) > reading.steps.index(right.step) else (right, left)
    reading.expect(line, {"differs": {named(later.step, reading): {"ref": named(earlier.step, reading)}}}, later.step)


def _ordered(sign: str) -> Callable[[ast.Call, Reading], None]:
    return lambda node, reading: _compared(sign, node.args[0], node.args[1], reading, line_of(node))


def _true(node: ast.Call, reading: Reading) -> None:
    truth(node.args[0], reading, line_of(node))


def _false(node: ast.Call, reading: Reading) -> None:
    truth(node.args[0], reading, line_of(node), negated=True)


_ASSERTIONS: Mapping[str, Callable[[ast.Call, Reading], None]] = {
    "assertEqual": _equal,
    "assertEquals": _equal,
    "assertNotEqual": _not_equal,
    "assertZero": lambda node, reading: _compared("==", node.args[0], ast.Constant(0), reading, line_of(node)),
    "assertNotZero": lambda node, reading: _compared("!=", node.args[0], ast.Constant(0), reading, line_of(node)),
    "assertTrue": _true,
    "assertFalse": _false,
    "assertGreater": _ordered(">"),
    "assertGreaterEqual": _ordered(">="),
    "assertLess": _ordered("<"),
    "assertLessEqual": _ordered("<="),
    "assertIn": _ordered("in"),
    "assertNotIn": _ordered("not in"),
    "assert_close": lambda node, reading: close(node, reading, line_of(node)),
}
"""The assertions that are understood."""
