"""``FileCheck`` of torch's tests, and texts in generated code, as directives."""

import ast
from typing import Any

from runner.language.authoring.evaluate import evaluate
from runner.language.authoring.naming import dotted
from runner.language.authoring.reading import Reading, line_of
from runner.language.authoring.values import Codes, Known, NotCarried

_EVERY_FILE = "CHECK: AOT ID: ["
"""A line that begins every generated file: a check of what is not there needs something that is."""


def pattern(text: str) -> str:
    """Return a literal text as a pattern of FileCheck."""
    if "\n" in text or "\r" in text or not text.strip():
        raise NotCarried("a text of several lines, or of none, in the generated code")
    escaped = text.replace("{{", "{{[{][{]}}").replace("[[", "{{\\[\\[}}").replace("]]", "{{\\]\\]}}")
    inner = escaped.strip(" \t")
    before, after = escaped[: len(escaped) - len(escaped.lstrip(" \t"))], escaped[len(escaped.rstrip(" \t")) :]
    return f"{_blanks(before)}{inner}{_blanks(after)}"


def _blanks(text: str) -> str:
    return "" if not text else "{{[[:space:]]{" + str(len(text)) + "}}}"


def contains(code: Codes, text: str, reading: Reading, line: int) -> None:
    """Expect a text in the generated code."""
    _expect(code, [f"CHECK: {pattern(text)}"], reading, line)


def lacks(code: Codes, text: str, reading: Reading, line: int) -> None:
    """Expect that a text is not in the generated code."""
    _expect(code, [_EVERY_FILE, f"CHECK-NOT: {pattern(text)}"], reading, line)


def times(code: Codes, text: str, count: int, reading: Reading, line: int) -> None:
    """Expect a text a number of times in the generated code."""
    if count == 0:
        lacks(code, text, reading, line)
        return
    _expect(code, [f"CHECK-COUNT-{count}: {pattern(text)}", f"CHECK-NOT: {pattern(text)}"], reading, line)


def _expect(code: Codes, checks: list[str], reading: Reading, line: int) -> None:
    words: dict[str, Any] = {"text": "whole"}
    if code.is_list:
        raise NotCarried("an assertion about a list of generated codes")
    if code.index is not None:
        words["code"] = code.index
    reading.expect(line, {"filecheck": {**words, "checks": "".join(f"{check}\n" for check in checks)}}, code.step)


def is_filecheck(node: ast.Call, reading: Reading) -> bool:
    """Whether a call is ``FileCheck()...run(code)``."""
    if not (isinstance(node.func, ast.Attribute) and node.func.attr == "run"):
        return False
    inner: ast.expr = node.func.value
    while isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and not dotted(inner.func, reading):
        inner = inner.func.value
    return isinstance(inner, ast.Call) and dotted(inner.func, reading).rpartition(".")[2] == "FileCheck"


def filecheck(node: ast.Call, reading: Reading) -> None:
    """Carry ``FileCheck()...run(code)`` over to the spec."""
    if len(node.args) != 1 or not isinstance(node.func, ast.Attribute):
        raise NotCarried("a FileCheck that is run in an unknown way")
    code = evaluate(node.args[0], reading)
    if not isinstance(code, Codes):
        raise NotCarried("a FileCheck of something that is no generated code")
    calls: list[ast.Call] = []
    inner = node.func.value
    while isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and not dotted(inner.func, reading):
        calls.append(inner)
        inner = inner.func.value
    checks: list[str] = []
    for made in reversed(calls):
        checks += _directive(made, reading)
    if not checks:
        raise NotCarried("a FileCheck without directives")
    if all(check.startswith("CHECK-NOT") for check in checks):
        checks.insert(0, _EVERY_FILE)
    _expect(code, checks, reading, line_of(node))


_DIRECTIVES = {
    "check": "CHECK",
    "check_not": "CHECK-NOT",
    "check_same": "CHECK-SAME",
    "check_next": "CHECK-NEXT",
    "check_dag": "CHECK-DAG",
}


def _directive(node: ast.Call, reading: Reading) -> list[str]:
    assert isinstance(node.func, ast.Attribute)
    name = node.func.attr
    given = [evaluate(argument, reading) for argument in node.args]
    words = {word.arg: evaluate(word.value, reading) for word in node.keywords}
    if not all(isinstance(value, Known) for value in (*given, *words.values())) or not given:
        raise NotCarried("a FileCheck directive that is no constant")
    values = [value.value for value in given if isinstance(value, Known)]
    text = str(values[0])
    if name in _DIRECTIVES and len(values) == 1 and not words:
        return [f"{_DIRECTIVES[name]}: {pattern(text)}"]
    if name == "check_count":
        options = {key: value.value for key, value in words.items() if isinstance(value, Known)}
        count = values[1] if len(values) > 1 else options.get("count")
        exactly = values[2] if len(values) > 2 else options.get("exactly", False)
        if not isinstance(count, int) or set(options) - {"count", "exactly"}:
            raise NotCarried("a FileCheck count that is no constant")
        if count == 0:
            return [f"CHECK-NOT: {pattern(text)}"] if exactly else []
        return [f"CHECK-COUNT-{count}: {pattern(text)}", *([f"CHECK-NOT: {pattern(text)}"] if exactly else [])]
    raise NotCarried(f"the FileCheck directive '{name}'")
