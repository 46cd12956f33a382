"""The run's journal, read: JSON lines that are written during the run, and read by every report.

A header, one line for each case that ended, a footer. A journal without a footer is a truncated run; only its last line may be torn.
Each attempt of a case that is run several times has a line, written when the attempt ends, so that a killed run keeps it; the case's own
line follows.
A resumed run first removes the lines that no longer apply: the torn line, the cases that were not run, the footer of an interrupt. So a
journal has one line for a case and one footer, however often its run was cut off.

The lines are JSON of the dataclasses of ``core``, by their annotations: a new field of ``CaseResult`` is encoded and decoded
automatically; add it to ``schemas/journal.schema.json`` too. What follows from other lines is not stored: a reader computes it.
"""

import errno
import hashlib
import json
import math
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, NewType, NoReturn, TypeAlias, get_args, get_origin, get_type_hints
from urllib.parse import unquote

from runner.core.attempts import attempt_of, outcome_of
from runner.core.case import CaseId
from runner.core.conditions import BadRange, VersionRange
from runner.core.conformance import LEVELS, ProfileRecord
from runner.core.exit_codes import ExitCode
from runner.core.expectation import Status
from runner.core.folding import fold
from runner.core.header import COMPUTED, RunFooter, RunHeader
from runner.core.outcomes import PASSED, WAIVABLE, Outcome
from runner.core.protocol import Json
from runner.core.results import NODE_LOST, AppliedWaiver, Attempt, CaseResult, WaiverEffect, executed
from runner.record.evidence import OBSERVATION

FORMAT = 1
"""The journal's format; a reader refuses any other."""


class JournalError(Exception):
    """An invalid line of a journal."""

    def __init__(self, line: int, reason: str) -> None:
        self.line = line
        self.reason = reason
        super().__init__(f"line {line}: {reason}")


# -- the content ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The content of a journal."""

    header: RunHeader
    results: tuple[CaseResult, ...]
    footer: RunFooter | None
    attempts: Mapping[CaseId, tuple[CaseResult, ...]] = field(default_factory=dict)
    """The attempts of cases without a result, or with NOT_RUN, in the order in which they ended."""

    @property
    def truncated(self) -> bool:
        """True when the run did not reach its end."""
        return self.footer is None

    @property
    def has_come_to_its_end(self) -> bool:
        """True when nothing is left to run: it was neither cut off nor interrupted, and no case lost its nodes."""
        return self.footer is not None and not self.footer.interrupted and not any(map(_lost_its_node, self.results))

    @property
    def finished(self) -> tuple[CaseResult, ...]:
        """The results that a resumed run keeps."""
        return tuple(result for result in self.results if result.outcome is not Outcome.NOT_RUN)

    @property
    def has_something(self) -> bool:
        """Whether a resumed run keeps anything: a result, or an attempt of a case without a result."""
        return bool(self.finished or self.attempts)


def _lost_its_node(result: CaseResult) -> bool:
    return result.outcome is Outcome.NOT_RUN and result.failure_type == NODE_LOST


def digest_of_selection(digests: Mapping[str, str]) -> str:
    """Return the sha256 of a selection: of the ids and digests of its cases, independent of their order."""
    whole = hashlib.sha256()
    for case_id in sorted(digests):
        whole.update(f"{case_id}\0{digests[case_id]}\n".encode("utf-8", "surrogatepass"))
    return whole.hexdigest()


def totals(results: Iterable[CaseResult]) -> dict[str, int]:
    """Count the results of each outcome, zeros included, in the order of the table."""
    counts = {outcome.label: 0 for outcome in Outcome}
    for result in results:
        counts[result.outcome.label] += 1
    return counts


# -- lines ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AttemptLine:
    """A line with the result of one attempt of a case that has not ended."""

    result: CaseResult


Record: TypeAlias = RunHeader | AttemptLine | CaseResult | RunFooter

_KINDS: Mapping[str, type] = {"header": RunHeader, "attempt": CaseResult, "case": CaseResult, "footer": RunFooter}


def parse(line: bytes) -> Json:
    """Return the JSON of a line; raise ``ValueError`` for anything else."""
    return json.loads(line.decode("utf-8"), parse_constant=_refuse_constant)


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON number")


def encode(value: Any) -> Json:
    """Return a record as JSON."""
    match value:
        case Outcome():
            return value.label
        case Enum():
            return value.value
        case Mapping():
            return {str(key): encode(item) for key, item in value.items()}
        case tuple():
            return [encode(item) for item in value]
        case _ if is_dataclass(value):
            return {field.name: encode(getattr(value, field.name)) for field in fields(value) if COMPUTED not in field.metadata}
        case _:
            return value


