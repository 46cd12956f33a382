"""Assertions of a test as expectations: comparisons with eager and with other values, counters, generated code."""

import ast
import re
from collections.abc import Mapping
from typing import Any, Protocol

from runner.tools.author.translator.python_file import free_names
from runner.tools.author.translator.translation import Code, NotCarried, Result, Translation, Value


class Reader(Protocol):
    """What finds the value of an expression; it may add steps."""

    translation: Translation

    def value(self, node: ast.expr) -> Value | None:
        """Return what steps or compilation make of an expression; None for other values."""


_COMPARISONS = {"assertGreater": ast.Gt, "assertGreaterEqual": ast.GtE, "assertLess": ast.Lt, "assertLessEqual": ast.LtE}
_FUNCTIONS = ("assert_close", "assert_allclose")
_SAME: Mapping[str, Mapping[str, Any]] = {
    "allclose": {"rtol": 1e-5, "atol": 1e-8},
    "same": {"rtol": 1e-4, "atol": 1e-4},
    "equal": {"exact": True},
}
"""Functions that say whether two values are equal, with their tolerances."""


def assertion_of(reader: Reader, call: ast.Call) -> str:
    """Return the name of the assertion that a call is; empty for other calls."""
    path = reader.translation.file.dotted(call.func)
    if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name) and call.func.value.id == "self":
        return call.func.attr if call.func.attr.startswith(("assert", "check_model", "common")) else ""
    if path.rpartition(".")[2] in _FUNCTIONS:
        return path.rpartition(".")[2]
    return "FileCheck" if _directives(call) else ""


def read_assertion(reader: Reader, call: ast.Call) -> None:
    """Add the expectations of an assertion."""
    name, arguments = assertion_of(reader, call), call.args
    match name:
        case "FileCheck":
            checks = [check for directive in _directives(call) for check in _checks_of(reader.translation, directive)]
            if all(check.startswith("CHECK-NOT") for check in checks):
                checks.insert(0, _EVERY_FILE)
            _expect_code(reader, arguments[0], checks)
        case "assertEqual" | "assert_close" | "assert_allclose" if len(arguments) >= 2:
            _equal(reader, arguments[0], arguments[1], _tolerances(reader, call))
        case "assertTrue" | "assertFalse" if arguments:
            _true(reader, arguments[0], is_true=name == "assertTrue")
        case "assertIn" | "assertNotIn" if len(arguments) >= 2:
            _true(reader, ast.Compare(left=arguments[0], ops=[ast.In()], comparators=[arguments[1]]), is_true=name == "assertIn")
        case _ if name in _COMPARISONS and len(arguments) >= 2:
            _counted(reader.translation, arguments[0], _COMPARISONS[name](), arguments[1])
        case _:
            raise NotCarried("an assertion of this kind")


def _true(reader: Reader, test: ast.expr, *, is_true: bool) -> None:
    translation = reader.translation
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        _true(reader, test.operand, is_true=not is_true)
    elif isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) and is_true:
        for part in test.values:
            _true(reader, part, is_true=True)
    elif isinstance(test, ast.Call) and is_true and len(test.args) >= 2:
        word = translation.file.dotted(test.func).rpartition(".")[2]
        if word not in _SAME:
            raise NotCarried("an assertion about a value that the language cannot name")
        tolerances = _tolerances(reader, test, _SAME[word])
        _equal(reader, test.args[0], test.args[1], tolerances)
    elif isinstance(test, ast.Compare) and len(test.ops) == 1:
        left, operator, right = test.left, test.ops[0], test.comparators[0]
        if isinstance(operator, ast.In | ast.NotIn):
            text = pattern(reader.translation.literal(left))
            is_in = isinstance(operator, ast.In) == is_true
            _expect_code(reader, right, [f"CHECK: {text}"] if is_in else [_EVERY_FILE, f"CHECK-NOT: {text}"])
        elif is_true:
            _counted(reader.translation, left, operator, right)
        else:
            raise NotCarried("an assertion that a comparison is false")
    else:
        raise NotCarried("an assertion about a value that the language cannot name")


# comparisons of values


