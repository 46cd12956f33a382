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
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NoReturn
from urllib.parse import unquote

from runner.model import codec
from runner.model.case import CaseId
from runner.model.expectation import Status
from runner.model.header import RunFooter, RunHeader
from runner.model.optional import hooks
from runner.model.outcomes import JUDGED_BY_FACTS, PASSED, WAIVABLE, ExitCode, Outcome
from runner.model.protocol import Json
from runner.model.results import NODE_LOST, AppliedWaiver, Attempt, CaseResult, WaiverEffect, attempt_of, fold, outcome_of
from runner.record.case_files import OBSERVATION

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
        lost = any(result.outcome is Outcome.NOT_RUN and result.failure_type == NODE_LOST for result in self.results)
        return self.footer is not None and not self.footer.interrupted and not lost

    @property
    def finished(self) -> tuple[CaseResult, ...]:
        """The results that a resumed run keeps."""
        return tuple(result for result in self.results if result.outcome is not Outcome.NOT_RUN)

    @property
    def has_something(self) -> bool:
        """Whether a resumed run keeps anything: a result, or an attempt of a case without a result."""
        return bool(self.finished or self.attempts)


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


_KINDS: Mapping[str, type] = {"header": RunHeader, "attempt": CaseResult, "case": CaseResult, "footer": RunFooter}
"""What the lines hold. An attempt is the result of one attempt of a case that has not ended."""


def parse(line: bytes) -> Json:
    """Return the JSON of a line; raise ``ValueError`` for anything else."""
    return json.loads(line.decode("utf-8"), parse_constant=_refuse_constant)


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON number")


def record_of(number: int, value: Json) -> tuple[str, Any]:
    """Return kind and record of a line; raise ``JournalError`` if its kind is unknown, or if it is malformed."""
    if not isinstance(value, dict):
        raise JournalError(number, "not an object")
    kind = value.pop("kind", None)
    if not isinstance(kind, str) or kind not in _KINDS:
        raise JournalError(number, f"unknown kind {kind!r}")
    if kind == "header" and (version := value.pop("format", None)) != FORMAT:
        raise JournalError(number, f"format {version!r}; this program reads {FORMAT}")
    try:
        return kind, codec.decode(_KINDS[kind], value, kind)
    except ValueError as error:
        raise JournalError(number, str(error)) from error


# -- reading --------------------------------------------------------------------------------------------------------


def read_run(path: Path, *, checks: bool = True) -> Run:
    """Read a journal, whole or truncated; raise ``JournalError`` for an invalid one.

    With ``checks`` also for facts that contradict each other; the writer of a resumed run reads without them.
    """
    header: RunHeader | None = None
    footer: RunFooter | None = None
    results: dict[CaseId, CaseResult] = {}
    attempts: dict[CaseId, list[CaseResult]] = {}
    number = 0
    for number, kind, record in _records(path):
        problem = ""
        if kind == "header":
            problem = "a second header" if header is not None else _problem_of_header(record) if checks else ""
            header = record
        elif header is None:
            problem = "the first line is no header"
        elif footer is not None:
            problem = "a line after the footer"
        elif kind == "footer":
            footer = record
            problem = _problem_of_end(header, list(results.values()), record) if checks else ""
        else:
            if record.case_id in results:
                problem = "an attempt of a case that had ended" if kind == "attempt" else "a second line for the case"
            elif kind == "attempt":
                attempts.setdefault(record.case_id, []).append(record)
                if checks and (record.attempts or record.outcome in (Outcome.NOT_RUN, Outcome.FLAKY)):
                    problem = "an attempt of attempts"
            else:
                results[record.case_id] = record
                if record.outcome is not Outcome.NOT_RUN:  # else it has attempts left
                    lines = attempts.pop(record.case_id, [])
                    places = [(line.folder, line.evidence) for line in lines]
                    is_same = not record.attempts and places == [(record.folder, record.evidence)]
                    # a merge writes no line for an attempt
                    if checks and not header.merged and not is_same and tuple(map(attempt_of, lines)) != record.attempts:
                        problem = f"its {len(record.attempts)} attempts are not the {len(lines)} that were recorded before it"
            if checks:
                problem = problem or problem_of_result(record, retries=header.retries, repeat=header.repeat)
            problem = f"{record.case_id!r}: {problem}" if problem else ""
        if problem:
            raise JournalError(number, problem)
    if header is None:
        raise JournalError(1, "no header")
    owners: dict[str, str] = {}
    for result in results.values() if checks else ():
        for folder in {result.folder, *(attempt.folder for attempt in result.attempts)} - {""}:
            if (owner := owners.setdefault(folder, result.case_id)) != result.case_id:
                raise JournalError(number, f"{folder} is the folder of {owner!r} and of {result.case_id!r}")
    return Run(
        header=header, results=tuple(results.values()), footer=footer, attempts={name: tuple(lines) for name, lines in attempts.items()}
    )


def _records(path: Path) -> Iterator[tuple[int, str, Any]]:
    """Yield number, kind and record of each line; a torn last line is left out."""
    with open_plain(path) as stream:
        for number, line in enumerate(stream, 1):
            try:
                value = parse(line)
            except (ValueError, RecursionError) as error:
                if not line.endswith(b"\n"):
                    return
                raise JournalError(number, f"not JSON: {error}") from error
            yield number, *record_of(number, value)


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


def _problem_of_header(header: RunHeader) -> str:
    if header.selected > header.selected_whole > 0:
        return f"{header.selected} cases are selected of {header.selected_whole}"
    for option in ("retries", "repeat", "min-executed"):
        text = header.options.get(option, "0")
        if not text.isdecimal() or len(text) > 9:
            return f"its --{option} is no number"
    if len(header.profile) > 1:
        return "two profiles"
    return next(filter(None, map(hooks("vendor").problem_of_record, header.profile)), "") if header.profile else ""


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
        for attempt in result.attempts:
            if problem := _problem_of_outcome(attempt, result.target):
                return f"an attempt: {problem}"
        most = max(retries + 1, repeat)
        if len(result.attempts) > most:
            return f"{len(result.attempts)} attempts, where at most {most} are made"
        folders = [attempt.folder for attempt in result.attempts if attempt.folder]
        if len(set(folders)) < len(folders):
            return "two attempts of one folder"
        _, outcome = outcome_of([attempt.outcome for attempt in result.attempts], repeat)
        if result.outcome not in (outcome, Outcome.NOT_RUN):
            return f"{result.outcome.label}, though its attempts give {outcome.label}"
        if result.outcome in (Outcome.FLAKY, Outcome.NOT_RUN):
            return ""
    return _problem_of_outcome(result, result.target, result.waivers)


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
    if not part.folder or (waivers is not None and judged in JUDGED_BY_FACTS and OBSERVATION not in part.evidence):
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
    code = ExitCode.INTERRUPTED if footer.interrupted else header.conclusion(results)[0]
    if header.shard and header.required_names and code is ExitCode.OK and footer.exit_code == ExitCode.NOTHING:
        return ""  # a case of another shard may exercise the name
    return "" if footer.exit_code == code else f"its exit code is {footer.exit_code}, but its cases give {int(code)}"
