"""Waivers as data: known failures with their cases, their signature, the defect of torch, and the last day."""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from runner.core.conditions import as_list
from runner.core.diagnostics import Diagnostic, InvalidSpecs, Position, unknown
from runner.core.matching.patterns import check_pattern, is_unspecific, search
from runner.core.matching.time_limit import PatternTooSlow
from runner.language.backends import Backends
from runner.language.check.spec import condition_problems
from runner.language.read.document import WAIVERS, DataPath, Document
from runner.language.read.files import link_problem, tree_of
from runner.language.read.schema import form_problems
from runner.language.read.source import read_partly
from runner.system.data_dirs import folder
from runner.vocabulary.expectations import EXPECTATIONS

OUTSIDE_OF_EXPECTATIONS = ("raised", "side-effects", "fell-back", "crash", "timeout")
"""Types of failures without an expectation. ``error`` cannot be waived, because such a case claims nothing."""


@dataclass(frozen=True, slots=True)
class Signature:
    """The signature of a failure: its type in JUnit, and a regular expression for its message."""

    type: str
    match: str
    phases: tuple[str, ...] = ()
    """The phases in which the failure may have happened; empty for any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiver:
    """One known failure."""

    cases: str
    """A glob over ids."""
    when: Mapping[str, Any] | None
    failures: tuple[Signature, ...]
    reason: str
    issue: str
    until: date
    """The last day on which the waiver applies."""
    position: Position
    id: str = ""
    """Its name within its file, for profiles; empty for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaiverFiles:
    """The waivers in file order, the shipped file first."""

    waivers: tuple[Waiver, ...]
    documents: tuple[Document, ...]
    given: frozenset[str]
    """Files of the command line, by their names in messages."""


def load_waivers(extra: Sequence[Path], backends: Backends | None) -> WaiverFiles:
    """Read the shipped waivers and those of ``extra`` files; raise ``InvalidSpecs`` with all problems of all files.

    Without ``backends``, names in conditions are not checked.
    """
    problems: list[Diagnostic] = []
    found = read_waivers(extra, backends, problems)
    if problems:
        raise InvalidSpecs(problems)
    return found


def read_waivers(extra: Sequence[Path], backends: Backends | None, problems: list[Diagnostic]) -> WaiverFiles:
    """Read the shipped waivers and those of ``extra`` files as far as possible, and add their problems."""
    shipped = folder("specs") / "waivers.yaml"
    documents: list[Document] = []
    found: list[Waiver] = []
    once: dict[str, Path] = {}
    for path in [*([shipped] if shipped.exists() else []), *extra]:
        once.setdefault(os.path.realpath(path), path)
    for path in once.values():
        document, wrong = _read(path, backends)
        problems.extend(wrong)
        if document is not None:
            documents.append(document)
            found.extend(_waivers(document))
    given = frozenset(document.file for document in documents if document.path != shipped)
    return WaiverFiles(waivers=tuple(found), documents=tuple(documents), given=given)


def _read(path: Path, backends: Backends | None) -> tuple[Document | None, list[Diagnostic]]:
    """Return a file if its form is right, and its problems."""
    refused = link_problem(path, tree_of(path.parent.absolute()))
    if refused is not None:
        return None, [refused]
    try:
        document = read_partly(path, WAIVERS)
    except InvalidSpecs as error:
        return None, list(error.diagnostics)
    problems = form_problems(document, WAIVERS)
    if problems:
        return None, problems
    return document, list(_problems(document, backends if backends is not None and backends.is_whole else None))


def _waivers(document: Document) -> Iterator[Waiver]:
    for index, entry in enumerate(document.data["waivers"]):
        with contextlib.suppress(ValueError):  # an invalid date is reported already
            yield Waiver(
                cases=entry["cases"],
                when=entry.get("when"),
                failures=tuple(
                    Signature(type=given["type"], match=given["match"], phases=tuple(as_list(given.get("phase", ()))))
                    for _, given in _signatures(entry, ())
                ),
                reason=entry["reason"],
                issue=entry["issue"],
                until=date.fromisoformat(entry["until"]),
                position=document.position(("waivers", index)),
                id=entry.get("id", ""),
            )


