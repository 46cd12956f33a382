"""The form of a document: its keys, types and values against the JSON Schemas.

``jsonschema`` finds what does not fit; ``_told`` is the table from its keywords to problems.
"""

import functools
import itertools
import json
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch_conformance.language.read.document import BESIDE_KIND, SPEC, DataPath, Document, Kind
from torch_conformance.language.read.yaml_source import read_partly, recognised
from torch_conformance.machine import cache_dirs
from torch_conformance.model.diagnostics import (
    Diagnostic,
    InvalidSpecs,
    nearest,
    odd_character,
    one_of,
    unknown_word,
)
from torch_conformance.model.problem_texts import UNITS, shown, shown_types
from torch_conformance.vocabulary.inputs import INPUTS

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
def load(name: str) -> Any:
    """Return the schema ``name`` as data."""
    return json.loads((cache_dirs.folder("schemas") / f"{name}.schema.json").read_bytes())


@functools.cache
def resolved(name: str, pointer: str = "") -> Any:
    """Return the schema ``name``, or its part at a pointer (``/$defs/input``). Each reference is
    replaced by its target, with the title and description beside it. No schema is recursive.

    ``allOf`` is removed: it contains names for editors, which are checked by code with better hints
    (``check/names``).
    """
    return _resolve(
        _registry().resolver(f"{name}.schema.json").lookup(f"#{pointer}").contents, name
    )


@functools.cache
def _registry() -> Any:
    from referencing import Registry, Resource

    registry: Any = Registry  # mypy does not know the names of its arguments
    return registry(retrieve=lambda file: Resource.from_contents(load(file.partition(".")[0])))


def _resolve(node: Any, file: str) -> Any:
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
def _validator(name: str, pointer: str = "") -> Any:
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
        def keyword(validator: Any, argument: Any, value: Any, node: Any) -> Iterator[Any]:
            if validator.is_type(value, kind) and not fits(value, argument):
                yield ValidationError("")

        return keyword

    def unique(validator: Any, argument: Any, value: Any, node: Any) -> Iterator[Any]:
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
    evolve, made = dialect.evolve, dict[int, Any]()

    def of_part(self: Any, *, schema: Any, **changes: Any) -> Any:
        if id(schema) not in made:  # it lives as long as its validator
            made[id(schema)] = evolve(self, schema=schema, **changes)
        return made[id(schema)]

    def descend(
        self: Any, instance: Any, schema: Any, path: Any = None, schema_path: Any = None
    ) -> Iterator[Any]:
        for error in self.evolve(schema=schema).iter_errors(instance):
            error.path.extendleft([] if path is None else [path])
            error.schema_path.extendleft([] if schema_path is None else [schema_path])
            yield error

    dialect.evolve, dialect.descend = of_part, descend
    return dialect


# -- problems --------------------------------------------------------------------------------------


def diagnostics(
    document: Document, problems: Iterable[Problem], above: DataPath = ()
) -> list[Diagnostic]:
    """Return the diagnostics of problems of the value at ``above``."""
    return [
        document.diagnostic(
            (*above, *problem.path), problem.code, key=problem.at_key, **problem.arguments
        )
        for problem in problems
    ]


def misfit(value: Any, name: str) -> str | None:
    """Return in words where a value first does not fit the schema ``name``, for values that are in
    no file; None where it fits.
    """
    found = itertools.islice(_validator(name).iter_errors(value), 1000)
    try:
        # of a map the library yields in no order
        first = min(found, key=lambda it: [f"{key!s:>9}" for key in it.absolute_path], default=None)
    except RecursionError:
        return "$: nested too deep"
    if first is None:
        return None
    problem = next(_told(first))
    place = "".join(f".{key}" if isinstance(key, str) else f"[{key}]" for key in problem.path)
    return f"${place}: {Diagnostic.of(problem.code, **problem.arguments).message[:200]}"


MAY_BE_EMPTY = frozenset(["config", "dynamo_config", "functorch_config", "options"])
"""Keys of maps that a template may leave empty: at that point of the matrix there are no such
options.
"""


def describe(data: Any, name: str, path: DataPath = (), *, pointer: str = "") -> list[Problem]:
    """Return the problems of plain data, or of its value at ``path`` alone, where a template stood
    in an otherwise valid document.

    Problems that follow from others are left out: a key is not missing where a misspelt one stands.
    ``pointer`` is as for ``resolved``.
    """
    value = data
    for key in path:
        value = value[key]
    if path and value in ([], {}) and path[-1] in MAY_BE_EMPTY:
        return []
    validator = _validator(name, pointer)
    distinct: dict[tuple[str, DataPath, str | int], Problem] = {}
    for part in _parts_at(validator, validator.schema, data, path):
        problems: list[Problem] = []
        for error in validator.descend(value, part):
            error.path.extendleft(reversed(path))
            problems += _told(error)
        with_unknown_keys = {
            problem.path[:-1] for problem in problems if problem.code in _UNKNOWN_KEYS
        }
        meant = {
            (problem.path[:-1], problem.arguments["near"])
            for problem in problems
            if problem.code == "unknown-key"
        }
        with_missing_keys = {problem.path for problem in problems if problem.code == "missing-key"}
        for problem in problems:
            code, place, word = problem.code, problem.path, problem.arguments.get("word", "")
            follows = (
                code in ("not-one-of", "none-of", "empty", "too-few") and place in with_unknown_keys
            )
            follows |= code == "missing-key" and (place, word) in meant
            follows |= code in ("empty", "too-few") and place in with_missing_keys
            if not follows:
                distinct.setdefault((code, place, word), problem)
    return list(distinct.values())