def _tolerances(reader: Reader, call: ast.Call, default: Mapping[str, Any] | None = None) -> dict[str, Any]:
    words = {str(word.arg): word.value for word in call.keywords}
    tolerances = dict(default or {})
    tolerances |= {name: reader.translation.literal(word) for name, word in words.items() if name in ("atol", "rtol")}
    if "tol" in words:
        tolerances |= dict.fromkeys(("atol", "rtol"), reader.translation.literal(words["tol"]))
    tolerances = {name: value for name, value in tolerances.items() if value is not None}
    if unknown := sorted(words.keys() - {"atol", "rtol", "tol", "msg", "equal_nan", "exact_device", "exact_dtype", "check_device"}):
        raise NotCarried(f"the argument '{unknown[0]}' of a comparison")
    if len(tolerances) == 1 and "exact" not in tolerances:
        raise NotCarried("one tolerance without the other")
    return {"exact": True} if tolerances and not any(tolerances.values()) else tolerances


def _equal(reader: Reader, left: ast.expr, right: ast.expr, tolerances: dict[str, Any]) -> None:
    """Expect that two values are close, or that a count has a value."""
    translation = reader.translation
    if any(_count_of(translation, side) for side in (left, right)):
        _counted(reader.translation, left, ast.Eq(), right)
        return
    if isinstance(left, ast.Tuple) and isinstance(right, ast.Tuple) and len(left.elts) == len(right.elts):
        for first, second in zip(left.elts, right.elts, strict=True):
            _equal(reader, first, second, tolerances)
        return
    values = [reader.value(side) for side in (left, right)]
    results = [value for value in values if isinstance(value, Result)]
    if len(results) == 2:
        earlier, later = sorted(results, key=lambda result: translation.steps.index(result.step))
        body = {"of": _path(translation, later), "to": _path(translation, earlier, is_later=True)}
        translation.expect({"close": {**body, **tolerances}}, later.step)
        return
    if len(results) != 1:
        raise NotCarried("a comparison without the result of a compiled call")
    result = results[0]
    other = right if values[0] is result else left
    if _is_eager(translation, result, other):
        body = {"to": "eager"} if not result.path else {"of": f"output.{result.path}", "to": f"eager.{result.path}"}
    else:
        if not isinstance(other, ast.Name) and not free_names(other):
            raise NotCarried("a comparison with a constant")
        reference = translation.value_of(other, "expected").name
        translation.needed.add(reference)
        body = {"of": _path(translation, result), "to": reference} if result.path else {"to": reference}
    translation.expect({"close": {**body, **tolerances}}, result.step)


def _path(translation: Translation, result: Result, *, is_later: bool = False) -> str:
    """Return the name of a result or of a part of it, in the expectations of its step or of a later one."""
    return f"{translation.named(result.step) if is_later else 'output'}.{result.path}".strip(".")


def _is_eager(translation: Translation, result: Result, other: ast.expr) -> bool:
    """Whether an expression calls the function of a step in eager mode, with the same arguments or copies of them."""
    arguments = [part for part in result.step.arguments if isinstance(part, ast.expr)]
    try:
        expression = translation.rewritten(other)
    except NotCarried:
        return False
    position, path = len(translation.setup), ""
    for _ in range(_DEEPEST):
        value = translation.values.get(expression.id) if isinstance(expression, ast.Name) else None
        if value is not None and isinstance(value.node, ast.expr):
            expression, position = value.node, value.position
        elif isinstance(expression, ast.Subscript) and isinstance(index := expression.slice, ast.Constant):
            expression, path = expression.value, ".".join(filter(None, (str(index.value), path)))
    if not isinstance(expression, ast.Call) or expression.keywords or path != result.path or len(arguments) < len(result.step.arguments):
        return False
    is_changed = any(translation.changes.get(name, 0) > position for name in free_names(expression))
    if is_changed or ast.unparse(expression.func) != result.step.function:
        return False
    return [_source(translation, part) for part in expression.args] == [_source(translation, part) for part in arguments]


def _source(translation: Translation, node: ast.expr) -> str:
    """Return the text of an argument; of a copy that of the original."""
    for _ in range(_DEEPEST):
        value = translation.values.get(node.id) if isinstance(node, ast.Name) else None
        match value.node if value is not None else node:
            case ast.Call(func=ast.Attribute(value=original, attr="clone" | "detach"), args=[]):
                node = original
    return ast.unparse(node)


_DEEPEST = 5


# counts


