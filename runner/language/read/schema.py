"""Holds documents against the JSON Schemas and says in words what does not fit, with its position."""

import functools
import json
from collections.abc import Iterator
from typing import Any

from runner.core.diagnostics import Diagnostic, did_you_mean, one_of, unknown
from runner.language.read.compiled_schema import Predicate, compile_schema, is_whole, searcher
from runner.language.read.source import DataPath, Document
from runner.system import data_dirs

TEMPLATE_PATTERN = r"^\{\{.*\}\}$"


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


Problem = tuple[DataPath, str, str, bool]
"""Path, message, hint, and whether the path's key is meant rather than its value."""


def describe(value: Any, name: str) -> list[Problem]:
    """Return the problems of plain data."""
    if fits(name)(value):
        return []
    return _without_echoes([problem for error in validator(name).iter_errors(value) for problem in _in_words(error)])


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
    return _without_echoes([problem for error in _validator_of(part).iter_errors(value) for problem in _in_words(error)])


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
                for below, message, hint, key in _in_words(error)
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


def _in_words(error: Any) -> Iterator[Problem]:
    path = tuple(error.absolute_path)
    # what stands below propertyNames is about the key; its path is the map's
    of_key = "propertyNames" in error.absolute_schema_path
    writer = _bad_key if of_key else _WRITERS.get(error.validator, _other)
    for suffix, message, hint, key in writer(error):
        yield (*path, *suffix), message, hint, key


_Piece = tuple[DataPath, str, str, bool]


def _title(error: Any) -> str:
    names = [part for part in error.absolute_path if isinstance(part, str)]
    return str(error.schema.get("title") or (names[-1] if names else "value"))


def _extra_keys(error: Any) -> Iterator[_Piece]:
    allowed = list(error.schema.get("properties", {}))
    title = _title(error)
    what = {"expectation": "expectation", "step": "step", "input": "input kind", "condition": "condition"}.get(title, "key")
    for key in error.instance:
        if key not in allowed:
            # a step is what is done; beside it stands what is expected
            is_expect = what == "step" and bool(did_you_mean(str(key), ["expect"], cutoff=0.8))
            word = "key" if is_expect else what
            message, hint = unknown(word, str(key), [one for one in allowed if (one == "expect") is is_expect or what != "step"])
            yield (key,), message + (f" in {title}" if word == "key" and title != "spec" else ""), hint, True


def _missing(error: Any) -> Iterator[_Piece]:
    for key in error.validator_value:
        if key not in error.instance:
            example = error.schema.get("properties", {}).get(key, {})
            yield (), f"{_title(error)} needs the key '{key}'", str(example.get("description", "")).split("\n")[0], False


_WORDS = {
    "object": "a map",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}


def _found(value: Any) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case str():
            return f"the text '{value[:60]}'"
        case dict():
            return "a map"
        case list():
            return "a list"
    return f"the number {value!s:.40}"


def _wanted(schema: Any) -> str:
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else list(kinds)
    templated = schema.get("pattern") == TEMPLATE_PATTERN
    words = [_WORDS[kind] for kind in kinds if not (templated and kind == "string")]
    return " or ".join(words) + (" (or one {{ expression }})" if templated else "")


def _wrong_type(error: Any) -> Iterator[_Piece]:
    yield (), f"expected {_wanted(error.schema)}, found {_found(error.instance)}", str(error.schema.get("description", "")), False


def _wrong_text(error: Any) -> Iterator[_Piece]:
    if error.validator_value == TEMPLATE_PATTERN:
        yield from _wrong_type(error)
        return
    examples = [example for example in error.schema.get("examples", []) if isinstance(example, str)]
    hint = f"for example {' or '.join(examples[:2])}" if examples else f"it is written as {error.validator_value}"
    yield (), f"{_found(error.instance)} is no {_title(error)}", hint, False