def decode(number: int, value: Json) -> Record:
    """Return the record of a line; raise ``JournalError`` if its kind is unknown, or if it is malformed."""
    if not isinstance(value, dict):
        raise JournalError(number, "not an object")
    kind = value.pop("kind", None)
    if not isinstance(kind, str) or kind not in _KINDS:
        raise JournalError(number, f"unknown kind {kind!r}")
    if kind == "header" and (found := value.pop("format", None)) != FORMAT:
        raise JournalError(number, f"format {found!r}; this program reads {FORMAT}")
    try:
        decoded = _decode(_KINDS[kind], value, kind)
    except _MalformedError as error:
        raise JournalError(number, str(error)) from error
    return AttemptLine(decoded) if kind == "attempt" else decoded


class _MalformedError(Exception):
    """A value that is not of its field's type."""


def _decode(kind: Any, value: Json, where: str) -> Any:
    """Return ``value`` as the annotated type ``kind``; ``where`` names it in the message."""
    if isinstance(kind, NewType):
        return _decode(kind.__supertype__, value, where)
    if is_dataclass(kind):
        return _decode_object(kind, value, where)
    if get_origin(kind) is tuple:
        return tuple(_decode(get_args(kind)[0], item, f"{where}[{i}]") for i, item in enumerate(_expect(list, value, where)))
    if get_origin(kind) is Mapping:
        return {key: _decode(get_args(kind)[1], item, f"{where}.{key}") for key, item in _expect(dict, value, where).items()}
    if issubclass(kind, Enum):
        for member in kind:
            if encode(member) == value:
                return member
        raise _MalformedError(f"{where}: unknown word {value!r}")
    return _decode_number(value, where) if kind is float else _expect(kind, value, where)


def _decode_object(kind: Any, value: Json, where: str) -> Any:
    entries = _expect(dict, value, where)
    if extra := entries.keys() - _annotations(kind).keys():
        raise _MalformedError(f"{where} has an unknown key '{min(extra)}'")
    if missing := _required(kind) - entries.keys():
        raise _MalformedError(f"{where} lacks '{min(missing)}'")
    return kind(**{name: _decode(_annotations(kind)[name], item, f"{where}.{name}") for name, item in entries.items()})


@cache
def _annotations(kind: type[Any]) -> Mapping[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind) if COMPUTED not in field.metadata}


@cache
def _required(kind: type[Any]) -> frozenset[str]:
    return frozenset(field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING)


def _decode_number(value: Json, where: str) -> float:
    try:
        number = math.nan if isinstance(value, bool) or not isinstance(value, int | float) else float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _MalformedError(f"{where} is not a finite number")
    return number


def _expect(kind: type[Any], value: Json, where: str) -> Any:
    # Python's bool is an int, but it is no count
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise _MalformedError(f"{where} is not {kind.__name__}")
    return value


# -- reading --------------------------------------------------------------------------------------------------------


def read_run(path: Path) -> Run:
    """Read a journal, whole or truncated; raise ``JournalError`` for an invalid journal, or for facts that contradict each other."""
    return _read(path, checks=True)


def read_form(path: Path) -> Run:
    """Read a journal like ``read_run``, but without the check for contradictions: for the writer of a resumed run."""
    return _read(path, checks=False)


def _read(path: Path, *, checks: bool) -> Run:
    reader = _Reader(checks=checks)
    number = 0
    for number, record in _records(path):
        if problem := reader.take(record):
            raise JournalError(number, problem)
    if reader.header is None:
        raise JournalError(1, "no header")
    results = tuple(reader.results.values())
    if problem := _problem_of_folders(results) if checks else "":
        raise JournalError(number, problem)
    statement = reader.header.statement(results) if reader.footer else None
    footer = replace(reader.footer, statement=(statement,)) if reader.footer and statement else reader.footer
    return Run(header=reader.header, results=results, footer=footer, attempts={name: tuple(made) for name, made in reader.attempts.items()})


