"""The JSON Schemas of this program, and where a value does not fit one.

``jsonschema`` finds what does not fit; ``_RULES`` is the table from its keywords to problems.
"""

import functools
import itertools
import json
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from torch_conformance.machine import cache_dirs
from torch_conformance.model.diagnostics import (
    Diagnostic,
    nearest,
    odd_character,
    one_of,
    unknown_word,
)
from torch_conformance.model.document import DataPath
from torch_conformance.model.problem_texts import UNITS, shown, shown_types
from torch_conformance.model.protocol import Json

if TYPE_CHECKING:
    from jsonschema import ValidationError
    from jsonschema.protocols import Validator
    from referencing import Registry

TEMPLATE_PATTERN = r"^\{\{.*\}\}$"

NEAR = 0.8
"""How similar a key must be to another one to be read as it."""


class Problem(NamedTuple):
    """One problem of form."""

    code: str
    path: DataPath
    arguments: Mapping[str, str | int]
    """``word`` is the key or the word that is missing or unknown, ``near`` the one that it
    resembles.
    """
    at_key: bool = False
    """Whether it is the key at the path, instead of its value."""


# -- schemas ---------------------------------------------------------------------------------------


@functools.cache
def load(name: str) -> Json:
    """Return the schema ``name`` as data."""
    return json.loads((cache_dirs.folder("schemas") / f"{name}.schema.json").read_bytes())


@functools.cache
def resolved(name: str, pointer: str = "") -> Json:
    """Return the schema ``name``, or its part at a pointer (``/$defs/input``). Each reference is
    replaced by its target, with the title and description next to it. No schema is recursive.

    ``allOf`` is removed: it contains names for editors, which are checked by code with better hints
    (``check/names``).
    """
    return _resolve(
        _registry().resolver(f"{name}.schema.json").lookup(f"#{pointer}").contents, name
    )


@functools.cache
def _registry() -> "Registry[Json]":
    from referencing import Registry, Resource

    registry: Any = Registry  # mypy does not know the names of its arguments
    schemas: Registry[Json] = registry(
        retrieve=lambda file: Resource.from_contents(load(file.partition(".")[0]))
    )
    return schemas


def _resolve(node: object, file: str) -> Json:
    if isinstance(node, list):
        return [_resolve(item, file) for item in node]
    if not isinstance(node, dict):
        return node
    rest = {
        key: _resolve(item, file)
        for key, item in node.items()
        if key not in ("$schema", "$ref", "$defs", "allOf")
    }
    if "$ref" not in node:
        return rest
    target, _, pointer = node["$ref"].partition("#")
    return {**resolved(target.partition(".")[0] or file, pointer), **rest}


@functools.cache
def validator_of(name: str, pointer: str = "") -> "Validator":
    """Return the validator of the schema ``name``, or of its part at a pointer."""
    return _dialect()(resolved(name, pointer))


@functools.cache
def _dialect() -> Any:
    """Return the class of validators: draft 2020-12, but ``4.0`` is not an integer, because torch
    does not accept it, and ``$`` matches only at the end of a text.

    NaN is in no range. Entries are compared as text: the library compares each with each other one.
    """
    from jsonschema import Draft202012Validator, ValidationError
    from jsonschema.validators import extend

    def needs(kind: str, fits: Callable[[Any, Any], object]) -> Any:
        def keyword(validator: Any, argument: object, value: object, node: object) -> Iterator[Any]:
            if validator.is_type(value, kind) and not fits(value, argument):
                yield ValidationError("")

        return keyword

    def unique(validator: object, argument: object, value: object, node: object) -> Iterator[Any]:
        seen: set[str] = set()
        for index, item in enumerate(value if isinstance(value, list) else ()):
            written = json.dumps(item, sort_keys=True)  # as JSON: true is not 1
            if written in seen:
                yield ValidationError("", path=[index], instance=item)
            seen.add(written)

    dialect: Any = extend(
        Draft202012Validator,
        {
            "pattern": needs("string", lambda it, form: re.search(form.replace("$", r"\Z"), it)),
            "minimum": needs("number", operator.ge),
            "maximum": needs("number", operator.le),
            "exclusiveMinimum": needs("number", operator.gt),
            "uniqueItems": unique,
        },
        type_checker=Draft202012Validator.TYPE_CHECKER.redefine(
            "integer", lambda _, it: type(it) is int
        ),
    )
    # a part has one validator, as it has no references; the library makes one for each value, which
    # takes half of its time
    evolve, validators = dialect.evolve, dict[int, Any]()

    def of_part(self: object, *, schema: object, **changes: object) -> Any:
        if id(schema) not in validators:  # it lives as long as its validator
            validators[id(schema)] = evolve(self, schema=schema, **changes)
        return validators[id(schema)]

    def descend(
        self: Any, instance: object, schema: object, path: object = None, schema_path: Any = None
    ) -> Iterator[Any]:
        for error in self.evolve(schema=schema).iter_errors(instance):
            error.path.extendleft([] if path is None else [path])
            error.schema_path.extendleft([] if schema_path is None else [schema_path])
            yield error

    dialect.evolve, dialect.descend = of_part, descend
    return dialect


