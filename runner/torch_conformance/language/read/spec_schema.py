"""The form of a document: its keys, types and values against the JSON Schemas.

The keywords are those of this project's schemas, and any other one is an error. Two rules differ
from JSON Schema: ``4.0`` is not an integer, because torch does not accept it, and ``$`` matches
only at the end of a text.
"""

import functools
import json
import operator
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch_conformance.language.read.document import BESIDE_KIND, SPEC, DataPath, Document, Kind
from torch_conformance.language.read.yaml_source import read_partly, recognised
from torch_conformance.machine import cache_dirs
from torch_conformance.model.diagnostics import (
    Diagnostic,
    InvalidSpecs,
    nearest,
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
    """Return the schema ``name``, or its part at a pointer (``$defs/input``), with all references
    resolved.

    No schema is recursive.

    ``allOf`` is removed: it contains names for editors, which are checked by code with better hints
    (see ``published``).
    """
    node = load(name)
    for part in filter(None, pointer.split("/")):
        node = node[part]
    return _resolve(node, name)


def _resolve(node: Any, file: str) -> Any:
    if isinstance(node, list):
        return [_resolve(item, file) for item in node]
    if not isinstance(node, dict):
        return node
    rest = {
        key: _resolve(item, file)
        for key, item in node.items()
        if key not in ("$ref", "$defs", "allOf")
    }
    if "$ref" not in node:
        return rest
    target, _, pointer = node["$ref"].partition("#")
    return {**resolved(target.removesuffix(".schema.json") or file, pointer), **rest}


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
    for problem in _check(value, resolved(name), ()):
        place = "".join(f".{key}" if isinstance(key, str) else f"[{key}]" for key in problem.path)
        return f"${place}: {Diagnostic.of(problem.code, **problem.arguments).message[:200]}"
    return None


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
    distinct: dict[tuple[str, DataPath, str | int], Problem] = {}
    for part in _parts_at(resolved(name, pointer), data, path):
        problems = _check(value, part, path)
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
    for part in _parts_at(resolved(name), data, path):
        kinds = frozenset(part["type"]) if isinstance(part.get("type"), list) else frozenset()
        if (
            part.get("pattern") == TEMPLATE_PATTERN
            and kinds - {"string"}
            and kinds <= {"array", "object", "string"}
        ):
            return kinds - {"string"}
    return frozenset()


def _parts_at(node: Any, value: Any, path: DataPath) -> list[Any]:
    """Return the parts of a schema that apply to the value at ``path``."""
    if not path:
        return [node]
    parts: list[Any] = []
    in_force = [node]
    for part in in_force:
        if "if" in part and isinstance(
            branch := part.get("then" if _accepts(value, part["if"]) else "else"), dict
        ):
            in_force.append(branch)
        below = part.get("items")
        if isinstance(value, dict):
            below = part.get("properties", {}).get(path[0], part.get("additionalProperties"))
        if isinstance(below, dict):
            parts.extend(_parts_at(below, value[path[0]], path[1:]))
    return parts


# -- keywords --------------------------------------------------------------------------------------

_KINDS: Mapping[type, frozenset[str]] = {
    dict: frozenset(["object"]),
    list: frozenset(["array"]),
    str: frozenset(["string"]),
    bool: frozenset(["boolean"]),
    int: frozenset(["number", "integer"]),
    float: frozenset(["number"]),
    type(None): frozenset(["null"]),
}

_APPLIES_TO: Mapping[str, str] = {
    **dict.fromkeys(["$schema", "title", "description", "examples", "then", "else"], "nothing"),
    **dict.fromkeys(["type", "enum", "const", "if", "anyOf", "oneOf"], "anything"),
    **dict.fromkeys(
        ["properties", "additionalProperties", "propertyNames", "required", "dependentRequired"],
        "object",
    ),
    **dict.fromkeys(["minProperties", "maxProperties"], "object"),
    **dict.fromkeys(["items", "uniqueItems", "minItems", "maxItems"], "array"),
    **dict.fromkeys(["pattern", "minLength"], "string"),
    **dict.fromkeys(["minimum", "maximum", "exclusiveMinimum"], "number"),
}
"""Each keyword, and the kind of value that it says something about."""

_BOUNDS = {"minimum": operator.ge, "maximum": operator.le, "exclusiveMinimum": operator.gt}


def _accepts(value: Any, node: Any) -> bool:
    """Whether a part of a schema accepts a value. Most parts that are tried only require a key."""
    if len(node) == 1 and "required" in node:
        return not isinstance(value, dict) or all(key in value for key in node["required"])
    if "enum" in node and value not in node["enum"]:
        return False  # without the hint, which compares the word with all others
    return not _check(value, node, ())


def _check(value: Any, node: Any, path: DataPath) -> list[Problem]:
    """Return the problems of a value against a part of a schema."""
    if isinstance(node, bool):
        return [] if node else [Problem("not-allowed", path, {})]
    problems: list[Problem] = []

    def add(code: str, *key: str | int, **arguments: str | int) -> None:
        at_key = bool(key) and key[0] == arguments.get("word")
        problems.append(
            Problem(code, (*path, *key), {"title": _title(node, path), **arguments}, at_key=at_key)
        )

    kinds = _KINDS.get(type(value), frozenset())
    for keyword, argument in node.items():
        if (kind := _APPLIES_TO[keyword]) not in kinds and kind != "anything":
            continue
        match keyword:
            case "type":
                if kinds.isdisjoint([argument] if isinstance(argument, str) else argument):
                    problems.append(_wrong_type(value, node, path))
            case "properties":
                for key in value:
                    if key in argument:
                        problems += _check(value[key], argument[key], (*path, key))
            case "additionalProperties" if argument is not True:
                known = node.get("properties", ())
                for key in value:
                    if key in known:
                        continue
                    if argument is False:
                        problems.append(_unknown_key(key, value, node, path))
                    else:
                        problems += _check(value[key], argument, (*path, key))
            case "required":
                for key in argument:
                    if key not in value:
                        add(
                            "missing-key",
                            word=key,
                            use=node.get("properties", {}).get(key, {}).get("description", ""),
                        )
            case "items":
                for index, item in enumerate(value):
                    problems += _check(item, argument, (*path, index))
            case "if":
                branch = node.get("then" if _accepts(value, argument) else "else")
                if branch is not None:
                    problems += _check(value, branch, path)
            case "pattern" if re.search(argument.replace("$", r"\Z"), value) is None:
                if argument == TEMPLATE_PATTERN:
                    problems.append(_wrong_type(value, node, path))
                else:
                    examples = [
                        example for example in node.get("examples", []) if isinstance(example, str)
                    ]
                    add(
                        "wrong-text",
                        value=shown(value),
                        examples=" or ".join(examples[:2]),
                        pattern=argument,
                    )
            case "enum":
                # equality as in JSON: true is not 1
                if not any(
                    value == word and isinstance(value, bool) == isinstance(word, bool)
                    for word in argument
                ):
                    problems.append(
                        _unknown_word(value, argument, "word", _title(node, path), path)
                    )
            case "const":
                if value != argument or isinstance(value, bool) != isinstance(argument, bool):
                    add("wrong-value", expected=json.dumps(argument), value=shown(value))
            case "oneOf" if sum(_accepts(value, branch) for branch in argument) != 1:
                problems += _none_of_several(value, argument, node, path)
            case "anyOf" if not any(_accepts(value, branch) for branch in argument):
                if allowed := [word for branch in argument for word in branch.get("enum", [])]:
                    problems.append(_unknown_word(value, allowed, _title(node, path), "", path))
                else:
                    add(
                        "none-of",
                        keys=one_of(
                            key for branch in argument for key in branch.get("required", [])
                        ),
                    )
            case "dependentRequired":
                for key, needed in argument.items():
                    for other in needed:
                        if key in value and other not in value:
                            add("incomplete", key, word=key, other=other)
            case "propertyNames":
                for key in value:
                    if not _accepts(key, argument):
                        add("bad-name", key, word=key, pattern=argument.get("pattern", ""))
            case "uniqueItems":
                seen: set[str] = set()
                for index, item in enumerate(value):
                    written = json.dumps(item, sort_keys=True)  # as JSON: true is not 1
                    if written in seen:
                        add("repeated-entry", index, value=shown(item))
                    seen.add(written)
            case "minLength" | "minItems" | "minProperties" if len(value) < argument:
                add(
                    "empty" if argument == 1 else "too-few",
                    least=argument,
                    unit=UNITS[kind],
                    use=node.get("description", ""),
                )
            case "maxProperties" if len(value) > argument:
                add("too-many-keys", keys=" and ".join(map(str, value)))
            case "maxItems" if len(value) > argument:
                add("too-many-entries", most=argument, use=node.get("description", ""))
            case "minimum" | "maximum" | "exclusiveMinimum" if not _BOUNDS[keyword](
                value, argument
            ):
                # NaN is in no range
                add("out-of-range", value=f"{value!s:.40}", **{keyword: str(argument)})
    return problems


def _none_of_several(value: Any, branches: list[Any], node: Any, path: DataPath) -> list[Problem]:
    """Return the problem of a value that fits none of the branches of ``oneOf``, or several."""
    title = _title(node, path)
    keys = list(dict.fromkeys(key for branch in branches for key in branch.get("required", [])))
    if not keys:  # the branches are types, or words
        by_type = {str(branch.get("type", "string")): branch for branch in branches}
        of_type = next(
            (branch for kind, branch in by_type.items() if kind in _KINDS.get(type(value), ())),
            {"type": list(by_type)},
        )
        return _check(value, {"title": title, **of_type}, path)
    if isinstance(value, dict):
        named = [key for key in keys if key in value]
        near = (
            next((near for key in value if (near := nearest(key, keys))), "") if not named else ""
        )
        return [
            Problem(
                "not-one-of",
                path,
                {
                    "title": title,
                    "keys": one_of(keys),
                    "named": " and ".join(named) or "none",
                    "near": near,
                },
            )
        ]
    types = [branch["type"] for branch in branches if "type" in branch]
    # with a type of its own, the node reports any other value itself
    return [] if "type" in node else [_wrong_type(value, {"title": title, "type": types}, path)]


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
