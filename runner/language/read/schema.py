"""Holds documents against the JSON Schemas and says in words what does not fit, with its position."""

import functools
import json
from collections.abc import Iterator
from typing import Any

from runner.core.diagnostics import Diagnostic
from runner.language.read.compiled_schema import Predicate, compile_schema, is_whole, searcher
from runner.language.read.document import DataPath, Document
from runner.language.read.schema_words import Problem, in_words
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
    """Return the class of validators: draft 2020-12, where ``4.0`` is no whole number and ``$`` is the end and nothing but the end."""
    from jsonschema import Draft202012Validator, ValidationError
    from jsonschema.validators import extend

    def pattern(validator: Any, written: str, instance: Any, schema: Any) -> Iterator[Any]:
        if validator.is_type(instance, "string") and not searcher(written)(instance):
            yield ValidationError("does not match")

    whole = Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, value: is_whole(value))
    return extend(Draft202012Validator, {"pattern": pattern}, type_checker=whole)  # type: ignore[no-untyped-call]  # jsonschema types it not


@functools.cache
def fits(name: str) -> Predicate:
    """Return a predicate that only says whether a value fits the schema ``name``: many times as quick as ``validator``."""
    return compile_schema(resolved(name))


@functools.cache
def resolved(name: str) -> Any:
    """Return the schema ``name`` with every reference written out: no schema refers to itself, and looking up is slow.

    What stands below ``allOf`` is for editors: names, which code checks, with better hints (see ``published``).
    """
    return _resolve(load(name), name)


def resolve_definition(file: str, name: str) -> Any:
    """Return one definition of a schema with its references written out."""
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
    """Return every way in which the document does not fit the schema ``name``."""
    return [document.problem(path, message, hint, key=key) for path, message, hint, key in describe(document.data, name)]


def describe(value: Any, name: str) -> list[Problem]:
    """Return the problems of plain data."""
    if fits(name)(value):
        return []
    return _without_echoes([problem for error in validator(name).iter_errors(value) for problem in in_words(error)])


def _without_echoes(found: list[Problem]) -> list[Problem]:
    """Leave out what says nothing new: the same with another hint, "one kind" beside its typo, "two keys" beside the missing one."""
    unknown_at = {path[:-1] for path, message, _, key in found if key and message.startswith("unknown")}
    missing_at = {path for path, message, _, _ in found if "needs the key" in message}
    once: dict[tuple[DataPath, str], Problem] = {}
    for path, message, hint, key in found:
        is_echo = (path in unknown_at and "needs exactly one of" in message) or (path in missing_at and "needs at least" in message)
        if not is_echo and len(hint) >= len(once.get((path, message), ("", "", "", False))[2]):
            once[path, message] = (path, message, hint, key)
    return list(once.values())


def describe_as(value: Any, file: str, definition: str) -> list[Problem]:
    """Return the problems of a value that one definition describes and no schema reaches: schemas do not refer to themselves."""
    part = _definition(file, definition)
    if _compiled(part)(value):
        return []
    return _without_echoes([problem for error in _validator_of(part).iter_errors(value) for problem in in_words(error)])


@functools.cache
def _definition(file: str, name: str) -> Any:
    return resolve_definition(file, name)


def describe_at(data: Any, name: str, path: DataPath) -> list[Problem]:
    """Return the problems of the value at ``path`` alone: what a template put there, in a document that fits otherwise."""
    value = data
    for key in path:
        value = value[key]
    found: list[Problem] = []
    for part in _parts_at(resolved(name), data, path):
        if not _compiled(part)(value):
            found.extend(
                ((*path, *below), message, hint, key)
                for error in _validator_of(part).iter_errors(value)
                for below, message, hint, key in in_words(error)
            )
    return found


def _parts_at(node: Any, value: Any, path: DataPath) -> list[Any]:
    """Return the parts of a schema that hold for the value at ``path``."""
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
    """Return the predicate of a part of a schema; the part is kept, so that its id stays its own."""
    if id(part) not in _predicates:
        _predicates[id(part)] = (part, compile_schema(part))
    return _predicates[id(part)][1]


def _validator_of(part: Any) -> Any:
    return _strict()(part)