_UNKNOWN_KEYS = ("unknown-key", "key-of-specs")


def containers_at(data: Any, name: str, path: DataPath) -> frozenset[str]:
    """Return which of ``array`` and ``object`` a template at ``path`` stands for; empty where it
    stands for a text or a number.
    """
    validator = _validator(name)
    for part in _parts_at(validator, validator.schema, data, path):
        kinds = frozenset(part["type"]) if isinstance(part.get("type"), list) else frozenset()
        if (
            part.get("pattern") == TEMPLATE_PATTERN
            and kinds - {"string"}
            and kinds <= {"array", "object", "string"}
        ):
            return kinds - {"string"}
    return frozenset()


def _parts_at(validator: Any, node: Any, value: Any, path: DataPath) -> list[Any]:
    """Return the parts of a schema that apply to the value at ``path``."""
    if not path:
        return [node]
    parts: list[Any] = []
    in_force = [node]
    for part in in_force:
        if "if" in part:
            fits = not any(validator.descend(value, part["if"]))
            in_force += filter(None, [part.get("then" if fits else "else")])
        below = part.get("items")
        if isinstance(value, dict):
            below = part.get("properties", {}).get(path[0], part.get("additionalProperties"))
        if isinstance(below, dict):
            parts.extend(_parts_at(validator, below, value[path[0]], path[1:]))
    return parts


# -- the table: from the keyword that refused to code and arguments --------------------------------


def _told(error: Any, title: str = "") -> Iterator[Problem]:
    """Yield the problems of an error of the library; ``title`` is that of what is around it."""
    value, argument, node = error.instance, error.validator_value, error.schema or {}
    path = (*error.absolute_path,)
    title = title if title and "title" not in node else _title(node, path)
    use = node.get("description", "")
    keys = _required_by(argument) if error.validator in ("anyOf", "oneOf") else []

    def problem(code: str, *key: str, **arguments: str | int) -> Problem:
        return Problem(code, (*path, *key), {"title": title, **arguments}, at_key=bool(key))

    match error.validator:
        case _ if "propertyNames" in error.schema_path:
            yield problem("bad-name", value, word=value, pattern=node.get("pattern", ""))
        case None:  # the schema is: false
            yield problem("not-allowed")
        case "type":
            yield _wrong_type(value, node, path)
        case "pattern" if argument == TEMPLATE_PATTERN:
            yield _wrong_type(value, node, path)
        case "pattern":
            examples = [text for text in node.get("examples", []) if isinstance(text, str)]
            yield problem(
                "wrong-text",
                value=shown(value),
                odd="" if re.search(argument, "\u0430") else odd_character(str(value)),
                examples=" or ".join(examples[:2]),
                pattern=argument,
            )
        case "additionalProperties":
            known = node.get("properties", ())
            yield from (_unknown_key(key, value, node, path) for key in value if key not in known)
        case "required":
            for key in argument:
                if key not in value:
                    part = node.get("properties", {}).get(key, {})
                    yield problem("missing-key", word=key, use=part.get("description", ""))
        case "dependentRequired":
            for key, needed in argument.items():
                for other in needed:
                    if key in value and other not in value:
                        yield problem("incomplete", key, word=key, other=other)
        case "enum":
            yield _unknown_word(value, argument, "word", title, path)
        case "const":
            yield problem("wrong-value", expected=json.dumps(argument), value=shown(value))
        case "anyOf" if words := [word for branch in argument for word in branch.get("enum", [])]:
            yield _unknown_word(value, words, title, "", path)
        case "anyOf" if keys:
            yield problem("none-of", keys=one_of(keys))
        case "oneOf" if keys and isinstance(value, dict):
            named = [key for key in keys if key in value]
            near = "" if named else next(filter(None, (nearest(key, keys) for key in value)), "")
            yield problem(
                "not-one-of", keys=one_of(keys), named=" and ".join(named) or "none", near=near
            )
        case "anyOf" | "oneOf":  # a branch is a type, words, or true
            of_branch = "" if keys else "string"
            types = [
                branch.get("type", "boolean" if "const" in branch else of_branch)
                for branch in argument
            ]
            is_type = _dialect().TYPE_CHECKER.is_type
            meant = [index for index, kind in enumerate(types) if kind and is_type(value, kind)]
            told = [
                problem
                for inner in error.context
                if inner.schema_path[0] in meant
                for problem in _told(inner, "" if inner.path else title)
            ]
            yield from told or [_wrong_type(value, {**node, "type": [*filter(None, types)]}, path)]
        case "uniqueItems":
            yield problem("repeated-entry", value=shown(value))
        case "minLength" | "minItems" | "minProperties" as keyword:
            code = "empty" if argument == 1 else "too-few"
            yield problem(code, least=argument, unit=UNITS[keyword], use=use)
        case "maxProperties":
            yield problem("too-many-keys", keys=" and ".join(map(str, value)))
        case "maxItems":
            yield problem("too-many-entries", most=argument, use=use)
        case "minimum" | "maximum" | "exclusiveMinimum" as keyword:
            yield problem("out-of-range", value=f"{value!s:.40}", **{keyword: str(argument)})
        case keyword:
            raise NotImplementedError(f"{keyword} of JSON Schema: a problem would be lost")


