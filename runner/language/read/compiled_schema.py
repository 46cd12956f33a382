"""Compiles a schema to a predicate, so that valid documents are checked fast and without messages.

``jsonschema`` describes the errors of invalid documents and is the reference. A test compares the two on every example, every shipped spec
and mutations of them. Only the keywords of this project's schemas are supported; any other keyword is an error.
"""

import functools
import json
import re
from collections.abc import Callable
from typing import Any

Predicate = Callable[[Any], bool]

_ANNOTATIONS = frozenset(["$schema", "title", "description", "examples", "$defs", "then", "else"])
"""Keywords without effect of their own; ``then`` and ``else`` belong to ``if``."""


def compile_schema(node: Any) -> Predicate:
    """Return the predicate of a schema without references; raise ``ValueError`` for an unsupported keyword."""
    if node is True or node == {}:
        return lambda value: True
    if node is False:
        return lambda value: False
    parts = [_COMPILERS[keyword](argument, node) for keyword, argument in node.items() if keyword in _COMPILERS]
    unsupported = [keyword for keyword in node if keyword not in _COMPILERS and keyword not in _ANNOTATIONS]
    if unsupported:
        raise ValueError(f"unknown schema keywords: {unsupported}")
    return parts[0] if len(parts) == 1 else lambda value: all(part(value) for part in parts)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number. ``4.0`` is not, because torch does not accept it."""
    return isinstance(value, int) and not isinstance(value, bool)


_TYPES: dict[str, Predicate] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": _is_number,
    "integer": lambda value: is_whole(value),
}


def _type(argument: Any, node: Any) -> Predicate:
    checks = [_TYPES[name] for name in ([argument] if isinstance(argument, str) else argument)]
    return checks[0] if len(checks) == 1 else lambda value: any(check(value) for check in checks)


def _same(value: Any, other: Any) -> bool:
    # equality as in JSON: true is not 1
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)


def _properties(argument: Any, node: Any) -> Predicate:
    checks = {key: compile_schema(part) for key, part in argument.items()}
    return lambda value: not isinstance(value, dict) or all(check(value[key]) for key, check in checks.items() if key in value)


def _additional(argument: Any, node: Any) -> Predicate:
    known = frozenset(node.get("properties", {}))
    check = compile_schema(argument)
    return lambda value: not isinstance(value, dict) or all(check(item) for key, item in value.items() if key not in known)


def _items(argument: Any, node: Any) -> Predicate:
    check = compile_schema(argument)
    return lambda value: not isinstance(value, list) or all(map(check, value))


def _property_names(argument: Any, node: Any) -> Predicate:
    check = compile_schema(argument)
    return lambda value: not isinstance(value, dict) or all(map(check, value))


def _dependent(argument: Any, node: Any) -> Predicate:
    return lambda value: not isinstance(value, dict) or all(value.keys() >= set(needed) for key, needed in argument.items() if key in value)


def _conditional(argument: Any, node: Any) -> Predicate:
    test, then, otherwise = (compile_schema(part) for part in (argument, node.get("then", True), node.get("else", True)))
    return lambda value: then(value) if test(value) else otherwise(value)


def _any_of(argument: Any, node: Any) -> Predicate:
    checks = [compile_schema(part) for part in argument]
    return lambda value: any(check(value) for check in checks)


def _one_of(argument: Any, node: Any) -> Predicate:
    checks = [compile_schema(part) for part in argument]
    return lambda value: sum(check(value) for check in checks) == 1


def _unique(argument: Any, node: Any) -> Predicate:
    def check(value: Any) -> bool:
        if not isinstance(value, list):
            return True
        # as JSON: true is not 1
        return len({json.dumps(item, sort_keys=True) for item in value}) == len(value)

    return check if argument else lambda value: True


def _pattern(argument: Any, node: Any) -> Predicate:
    search = searcher(argument)
    return lambda value: not isinstance(value, str) or search(value) is not None


@functools.cache
def searcher(pattern: str) -> Callable[[str], re.Match[str] | None]:
    """Return the search function of a schema's pattern. ``$`` matches only at the end, as in JSON Schema, not before a last newline."""
    return re.compile(pattern.replace("$", r"\Z")).search


_COMPILERS: dict[str, Callable[[Any, Any], Predicate]] = {
    "type": _type,
    "enum": lambda argument, node: lambda value: any(_same(value, word) for word in argument),
    "const": lambda argument, node: lambda value: _same(value, argument),
    "properties": _properties,
    "additionalProperties": _additional,
    "propertyNames": _property_names,
    "required": lambda argument, node: lambda value: not isinstance(value, dict) or all(key in value for key in argument),
    "dependentRequired": _dependent,
    "items": _items,
    "uniqueItems": _unique,
    "pattern": _pattern,
    "if": _conditional,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "minLength": lambda argument, node: lambda value: not isinstance(value, str) or len(value) >= argument,
    "minItems": lambda argument, node: lambda value: not isinstance(value, list) or len(value) >= argument,
    "maxItems": lambda argument, node: lambda value: not isinstance(value, list) or len(value) <= argument,
    "minProperties": lambda argument, node: lambda value: not isinstance(value, dict) or len(value) >= argument,
    "maxProperties": lambda argument, node: lambda value: not isinstance(value, dict) or len(value) <= argument,
    "minimum": lambda argument, node: lambda value: not _is_number(value) or value >= argument,
    "maximum": lambda argument, node: lambda value: not _is_number(value) or value <= argument,
    "exclusiveMinimum": lambda argument, node: lambda value: not _is_number(value) or value > argument,
}