class _Reader:
    """Collects the lines of a journal, one after another."""

    def __init__(self, *, checks: bool) -> None:
        self._checks = checks
        self.header: RunHeader | None = None
        self.footer: RunFooter | None = None
        self.results: dict[CaseId, CaseResult] = {}
        self.attempts: dict[CaseId, list[CaseResult]] = {}

    def take(self, record: Record) -> str:
        """Take a line; return what is wrong with it, else an empty string."""
        if isinstance(record, RunHeader):
            if self.header is not None:
                return "a second header"
            self.header = record
            return _problem_of_header(record) if self._checks else ""
        if self.header is None:
            return "the first line is no header"
        if self.footer is not None:
            return "a line after the footer"
        if isinstance(record, RunFooter):
            self.footer = record
            return _problem_of_end(self.header, list(self.results.values()), record) if self._checks else ""
        result = record.result if isinstance(record, AttemptLine) else record
        problem = self._take_attempt(result) if isinstance(record, AttemptLine) else self._take_case(result, self.header)
        if self._checks:
            problem = problem or problem_of_result(result, retries=self.header.retries, repeat=self.header.repeat)
        return f"{result.case_id!r}: {problem}" if problem else ""

    def _take_attempt(self, result: CaseResult) -> str:
        if result.case_id in self.results:
            return "an attempt of a case that had ended"
        self.attempts.setdefault(result.case_id, []).append(result)
        is_folded = bool(result.attempts) or result.outcome in (Outcome.NOT_RUN, Outcome.FLAKY)
        return "an attempt of attempts" if self._checks and is_folded else ""

    def _take_case(self, result: CaseResult, header: RunHeader) -> str:
        if result.case_id in self.results:
            return "a second line for the case"
        self.results[result.case_id] = result
        if result.outcome is Outcome.NOT_RUN:  # it has attempts left
            return ""
        made = self.attempts.pop(result.case_id, [])
        attempts = tuple(map(attempt_of, made))
        if not self._checks or header.merged or attempts == result.attempts:  # a merge writes no line for an attempt
            return ""
        if len(made) == 1 and not result.attempts and (made[0].folder, made[0].evidence) == (result.folder, result.evidence):
            return ""
        return f"its {len(result.attempts)} attempts are not the {len(made)} that were recorded before it"


def _records(path: Path) -> Iterator[tuple[int, Record]]:
    with open_plain(path) as stream:
        for number, line in enumerate(stream, 1):
            try:
                value = parse(line)
            except (ValueError, RecursionError) as error:
                if not line.endswith(b"\n"):
                    return
                raise JournalError(number, f"not JSON: {error}") from error
            yield number, decode(number, value)


def lines_of(path: Path) -> dict[str, int]:
    """Return the line number of each case in a valid journal."""
    return {str(record.case_id): number for number, record in _records(path) if isinstance(record, CaseResult)}


def standing_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a journal that a resumed run keeps."""
    with open_plain(path) as stream:
        for line in stream:
            try:
                value = parse(line)
            except (ValueError, RecursionError):
                return  # torn: the last one
            if value["kind"] != "footer" and value.get("outcome") != Outcome.NOT_RUN.label:
                yield line if line.endswith(b"\n") else line + b"\n"


def open_plain(path: Path) -> BinaryIO:
    """Open a journal as an untrusted file: a worker, or the author of an archive, could have replaced it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise JournalError(1, "this is a link, not the file itself") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise JournalError(1, "this is no file")
    return os.fdopen(descriptor, "rb")


# -- contradictions -------------------------------------------------------------------------------------------------

