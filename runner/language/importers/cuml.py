"""The ``xfail-list.yaml`` of cuML: a list of groups of tests with a reason, a marker and a condition on the version of a package."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from runner.core.conditions import BadRange, VersionRange
from runner.core.diagnostics import Diagnostic, InvalidSpecs, unknown
from runner.language.backends import read_named
from runner.language.importers.base import MOST_ENTRIES, Imported, comment_above
from runner.language.read.document import DataPath, Document
from runner.language.read.kinds import Kind

_KEYS = ("reason", "marker", "condition", "strict", "run", "tests")
_FORM = 'write a list of maps: - {reason: TEXT, condition: "torch>=2.11,<2.13", tests: ["file.py::test_name"]}'
_CONDITION = re.compile(r"\s*([A-Za-z][A-Za-z0-9_.-]{0,60})\s*((?:[<>=!]=?|~=)[^;]*)")
_SAYABLE = ("torch", "python")

KIND = Kind(
    name="cuml-xfail-list",
    article="an xfail-list.yaml",
    keys=frozenset(_KEYS),
    marks=frozenset(["tests", "marker", "condition"]),
    anywhere=True,
    form=_FORM,
)


def read(path: Path) -> list[Imported]:
    """Return the groups; raise ``InvalidSpecs`` with every problem of the file."""
    document = read_named(path, KIND)
    if problems := [*document.problems, *_problems(document)]:
        raise InvalidSpecs(problems)
    lines = document.content.decode("utf-8-sig").splitlines()
    return [_imported(document, index, entry, lines) for index, entry in enumerate(document.data)]


def _problems(document: Document) -> Iterator[Diagnostic]:
    if not isinstance(document.data, list):
        yield document.problem((), "is no list of groups of tests", _FORM)
        return
    if sum(len(entry.get("tests") or ()) for entry in document.data if isinstance(entry, dict)) > MOST_ENTRIES:
        yield document.problem((), f"has more than {MOST_ENTRIES} tests", "split the file")
        return
    for index, entry in enumerate(document.data):
        if isinstance(entry, dict):
            yield from _entry_problems(document, (index,), entry)
        else:
            yield document.problem((index,), "a group is a map", _FORM)


def _entry_problems(document: Document, path: DataPath, entry: Mapping[str, Any]) -> Iterator[Diagnostic]:
    for name in entry:
        if name not in _KEYS:
            yield document.problem((*path, name), *unknown("key", str(name), _KEYS), key=True)
    for name in ("reason", "marker", "condition"):
        if name in entry and not isinstance(entry[name], str):
            yield document.problem((*path, name), f"'{name}' is text", _FORM)
    tests = entry.get("tests")
    if not isinstance(tests, list) or not tests:
        yield document.problem((*path, "tests"), "a group needs a list of tests", _FORM)
        return
    for number, test in enumerate(tests):
        if not isinstance(test, str) or not test.strip():
            yield document.problem((*path, "tests", number), "a test is the text of its name", _FORM)


def _imported(document: Document, index: int, entry: Mapping[str, Any], lines: list[str]) -> Imported:
    position = document.position((index,))
    when, unsaid = _when(entry.get("condition", ""))
    return Imported(
        fields=entry,
        position=position,
        tests=tuple(entry["tests"]),
        when=when,
        unsaid=unsaid,
        reason=entry.get("reason", ""),
        comment=comment_above(lines, position.line),
    )


def _when(condition: str) -> tuple[dict[str, str], str]:
    """Return a condition as a waiver says it, and what a waiver cannot say of it."""
    if not condition.strip():
        return {}, ""
    found = _CONDITION.fullmatch(condition)
    if found is None or found[1].lower() not in _SAYABLE:
        return {}, condition
    text = found[2].replace(" ", "")
    try:
        VersionRange.parse(text)
    except BadRange:
        return {}, condition
    return {found[1].lower(): text}, ""