def _count_of(translation: Translation, node: ast.expr) -> tuple[str, str] | None:
    """Return the kind and the name of a counter or metric; None for other expressions."""
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Subscript):
        if translation.file.dotted(node.value.value) != "torch._dynamo.utils.counters":
            return None
        return "counter", f"{translation.literal(node.value.slice)}.{translation.literal(node.slice)}"
    path = translation.file.dotted(node)
    return ("metric", path.removeprefix("torch._inductor.metrics.")) if path.startswith("torch._inductor.metrics.") else None


def _counted(translation: Translation, left: ast.expr, operator: ast.cmpop, right: ast.expr) -> None:
    """Expect a count."""
    is_flipped = _count_of(translation, left) is None
    count = _count_of(translation, right if is_flipped else left)
    if count is None:
        raise NotCarried("an assertion about a value that the language cannot name")
    value: Any = translation.yaml(left if is_flipped else right)
    if not isinstance(operator, ast.Eq):
        bounds: Mapping[type[ast.cmpop], tuple[str, int]]
        bounds = {ast.Gt: ("min", 1), ast.GtE: ("min", 0), ast.Lt: ("max", -1), ast.LtE: ("max", 0)}
        if type(operator) not in bounds or not isinstance(value, int):
            raise NotCarried("a bound of a count that is no constant")
        word, more = bounds[type(operator)]
        value = {"max" if word == "min" else "min": value - more} if is_flipped else {word: value + more}
    translation.expect({count[0]: {count[1]: value}})


# generated code

_EVERY_FILE = "CHECK: AOT ID: ["
"""A line that begins every generated file: a check of what is not there needs something that is."""

_DIRECTIVES = {"check": "CHECK", "check_not": "CHECK-NOT", "check_same": "CHECK-SAME", "check_next": "CHECK-NEXT", "check_dag": "CHECK-DAG"}


def _directives(call: ast.Call) -> list[ast.Call]:
    """Return the directives of ``FileCheck()...run(code)``, in order; empty for other calls."""
    if not (isinstance(call.func, ast.Attribute) and call.func.attr == "run"):
        return []
    directives: list[ast.Call] = []
    inner = call.func.value
    while isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr != "FileCheck":
        directives.insert(0, inner)
        inner = inner.func.value
    return directives if isinstance(inner, ast.Call) and ast.unparse(inner.func).rpartition(".")[2] == "FileCheck" else []


def _checks_of(translation: Translation, directive: ast.Call) -> list[str]:
    """Return the lines of FileCheck that one directive stands for."""
    name = directive.func.attr if isinstance(directive.func, ast.Attribute) else ""
    values = [translation.literal(argument) for argument in directive.args]
    words = {word.arg: translation.literal(word.value) for word in directive.keywords}
    if name in _DIRECTIVES and len(values) == 1 and not words:
        return [f"{_DIRECTIVES[name]}: {pattern(values[0])}"]
    if name == "check_count" and set(words) <= {"count", "exactly"} and values:
        count, exactly = [*values[1:], *(words[key] for key in ("count", "exactly") if key in words), False][:2]
        text = pattern(values[0])
        return ([f"CHECK-COUNT-{count}: {text}"] if int(count) else []) + ([f"CHECK-NOT: {text}"] if exactly else [])
    raise NotCarried(f"the FileCheck directive '{name}'")


def pattern(text: Any) -> str:
    """Return a literal text as a pattern of FileCheck."""
    if not isinstance(text, str) or "\n" in text or "\r" in text or not text.strip():
        raise NotCarried("a text of several lines, or of none, in the generated code")
    escaped = text.replace("{{", "{{[{][{]}}").replace("[[", "{{\\[\\[}}").replace("]]", "{{\\]\\]}}")
    return re.sub(r"^[ \t]+|[ \t]+$", lambda blanks: f"{{{{[[:space:]]{{{len(blanks[0])}}}}}}}", escaped)


def _expect_code(reader: Reader, code: ast.expr, checks: list[str]) -> None:
    value = reader.value(code)
    if not isinstance(value, Code):
        raise NotCarried("a text that is no generated code")
    if value.index is None:
        raise NotCarried("an assertion about a list of generated codes")
    body = {"text": "whole", "code": value.index, "checks": "".join(f"{check}\n" for check in checks)}
    reader.translation.expect({"filecheck": body}, value.step)
