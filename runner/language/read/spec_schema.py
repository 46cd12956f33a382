"""The form of a document: its keys, types and values against the JSON Schemas.

The keywords are those of this project's schemas, and any other one is an error. Two rules differ from JSON Schema: ``4.0`` is not an
integer, because torch does not accept it, and ``$`` matches only at the end of a text.
"""

import difflib
import functools
import json
import operator
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from runner.language.read.document import BESIDE_KIND, SPEC, DataPath, Document, Kind
from runner.language.read.yaml_source import read_partly, recognised
from runner.machine import cache_dirs
from runner.model.diagnostics import Diagnostic, InvalidSpecs, did_you_mean, one_of
from runner.vocabulary.inputs import INPUTS

TEMPLATE_PATTERN = r"^\{\{.*\}\}$"

NEAR = 0.8
"""How similar a key must be to another one to be read as it."""


class Problem(NamedTuple):
    """One problem of form."""

    code: str
    path: DataPath
    message: str
    hint: str = ""
    at_key: bool = False
    """Whether it is the key at the path, instead of its value."""
    word: str = ""
    """The key or the word that is missing or unknown."""
    meant: str = ""
    """The key that an unknown key resembles."""


# -- schemas ----------------------------------------------------------------------------------------------------------------


@functools.cache
def load(name: str) -> Any:
    """Return the schema ``name`` as data."""
    return json.loads((cache_dirs.folder("schemas") / f"{name}.schema.json").read_bytes())


