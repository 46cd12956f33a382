"""The form of a document: its keys, types and values against the JSON Schemas.

A problem of form is a code, a path and arguments; ``in_words`` makes its text last, and nothing depends on the text. The keywords are
those of this project's schemas, and any other one is an error. Two rules differ from JSON Schema: ``4.0`` is not an integer, because torch
does not accept it, and ``$`` matches only at the end of a text.
"""

import difflib
import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from runner.core.diagnostics import Diagnostic, InvalidSpecs, did_you_mean, one_of
from runner.language.read.document import DataPath, Document, Kind
from runner.language.read.source import read_partly, recognised
from runner.system import data_dirs
from runner.vocabulary.inputs import INPUTS

TEMPLATE_PATTERN = r"^\{\{.*\}\}$"

NEAR = 0.8
"""How similar a key must be to another one to be read as it."""


class Problem(NamedTuple):
    """One problem of form."""

    code: str
    path: DataPath
    args: Mapping[str, Any]
    at_key: bool = False
    """Whether it is the key at the path, instead of its value."""


# -- schemas ----------------------------------------------------------------------------------------------------------------


@functools.cache
def load(name: str) -> Any:
    """Return the schema ``name`` as data."""
    return json.loads((data_dirs.folder("schemas") / f"{name}.schema.json").read_bytes())


@functools.cache
def resolved(name: str) -> Any:
    """Return the schema ``name`` with all references resolved. No schema is recursive.

    ``allOf`` is removed: it contains names for editors, which are checked by code with better hints (see ``published``).
    """
    return _resolve(load(name), name)


@functools.cache
def definition(file: str, name: str) -> Any:
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
    return {**_target(target.removesuffix(".schema.json") or file, pointer), **rest}


@functools.cache
def _target(file: str, pointer: str) -> Any:
    node = load(file)
    for part in pointer.strip("/").split("/"):
        node = node[part]
    return _resolve(node, file)


# -- problems ---------------------------------------------------------------------------------------------------------------


def fits(value: Any, name: str) -> bool:
    """Whether a value fits the schema ``name``."""
    return not _problems_of(value, resolved(name))


def problems(document: Document, name: str) -> list[Diagnostic]:
    """Return the problems of a document against the schema ``name``."""
    return diagnostics(document, describe(document.data, name))


def diagnostics(document: Document, found: Iterable[Problem], above: DataPath = ()) -> list[Diagnostic]:
    """Return the diagnostics of problems of the value at ``above``."""
    return [document.problem((*above, *one.path), *in_words(one), key=one.at_key, code=one.code) for one in found]


def describe(value: Any, name: str) -> list[Problem]:
    """Return the problems of plain data."""
    return _described(value, resolved(name))


def describe_as(value: Any, file: str, name: str) -> list[Problem]:
    """Return the problems of a value against one definition, for values that no schema covers, because schemas are not recursive."""
    return _described(value, definition(file, name))


def misfit(value: Any, name: str) -> str | None:
    """Return in words where a value first does not fit the schema ``name``, for values that are in no file; None where it fits."""
    found = _problems_of(value, resolved(name))
    if not found:
        return None
    place = "".join(f".{key}" if isinstance(key, str) else f"[{key}]" for key in found[0].path)
    return f"${place}: {in_words(found[0])[0][:200]}"


MAY_BE_EMPTY = frozenset(["config", "dynamo_config", "functorch_config", "options"])
"""Keys of maps that a template may leave empty: at that point of the matrix there are no such options."""


def describe_at(data: Any, name: str, path: DataPath) -> list[Problem]:
    """Return the problems of the value at ``path`` alone: the value of a template in an otherwise valid document."""
    value = data
    for key in path:
        value = value[key]
    if value in ([], {}) and path[-1] in MAY_BE_EMPTY:
        return []
    return [one._replace(path=(*path, *one.path)) for part in _parts_at(resolved(name), data, path) for one in _described(value, part)]


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
    for part in _in_force(node, value):
        if isinstance(value, dict):
            below = part.get("properties", {}).get(path[0], part.get("additionalProperties"))
        else:
            below = part.get("items")
        if isinstance(below, dict):
            parts.extend(_parts_at(below, value[path[0]], path[1:]))
    return parts


def _in_force(node: Any, value: Any) -> Iterator[Any]:
    yield node
    if "if" in node:
        branch = node.get("then" if _accepts(value, node["if"]) else "else")
        if isinstance(branch, dict):
            yield from _in_force(branch, value)