def _required_by(branches: Iterable[Any]) -> list[str]:
    return list(dict.fromkeys(key for branch in branches for key in branch.get("required", [])))


def _unknown_key(key: str, value: Mapping[str, Any], node: Any, path: DataPath) -> Problem:
    title, allowed = _title(node, path), list(node.get("properties", {}))
    what = (
        title
        if title in ("expectation", "step", "condition")
        else "input kind"
        if title == "input"
        else "key"
    )
    if what == "step":  # a step is a kind, with other keys beside it
        is_beside = bool(nearest(key, BESIDE_KIND, cutoff=NEAR))
        allowed = [name for name in allowed if (name in BESIDE_KIND) is is_beside]
        what = "key" if is_beside else what
    if what == "input kind" and any(name in INPUTS for name in value):
        what = "key"
    if title == "defaults" and key in SPEC.keys:
        return Problem(
            "key-of-specs",
            (*path, key),
            {"word": key, "allowed": one_of(allowed, limit=20)},
            at_key=True,
        )
    problem = _unknown_word(
        key, allowed, what, title if what == "key" and title != "spec" else "", (*path, key)
    )
    # the reason of an expectation is a key of its entry
    beside = title if key == "weak" and path[-3:-2] == ("expect",) else ""
    near = nearest(key, [name for name in allowed if name not in value], cutoff=NEAR)
    typo = problem.arguments["near"]
    return Problem(
        "unknown-key",
        (*path, key),
        {**problem.arguments, "beside": beside, "typo": typo, "near": near},
        at_key=True,
    )


def _unknown_word(
    value: Any, allowed: Iterable[Any], what: str, title: str, path: DataPath
) -> Problem:
    problem = unknown_word("word", str(value), map(str, allowed), kind=what, title=title)
    return Problem("unknown-word", path, dict(problem.arguments))


def _wrong_type(value: Any, node: Any, path: DataPath) -> Problem:
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
    # nobody wrote
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


def _title(node: Any, path: DataPath) -> str:
    return str(
        node.get("title")
        or next((part for part in reversed(path) if isinstance(part, str)), "value")
    )


# -- files -----------------------------------------------------------------------------------------


def read_formed(path: Path, kind: Kind, problems: list[Diagnostic]) -> Document | None:
    """Read a file and add its problems; return it if its form is right."""
    try:
        document = read_partly(path, kind)
    except InvalidSpecs as error:
        problems.extend(error.diagnostics)
        return None
    own = form_problems(document, kind)
    problems.extend(own)
    return None if own else document


def form_problems(document: Document, kind: Kind) -> list[Diagnostic]:
    """Return the problems of the form of a file: those of its YAML, and those of its data against
    the schema of its kind.
    """
    problems = (
        [] if document.data is None and document.problems else describe(document.data, kind.name)
    )
    if (
        not problems
        or document.problems
        or recognised(document.path, document.content, kind, document.data)
    ):
        of_what_was_read = [problem for problem in problems if not _is_unread(problem, document)]
        return list(dict.fromkeys([*document.problems, *diagnostics(document, of_what_was_read)]))
    is_map = isinstance(document.data, dict)
    # the file may be of another kind and have secrets: a key that is none of its own, and resembles
    # none, is not quoted
    of_ours = [
        problem
        for problem in problems
        if is_map
        and (
            (problem.code == "missing-key" and not problem.path)
            or (len(problem.path) == 1 and problem.arguments.get("near"))
        )
    ]
    value = (
        ""
        if is_map
        else shown_types(["array"])
        if isinstance(document.data, list)
        else shown_types(["string", "nothing"])
    )
    other = document.diagnostic((), "other-file", article=kind.article, value=value, form=kind.form)
    return [other, *diagnostics(document, of_ours)]


_OF_MISSING_PARTS = frozenset(
    ["missing-key", "empty", "too-few", "not-one-of", "none-of", "incomplete"]
)


def _is_unread(problem: Problem, document: Document) -> bool:
    """Whether a problem may come from a part of the file that could not be read."""
    path = problem.path
    if not document.is_whole and not path:
        return True  # the keys below that part are unknown
    for unread in document.unread:
        if path[: len(unread)] == unread:
            return True
        is_above = unread[: len(path)] == path
        if is_above and problem.code == "missing-key":
            return unread == path or unread[len(path)] == problem.arguments["word"]
        if is_above and problem.code in _OF_MISSING_PARTS:
            return True
    return False
