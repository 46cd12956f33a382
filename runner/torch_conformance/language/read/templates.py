"""Templates: ``{{ expr }}`` in a value is one expression over names, evaluated with plain data.

Python's parser reads the expression. It is evaluated here for a closed list of nodes, so templates
cannot escape: no calls, no indices, no attributes of Python objects, no operator with unbounded
results.
"""

import ast
import functools
import itertools
import keyword
import math
import operator
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch_conformance.language.read.document import mapped, walk
from torch_conformance.language.read.yaml_source import WHOLE
from torch_conformance.model import conditions
from torch_conformance.model.diagnostics import Diagnostic, unknown_word
from torch_conformance.model.document import DataPath, Document
from torch_conformance.model.problem_texts import TEMPLATE_PARTS
from torch_conformance.model.protocol import Json
from torch_conformance.vocabulary.expectations import EXPECTATIONS
from torch_conformance.vocabulary.steps import STEPS, TRITON

MAX_EXPRESSION = 200

MAX_RESULT = 10_000

DEFERRED_NAME = "facts"
"""The name whose attributes are known only on the machine that runs the case."""


class TemplateError(Exception):
    """An invalid template, with its problem, which has no place yet."""

    def __init__(self, problem: Diagnostic) -> None:
        super().__init__(problem.message)
        self.problem = problem


def _error(code: str, **arguments: str | int) -> TemplateError:
    return TemplateError(Diagnostic.of(code, **arguments))


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed template. ``parts`` are literal texts (str) and expressions, in order."""

    text: str
    parts: tuple[str | ast.expr, ...]
    names: frozenset[str]

    @property
    def is_single(self) -> bool:
        """Whether the template is exactly one expression: its value keeps its type."""
        return len(self.parts) == 1 and not isinstance(self.parts[0], str)

    @property
    def is_deferred(self) -> bool:
        """Whether only the machine that runs the case can evaluate the template."""
        return DEFERRED_NAME in self.names

    def evaluate(self, names: Mapping[str, Any]) -> Json:
        """Return the value with ``names``; raise ``TemplateError``."""
        # all names, also those in branches of 'or' and 'if' that are not evaluated
        if missing := self.names - names.keys():
            raise TemplateError(unknown_word("name", min(missing), names, place="a template"))
        values = [part if isinstance(part, str) else _evaluate(part, names) for part in self.parts]
        return _bounded(values[0] if self.is_single else "".join(map(_as_text, values)))


_EXPRESSION = re.compile(
    r"""\{\{((?:[^'"{}\#]|'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|\{(?!\{)|\}(?!\}))*)\}\}""",
    re.DOTALL,
)
"""Braces in a string do not end an expression."""


@functools.lru_cache(maxsize=4096)
def parse(text: str) -> Template:
    """Parse ``text``; raise ``TemplateError`` for any other expression than the allowed ones."""
    for mark, code in (("{%", "template-statement"), ("{#", "template-comment")):
        if mark in text:
            raise _error(code)
    parts: list[str | ast.expr] = []
    names: set[str] = set()
    # the odd pieces are the expressions
    for number, piece in enumerate(_EXPRESSION.split(text)):
        if number % 2:
            parts.append(_parsed(piece.strip(), names))
        elif "{{" in piece:
            raise _error("template-without-end")
        elif piece:
            parts.append(piece)
    return Template(text, tuple(parts), frozenset(names))


_WORD = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|(\.?)\b([A-Za-z]\w*)""")
_OPERATORS = frozenset(
    ["and", "else", "if", "in", "is", "not", "or", "lambda", "True", "False", "None"]
)
_MARK = "\N{LATIN LETTER DENTAL CLICK}"
"""Added to a key of the matrix, or of a value of it, that is a keyword of Python: ``from``."""