def _described(value: Any, node: Any) -> list[Problem]:
    """Return the problems of a value without those that follow from others: a misspelt key is read as the key that it resembles."""
    found = _problems_of(value, node)
    if not found:
        return []
    misspelt = {one.path: one.args["meant"] for one in found if one.code == "unknown-key" and one.args["meant"]}
    if misspelt:
        places = {(*path[:-1], key): path for path, key in misspelt.items()}
        again = [one._replace(path=_as_written(one.path, places)) for one in _problems_of(_renamed(value, misspelt, ()), node)]
        found = [*(one for one in found if one.path in misspelt and one.code == "unknown-key"), *again]
    with_unknown_keys = {one.path[:-1] for one in found if one.code == "unknown-key"}
    with_missing_keys = {one.path for one in found if one.code == "missing-key"}
    once: dict[tuple[str, DataPath, object], Problem] = {}
    for one in map(_of_counts, found):
        follows = (one.code == "not-one-of" and one.path in with_unknown_keys) or (one.code == "too-few" and one.path in with_missing_keys)
        if not follows:
            once.setdefault((one.code, one.path, one.args.get("word")), one)
    return list(once.values())


def _renamed(value: Any, names: Mapping[DataPath, str], path: DataPath) -> Any:
    if isinstance(value, dict):
        return {names.get((*path, key), key): _renamed(item, names, (*path, key)) for key, item in value.items()}
    return [_renamed(item, names, (*path, index)) for index, item in enumerate(value)] if isinstance(value, list) else value


def _as_written(path: DataPath, places: Mapping[DataPath, DataPath]) -> DataPath:
    """Return a path with the keys that the file has."""
    written: DataPath = ()
    for key in path:
        written = (*places.get((*written, key), (*written, key)),)
    return written


_COUNTED = {"counter": "counter", "metric": "metric", "remote_cache": "remote cache"}
"""Expectations whose keys are names of what is counted, and such a name in words."""


def _of_counts(problem: Problem) -> Problem:
    """Return a problem below a condition that stands among the names of counts as the one problem of that condition."""
    for index in range(1, len(problem.path)):
        if problem.path[index] == "when" and problem.path[index - 1] in _COUNTED:
            return Problem("misplaced-condition", problem.path[: index + 1], {"kind": problem.path[index - 1]}, at_key=True)
    return problem


# -- keywords ---------------------------------------------------------------------------------------------------------------

_ANNOTATIONS = frozenset(["$schema", "title", "description", "examples", "then", "else"])
"""Keywords without effect of their own; ``then`` and ``else`` belong to ``if``."""


def _problems_of(value: Any, node: Any) -> list[Problem]:
    found: list[Problem] = []
    _check(value, node, (), found)
    return found


def _accepts(value: Any, node: Any) -> bool:
    """Whether a part of a schema accepts a value. Most parts that are tried only require a key."""
    if len(node) == 1 and "required" in node:
        return not isinstance(value, dict) or all(key in value for key in node["required"])
    return not _problems_of(value, node)


def _check(value: Any, node: Any, path: DataPath, found: list[Problem]) -> None:
    """Add the problems of a value against a part of a schema."""
    if isinstance(node, bool):
        found.extend([] if node else [Problem("not-allowed", path, {})])
        return
    for keyword, argument in node.items():
        if keyword not in _ANNOTATIONS:
            _KEYWORDS[keyword](value, argument, node, path, found)


_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: _is_number(value),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _type(value: Any, argument: Any, node: Any, path: DataPath, found: list[Problem]) -> None:
    if isinstance(argument, str):
        fits_any = _TYPES[argument](value)
    else:
        fits_any = any(_TYPES[kind](value) for kind in argument)
    if not fits_any:
        found.append(Problem("wrong-type", path, {"found": value, "node": node}))


def _enum(value: Any, argument: Any, node: Any, path: DataPath, found: list[Problem]) -> None:
    if not any(_same(value, word) for word in argument):
        found.append(Problem("unknown-word", path, {"word": str(value), "allowed": argument, "what": f"word in {_title(node, path)}"}))


def _const(value: Any, argument: Any, node: Any, path: DataPath, found: list[Problem]) -> None:
    if not _same(value, argument):
        found.append(Problem("wrong-value", path, {"found": value, "expected": argument}))


def _same(value: Any, other: Any) -> bool:
    # equality as in JSON: true is not 1
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)


