"""Templates: ``{{ expr }}`` in a value is one Jinja2 expression, evaluated with plain data.

Jinja2 only parses. The evaluation is implemented here for a closed list of node types, so templates cannot escape: no calls, no filters, no
attributes of Python objects, no operator with unbounded results.
"""

import functools
import itertools
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from runner.core.diagnostics import unknown

MAX_EXPRESSION = 200


MAX_RESULT = 10_000


MAX_DEPTH = 20


MAX_BITS = 1_000
"""The maximum size of a whole number: about 300 digits."""


DEFERRED_NAME = "facts"
"""The name whose attributes are known only on the machine that runs the case."""


class TemplateError(Exception):
    """An invalid template; the message is the reason, ``hint`` what to type instead."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed template. ``parts`` are literal texts (str) and expressions (Jinja2 nodes), in order."""

    text: str
    parts: tuple[Any, ...]
    names: frozenset[str]

    @property
    def is_single(self) -> bool:
        """Whether the template is exactly one expression: its value keeps its type."""
        return len(self.parts) == 1 and not isinstance(self.parts[0], str)

    @property
    def is_deferred(self) -> bool:
        """Whether only the machine that runs the case can evaluate the template."""
        return DEFERRED_NAME in self.names

    def evaluate(self, names: Mapping[str, Any]) -> Any:
        """Return the value with ``names``; raise ``TemplateError``."""
        # all names, also those in branches of 'or' and 'if' that are not evaluated
        missing = self.names - names.keys()
        if missing:
            _name(min(missing), names)
        if self.is_single:
            return _bounded(_evaluate(self.parts[0], names))
        pieces = [part if isinstance(part, str) else _as_text(_evaluate(part, names)) for part in self.parts]
        return _bounded("".join(pieces))


@dataclass(frozen=True, slots=True)
class _PlainName:
    """An expression that is one name with attributes. Most are, and they need no parser."""

    name: str
    attributes: tuple[str, ...]

    @classmethod
    def parse(cls, dotted: str) -> "_PlainName":
        """Read ``name.attribute``."""
        name, *attributes = dotted.split(".")
        return cls(name, tuple(attributes))


_PLAIN = re.compile(r"\{\{\s*([A-Za-z][A-Za-z0-9_]*(?:\.[A-Za-z][A-Za-z0-9_]*)*)\s*\}\}")


_WORDS = frozenset(
    ["true", "false", "none", "True", "False", "None", "not", "and", "or", "in", "is", "if", "else", "for", "recursive", "loop", "self"]
)
"""Words that are not names in Jinja2."""


@functools.lru_cache(maxsize=4096)
def parse(text: str) -> Template:
    """Parse ``text``; raise ``TemplateError`` for any other expression than the allowed ones."""
    pieces = _PLAIN.split(text)
    found, rest = [_PlainName.parse(dotted) for dotted in pieces[1::2]], pieces[0::2]
    names = frozenset(one.name for one in found)
    if any(mark in piece for piece in rest for mark in _MARKS) or not _WORDS.isdisjoint(names):
        return _parse_expressions(text)
    _check_lengths(text)
    parts = [part for pair in itertools.zip_longest(rest, found) for part in pair if part not in ("", None)]
    return Template(text, tuple(parts), names)


_MARKS = ("{{", "}}", "{%", "%}", "{#", "#}")


def _parse_expressions(text: str) -> Template:
    from jinja2 import nodes
    from jinja2.exceptions import TemplateSyntaxError

    for mark, what in (("{%", "a statement"), ("{#", "a comment")):
        if mark in text:
            raise TemplateError(f"{what} ({mark}) in a template", "only {{ expressions }} are allowed")
    try:
        _check_lexed_lengths(text)
        tree = _environment().parse(text)
    except (TemplateSyntaxError, RecursionError) as error:
        message = error.message if isinstance(error, TemplateSyntaxError) else "too deeply nested"
        raise TemplateError(f"template syntax: {message}", "write {{ name }} or a comparison of names") from error
    found = [node for output in tree.body if isinstance(output, nodes.Output) for node in output.nodes]
    parts = tuple(part.data if isinstance(part, nodes.TemplateData) else part for part in found)
    names: set[str] = set()
    for part in parts:
        if not isinstance(part, str):
            _check(part, names)
    return Template(text, parts, frozenset(names))


def _check_lengths(text: str) -> None:
    for piece in text.split("{{")[1:]:
        _check_length(piece.split("}}")[0])


def _check_lexed_lengths(text: str) -> None:
    expression, depth = "", 0
    # the lexer recognises braces inside a string of an expression
    for _, kind, piece in _environment().lex(text):
        if kind == "variable_end":
            _check_length(expression)
        expression = "" if kind == "variable_begin" else expression + piece
        depth += {"(": 1, ")": -1}.get(piece, 0) if kind == "operator" else 0
        if depth > MAX_DEPTH:
            raise TemplateError(f"an expression nested more than {MAX_DEPTH} deep", "write it more simply")


def _check_length(expression: str) -> None:
    length = len(expression.strip())
    if length > MAX_EXPRESSION:
        raise TemplateError(f"an expression of {length} characters", f"at most {MAX_EXPRESSION} are allowed: use the matrix")