def _parsed(expression: str, names: set[str]) -> ast.expr:
    """Return the node of an expression, and add its names."""
    if len(expression) > MAX_EXPRESSION:
        raise _error("template-too-long", length=len(expression), most=MAX_EXPRESSION)
    expression = _WORD.sub(
        lambda word: (
            word[0] + _MARK
            if word[2] and keyword.iskeyword(word[2]) and (word[1] or word[2] not in _OPERATORS)
            else word[0]
        ),
        expression,
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            node = ast.parse(" ".join(expression.splitlines()), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _error(
            "template-syntax", reason=error.msg if isinstance(error, SyntaxError) else str(error)
        ) from error
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            part.id = part.id.removesuffix(_MARK)
        elif isinstance(part, ast.Attribute):
            part.attr = part.attr.removesuffix(_MARK)
        kind = type(part).__name__
        if kind not in _ALLOWED or (
            isinstance(part, ast.Constant)
            and not isinstance(part.value, bool | int | float | str | None)
        ):
            raise _error("template-refused", what=TEMPLATE_PARTS.get(kind, kind.lower()))
        name = (
            part.id
            if isinstance(part, ast.Name)
            else part.attr
            if isinstance(part, ast.Attribute)
            else ""
        )
        if name.startswith("_"):
            raise _error(
                "template-underscore",
                what="name" if isinstance(part, ast.Name) else "attribute",
                name=name,
            )
        if isinstance(part, ast.Name) and name not in _CONSTANTS:
            names.add(name)
    return node


_CONSTANTS: Mapping[str, Any] = {"true": True, "false": False, "none": None}

_ARITHMETIC: Mapping[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
}

_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}

_ALLOWED = frozenset(
    "Name Load Constant Attribute Compare BoolOp And Or UnaryOp Not USub UAdd BinOp IfExp".split()
    + [kind.__name__ for kind in (*_ARITHMETIC, *_COMPARE)]
)


def comparisons(template: Template) -> Iterator[tuple[str, Any]]:
    """Yield each name that a comparison has on one side, with each constant on another side."""
    for part in template.parts:
        for node in ast.walk(part) if isinstance(part, ast.expr) else ():
            if isinstance(node, ast.Compare):
                sides = [list(_sources(side)) for side in (node.left, *node.comparators)]
                for names, constants in itertools.permutations(sides, 2):
                    for name, constant in itertools.product(names, constants):
                        if isinstance(name, ast.Name) and isinstance(constant, ast.Constant):
                            yield name.id, constant.value


def _sources(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the names and constants from which the value of an expression comes; what a condition
    or another comparison reads is not in it.
    """
    match node:
        case ast.BoolOp(values=parts):
            inner = list(parts)
        case ast.IfExp(body=body, orelse=orelse):
            inner = [body, orelse]
        case ast.BinOp(left=left, right=right):
            inner = [left, right]
        case ast.Attribute(value=value):
            inner = [value]
        case _:
            yield node
            return
    for part in inner:
        yield from _sources(part)


def _evaluate(node: ast.expr, names: Mapping[str, Any]) -> Json:
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return _CONSTANTS[node.id] if node.id in _CONSTANTS else names[node.id]
        case ast.Attribute():
            return _attribute(_evaluate(node.value, names), node.attr)
        case ast.UnaryOp(op=ast.Not()):
            return not _evaluate(node.operand, names)
        case ast.UnaryOp(op=ast.USub()):
            return -_number(_evaluate(node.operand, names), "-")
        case ast.UnaryOp():
            return _number(_evaluate(node.operand, names), "+")
        case ast.BoolOp():
            value = None
            for part in node.values:
                value = _evaluate(part, names)
                if bool(value) is isinstance(node.op, ast.Or):
                    break
            return value
        case ast.IfExp():
            return _evaluate(node.body if _evaluate(node.test, names) else node.orelse, names)
        case ast.Compare():
            left = _evaluate(node.left, names)
            for compare, operand in zip(node.ops, node.comparators, strict=True):
                right = _evaluate(operand, names)
                if not _compared(_COMPARE[type(compare)], left, right):
                    return False
                left = right
            return True
        case ast.BinOp():
            return _calculated(node.op, _evaluate(node.left, names), _evaluate(node.right, names))
    raise AssertionError(node)


def _attribute(value: object, name: str) -> Json:
    if not isinstance(value, Mapping):
        raise _error("template-no-attributes", name=name)
    if name not in value:
        raise TemplateError(unknown_word("attribute", name, value, place="a template"))
    return value[name]


def _compared(compare: Callable[[Any, Any], bool], left: object, right: object) -> bool:
    try:
        return compare(left, right)
    except TypeError as error:
        raise _error("template-comparison", left=f"{left!r:.40}", right=f"{right!r:.40}") from error


def _calculated(operation: ast.operator, left: object, right: object) -> Json:
    symbol, calculate = _ARITHMETIC[type(operation)]
    if symbol == "+" and isinstance(left, str) and isinstance(right, str):
        return _bounded(left + right)
    try:
        result = calculate(_number(left, symbol), _number(right, symbol))
    except (ZeroDivisionError, OverflowError) as error:
        raise _error(
            "template-arithmetic",
            formula=f"{left!r:.40} {symbol} {right!r:.40}",
            reason=str(error),
        ) from error
    if result not in WHOLE if isinstance(result, int) else not math.isfinite(result):
        raise _error("template-too-large", symbol=symbol)
    return result


def _number(value: object, symbol: str) -> Json:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _error("template-no-number", symbol=symbol, value=f"{value!r:.40}")
    return value


def _as_text(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case int() | float():
            return repr(value)
    raise _error("template-list-in-text")


def _bounded(value: object) -> Json:
    if isinstance(value, str) and len(value) > MAX_RESULT:
        raise _error("template-long-result", length=f"{len(value):,}", most=f"{MAX_RESULT:,}")
    return value


SECTIONS = frozenset(
    "summary covers requires config dynamo_config functorch_config env torch context function "
    "functions let spies handlers inputs compile steps expect timeout retries group on_request "
    "control triton".split()
)
"""The top-level keys in whose values ``{{`` begins a template."""


@dataclass(frozen=True, slots=True)
class Deferred:
    """A template that uses facts. It is evaluated on the machine that runs the case."""

    template: Template
    names: Mapping[str, Any]

    def __str__(self) -> str:
        return self.template.text


@functools.lru_cache(maxsize=16)
def occurrences(document: Document, path: DataPath = ()) -> Sequence[tuple[DataPath, str]]:
    """Return the path and text of every template of a spec, of defaults, or of the backend at
    ``path``.
    """
    sections = ((key, value) for key, value in document.value(path).items() if key in SECTIONS)
    return [
        ((*path, *place), text)
        for key, value in sections
        for place, text in templates_below(value, (key,))
    ]


def patterns(data: object) -> Iterator[str]:
    """Yield the regular expressions and FileCheck directives in the expectations of a spec, which
    take no templates.
    """
    return (text for path, text in walk(data) if isinstance(text, str) and _is_pattern(path))


def templates_below(value: object, path: DataPath) -> Iterator[tuple[DataPath, str]]:
    """Yield the path and text of every template in the value at ``path``."""
    return (
        (place, text)
        for place, text in walk(value, path)
        if isinstance(text, str) and "{{" in text and not _is_code(place)
    )


def _is_code(path: DataPath) -> bool:
    of_step = (
        path[0] == "steps"
        and len(path) == 4
        and path[2] in STEPS
        and STEPS[str(path[2])].traits.python == path[3]
    )
    return (
        of_step
        or path in _PYTHON_OF_SECTIONS
        or (path[0] == "functions" and len(path) == 2)
        or _is_pattern(path)
    )


def _is_pattern(path: DataPath) -> bool:
    """Whether a text is a pattern of an expectation: ``..., expect, INDEX, KIND, KEY...``."""
    if "expect" not in path:
        return False
    kind, *keys = path[path.index("expect") + 2 :] or [""]
    return kind in EXPECTATIONS and tuple(keys) in EXPECTATIONS[str(kind)].patterns


_PYTHON_OF_SECTIONS = (("function",), (TRITON, "source"), ("control", TRITON, "source"))


def replaced(data: Json, path: DataPath, value: object) -> Json:
    """Return ``data`` with ``value`` at ``path``.

    Nothing is changed in place; parts off the path are shared.
    """
    if not path:
        return value
    copy: Any = list(data) if isinstance(data, list) else dict(data)
    copy[path[0]] = replaced(data[path[0]], path[1:], value)
    return copy


def filled(value: object, names: Mapping[str, Any]) -> Json:
    """Return ``value`` with every template evaluated with ``names``, or deferred if it uses
    facts.
    """

    def evaluated(leaf: object) -> Json:
        if not conditions.is_template(leaf):
            return leaf
        template = parse(leaf)
        return Deferred(template, names) if template.is_deferred else template.evaluate(names)

    return mapped(value, evaluated)


def resolve_facts(value: object, facts: Mapping[str, Any]) -> Json:
    """Return ``value`` with every deferred template evaluated; raise ``TemplateError``."""

    def resolved(leaf: object) -> Json:
        return (
            leaf.template.evaluate({**leaf.names, DEFERRED_NAME: facts})
            if isinstance(leaf, Deferred)
            else leaf
        )

    return mapped(value, resolved)


def as_text(value: object) -> Json:
    """Return ``value`` with every deferred template as its text, for messages and digests."""
    return mapped(value, lambda leaf: str(leaf) if isinstance(leaf, Deferred) else leaf)