def _pattern(value: Any, argument: Any, node: Any, path: DataPath, found: list[Problem]) -> None:
    if isinstance(value, str) and _searcher(argument)(value) is None:
        code = "wrong-type" if argument == TEMPLATE_PATTERN else "wrong-text"
        found.append(Problem(code, path, {"found": value, "node": node, "title": _title(node, path)}))


@functools.cache
def _searcher(pattern: str) -> Callable[[str], re.Match[str] | None]:
    return re.compile(pattern.replace("$", r"\Z")).search


def _properties(value: Any, argument: Any, node: Any, path: DataPath, found: list[Problem]) -> None:
    if isinstance(value, dict):
        for key in value:
            if key in argument:
                _check(value[key], argument[key], (*path, key), found)


def _additional(value: Any, argument: Any, node: Any, path: DataPath, found: list[Problem]) -> None:
    if isinstance(value, dict):
        known = node.get("properties", {})
        for key in value:
            if key in known:
                continue
            if argument is False:
                found.append(_unknown_key(key, value, node, path))
            elif argument is not True:
                _check(value[key], argument, (*path, key), found)


BESIDE_KIND = ("expect", "when", "repeat")
"""The keys of a step that are no kinds."""


def _unknown_key(key: str, value: Mapping[str, Any], node: Any, path: DataPath) -> Problem:
    title, allowed = _title(node, path), list(node.get("properties", {}))
    what = {"expectation": "expectation", "step": "step", "input": "input kind", "condition": "condition"}.get(title, "key")
    if what == "step":  # a step is a kind, with other keys beside it
        is_beside = bool(did_you_mean(key, BESIDE_KIND, cutoff=NEAR))
        allowed = [one for one in allowed if (one in BESIDE_KIND) is is_beside]
        what = "key" if is_beside else what
    if what == "input kind" and any(one in INPUTS for one in value):
        what = "key"
    meant = near(key, [one for one in allowed if one not in value], cutoff=NEAR)
    of = f" in {title}" if what == "key" and title != "spec" else ""
    return Problem("unknown-key", (*path, key), {"word": key, "what": what, "of": of, "allowed": allowed, "meant": meant}, at_key=True)


def near(word: str, choices: Iterable[str], *, cutoff: float = 0.6) -> str:
    """Return the nearest of ``choices``, or an empty text."""
    return next(iter(difflib.get_close_matches(word, list(choices), n=1, cutoff=cutoff)), "")


def _property_names(value: Any, argument: Any, node: Any, path: DataPath, found: list[Problem]) -> None:
    if isinstance(value, dict):
        for key in value:
            if _problems_of(key, argument):
                found.append(Problem("bad-name", (*path, key), {"word": key, "pattern": argument.get("pattern", "")}, at_key=True))


def _required(value: Any, argument: Any, node: Any, path: DataPath, found: list[Problem]) -> None:
    if isinstance(value, dict):
        for key in argument:
            if key not in value:
                what = node.get("properties", {}).get(key, {}).get("description", "")
                found.append(Problem("missing-key", path, {"word": key, "title": _title(node, path), "description": what}))


def _dependent(value: Any, argument: Any, node: Any, path: DataPath, found: list[Problem]) -> None:
    if isinstance(value, dict):
        for key, needed in argument.items():
            missing = [other for other in needed if key in value and other not in value]
            found.extend(Problem("incomplete", (*path, key), {"word": key, "other": other}, at_key=True) for other in missing)


def _items(value: Any, argument: Any, node: Any, path: DataPath, found: list[Problem]) -> None:
    if isinstance(value, list):
        for index, item in enumerate(value):
            _check(item, argument, (*path, index), found)


def _unique(value: Any, argument: Any, node: Any, path: DataPath, found: list[Problem]) -> None:
    if isinstance(value, list):
        seen: set[str] = set()
        for index, item in enumerate(value):
            written = json.dumps(item, sort_keys=True)  # as JSON: true is not 1
            if written in seen:
                found.append(Problem("repeated-entry", (*path, index), {"found": item}))
            seen.add(written)


def _if(value: Any, argument: Any, node: Any, path: DataPath, found: list[Problem]) -> None:
    branch = node.get("then" if _accepts(value, argument) else "else")
    if branch is not None:
        _check(value, branch, path, found)


def _any_of(value: Any, argument: Any, node: Any, path: DataPath, found: list[Problem]) -> None:
    if not any(_accepts(value, branch) for branch in argument):
        words = [word for branch in argument for word in branch.get("enum", [])]
        keys = [key for branch in argument for key in branch.get("required", [])]
        if words:
            found.append(Problem("unknown-word", path, {"word": str(value), "allowed": words, "what": _title(node, path)}))
        else:
            found.append(Problem("none-of", path, {"title": _title(node, path), "allowed": keys}))


