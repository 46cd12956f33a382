"""Validates documents against the JSON Schemas and describes the errors with their positions."""

import functools
import json
from collections.abc import Iterator
from typing import Any

from runner.core.diagnostics import Diagnostic
from runner.language.read.compiled_schema import Predicate, compile_schema, is_whole, searcher
from runner.language.read.document import DataPath, Document
from runner.language.read.schema_words import TEMPLATE_PATTERN, Problem, in_words
from runner.system import data_dirs


@functools.cache
def load(name: str) -> Any:
    """Return the schema ``name`` as data."""
    return json.loads((data_dirs.folder("schemas") / f"{name}.schema.json").read_bytes())


@functools.cache
def validator(name: str) -> Any:
    """Return the validator of the schema ``name``."""
    return _strict()(resolved(name))


@functools.cache
def _strict() -> Any:
    """Return the validator class: draft 2020-12, but ``4.0`` is not an integer and ``$`` matches only at the end."""
    from jsonschema import Draft202012Validator, ValidationError
    from jsonschema.validators import extend

    def pattern(validator: Any, written: str, instance: Any, schema: Any) -> Iterator[Any]:
        if validator.is_type(instance, "string") and not searcher(written)(instance):
            yield ValidationError("does not match")

    whole = Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, value: is_whole(value))
    return extend(Draft202012Validator, {"pattern": pattern}, type_checker=whole)  # type: ignore[no-untyped-call]  # the stub in types-jsonschema declares extend without annotations


@functools.cache
def fits(name: str) -> Predicate:
    """Return a predicate that checks a value against the schema ``name`` without messages, many times as fast as ``validator``."""
    return compile_schema(resolved(name))


@functools.cache
def resolved(name: str) -> Any:
    """Return the schema ``name`` with all references resolved. No schema is recursive, and resolving on each use is slow.

    ``allOf`` is removed: it contains names for editors, which are checked by code with better hints (see ``published``).
    """
    return _resolve(load(name), name)


def resolve_definition(file: str, name: str) -> Any:
    """Return one definition of a schema with all references resolved."""
    return _resolve(load(file)["$defs"][name], file)


def _resolve(node: Any, file: str) -> Any:
    if isinstance(node, list):
        return [_resolve(item, file) for item in node]
    if not isinstance(node, dict):
        return node
    rest = {key: _resolve(item, file) for key, item in node.items() if key not in ("$ref", "$defs", "allOf")}
    if "$ref" not in node:
        return rest
    target, _, pointer = node["$ref"].partition("#")
    target = target.removesuffix(".schema.json") or file
    found = load(target)
    for part in pointer.strip("/").split("/"):
        found = found[part]
    return {**_resolve(found, target), **rest}


def problems(document: Document, name: str) -> list[Diagnostic]:
    """Return all errors of the document against the schema ``name``."""
    return [document.problem(path, message, hint, key=key) for path, message, hint, key in describe(document.data, name)]


def describe(value: Any, name: str) -> list[Problem]:
    """Return the errors of plain data."""
    if fits(name)(value):
        return []
    return _without_duplicates([problem for error in validator(name).iter_errors(value) for problem in in_words(error)])


def _without_duplicates(found: list[Problem]) -> list[Problem]:
    """Remove errors that repeat another one: the same error with another hint, and counts of keys beside an unknown or missing key."""
    unknown_at = {path[:-1] for path, message, _, key in found if key and message.startswith("unknown")}
    missing_at = {path for path, message, _, _ in found if "needs the key" in message}
    once: dict[tuple[DataPath, str], Problem] = {}
    for path, message, hint, key in found:
        is_duplicate = (path in unknown_at and "needs exactly one of" in message) or (path in missing_at and "needs at least" in message)
        if not is_duplicate and len(hint) >= len(once.get((path, message), ("", "", "", False))[2]):
            once[path, message] = (path, message, hint, key)
    return list(once.values())


def describe_as(value: Any, file: str, definition: str) -> list[Problem]:
    """Return the errors of a value against one definition, for values that no schema covers, because schemas are not recursive."""
    part = _definition(file, definition)
    if _compiled(part)(value):
        return []
    return _without_duplicates([problem for error in _validator_of(part).iter_errors(value) for problem in in_words(error)])


@functools.cache
def _definition(file: str, name: str) -> Any:
    return resolve_definition(file, name)


MAY_BE_EMPTY = frozenset(["config", "dynamo_config", "functorch_config", "options"])
"""Keys of maps that a template may leave empty: at that point of the matrix there are no such options."""


def describe_at(data: Any, name: str, path: DataPath) -> list[Problem]:
    """Return the errors of the value at ``path`` alone: the value of a template in an otherwise valid document."""
    value = data
    for key in path:
        value = value[key]
    if value in ([], {}) and path[-1] in MAY_BE_EMPTY:
        return []
    found: list[Problem] = []
    for part in _parts_at(resolved(name), data, path):
        if not _compiled(part)(value):
            found.extend(
                ((*path, *below), message, hint, key)
                for error in _validator_of(part).iter_errors(value)
                for below, message, hint, key in in_words(error)
            )
    return found


def containers_at(data: Any, name: str, path: DataPath) -> frozenset[str]:
    """Return which of ``array`` and ``object`` a template at ``path`` stands for; empty where it stands for a text or a number."""
    for part in _parts_at(resolved(name), data, path):
        kinds = frozenset(part["type"]) if isinstance(part.get("type"), list) else frozenset()
        if part.get("pattern") == TEMPLATE_PATTERN and kinds - {"string"} and kinds <= {"array", "object", "string"}:
            return kinds - {"string"}
    return frozenset()


def _parts_at(node: Any, value: Any, path: DataPath) -> list[Any]:
    """Return the parts of a schema that apply to the value at ``path``."""
    if not path:
        return [node]
    found: list[Any] = []
    for part in _in_force(node, value):
        if isinstance(value, dict):
            below = part.get("properties", {}).get(path[0], part.get("additionalProperties"))
        else:
            below = part.get("items")
        if isinstance(below, dict):
            found.extend(_parts_at(below, value[path[0]], path[1:]))
    return found


def _in_force(node: Any, value: Any) -> Iterator[Any]:
    yield node
    if "if" in node:
        branch = node.get("then" if _compiled(node["if"])(value) else "else")
        if isinstance(branch, dict):
            yield from _in_force(branch, value)


_predicates: dict[int, tuple[Any, Predicate]] = {}


def _compiled(part: Any) -> Predicate:
    """Return the predicate of a part of a schema. The part is stored too, so that its id is not reused."""
    if id(part) not in _predicates:
        _predicates[id(part)] = (part, compile_schema(part))
    return _predicates[id(part)][1]


def _validator_of(part: Any) -> Any:
    return _strict()(part)