_FOLDER = re.compile(r"cases/[0-9]{5,9}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_BACKEND = re.compile(r"\[backend=([^,\]]*)")
_BY_FACTS = (Outcome.PASS, Outcome.FAIL, Outcome.FELL_BACK, Outcome.OFFLINE_PASS, Outcome.OFFLINE_FAIL)
"""Outcomes that only what a worker sent can give."""


def _problem_of_header(header: RunHeader) -> str:
    if header.selected > header.selected_whole > 0:
        return f"{header.selected} cases are selected of {header.selected_whole}"
    for option in ("retries", "repeat", "min-executed"):
        text = header.options.get(option, "0")
        if not text.isdecimal() or len(text) > 9:
            return f"its --{option} is no number"
    return next(map(_problem_of_profile, header.profile), "") if len(header.profile) < 2 else "two profiles"


def _problem_of_profile(profile: ProfileRecord) -> str:
    names = [level.name for level in profile.levels]
    ids = [case_id for level in profile.levels for case_id in (*level.required, *level.optional)]
    if len(set(ids)) < len(ids) or len(set(names)) < len(names) or not set(names) <= set(LEVELS):
        return "its profile names a case or a level twice, or a level that there is not"
    try:
        VersionRange.parse(profile.torch)
    except BadRange as error:
        return f"its profile: {error}"
    return ""


def problem_of_result(result: CaseResult, *, retries: int, repeat: int) -> str:
    """Return why a case cannot have the outcome of its line: its verdicts, waivers and attempts give another one."""
    backend = _BACKEND.search(result.case_id)
    if (
        backend is None
        or unquote(backend[1]) != result.backend
        or not result.case_id.startswith(f"{result.area}/{result.name}[".lstrip("/"))
    ):
        return f"its id is not of area '{result.area}', name '{result.name}' and backend '{result.backend}'"
    for part in (result, *result.attempts):
        if part.folder and not _FOLDER.fullmatch(part.folder):
            return f"'{part.folder}' is no folder of a case"
        for name, digest in part.evidence.items():
            if "/" in name or name in ("", ".", "..") or not _DIGEST.fullmatch(digest):
                return f"'{name}' with '{digest}' is no file of a case with its sha256"
    if any("/" in name or name in ("", ".", "..") for name in result.attachments):
        return "a file that belongs to its report is not in its folder"
    if result.attempts:
        if problem := _problem_of_attempts(result, max(retries + 1, repeat), repeat):
            return problem
        if result.outcome in (Outcome.FLAKY, Outcome.NOT_RUN):
            return ""
    return _problem_of_outcome(result, result.target, result.waivers)


def _problem_of_attempts(result: CaseResult, most: int, repeat: int) -> str:
    made = result.attempts
    for attempt in made:
        if problem := _problem_of_outcome(attempt, result.target):
            return f"an attempt: {problem}"
    if len(made) > most:
        return f"{len(made)} attempts, where at most {most} are made"
    folders = [attempt.folder for attempt in made if attempt.folder]
    if len(set(folders)) < len(folders):
        return "two attempts of one folder"
    _, outcome = outcome_of([attempt.outcome for attempt in made], repeat)
    return "" if result.outcome in (outcome, Outcome.NOT_RUN) else f"{result.outcome.label}, though its attempts give {outcome.label}"


def _problem_of_outcome(part: Attempt, target: str, waivers: Sequence[AppliedWaiver] | None = None) -> str:
    """Return why a part cannot have its outcome. ``waivers`` is None for an attempt, which has neither them nor what passed."""
    label = part.outcome.label
    is_missing = part.outcome is Outcome.ERROR and part.failure_type == "unavailable" and part.reason.startswith("--require ")
    if is_missing or part.outcome in (Outcome.UNAVAILABLE, Outcome.NOT_RUN):
        return f"{label}, though it was executed" if part.verdicts or part.folder or part.evidence else ""
    if waivers is not None and all(verdict.status is Status.NOT_APPLICABLE for verdict in part.verdicts):
        return f"{label} without a verdict"
    judged, failure_type, _ = fold(part.verdicts, target)
    effects = {waiver.effect for waiver in waivers or ()}
    outcome = judged
    if outcome in WAIVABLE and (WaiverEffect.MATCHED in effects or (waivers is None and part.outcome is Outcome.XFAIL)):
        outcome = Outcome.XFAIL
    elif outcome in PASSED and (WaiverEffect.PASSED in effects or (waivers is None and part.outcome is Outcome.XPASS)):
        outcome = Outcome.XPASS
    failure_type = "xpass" if outcome is Outcome.XPASS else failure_type
    if (part.outcome, part.failure_type) != (outcome, failure_type):
        return f"{label} ({part.failure_type}), though its verdicts and waivers give {outcome.label} ({failure_type})"
    if not part.folder or (waivers is not None and judged in _BY_FACTS and OBSERVATION not in part.evidence):
        return f"{label} without the folder or the digest of what it was judged by"
    return ""


def _problem_of_end(header: RunHeader, results: Sequence[CaseResult], footer: RunFooter) -> str:
    """Return which of the lines are missing, or why the run cannot have ended as its footer says."""
    if len(results) != header.selected:
        return f"it holds {len(results)} of its {header.selected} cases"
    digests: dict[str, str] = {result.case_id: result.digest for result in results}
    if header.selection and not header.shard and digest_of_selection(digests) != header.selection:
        return "its cases are not those that were selected, or one has another digest"
    unrun = any(result.outcome is Outcome.NOT_RUN and result.failure_type != NODE_LOST for result in results)
    if unrun and not footer.interrupted and header.options.get("fail-fast", "True") != "True":
        return "a case was not run, though nothing stopped the run"
    for score in footer.audit:
        judged = executed(results) + sum(result.outcome is Outcome.OFFLINE_PASS for result in results)
        if score.cases > judged or score.killed + score.excused > score.applicable or len(score.listed) > score.weak:
            return "the counts of its audit contradict each other, or its cases"
    code = ExitCode.INTERRUPTED if footer.interrupted else header.conclusion(results)[0]
    if header.shard and header.required_names and code is ExitCode.OK and footer.exit_code == ExitCode.NOTHING:
        return ""  # a case of another shard may exercise the name
    return "" if footer.exit_code == code else f"its exit code is {footer.exit_code}, but its cases give {int(code)}"


def _problem_of_folders(results: Sequence[CaseResult]) -> str:
    """Return which two cases have one folder; empty if none do."""
    owner: dict[str, str] = {}
    for result in results:
        for folder in {result.folder, *(attempt.folder for attempt in result.attempts)} - {""}:
            if (other := owner.setdefault(folder, result.case_id)) != result.case_id:
                return f"{folder} is the folder of {other!r} and of {result.case_id!r}"
    return ""