def _one_of(value: Any, argument: Any, node: Any, path: DataPath, found: list[Problem]) -> None:
    if sum(_accepts(value, branch) for branch in argument) == 1:
        return
    kinds = list(dict.fromkeys(key for branch in argument for key in branch.get("required", [])))
    if not kinds:  # the branches are types, or words
        by_type = {str(branch.get("type", "string")): branch for branch in argument}
        of_type = next((branch for kind, branch in by_type.items() if _TYPES[kind](value)), {"type": list(by_type)})
        _check(value, {"title": _title(node, path), **of_type}, path, found)
    elif isinstance(value, dict):
        named = [kind for kind in kinds if kind in value]
        hint = next((hint for key in value if (hint := did_you_mean(key, kinds))), "") if not named else ""
        found.append(Problem("not-one-of", path, {"title": _title(node, path), "allowed": kinds, "found": named, "hint": hint}))
    elif "type" not in node:  # which reports the type of any other value
        types = [branch["type"] for branch in argument if "type" in branch]
        found.append(Problem("wrong-type", path, {"found": value, "node": {"title": _title(node, path), "type": types}}))


def _size(code: str, kind: type, exceeds: Callable[[int, int], bool], unit: str) -> Callable[..., None]:
    def check(value: Any, argument: Any, node: Any, path: DataPath, found: list[Problem]) -> None:
        if isinstance(value, kind) and exceeds(len(value), argument):  # type: ignore[arg-type]  # every kind has a length
            found.append(Problem(code, path, {"found": value, "bound": argument, "unit": unit, "title": _title(node, path), "node": node}))

    return check


def _bound(words: str, exceeds: Callable[[Any, Any], bool]) -> Callable[..., None]:
    def check(value: Any, argument: Any, node: Any, path: DataPath, found: list[Problem]) -> None:
        if _is_number(value) and exceeds(value, argument):
            found.append(Problem("out-of-range", path, {"found": value, "bound": f"{words} {argument}"}))

    return check


_KEYWORDS: Mapping[str, Callable[[Any, Any, Any, DataPath, list[Problem]], None]] = {
    "type": _type,
    "enum": _enum,
    "const": _const,
    "pattern": _pattern,
    "properties": _properties,
    "additionalProperties": _additional,
    "propertyNames": _property_names,
    "required": _required,
    "dependentRequired": _dependent,
    "items": _items,
    "uniqueItems": _unique,
    "if": _if,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "minLength": _size("too-few", str, int.__lt__, "characters"),
    "minItems": _size("too-few", list, int.__lt__, "entries"),
    "maxItems": _size("too-many", list, int.__gt__, "entries"),
    "minProperties": _size("too-few", dict, int.__lt__, "keys"),
    "maxProperties": _size("too-many", dict, int.__gt__, "keys"),
    "minimum": _bound("at least", lambda value, bound: value < bound),
    "maximum": _bound("at most", lambda value, bound: value > bound),
    "exclusiveMinimum": _bound("more than", lambda value, bound: value <= bound),
}


def _title(node: Any, path: DataPath) -> str:
    names = [part for part in path if isinstance(part, str)]
    return str(node.get("title") or (names[-1] if names else "value"))


# -- texts ------------------------------------------------------------------------------------------------------------------