def _wrong_word(error: Any) -> Iterator[_Piece]:
    allowed = [str(word) for word in error.validator_value]
    message, hint = unknown("word", str(error.instance), allowed)
    yield (), f"{message} in {_title(error)}", hint, False


def _wrong_constant(error: Any) -> Iterator[_Piece]:
    yield (), f"expected {json.dumps(error.validator_value)}, found {_found(error.instance)}", "leave the key out otherwise", False


def _any_of(error: Any) -> Iterator[_Piece]:
    words = [word for branch in error.validator_value for word in branch.get("enum", [])]
    if words:
        message, hint = unknown(_title(error), str(error.instance), words)
        yield (), message, hint, False
        return
    keys = [key for branch in error.validator_value for key in branch.get("required", [])]
    yield (), f"{_title(error)} needs one of {one_of(keys)}", "", False


def _one_of_kinds(error: Any) -> Iterator[_Piece]:
    if not isinstance(error.instance, dict):
        return  # its type is wrong, and that is reported
    kinds = list(dict.fromkeys(key for branch in error.validator_value for key in branch.get("required", [])))
    given = [kind for kind in kinds if kind in error.instance]
    found = " and ".join(given) if given else "none"
    near = next((hint for key in error.instance if (hint := did_you_mean(key, kinds))), "") if not given else ""
    yield (), f"{_title(error)} needs exactly one of {one_of(kinds)}; found {found}", near, False


def _size(error: Any) -> Iterator[_Piece]:
    bound = error.validator_value
    match error.validator:
        case "minItems" | "minProperties" | "minLength":
            message = f"{_title(error)} is empty" if bound == 1 else f"{_title(error)} needs at least {bound} {_UNITS[error.validator]}"
        case "maxProperties":
            extra = " and ".join(str(key) for key in error.instance)
            message = f"{_title(error)} takes one kind, found {extra}"
        case _:
            message = f"{_title(error)} takes at most {bound} {_UNITS[error.validator]}"
    hint = "write each in an entry of its own" if error.validator == "maxProperties" else str(error.schema.get("description", ""))
    yield (), message, hint, False


_UNITS = {"minItems": "entries", "maxItems": "entries", "minProperties": "keys", "minLength": "characters"}


def _number_bound(error: Any) -> Iterator[_Piece]:
    sign = {"minimum": "at least", "maximum": "at most", "exclusiveMinimum": "more than"}[error.validator]
    yield (), f"{error.instance} is out of range: {sign} {error.validator_value}", "", False


def _repeated(error: Any) -> Iterator[_Piece]:
    seen: set[str] = set()
    for index, item in enumerate(error.instance):
        written = json.dumps(item, sort_keys=True)
        if written in seen:
            yield (index,), f"{_found(item)} is repeated", "leave it out", False
        seen.add(written)


def _dependent(error: Any) -> Iterator[_Piece]:
    for key, needed in error.validator_value.items():
        for other in needed:
            if key in error.instance and other not in error.instance:
                yield (key,), f"'{key}' goes with '{other}'", f"add '{other}'", True


def _bad_key(error: Any) -> Iterator[_Piece]:
    hint = f"it is written as {error.validator_value}" if error.validator == "pattern" else ""
    yield (str(error.instance),), f"'{error.instance}' is no name that may stand here", hint, True


def _other(error: Any) -> Iterator[_Piece]:
    yield (), f"does not fit: {error.message[:200]}", "", False


_WRITERS = {
    "additionalProperties": _extra_keys,
    "required": _missing,
    "type": _wrong_type,
    "pattern": _wrong_text,
    "enum": _wrong_word,
    "const": _wrong_constant,
    "anyOf": _any_of,
    "oneOf": _one_of_kinds,
    "minItems": _size,
    "maxItems": _size,
    "minProperties": _size,
    "maxProperties": _size,
    "minLength": _size,
    "minimum": _number_bound,
    "maximum": _number_bound,
    "exclusiveMinimum": _number_bound,
    "uniqueItems": _repeated,
    "dependentRequired": _dependent,
}