@functools.cache
def resolved(name: str, pointer: str = "") -> Any:
    """Return the schema ``name``, or its part at a pointer (``$defs/input``), with all references resolved. No schema is recursive.

    ``allOf`` is removed: it contains names for editors, which are checked by code with better hints (see ``published``).
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
    rest = {key: _resolve(item, file) for key, item in node.items() if key not in ("$ref", "$defs", "allOf")}
    if "$ref" not in node:
        return rest
    target, _, pointer = node["$ref"].partition("#")
    return {**resolved(target.removesuffix(".schema.json") or file, pointer), **rest}


# -- problems ---------------------------------------------------------------------------------------------------------------


def diagnostics(document: Document, problems: Iterable[Problem], above: DataPath = ()) -> list[Diagnostic]:
    """Return the diagnostics of problems of the value at ``above``."""
    return [
        document.problem((*above, *problem.path), problem.message, problem.hint, key=problem.at_key, code=problem.code)
        for problem in problems
    ]


def misfit(value: Any, name: str) -> str | None:
    """Return in words where a value first does not fit the schema ``name``, for values that are in no file; None where it fits."""
    problems = _check(value, resolved(name), ())
    if not problems:
        return None
    place = "".join(f".{key}" if isinstance(key, str) else f"[{key}]" for key in problems[0].path)
    return f"${place}: {problems[0].message[:200]}"


MAY_BE_EMPTY = frozenset(["config", "dynamo_config", "functorch_config", "options"])
"""Keys of maps that a template may leave empty: at that point of the matrix there are no such options."""


def describe(data: Any, name: str, path: DataPath = (), *, pointer: str = "") -> list[Problem]:
    """Return the problems of plain data, or of its value at ``path`` alone, where a template stood in an otherwise valid document.

    Problems that follow from others are left out: a key is not missing where a misspelt one stands. ``pointer`` is as for ``resolved``.
    """
    value = data
    for key in path:
        value = value[key]
    if path and value in ([], {}) and path[-1] in MAY_BE_EMPTY:
        return []
    distinct: dict[tuple[str, DataPath, str], Problem] = {}
    for part in _parts_at(resolved(name, pointer), data, path):
        problems = _check(value, part, path)
        with_unknown_keys = {problem.path[:-1] for problem in problems if problem.code == "unknown-key"}
        meant = {(problem.path[:-1], problem.meant) for problem in problems}
        with_missing_keys = {problem.path for problem in problems if problem.code == "missing-key"}
        for problem in problems:
            follows = problem.code in ("not-one-of", "none-of", "too-few") and problem.path in with_unknown_keys
            follows |= problem.code == "missing-key" and (problem.path, problem.word) in meant
            follows |= problem.code == "too-few" and problem.path in with_missing_keys
            if not follows:
                distinct.setdefault((problem.code, problem.path, problem.word), problem)
    return list(distinct.values())


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
    parts: list[Any] = []
    in_force = [node]
    for part in in_force:
        if "if" in part and isinstance(branch := part.get("then" if _accepts(value, part["if"]) else "else"), dict):
            in_force.append(branch)
        below = part.get("items")
        if isinstance(value, dict):
            below = part.get("properties", {}).get(path[0], part.get("additionalProperties"))
        if isinstance(below, dict):
            parts.extend(_parts_at(below, value[path[0]], path[1:]))
    return parts


# -- keywords ---------------------------------------------------------------------------------------------------------------

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
    **dict.fromkeys(["properties", "additionalProperties", "propertyNames", "required", "dependentRequired"], "object"),
    **dict.fromkeys(["minProperties", "maxProperties"], "object"),
    **dict.fromkeys(["items", "uniqueItems", "minItems", "maxItems"], "array"),
    **dict.fromkeys(["pattern", "minLength"], "string"),
    **dict.fromkeys(["minimum", "maximum", "exclusiveMinimum"], "number"),
}
"""Each keyword, and the kind of value that it says something about."""

_BOUNDS = {"minimum": ("at least", operator.lt), "maximum": ("at most", operator.gt), "exclusiveMinimum": ("more than", operator.le)}
_UNITS = {"string": "characters", "array": "entries", "object": "keys"}


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
        return [] if node else [Problem("not-allowed", path, "nothing may stand here", "remove it")]
    problems: list[Problem] = []
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
                        description = node.get("properties", {}).get(key, {}).get("description", "")
                        message = f"{_title(node, path)} needs the key '{key}'"
                        problems.append(Problem("missing-key", path, message, description, word=key))
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
                    examples = [example for example in node.get("examples", []) if isinstance(example, str)]
                    hint = f"for example {' or '.join(examples[:2])}" if examples else f"it must match {argument}"
                    problems.append(Problem("wrong-text", path, f"{_shown(value)} is not a valid {_title(node, path)}", hint))
            case "enum":
                # equality as in JSON: true is not 1
                if not any(value == word and isinstance(value, bool) == isinstance(word, bool) for word in argument):
                    problems.append(_unknown_word(value, argument, f"word in {_title(node, path)}", path))
            case "const":
                if value != argument or isinstance(value, bool) != isinstance(argument, bool):
                    message = f"expected {json.dumps(argument)}, found {_shown(value)}"
                    problems.append(Problem("wrong-value", path, message, "otherwise remove the key"))
            case "oneOf" if sum(_accepts(value, branch) for branch in argument) != 1:
                problems += _none_of_several(value, argument, node, path)
            case "anyOf" if not any(_accepts(value, branch) for branch in argument):
                if allowed := [word for branch in argument for word in branch.get("enum", [])]:
                    problems.append(_unknown_word(value, allowed, _title(node, path), path))
                else:
                    keys = one_of(key for branch in argument for key in branch.get("required", []))
                    problems.append(Problem("none-of", path, f"{_title(node, path)} needs one of {keys}"))
            case "dependentRequired":
                for key, needed in argument.items():
                    for other in needed:
                        if key in value and other not in value:
                            message = f"'{key}' requires '{other}'"
                            problems.append(Problem("incomplete", (*path, key), message, f"add '{other}'", at_key=True, word=key))
            case "propertyNames":
                for key in value:
                    if not _accepts(key, argument):
                        hint = f"it must match {argument['pattern']}" if "pattern" in argument else ""
                        message = f"'{key}' is not a valid name here"
                        problems.append(Problem("bad-name", (*path, key), message, hint, at_key=True, word=key))
            case "uniqueItems":
                seen: set[str] = set()
                for index, item in enumerate(value):
                    written = json.dumps(item, sort_keys=True)  # as JSON: true is not 1
                    if written in seen:
                        problems.append(Problem("repeated-entry", (*path, index), f"{_shown(item)} is repeated", "remove it"))
                    seen.add(written)
            case "minLength" | "minItems" | "minProperties" if len(value) < argument:
                message = "is empty" if argument == 1 else f"needs at least {argument} {_UNITS[kind]}"
                problems.append(Problem("too-few", path, f"{_title(node, path)} {message}", node.get("description", "")))
            case "maxProperties" if len(value) > argument:
                message = f"{_title(node, path)} takes one key, found {' and '.join(map(str, value))}"
                problems.append(Problem("too-many", path, message, "write each in its own entry"))
            case "maxItems" if len(value) > argument:
                message = f"{_title(node, path)} takes at most {argument} entries"
                problems.append(Problem("too-many", path, message, node.get("description", "")))
            case "minimum" | "maximum" | "exclusiveMinimum":
                words, exceeds = _BOUNDS[keyword]
                if exceeds(value, argument):
                    problems.append(Problem("out-of-range", path, f"{value!s:.40} is out of range: {words} {argument}"))
    return problems


def _none_of_several(value: Any, branches: list[Any], node: Any, path: DataPath) -> list[Problem]:
    """Return the problem of a value that fits none of the branches of ``oneOf``, or several."""
    title = _title(node, path)
    keys = list(dict.fromkeys(key for branch in branches for key in branch.get("required", [])))
    if not keys:  # the branches are types, or words
        by_type = {str(branch.get("type", "string")): branch for branch in branches}
        of_type = next((branch for kind, branch in by_type.items() if kind in _KINDS.get(type(value), ())), {"type": list(by_type)})
        return _check(value, {"title": title, **of_type}, path)
    if isinstance(value, dict):
        named = [key for key in keys if key in value]
        hint = next((hint for key in value if (hint := did_you_mean(key, keys))), "") if not named else ""
        message = f"{title} needs exactly one of {one_of(keys)}; found {' and '.join(named) or 'none'}"
        return [Problem("not-one-of", path, message, hint)]
    types = [branch["type"] for branch in branches if "type" in branch]
    # with a type of its own, the node reports any other value itself
    return [] if "type" in node else [_wrong_type(value, {"title": title, "type": types}, path)]


def _unknown_key(key: str, value: Mapping[str, Any], node: Any, path: DataPath) -> Problem:
    title, allowed = _title(node, path), list(node.get("properties", {}))
    what = title if title in ("expectation", "step", "condition") else "input kind" if title == "input" else "key"
    if what == "step":  # a step is a kind, with other keys beside it
        is_beside = bool(did_you_mean(key, BESIDE_KIND, cutoff=NEAR))
        allowed = [name for name in allowed if (name in BESIDE_KIND) is is_beside]
        what = "key" if is_beside else what
    if what == "input kind" and any(name in INPUTS for name in value):
        what = "key"
    if title == "defaults" and key in SPEC.keys:
        message = f"'{key}' is a key of specs, not of defaults: write it in each spec"
        return Problem("unknown-key", (*path, key), message, f"defaults have {one_of(allowed, limit=20)}", at_key=True, word=key)
    meant = next(iter(difflib.get_close_matches(key, [name for name in allowed if name not in value], n=1, cutoff=NEAR)), "")
    of = f" in {title}" if what == "key" and title != "spec" else ""
    problem = _unknown_word(key, allowed, what + of, (*path, key))
    if key == "weak" and path[-3:-2] == ("expect",):  # the reason of an expectation is a key of its entry
        problem = problem._replace(hint=f"write it beside {title}")
    return problem._replace(code="unknown-key", at_key=True, meant=meant)


def _unknown_word(value: Any, allowed: Iterable[Any], what: str, path: DataPath) -> Problem:
    word, words = str(value), list(map(str, allowed))
    kind, separator, title = what.partition(" in ")
    hint = did_you_mean(word, words) or (f"allowed: {one_of(words, near=word)}" if words else f"no {kind} is defined here")
    message = f"unknown {kind} '{word if len(word) <= 100 else word[:100] + '...'}'{separator}{title}"
    return Problem("unknown-word", path, message, hint, word=word)


_WORDS = {
    "object": "a map",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}


def _wrong_type(value: Any, node: Any, path: DataPath) -> Problem:
    """Return the problem of a value of a wrong type. Its hint is an example of the schema, or what is meant."""
    kinds = node.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    templated = node.get("pattern") == TEMPLATE_PATTERN
    words = [_WORDS[kind] for kind in kinds if not (templated and kind == "string")]
    message = f"expected {' or '.join(words)}{' (or one {{ expression }})' if templated else ''}, found {_shown(value)}"
    hint = str(node.get("description", ""))
    of_kinds = (example for example in node.get("examples", []) if kinds == ["string"] or not isinstance(example, str))
    examples = (json.dumps(example, ensure_ascii=False) for example in of_kinds)
    if kinds == ["string"] and not templated and isinstance(value, int | float) and not isinstance(value, bool):
        hint = "put it in quotes: it is text"  # the number is not quoted here: of 2.10 YAML leaves 2.1
    elif (example := next((text for text in examples if len(text) <= 100), None)) is not None:
        first, end, _ = hint.partition(". ")
        hint = f"for example {example}. {first}{end.strip()}" if hint else f"for example {example}"
    return Problem("wrong-type", path, message, hint)


def _title(node: Any, path: DataPath) -> str:
    names = [part for part in path if isinstance(part, str)]
    return str(node.get("title") or (names[-1] if names else "value"))


def _shown(value: Any) -> str:
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


# -- files ------------------------------------------------------------------------------------------------------------------


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
    """Return the problems of the form of a file: those of its YAML, and those of its data against the schema of its kind."""
    problems = [] if document.data is None and document.problems else describe(document.data, kind.name)
    if not problems or document.problems or recognised(document.path, document.content, kind, document.data):
        of_what_was_read = [problem for problem in problems if not _is_unread(problem, document)]
        return list(dict.fromkeys([*document.problems, *diagnostics(document, of_what_was_read)]))
    is_map = isinstance(document.data, dict)
    what = "" if is_map else f": expected a map, found {'a list' if isinstance(document.data, list) else 'text or nothing'}"
    # the file may be of another kind and have secrets: a key that is none of its own, and resembles none, is not quoted
    of_ours = [
        problem
        for problem in problems
        if is_map and ((problem.code == "missing-key" and not problem.path) or (len(problem.path) == 1 and problem.meant))
    ]
    return [document.problem((), f"is not {kind.article}{what}", kind.form, code="other-file"), *diagnostics(document, of_ours)]


_OF_MISSING_PARTS = frozenset(["missing-key", "too-few", "not-one-of", "none-of", "incomplete"])


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
            return unread == path or unread[len(path)] == problem.word
        if is_above and problem.code in _OF_MISSING_PARTS:
            return True
    return False
