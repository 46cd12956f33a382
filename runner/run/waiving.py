"""The logic of ``waive``: proposals from recorded runs, waivers to remove, and lists of other projects."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from runner.core.case import Case
from runner.core.diagnostics import Diagnostic, InvalidSpecs, UsageError, one_line, unknown
from runner.core.options import WaiveOptions
from runner.core.protocol import Json
from runner.judge.void_waivers import VoidWaiver, void_waivers
from runner.judge.waivers import Waivers
from runner.language.importers import FORMS
from runner.language.importers.base import Imported
from runner.language.load import load
from runner.language.read.document import Document
from runner.language.waiver_text import FILL_IN, Draft
from runner.language.waivers import load_waivers
from runner.record.journal import JournalError, Run, read_run
from runner.record.run_folder import JOURNAL, find_run
from runner.run.machines_then import by_machine, surroundings_of_record
from runner.run.recorded import files_of
from runner.run.waiver_proposals import DAYS, Proposals, RecordedRun, propose


def read_runs(names: Sequence[str]) -> list[Run]:
    """Read recorded runs; raise ``UsageError`` for one that cannot be read."""
    return [_read(name) for name in names]


def _read(name: str) -> Run:
    path = find_run(name) / JOURNAL
    try:
        return read_run(path)
    except JournalError as error:
        raise UsageError(f"{path}:{error.line}: {one_line(error.reason)}") from error
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error


def proposals(options: WaiveOptions) -> Proposals:
    """Return a draft for each failure of the runs that no waiver excuses."""
    runs = [
        RecordedRun(name=run.header.run_id, here=surroundings_of_record(facts), results=results)
        for run in read_runs(options.targets)
        for facts, results in by_machine(run)
    ]
    today = datetime.now(UTC).date()
    return propose(runs, issue=options.issue or FILL_IN, reason=options.reason, until=until_of(options.until), today=today)


def until_of(text: str) -> date | None:
    """Return the last day that was given; None where none was. Raise ``UsageError``."""
    try:
        return date.fromisoformat(text) if text else None
    except ValueError as error:
        raise UsageError(f"--until '{one_line(text)}' is no date: write year, month and day: 2027-03-01") from error


def to_remove(options: WaiveOptions) -> tuple[list[VoidWaiver], list[Document]]:
    """Return the waivers that the runs show to be void, and the files that hold them as they are now."""
    runs = read_runs(options.targets)
    extra = dict.fromkeys([*options.waivers, *(path for run in runs for path in files_of(run.header, "waivers"))])
    files = load_waivers(list(extra), None)
    results = [result for run in runs for result in run.results]
    changed = {name for run in runs for name, digest in run.header.specs.items() if _is_changed(files.documents, name, digest)}
    if changed:
        raise UsageError(f"{sorted(changed)[0]} is not the file that the run read: its positions are others (run again)")
    return list(void_waivers(Waivers(files, today=datetime.now(UTC).date()), results)), list(files.documents)


def _is_changed(documents: Sequence[Document], name: str, digest: str) -> bool:
    return any(document.file == name and document.digest != digest for document in documents)


# -- lists of other projects ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedDrafts:
    """What an import gives: drafts, and the entries that concern no case."""

    drafts: tuple[Draft, ...]
    notes: tuple[str, ...]


def imported(options: WaiveOptions) -> ImportedDrafts:
    """Return a draft for each entry of the files, and each group of cases that it concerns; raise ``InvalidSpecs`` or ``UsageError``."""
    if options.form not in FORMS:
        message, hint = unknown("form", options.form, FORMS)
        raise UsageError(f"--from: {message} ({hint})")
    problems: list[Diagnostic] = []
    entries: list[Imported] = []
    for name in options.targets:
        try:
            entries += FORMS[options.form].read(Path(name))
        except InvalidSpecs as error:
            problems += error.diagnostics
    if problems:
        raise InvalidSpecs(problems)
    covering = {} if options.cases or not any(entry.tests for entry in entries) else _covering(load([]).cases)
    drafts: list[Draft] = []
    notes: list[str] = []
    for entry in entries:
        globs = [options.cases] if options.cases else list(_globs(entry, covering))
        if not globs:
            what = "its tests" if entry.tests else "its call"
            notes.append(f"{entry.position}: no case covers {what} (name the cases: --cases GLOB)")
        drafts += [_draft(entry, pattern, options) for pattern in globs]
    return ImportedDrafts(drafts=tuple(drafts), notes=tuple(notes))


def _covering(cases: Sequence[Case]) -> Mapping[str, list[str]]:
    """Return the globs of the specs that cover each upstream test, by the name of its method."""
    found: dict[str, dict[str, None]] = {}
    for case in cases:
        for covered in case.covers:
            found.setdefault(_method(covered), {})[f"{case.id.partition('[')[0]}[*"] = None
    return {name: list(globs) for name, globs in found.items()}


def _method(test: str) -> str:
    """Return the name of an upstream test without file, class, instance and the suffix of a device."""
    name = re.split(r"::|\.py,|\s", test.strip())[-1].partition("[")[0].rpartition(".")[2]
    return re.sub(r"_(xpu|cpu|cuda|hpu|privateuse1)(?=_|$)", "", name)


def _globs(entry: Imported, covering: Mapping[str, list[str]]) -> Iterator[str]:
    yield from dict.fromkeys(pattern for test in entry.tests for pattern in covering.get(_method(test), ()))


def _draft(entry: Imported, pattern: str, options: WaiveOptions) -> Draft:
    origin: dict[str, Json] = {"form": options.form, "file": entry.position.file, "line": entry.position.line}
    origin |= {"comment": entry.comment} if entry.comment else {}
    origin["fields"] = dict(entry.fields)
    when: dict[str, Json] = dict(entry.when)
    if entry.unsaid:
        when["torch"] = FILL_IN  # without it the waiver would hold everywhere
    last = until_of(options.until) or datetime.now(UTC).date() + timedelta(days=DAYS)
    return Draft(
        cases=pattern,
        signatures=({"type": options.type or FILL_IN, "match": options.match or FILL_IN},),
        reason=options.reason or entry.reason or entry.comment or f"a known failure of {entry.position.file}",
        issue=options.issue or entry.issue or FILL_IN,
        until=last.isoformat(),
        when=when,
        origin=origin,
        comment=f"no condition of a waiver says: {one_line(entry.unsaid)}" if entry.unsaid else "",
    )