def misfit(value: object, name: str) -> str | None:
    """Return in words where a value first does not fit the schema ``name``, for values that are in
    no file; None where it fits.
    """
    errors = itertools.islice(validator_of(name).iter_errors(value), 1000)
    try:
        # of a map the library yields in no order
        first = min(
            errors, key=lambda it: [f"{key!s:>9}" for key in it.absolute_path], default=None
        )
    except RecursionError:
        return "$: nested too deep"
    if first is None:
        return None
    problem = next(iter(problems_of(first)))
    place = "".join(f".{key}" if isinstance(key, str) else f"[{key}]" for key in problem.path)
    return f"${place}: {Diagnostic.of(problem.code, **problem.arguments).message[:200]}"


# -- the table: from the keyword that refused to code and arguments --------------------------------


def unknown_key(
    key: str,
    value: Mapping[str, Any],
    node: Json,
    path: DataPath,
    *,
    allowed: Iterable[str] | None = None,
    what: str = "key",
    of_entry: str = "",
) -> Problem:
    """Return the problem of a key that a map may not have; the schema says which it may."""
    title = title_of(node, path)
    allowed_keys = list(node.get("properties", {}) if allowed is None else allowed)
    place = (*path, key)
    problem = _unknown_word(
        key, allowed_keys, what, title if what == "key" and title != "spec" else "", place
    )
    near = nearest(key, [name for name in allowed_keys if name not in value], cutoff=NEAR)
    arguments = {
        **problem.arguments,
        "of_entry": of_entry,
        "typo": problem.arguments["near"],
        "near": near,
    }
    return Problem("unknown-key", place, arguments, at_key=True)


UnknownKey: TypeAlias = Callable[[str, Mapping[str, Any], Any, DataPath], Problem]
"""Makes the problem of a key of a map, of the map, its schema and its path."""


class _Misfit(NamedTuple):
    """A value that does not fit a keyword of its schema."""

    value: Json
    argument: Json
    """What the schema says with the keyword."""
    node: Json
    """The part of the schema that has the keyword."""
    path: DataPath
    title: str
    """The name of the value in texts."""
    keyword: str
    branches: Sequence["ValidationError"]
    """The errors of the branches of ``anyOf`` and ``oneOf``."""
    unknown: UnknownKey

    def problem(self, code: str, *key: str, **arguments: str | int) -> Problem:
        """Return the problem of the value, or of a key of it."""
        arguments = {"title": self.title, **arguments}
        return Problem(code, (*self.path, *key), arguments, at_key=bool(key))

    def wrong_type(self) -> Problem:
        """Return the problem of a value of a wrong type."""
        return _wrong_type(self.value, self.node, self.path)


def problems_of(
    error: "ValidationError", unknown: UnknownKey = unknown_key, title: str = ""
) -> Iterable[Problem]:
    """Return the problems of an error of the library; ``title`` is that of the enclosing value."""
    path, node, keyword = (*error.absolute_path,), error.schema or {}, error.validator
    title = title if title and "title" not in node else title_of(node, path)
    of_value = error.instance, error.validator_value, node, path, title
    misfit = _Misfit(*of_value, keyword, error.context, unknown)
    if "propertyNames" in error.schema_path:
        word, pattern = error.instance, node.get("pattern", "")
        return [misfit.problem("bad-name", word, word=word, pattern=pattern)]
    if keyword is None:  # the schema is: false
        return [misfit.problem("not-allowed")]
    if keyword not in _RULES:
        raise NotImplementedError(f"{keyword} of JSON Schema: a problem would be lost")
    return _RULES[keyword](misfit)


def _of_pattern(misfit: _Misfit) -> Iterator[Problem]:
    pattern = misfit.argument
    if pattern == TEMPLATE_PATTERN:
        yield misfit.wrong_type()
        return
    examples = [text for text in misfit.node.get("examples", []) if isinstance(text, str)]
    yield misfit.problem(
        "wrong-text",
        value=shown(misfit.value),
        odd="" if re.search(pattern, "\u0430") else odd_character(str(misfit.value)),
        examples=" or ".join(examples[:2]),
        pattern=pattern,
    )


def _of_required(misfit: _Misfit) -> Iterator[Problem]:
    for key in misfit.argument:
        if key not in misfit.value:
            part = misfit.node.get("properties", {}).get(key, {})
            yield misfit.problem("missing-key", word=key, use=part.get("description", ""))


