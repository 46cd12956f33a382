"""Messages for errors of jsonschema: what was found, what is allowed, what to type."""

import json
from collections.abc import Iterator
from typing import Any

from runner.core.diagnostics import did_you_mean, one_of, unknown
from runner.language.read.document import DataPath
from runner.vocabulary.inputs import INPUTS

TEMPLATE_PATTERN = r"^\{\{.*\}\}$"


Problem = tuple[DataPath, str, str, bool]
"""Path, message, hint, and whether the problem is the path's key instead of its value."""


def in_words(error: Any) -> Iterator[Problem]:
    """Yield the problems of one error of jsonschema."""
    path = tuple(error.absolute_path)
    if (condition := _condition_of_counts(path)) is not None:
        yield condition
        return
    # an error below propertyNames is about a key; its path is that of the map
    of_key = "propertyNames" in error.absolute_schema_path
    writer = _bad_key if of_key else _WRITERS.get(error.validator, _other)
    for suffix, message, hint, key in writer(error):
        yield (*path, *suffix), message, hint, key


_BY_NAME = {"counter": "counter", "metric": "metric", "remote_cache": "remote cache"}
"""Expectations whose keys are names of what is counted, and such a name in words."""


def _condition_of_counts(path: DataPath) -> Problem | None:
    """Return the problem of a condition that stands among the names of counts, where each count has its own."""
    at = next((index for index, key in enumerate(path) if key == "when" and index and path[index - 1] in _BY_NAME), None)
    if at is None:
        return None
    kind = path[at - 1]
    message = f"'when' stands in the place of the name of a {_BY_NAME[str(kind)]}"
    count = "{NAME: {hit: [{when: {device: cuda}, value: 1}]}}" if kind == "remote_cache" else "{NAME: [{when: {device: cuda}, value: 1}]}"
    return path[: at + 1], message, f"each count has its own condition: {kind}: {count}", True


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
            # a step is a kind, with other keys beside it
            is_beside = what == "step" and bool(did_you_mean(str(key), _BESIDE_KIND, cutoff=0.8))
            has_kind = what == "input kind" and any(one in INPUTS for one in error.instance)
            word = "key" if is_beside or has_kind else what
            message, hint = unknown(word, str(key), [one for one in allowed if (one in _BESIDE_KIND) is is_beside or what != "step"])
            yield (key,), message + (f" in {title}" if word == "key" and title != "spec" else ""), hint, True


_BESIDE_KIND = ("expect", "when", "repeat")
"""The keys of a step that are no kinds."""


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


def _expected(schema: Any) -> str:
    kinds = _kinds(schema)
    templated = schema.get("pattern") == TEMPLATE_PATTERN
    words = [_WORDS[kind] for kind in kinds if not (templated and kind == "string")]
    return " or ".join(words) + (" (or one {{ expression }})" if templated else "")


def _wrong_type(error: Any) -> Iterator[_Piece]:
    yield (), f"expected {_expected(error.schema)}, found {_found(error.instance)}", _instead(error.schema, error.instance), False


def _instead(schema: Any, found: Any) -> str:
    """Return what to write in place of a value of a wrong type: quotes, an example of the schema, or what is meant."""
    kinds = _kinds(schema)
    if kinds == ["string"] and schema.get("pattern") != TEMPLATE_PATTERN and _is_number(found):
        return "put it in quotes: it is text"  # the number is not quoted here: of 2.10 YAML leaves 2.1
    of_kinds = (one for one in schema.get("examples", []) if kinds == ["string"] or not isinstance(one, str))
    examples = (json.dumps(one, ensure_ascii=False) for one in of_kinds)
    example = next((text for text in examples if len(text) <= _LONGEST_EXAMPLE), None)
    description = str(schema.get("description", "")).split("\n")[0]
    if example is None:
        return description
    first, end, _ = description.partition(". ")
    return f"for example {example}. {first}{end.strip()}" if description else f"for example {example}"


_LONGEST_EXAMPLE = 100


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _kinds(schema: Any) -> list[str]:
    kinds = schema.get("type", [])
    return [kinds] if isinstance(kinds, str) else list(kinds)


def _wrong_text(error: Any) -> Iterator[_Piece]:
    if error.validator_value == TEMPLATE_PATTERN:
        yield from _wrong_type(error)
        return
    examples = [example for example in error.schema.get("examples", []) if isinstance(example, str)]
    hint = f"for example {' or '.join(examples[:2])}" if examples else f"it must match {error.validator_value}"
    yield (), f"{_found(error.instance)} is not a valid {_title(error)}", hint, False


def _wrong_word(error: Any) -> Iterator[_Piece]:
    allowed = [str(word) for word in error.validator_value]
    message, hint = unknown("word", str(error.instance), allowed)
    yield (), f"{message} in {_title(error)}", hint, False


def _wrong_constant(error: Any) -> Iterator[_Piece]:
    yield (), f"expected {json.dumps(error.validator_value)}, found {_found(error.instance)}", "otherwise remove the key", False


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
        return  # the wrong type is reported already
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
            message = f"{_title(error)} takes one key, found {extra}"
        case _:
            message = f"{_title(error)} takes at most {bound} {_UNITS[error.validator]}"
    hint = "write each in its own entry" if error.validator == "maxProperties" else str(error.schema.get("description", ""))
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
            yield (index,), f"{_found(item)} is repeated", "remove it", False
        seen.add(written)


def _dependent(error: Any) -> Iterator[_Piece]:
    for key, needed in error.validator_value.items():
        for other in needed:
            if key in error.instance and other not in error.instance:
                yield (key,), f"'{key}' requires '{other}'", f"add '{other}'", True


def _bad_key(error: Any) -> Iterator[_Piece]:
    hint = f"it must match {error.validator_value}" if error.validator == "pattern" else ""
    yield (str(error.instance),), f"'{error.instance}' is not a valid name here", hint, True


def _other(error: Any) -> Iterator[_Piece]:
    yield (), f"does not fit the schema: {error.message[:200]}", "", False


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