def _signatures(entry: Any, path: DataPath) -> Iterator[tuple[DataPath, Any]]:
    """Yield each signature with its path: a waiver has one, or a list of them."""
    failure = entry["failure"]
    if isinstance(failure, dict):
        yield (*path, "failure"), failure
    else:
        yield from (((*path, "failure", index), signature) for index, signature in enumerate(failure))


def _problems(document: Document, backends: Backends | None) -> Iterator[Diagnostic]:
    ids: dict[str, DataPath] = {}
    for index, entry in enumerate(document.data["waivers"]):
        path: DataPath = ("waivers", index)
        if "id" in entry and ids.setdefault(entry["id"], path) != path:
            first = document.position(ids[entry["id"]]).line
            message = f"the id '{entry['id']}' is used twice"
            yield document.problem((*path, "id"), message, f"line {first} has it already: write another one")
        for place, signature in _signatures(entry, path):
            yield from _signature_problems(document, place, signature)
        try:
            date.fromisoformat(entry["until"])
        except ValueError as error:
            yield document.problem((*path, "until"), f"'{entry['until']}' is not a date: {error}", "write year, month and day: 2027-03-01")
    if backends is not None:
        yield from condition_problems(document, ("waivers",), backends)


WITH_PHASE = ("raised", "crash", "timeout")
"""Types of failures that name the phase in which they happened."""


def _signature_problems(document: Document, path: DataPath, signature: Mapping[str, Any]) -> Iterator[Diagnostic]:
    kind, pattern = signature["type"], signature["match"]
    if "phase" in signature and kind not in WITH_PHASE:
        hint = f"remove it, or write one of the types {', '.join(WITH_PHASE)}"
        yield document.problem((*path, "phase"), f"a failure of the type '{kind}' has no phase", hint, key=True)
    if kind == "error":
        hint = "if the spec is wrong, correct it; if the machine lacks something, add requires"
        yield document.problem((*path, "type"), "an error cannot be waived: a case with an error claims nothing", hint)
    elif kind not in (types := (*EXPECTATIONS, *OUTSIDE_OF_EXPECTATIONS)):
        yield document.problem((*path, "type"), *unknown("type of failure", kind, types))
    reason = check_pattern(pattern)
    if reason is not None:
        message = f"the pattern is not a regular expression: {reason}"
        yield document.problem((*path, "match"), message, "escape ( ) [ ] { } . * + ? with \\")
    elif _matches_empty_text(pattern):
        yield document.problem((*path, "match"), "the pattern matches any message, even an empty one", _DESCRIBE)
    elif is_unspecific(pattern):
        yield document.problem((*path, "match"), "the pattern matches unrelated messages: it would waive any failure", _DESCRIBE)
    elif is_unspecific(pattern, _frames(kind)):
        message = f"the pattern matches the fixed text of all messages of the type '{kind}': it would waive any of them"
        yield document.problem((*path, "match"), message, _DESCRIBE)


_DESCRIBE = "write words or numbers from the message of this defect, as shown in a run's report"


def _frames(kind: str) -> tuple[str, ...]:
    """Return the fixed text of the messages of a type, with ``{0}`` and ``{1}`` for the variable parts."""
    if kind in EXPECTATIONS:
        return (f"{kind}: expected {{0}}, observed {{1}}",)
    return ("raised: expected no exception, observed {0} in phase '{1}': {0}",) if kind == "raised" else ()


def _matches_empty_text(pattern: str) -> bool:
    try:
        return search(pattern, "") is not None
    except PatternTooSlow:
        return False  # reported later, when it is searched in a message