@functools.cache
def _environment() -> Any:
    from jinja2 import Environment

    # only for parsing: no loader, no globals; trailing newlines are part of a YAML value
    return Environment(autoescape=False, keep_trailing_newline=True)  # noqa: S701 - nothing is rendered to HTML here


def _check(node: Any, names: set[str]) -> None:
    kind = type(node).__name__
    if kind not in _ALLOWED:
        raise TemplateError(
            f"{_REFUSED.get(kind, kind.lower())} in a template", "names, attributes, comparisons and + - * / // % are allowed"
        )
    if kind == "Name":
        if node.name.startswith("_"):
            raise TemplateError(f"the name '{node.name}' in a template", "names that begin with '_' are not allowed")
        names.add(node.name)
    if kind == "Getattr" and node.attr.startswith("_"):
        raise TemplateError(f"the attribute '{node.attr}' in a template", "attributes that begin with '_' are not allowed")
    if kind == "CondExpr" and node.expr2 is None:
        raise TemplateError("an 'if' without 'else' in a template", "write {{ a if condition else b }}")
    for child in node.iter_child_nodes():
        _check(child, names)


_REFUSED = {
    "Call": "a call",
    "Filter": "a filter",
    "Test": "a test ('is')",
    "Pow": "the operator '**'",
    "Getitem": "an index",
    "Concat": "the operator '~'",
    "List": "a list",
    "Tuple": "a tuple",
    "Dict": "a map",
}


_ALLOWED = frozenset(
    ["Name", "Const", "Getattr", "Compare", "Operand", "And", "Or", "Not", "Neg", "Pos", "CondExpr"]
    + ["Add", "Sub", "Mul", "Div", "FloorDiv", "Mod"]
)


_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "Div": operator.truediv,
    "FloorDiv": operator.floordiv,
    "Mod": operator.mod,
}


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "lteq": operator.le,
    "gt": operator.gt,
    "gteq": operator.ge,
    "in": lambda a, b: a in b,
    "notin": lambda a, b: a not in b,
}


def _evaluate(node: Any, names: Mapping[str, Any]) -> Any:
    kind = type(node).__name__
    match kind:
        case "_PlainName":
            return functools.reduce(_attribute, node.attributes, _name(node.name, names))
        case "Const":
            return node.value
        case "Name":
            return _name(node.name, names)
        case "Getattr":
            return _attribute(_evaluate(node.node, names), node.attr)
        case "Not":
            return not _evaluate(node.node, names)
        case "Neg" | "Pos":
            number = _number(_evaluate(node.node, names), "-" if kind == "Neg" else "+")
            return -number if kind == "Neg" else number
        case "And":
            return _evaluate(node.left, names) and _evaluate(node.right, names)
        case "Or":
            return _evaluate(node.left, names) or _evaluate(node.right, names)
        case "CondExpr":
            return _evaluate(node.expr1 if _evaluate(node.test, names) else node.expr2, names)
        case "Compare":
            return _compare(node, names)
    return _arithmetic(node, names)


def _name(name: str, names: Mapping[str, Any]) -> Any:
    if name not in names:
        message, hint = unknown("name", name, names)
        raise TemplateError(f"{message} in a template", hint)
    return names[name]


def _attribute(value: Any, attribute: str) -> Any:
    if not isinstance(value, Mapping):
        raise TemplateError(
            f"the attribute '{attribute}' of a value without attributes", "only matrix values that are maps, and facts, have attributes"
        )
    if attribute not in value:
        message, hint = unknown("attribute", attribute, value)
        raise TemplateError(f"{message} in a template", hint)
    return value[attribute]


def _compare(node: Any, names: Mapping[str, Any]) -> bool:
    left = _evaluate(node.expr, names)
    for operand in node.ops:
        right = _evaluate(operand.expr, names)
        try:
            holds = _COMPARE[operand.op](left, right)
        except TypeError as error:
            raise TemplateError(f"cannot compare {left!r:.40} with {right!r:.40} in a template", "both sides need the same type") from error
        if not holds:
            return False
        left = right
    return True


def _arithmetic(node: Any, names: Mapping[str, Any]) -> Any:
    kind = type(node).__name__
    left, right = _evaluate(node.left, names), _evaluate(node.right, names)
    if kind == "Add" and isinstance(left, str) and isinstance(right, str):
        return _bounded(left + right)
    left, right = _number(left, node.operator), _number(right, node.operator)
    try:
        result = _ARITHMETIC[kind](left, right)
    except (ZeroDivisionError, OverflowError) as error:
        raise TemplateError(f"{left!r:.40} {node.operator} {right!r:.40} in a template: {error}", "check the matrix values") from error
    if result.bit_length() > MAX_BITS if isinstance(result, int) else not math.isfinite(result):
        raise TemplateError(f"the result of '{node.operator}' in a template is too large", "check the matrix values")
    return result


def _number(value: Any, symbol: str) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        message = f"'{symbol}' on {value!r:.40} in a template"
        raise TemplateError(message, "arithmetic needs numbers; strings and lists cannot be repeated")
    return value


def _as_text(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case int() | float():
            return repr(value)
    raise TemplateError("a list or a map inside a text", "a value that is exactly one {{ expression }} keeps its type")


def _bounded(value: Any) -> Any:
    if isinstance(value, str) and len(value) > MAX_RESULT:
        raise TemplateError(f"a result of {len(value):,} characters", f"at most {MAX_RESULT:,} are allowed")
    return value