def in_words(problem: Problem) -> tuple[str, str]:
    """Return message and hint of a problem: what was found, what is allowed, what to type."""
    args = problem.args
    match problem.code:
        case "unknown-key" | "unknown-word":
            what, word = args["what"].partition(" in "), args["word"]
            shown = word if len(word) <= _LONGEST_WORD else f"{word[:_LONGEST_WORD]}..."
            allowed = [str(one) for one in args["allowed"]]
            hint = did_you_mean(word, allowed) or (f"allowed: {one_of(allowed)}" if allowed else f"no {what[0]} is defined here")
            return f"unknown {what[0]} '{shown}'{args.get('of', '')}{what[1]}{what[2]}", hint
        case "missing-key":
            return f"{args['title']} needs the key '{args['word']}'", _first_line(args["description"])
        case "wrong-type":
            return f"expected {_expected(args['node'])}, found {_found(args['found'])}", _instead(args["node"], args["found"])
        case "wrong-text":
            examples = [one for one in args["node"].get("examples", []) if isinstance(one, str)]
            hint = f"for example {' or '.join(examples[:2])}" if examples else f"it must match {args['node']['pattern']}"
            return f"{_found(args['found'])} is not a valid {args['title']}", hint
        case "wrong-value":
            return f"expected {json.dumps(args['expected'])}, found {_found(args['found'])}", "otherwise remove the key"
        case "bad-name":
            return f"'{args['word']}' is not a valid name here", f"it must match {args['pattern']}" if args["pattern"] else ""
        case "not-allowed":
            return "nothing may stand here", "remove it"
        case "incomplete":
            return f"'{args['word']}' requires '{args['other']}'", f"add '{args['other']}'"
        case "repeated-entry":
            return f"{_found(args['found'])} is repeated", "remove it"
        case "none-of":
            return f"{args['title']} needs one of {one_of(args['allowed'])}", ""
        case "not-one-of":
            named = " and ".join(args["found"]) or "none"
            return f"{args['title']} needs exactly one of {one_of(args['allowed'])}; found {named}", args["hint"]
        case "too-few":
            message = "is empty" if args["bound"] == 1 else f"needs at least {args['bound']} {args['unit']}"
            return f"{args['title']} {message}", str(args["node"].get("description", ""))
        case "too-many" if args["unit"] == "keys":
            return f"{args['title']} takes one key, found {' and '.join(map(str, args['found']))}", "write each in its own entry"
        case "too-many":
            return f"{args['title']} takes at most {args['bound']} {args['unit']}", str(args["node"].get("description", ""))
        case "out-of-range":
            return f"{args['found']!s:.40} is out of range: {args['bound']}", ""
        case "misplaced-condition":
            kind, own = args["kind"], "[{when: {device: cuda}, value: 1}]"
            count = f"{{NAME: {{hit: {own}}}}}" if kind == "remote_cache" else f"{{NAME: {own}}}"
            message = f"'when' stands in the place of the name of a {_COUNTED[kind]}"
            return message, f"each count has its own condition: {kind}: {count}"
    raise AssertionError(problem.code)


_LONGEST_WORD = 100
_LONGEST_EXAMPLE = 100

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


def _expected(node: Any) -> str:
    templated = node.get("pattern") == TEMPLATE_PATTERN
    words = [_WORDS[kind] for kind in _kinds(node) if not (templated and kind == "string")]
    return " or ".join(words) + (" (or one {{ expression }})" if templated else "")


def _instead(node: Any, value: Any) -> str:
    """Return what to write in place of a value of a wrong type: quotes, an example of the schema, or what is meant."""
    kinds = _kinds(node)
    if kinds == ["string"] and node.get("pattern") != TEMPLATE_PATTERN and _is_number(value):
        return "put it in quotes: it is text"  # the number is not quoted here: of 2.10 YAML leaves 2.1
    of_kinds = (one for one in node.get("examples", []) if kinds == ["string"] or not isinstance(one, str))
    examples = (json.dumps(one, ensure_ascii=False) for one in of_kinds)
    example = next((text for text in examples if len(text) <= _LONGEST_EXAMPLE), None)
    description = _first_line(node.get("description", ""))
    if example is None:
        return description
    first, end, _ = description.partition(". ")
    return f"for example {example}. {first}{end.strip()}" if description else f"for example {example}"


def _kinds(node: Any) -> Sequence[str]:
    kinds = node.get("type", [])
    return [kinds] if isinstance(kinds, str) else list(kinds)


def _first_line(text: str) -> str:
    return str(text).split("\n")[0]


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
    found = [] if document.data is None and document.problems else describe(document.data, kind.name)
    if not found or document.problems or recognised(document.path, document.content, kind, document.data):
        return list(dict.fromkeys([*document.problems, *diagnostics(document, (one for one in found if not _is_unread(one, document)))]))
    is_map = isinstance(document.data, dict)
    what = "" if is_map else f": expected a map, found {'a list' if isinstance(document.data, list) else 'text or nothing'}"
    # the file may be of another kind and have secrets: a key that is none of its own, and resembles none, is not quoted
    of_ours = [one for one in found if (one.code == "missing-key" and not one.path) or (len(one.path) == 1 and one.args.get("meant"))]
    return [
        document.problem((), f"is not {kind.article}{what}", kind.form, code="other-file"),
        *diagnostics(document, of_ours if is_map else ()),
    ]


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
            return unread == path or unread[len(path)] == problem.args["word"]
        if is_above and problem.code in _OF_MISSING_PARTS:
            return True
    return False