def _of_branches(misfit: _Misfit) -> Iterator[Problem]:
    """Yield the problems of a value that fits none, or several, of some branches."""
    value, branches, is_one = misfit.value, misfit.argument, misfit.keyword == "oneOf"
    keys = list(dict.fromkeys(key for branch in branches for key in branch.get("required", [])))
    words = [word for branch in branches for word in branch.get("enum", [])]
    if words and not is_one:
        yield _unknown_word(value, words, misfit.title, "", misfit.path)
    elif keys and not is_one:
        yield misfit.problem("none-of", keys=one_of(keys))
    elif keys and isinstance(value, dict):
        present = [key for key in keys if key in value]
        near = "" if present else next(filter(None, (nearest(key, keys) for key in value)), "")
        written = " and ".join(present) or "none"
        yield misfit.problem("not-one-of", keys=one_of(keys), named=written, near=near)
    else:  # a branch is a type, words, or true
        of_branch = "" if keys else "string"
        types = [
            branch.get("type", "boolean" if "const" in branch else of_branch) for branch in branches
        ]
        is_type = _dialect().TYPE_CHECKER.is_type
        meant = [index for index, kind in enumerate(types) if kind and is_type(value, kind)]
        inner_problems = [
            problem
            for inner in misfit.branches
            if inner.schema_path[0] in meant
            for problem in problems_of(inner, misfit.unknown, "" if inner.path else misfit.title)
        ]
        node = {**misfit.node, "type": [*filter(None, types)]}
        yield from inner_problems or [_wrong_type(value, node, misfit.path)]


def _of_least(misfit: _Misfit) -> Iterator[Problem]:
    least, unit = misfit.argument, UNITS[misfit.keyword]
    code = "empty" if least == 1 else "too-few"
    yield misfit.problem(code, least=least, unit=unit, use=misfit.node.get("description", ""))


def _out_of_range(misfit: _Misfit) -> Iterator[Problem]:
    limit = {misfit.keyword: str(misfit.argument)}
    yield misfit.problem("out-of-range", value=f"{misfit.value!s:.40}", **limit)


_RULES: Mapping[str, Callable[[_Misfit], Iterable[Problem]]] = {
    "type": lambda it: [it.wrong_type()],
    "pattern": _of_pattern,
    "additionalProperties": lambda it: [
        it.unknown(key, it.value, it.node, it.path)
        for key in it.value
        if key not in it.node.get("properties", ())
    ],
    "required": _of_required,
    "dependentRequired": lambda it: [
        it.problem("incomplete", key, word=key, other=other)
        for key, needed in it.argument.items()
        for other in needed
        if key in it.value and other not in it.value
    ],
    "enum": lambda it: [_unknown_word(it.value, it.argument, "word", it.title, it.path)],
    "const": lambda it: [
        it.problem("wrong-value", expected=json.dumps(it.argument), value=shown(it.value))
    ],
    **dict.fromkeys(("anyOf", "oneOf"), _of_branches),
    "uniqueItems": lambda it: [it.problem("repeated-entry", value=shown(it.value))],
    **dict.fromkeys(("minLength", "minItems", "minProperties"), _of_least),
    "maxProperties": lambda it: [
        it.problem("too-many-keys", keys=" and ".join(map(str, it.value)))
    ],
    "maxItems": lambda it: [
        it.problem("too-many-entries", most=it.argument, use=it.node.get("description", ""))
    ],
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum"), _out_of_range),
}
"""The problems of a value by the keyword that refused it."""


def _unknown_word(
    value: object, allowed: Iterable[Any], what: str, title: str, path: DataPath
) -> Problem:
    problem = unknown_word("word", str(value), map(str, allowed), kind=what, title=title)
    return Problem("unknown-word", path, dict(problem.arguments))


def _wrong_type(value: object, node: Json, path: DataPath) -> Problem:
    """Return the problem of a value of a wrong type, with an example of the schema."""
    kinds = node.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    templated = node.get("pattern") == TEMPLATE_PATTERN
    use = str(node.get("description", ""))
    of_kinds = (
        example
        for example in node.get("examples", [])
        if kinds == ["string"] or not isinstance(example, str)
    )
    examples = (json.dumps(example, ensure_ascii=False) for example in of_kinds)
    example = next((text for text in examples if len(text) <= 100), "")
    if example:
        first, end, _ = use.partition(". ")
        use = first + end.strip()
    types = shown_types([kind for kind in kinds if not (templated and kind == "string")])
    # the value is not shown as text: YAML reads 2.10 as 2.1, and the hint would name a number that
    # is not in the file
    is_number = (
        kinds == ["string"]
        and not templated
        and isinstance(value, int | float)
        and not isinstance(value, bool)
    )
    arguments = {
        "types": types,
        "value": shown(value),
        "example": example,
        "use": use,
        "template": "{{ expression }}" if templated else "",
    }
    return Problem("number-for-text" if is_number else "wrong-type", path, arguments)


def title_of(node: Json, path: DataPath) -> str:
    """Return the name of a part of a schema in texts."""
    return str(
        node.get("title")
        or next((part for part in reversed(path) if isinstance(part, str)), "value")
    )
