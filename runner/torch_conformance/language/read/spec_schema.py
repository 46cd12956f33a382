"""The form of a document: its keys, types and values against the JSON Schemas."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch_conformance.language.read.document import KEYS_OF_STEPS, SPEC, Kind
from torch_conformance.language.read.yaml_source import read_partly, recognised
from torch_conformance.machine.schemas import (
    NEAR,
    TEMPLATE_PATTERN,
    Problem,
    problems_of,
    title_of,
    unknown_key,
    validator_of,
)
from torch_conformance.model.diagnostics import Diagnostic, InvalidSpecs, nearest, one_of
from torch_conformance.model.document import DataPath, Document
from torch_conformance.model.problem_texts import shown_types
from torch_conformance.model.protocol import Json
from torch_conformance.vocabulary.inputs import INPUTS

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

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


MAY_BE_EMPTY = frozenset(["config", "dynamo_config", "functorch_config", "options"])
"""Keys of maps that a template may leave empty: at that point of the matrix there are no such
options.
"""


def describe(data: Json, name: str, path: DataPath = (), *, pointer: str = "") -> list[Problem]:
    """Return the problems of plain data, or only of its value at ``path``, which replaced a
    template in an otherwise valid document.

    Problems that follow from others are left out: a misspelt key is not also a missing one.
    ``pointer`` is as for ``resolved``.
    """
    value = data
    for key in path:
        value = value[key]
    if path and value in ([], {}) and path[-1] in MAY_BE_EMPTY:
        return []
    validator = validator_of(name, pointer)
    distinct: dict[tuple[str, DataPath, str | int], Problem] = {}
    for part in _parts_at(validator, validator.schema, data, path):
        problems: list[Problem] = []
        for error in validator.descend(value, part):
            error.path.extendleft(reversed(path))
            problems += problems_of(error, _unknown_key)
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


def containers_at(data: object, name: str, path: DataPath) -> frozenset[str]:
    """Return which of ``array`` and ``object`` a template at ``path`` may give; empty where it
    gives a text or a number.
    """
    validator = validator_of(name)
    for part in _parts_at(validator, validator.schema, data, path):
        kinds = frozenset(part["type"]) if isinstance(part.get("type"), list) else frozenset()
        if (
            part.get("pattern") == TEMPLATE_PATTERN
            and kinds - {"string"}
            and kinds <= {"array", "object", "string"}
        ):
            return kinds - {"string"}
    return frozenset()


def _parts_at(validator: "Validator", node: Json, value: Json, path: DataPath) -> list[Any]:
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


def _unknown_key(key: str, value: Mapping[str, Any], node: Json, path: DataPath) -> Problem:
    """Return the problem of an unknown key, with what a spec may have in its place."""
    title, allowed = title_of(node, path), list(node.get("properties", {}))
    what = (
        title
        if title in ("expectation", "step", "condition")
        else "input kind"
        if title == "input"
        else "key"
    )
    if what == "step" and nearest(key, KEYS_OF_STEPS, cutoff=NEAR):
        what, allowed = "key", [*KEYS_OF_STEPS]
    elif what == "step":
        allowed = [name for name in allowed if name not in KEYS_OF_STEPS]
    if what == "input kind" and any(name in INPUTS for name in value):
        what = "key"
    if title == "defaults" and key in SPEC.keys:
        arguments = {"word": key, "allowed": one_of(allowed, limit=20)}
        return Problem("key-of-specs", (*path, key), arguments, at_key=True)
    # 'weak' is a key of the entry of the expectation
    of_entry = title if key == "weak" and path[-3:-2] == ("expect",) else ""
    return unknown_key(key, value, node, path, allowed=allowed, what=what, of_entry=of_entry)


# -- files -----------------------------------------------------------------------------------------


def read_formed(path: Path, kind: Kind, problems: list[Diagnostic]) -> Document | None:
    """Read a file and add its problems; return it if its form is right."""
    try:
        document = read_partly(path, kind)
    except InvalidSpecs as error:
        problems.extend(error.diagnostics)
        return None
    of_form = form_problems(document, kind)
    problems.extend(of_form)
    return None if of_form else document


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
    # the file may be of another kind and have secrets: a key that resembles none of this kind is
    # not quoted
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
