"""Waivers as data: which cases fail, how that looks, the defect of torch behind it, and until when the failure is known."""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from runner.core.diagnostics import Diagnostic, InvalidSpecs, Position, unknown
from runner.core.matching.patterns import check_pattern, is_unspecific, search
from runner.core.matching.time_limit import PatternTooSlow
from runner.language.backends import Backends, read_named
from runner.language.check.conditions import condition_problems
from runner.language.read.document import DataPath, Document
from runner.language.read.doubts import believed
from runner.language.read.kinds import WAIVERS
from runner.language.read.repair import Fill, Readable, readable
from runner.language.waiver_forms import wrong_form
from runner.system.data_dirs import folder
from runner.vocabulary.expectations import EXPECTATIONS

OUTSIDE_OF_EXPECTATIONS = ("raised", "fell-back", "crash", "timeout")
"""Types of failures that no line of a spec asks for. ``error`` is none: such a case claims nothing that could be known to fail."""


@dataclass(frozen=True, slots=True)
class Signature:
    """What one failure looks like: its type in JUnit, and an expression searched in its message."""

    type: str
    match: str


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
    """The last day on which it holds."""
    position: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class WaiverFiles:
    """What was read, in the order of the files: the shipped one first."""

    waivers: tuple[Waiver, ...]
    documents: tuple[Document, ...]
    given: frozenset[str]
    """Files that the command line named, as shown."""


def load_waivers(extra: Sequence[Path], backends: Backends | None) -> WaiverFiles:
    """Read the shipped waivers and those of ``extra`` files; raise ``InvalidSpecs`` with every problem of all of them.

    Without ``backends``, which may be wrong themselves, what conditions name is not looked at.
    """
    problems: list[Diagnostic] = []
    found = read_waivers(extra, backends, problems)
    if problems:
        raise InvalidSpecs(problems)
    return found


def read_waivers(extra: Sequence[Path], backends: Backends | None, problems: list[Diagnostic]) -> WaiverFiles:
    """Read what can be read of the shipped waivers and those of ``extra`` files, and add every problem."""
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


_FILL = {
    "cases": "*",
    "failure": {"type": "crash", "match": "no match"},
    "reason": "no reason",
    "issue": "#0",
    "until": date.max.isoformat(),
}
"""Stands for keys that a waiver lacks, so that the others are checked."""


def _read(path: Path, backends: Backends | None) -> tuple[Document | None, list[Diagnostic]]:
    """Return what can be read of a file, and what is wrong with it."""
    try:
        document = read_named(path, WAIVERS)
    except InvalidSpecs as error:
        return None, list(error.diagnostics)
    problem, formed = wrong_form(document)
    problems = [problem] if problem is not None else []
    part = readable(formed, WAIVERS, Fill(depth=2, values=_FILL)) if formed is not None else Readable(document=None)
    problems.extend(part.problems)
    if part.document is not None:
        gaps = frozenset(() if backends is None or backends.is_whole else ("files of backends",))
        problems.extend(believed(_problems(part.document, backends), gaps))
    return part.document, problems


def _waivers(document: Document) -> Iterator[Waiver]:
    for index, entry in enumerate(document.data["waivers"]):
        with contextlib.suppress(ValueError):  # a date that is none has been reported
            yield _waiver(entry, document.position(("waivers", index)))


def _waiver(entry: Any, position: Position) -> Waiver:
    return Waiver(
        cases=entry["cases"],
        when=entry.get("when"),
        failures=tuple(Signature(**signature) for _, signature in _signatures(entry, ())),
        reason=entry["reason"],
        issue=entry["issue"],
        until=date.fromisoformat(entry["until"]),
        position=position,
    )


def _signatures(entry: Any, path: DataPath) -> Iterator[tuple[DataPath, Any]]:
    """Yield each signature with its place: a waiver has one, or a list of them."""
    failure = entry["failure"]
    if isinstance(failure, dict):
        yield (*path, "failure"), failure
    else:
        yield from (((*path, "failure", index), signature) for index, signature in enumerate(failure))


def _problems(document: Document, backends: Backends | None) -> Iterator[Diagnostic]:
    for index, entry in enumerate(document.data["waivers"]):
        path: DataPath = ("waivers", index)
        for place, signature in _signatures(entry, path):
            yield from _signature_problems(document, place, signature)
        try:
            date.fromisoformat(entry["until"])
        except ValueError as error:
            yield document.problem((*path, "until"), f"'{entry['until']}' is no day: {error}", "write year, month and day: 2027-03-01")
    if backends is not None:
        yield from condition_problems(document, ("waivers",), backends)


def _signature_problems(document: Document, path: DataPath, signature: Mapping[str, str]) -> Iterator[Diagnostic]:
    kind, pattern = signature["type"], signature["match"]
    if kind == "error":
        hint = "where the case is wrong here, mend the spec; where the machine lacks something, say requires"
        yield document.problem((*path, "type"), "an error cannot be waived: a case that ends so claims nothing", hint)
    elif kind not in (types := (*EXPECTATIONS, *OUTSIDE_OF_EXPECTATIONS)):
        yield document.problem((*path, "type"), *unknown("type of failure", kind, types))
    reason = check_pattern(pattern)
    if reason is not None:
        message = f"the pattern is no regular expression: {reason}"
        yield document.problem((*path, "match"), message, "escape ( ) [ ] { } . * + ? with \\")
    elif _matches_empty_text(pattern):
        yield document.problem((*path, "match"), "the pattern matches any message, even an empty one", _DESCRIBE)
    elif is_unspecific(pattern):
        yield document.problem(
            (*path, "match"), "the pattern matches messages that have nothing in common: it excuses any failure", _DESCRIBE
        )
    elif is_unspecific(pattern, _frames(kind)):
        message = f"the pattern matches what every message of the type '{kind}' holds: it excuses any of them"
        yield document.problem((*path, "match"), message, _DESCRIBE)


_DESCRIBE = "write words or numbers of this defect's own message; a run's report shows it"


def _frames(kind: str) -> tuple[str, ...]:
    """Return what the messages of a type have in common, with ``{0}`` and ``{1}`` where they differ."""
    if kind in EXPECTATIONS:
        return (f"{kind}: expected {{0}}, observed {{1}}",)
    return ("raised: expected no exception, observed {0} in phase '{1}': {0}",) if kind == "raised" else ()


def _matches_empty_text(pattern: str) -> bool:
    try:
        return search(pattern, "") is not None
    except PatternTooSlow:
        return False  # said again, for the message that it is searched in
