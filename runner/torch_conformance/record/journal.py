"""The run's journal: JSON lines, written during the run and sealed against every other writer;
every report reads them.

A header, one line for each case that ended, a footer. A journal without a footer is a truncated
run; only its last line may be torn. Each attempt of a case that is run several times has a line,
written when the attempt ends, so that a killed run keeps it; the case's own line follows. A resumed
run first removes the lines that no longer apply: the torn line, the cases that were not run, the
footer of an interrupt. So a journal has one line for a case and one footer, however often its run
was cut off.

The lines are JSON of the dataclasses of ``model``, by their annotations: a new field of
``CaseResult`` is encoded and decoded automatically; add it to ``schemas/journal.schema.json`` too.
What follows from other lines is not stored: a reader computes it.
"""

import contextlib
import errno
import hashlib
import io
import json
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from torch_conformance.machine.output import naming
from torch_conformance.machine.scratch import open_untrusted
from torch_conformance.model import codec
from torch_conformance.model.case import CaseId
from torch_conformance.model.diagnostics import JournalAltered, UsageError, one_line, shown_path
from torch_conformance.model.expectation import Status
from torch_conformance.model.header import ReportedRun, RunFooter, RunHeader
from torch_conformance.model.outcomes import JUDGED_BY_FACTS, PASSED, WAIVABLE, ExitCode, Outcome
from torch_conformance.model.protocol import finite
from torch_conformance.model.results import (
    NODE_LOST,
    Attempt,
    CaseResult,
    Redacted,
    attempt_of,
    fold,
    outcome_of,
    waived,
)
from torch_conformance.model.values import frozen
from torch_conformance.record.case_files import OBSERVATION
from torch_conformance.record.conclusion import conclusion_of, statements
from torch_conformance.record.run_folder import JOURNAL, find_run, require_still

FORMAT = 1
"""The journal's format; a reader refuses any other."""


class JournalError(Exception):
    """An invalid line of a journal."""

    def __init__(self, line: int, reason: str) -> None:
        self.line = line
        self.reason = reason
        super().__init__(f"line {line}: {reason}")


# -- the content -----------------------------------------------------------------------------------


@frozen
class Run(ReportedRun):
    """The content of a journal."""

    attempts: Mapping[CaseId, tuple[Redacted, ...]] = field(default_factory=dict)
    """The attempts of cases without a result, or with NOT_RUN, in the order in which they ended."""

    @property
    def has_come_to_its_end(self) -> bool:
        """True when nothing is left to run: it was neither cut off nor interrupted, and no case
        lost its nodes.
        """
        lost = any(
            result.outcome is Outcome.NOT_RUN and result.failure_type == NODE_LOST
            for result in self.results
        )
        return self.footer is not None and not self.footer.interrupted and not lost

    @property
    def finished(self) -> tuple[Redacted, ...]:
        """The results that a resumed run keeps."""
        return tuple(result for result in self.results if result.outcome is not Outcome.NOT_RUN)


@dataclass(frozen=True, slots=True)
class NamedRun:
    """A recorded run, with its name on the command line."""

    name: str
    run: Run
    folder: Path = Path()
    """Of its journal and of the files of its cases."""


def digest_of_selection(digests: Mapping[str, str]) -> str:
    """Return the sha256 of a selection: of the ids and digests of its cases, independent of their
    order.
    """
    lines = (f"{case_id}\0{digests[case_id]}\n" for case_id in sorted(digests))
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogatepass")).hexdigest()


def totals(results: Iterable[Redacted]) -> dict[str, int]:
    """Count the results of each outcome, zeros included, in the order of the table."""
    counts = {outcome.label: 0 for outcome in Outcome}
    for result in results:
        counts[result.outcome.label] += 1
    return counts


# -- reading ---------------------------------------------------------------------------------------

_KINDS: Mapping[str, type] = {
    "header": RunHeader,
    "attempt": Redacted,
    "case": Redacted,
    "footer": RunFooter,
}
"""What the lines hold. An attempt is the result of one attempt of a case that has not ended."""


def recorded_run(name: str) -> NamedRun:
    """Return a run that no process is writing; raise ``UsageError`` where there is none, or it is
    invalid.

    ``name`` is its folder, its id or ``latest``.
    """
    folder = find_run(name)
    require_still(name, folder)
    return NamedRun(name, readable(folder / JOURNAL), folder)


def readable(path: Path) -> Run:
    """Return the content of a journal; raise ``UsageError`` for an invalid one."""
    try:
        return read_run(path)
    except JournalError as error:
        raise UsageError(f"{shown_path(path)}:{error.line}: {one_line(error.reason)}") from error
    except OSError as error:
        raise UsageError(f"{shown_path(path)}: {error.strerror}") from error


def read_run(path: Path, *, checks: bool = True) -> Run:
    """Read a journal, whole or truncated; raise ``JournalError`` for an invalid one.

    With ``checks`` also for facts that contradict each other.
    """
    header: RunHeader | None = None
    footer: RunFooter | None = None
    results: dict[CaseId, Redacted] = {}
    attempts: dict[CaseId, list[Redacted]] = {}
    owners: dict[str, CaseId] = {}
    number = 0
    for number, kind, record in _records(path):
        problem = ""
        if kind == "header":
            problem = "a second header" if header is not None else ""
            header = record
        elif header is None:
            problem = "the first line is not a header"
        elif footer is not None:
            problem = "a line after the footer"
        elif kind == "footer":
            footer = record
        elif record.case_id in results:
            problem = (
                "an attempt of a case that had ended"
                if kind == "attempt"
                else "a second line for the case"
            )
        elif kind == "attempt":
            attempts.setdefault(record.case_id, []).append(record)
        else:
            results[record.case_id] = record
        if checks and header is not None and not problem:
            match kind:
                case "header":
                    problem = _problem_of_header(header)
                case "footer":
                    problem = _problem_of_end(header, list(results.values()), record)
                case _:
                    problem = _problem_of_line(
                        kind, record, header, attempts.get(record.case_id, []), owners
                    )
        if kind == "case" and record.outcome is not Outcome.NOT_RUN:  # else it has attempts left
            attempts.pop(record.case_id, None)
        if problem:
            raise JournalError(
                number, f"{record.case_id!r}: {problem}" if kind in ("case", "attempt") else problem
            )
    if header is None:
        raise JournalError(1, "no header")
    attempt_lines = {case_id: tuple(lines) for case_id, lines in attempts.items()}
    ended = results.values() if footer is None else footer.warned(results.values())
    return Run(header=header, results=tuple(ended), footer=footer, attempts=attempt_lines)


def _records(path: Path) -> Iterator[tuple[int, str, Any]]:
    """Yield number, kind and record of each line; a torn last line is left out.

    Raise ``JournalError`` for a malformed line.
    """
    with open_plain(path) as stream:
        for number, line in enumerate(stream, 1):
            try:
                value = json.loads(line.decode("utf-8"), parse_constant=finite)
            except (ValueError, RecursionError) as error:
                if not line.endswith(b"\n"):
                    return
                raise JournalError(number, f"not JSON: {error}") from error
            if not isinstance(value, dict):
                raise JournalError(number, "not an object")
            kind = value.pop("kind", None)
            if not isinstance(kind, str) or kind not in _KINDS:
                raise JournalError(number, f"unknown kind {kind!r}")
            if kind == "header" and (version := value.pop("format", None)) != FORMAT:
                raise JournalError(number, f"format {version!r}; this program reads {FORMAT}")
            try:
                record = codec.decode(_KINDS[kind], value, kind)
            except ValueError as error:
                raise JournalError(number, str(error)) from error
            yield number, kind, record


def open_plain(path: Path) -> BinaryIO:
    """Open a journal as an untrusted file: a worker, or the author of an archive, could have
    replaced it.
    """
    try:
        return open_untrusted(path)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise JournalError(1, "this is a link, not the file itself") from error
        if error.errno is None:
            raise JournalError(1, "this is not a regular file") from error
        raise


# -- contradictions --------------------------------------------------------------------------------

_FOLDER = re.compile(r"cases/[0-9]{5,9}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


def _problem_of_header(header: RunHeader) -> str:
    if header.selected > header.selected_whole > 0:
        return f"{header.selected} cases are selected of {header.selected_whole}"
    for option in ("retries", "repeat", "min-executed"):
        text = header.options.get(option, "0")
        if not text.isdecimal() or len(text) > 9:
            return f"its --{option} is not a number"
    if len(header.profile) > 1:
        return "two profiles"
    return (
        next(filter(None, map(statements().problem_of_record, header.profile)), "")
        if header.profile
        else ""
    )


def _problem_of_line(
    kind: str,
    result: Redacted,
    header: RunHeader,
    lines: Sequence[Redacted],
    owners: dict[str, CaseId],
) -> str:
    """Return what a line contradicts; ``lines`` are those of the attempts of its case, ``owners``
    the cases of folders so far.
    """
    if kind == "attempt" and (
        result.attempts or result.outcome in (Outcome.NOT_RUN, Outcome.FLAKY)
    ):
        return "an attempt of attempts"
    if kind == "case" and result.outcome is not Outcome.NOT_RUN and not header.merged:
        # a merge writes no line for an attempt
        is_only = not result.attempts and [(line.folder, line.evidence) for line in lines] == [
            (result.folder, result.evidence)
        ]
        if not is_only and tuple(map(attempt_of, lines)) != result.attempts:
            return (
                f"its {len(result.attempts)} attempts are not the {len(lines)} that were recorded "
                "before it"
            )
    for folder in {result.folder, *(attempt.folder for attempt in result.attempts)} - {""}:
        if (owner := owners.setdefault(folder, result.case_id)) != result.case_id:
            return f"{folder} is the folder of {owner!r}"
    return problem_of_result(result, retries=header.retries, repeat=header.repeat)


def problem_of_result(result: Redacted, *, retries: int, repeat: int) -> str:
    """Return why a case cannot have the outcome of its line: its verdicts, waivers and attempts
    give another one.
    """
    if not result.backend:
        return "its id names no backend"
    parts: tuple[Attempt, ...] = (result, *result.attempts)
    for part in parts:
        if part.folder and not _FOLDER.fullmatch(part.folder):
            return f"'{part.folder}' is not the folder of a case"
    for name in (*result.attachments, *(name for part in parts for name in part.evidence)):
        if "/" in name or name in ("", ".", ".."):
            return f"'{name}' is not a file of a case in its folder"
    if not all(_DIGEST.fullmatch(digest) for part in parts for digest in part.evidence.values()):
        return "the digest of a file is not a sha256"
    if result.attempts:
        for attempt in result.attempts:
            if problem := _problem_of_outcome(attempt, result.target):
                return f"an attempt: {problem}"
        most = repeat if repeat > 1 else max(retries, result.retries or 0) + 1
        if len(result.attempts) > most:
            return f"{len(result.attempts)} attempts, where at most {most} are made"
        folders = [attempt.folder for attempt in result.attempts if attempt.folder]
        if len(set(folders)) < len(folders):
            return "two attempts in one folder"
        outcome = outcome_of([attempt.outcome for attempt in result.attempts], repeat, result)
        if result.outcome not in (outcome, Outcome.NOT_RUN):
            return f"{result.outcome.label}, though its attempts give {outcome.label}"
        if result.outcome in (Outcome.FLAKY, Outcome.NOT_RUN):
            return ""
    return _problem_of_outcome(result, result.target)


def _problem_of_outcome(part: Attempt, target: str) -> str:
    """Return why a part cannot have its outcome.

    An attempt has neither waivers nor the verdicts that passed.
    """
    label, result = part.outcome.label, part if isinstance(part, CaseResult) else None
    is_missing = (
        part.outcome is Outcome.ERROR
        and part.failure_type == "unavailable"
        and part.reason.startswith("--require ")
    )
    if is_missing or part.outcome in (Outcome.UNAVAILABLE, Outcome.NOT_RUN):
        return (
            f"{label}, though it was executed"
            if part.verdicts or part.folder or part.evidence
            else ""
        )
    if result is not None and all(
        verdict.status is Status.NOT_APPLICABLE for verdict in part.verdicts
    ):
        return f"{label} without a verdict"
    judged, failure_type, _ = fold(part.verdicts, target)
    if result is not None:
        outcome = waived(judged, result.waivers, [attempt.outcome for attempt in result.attempts])
    else:
        is_waived = (judged in WAIVABLE and part.outcome is Outcome.XFAIL) or (
            judged in PASSED and part.outcome is Outcome.XPASS
        )
        outcome = part.outcome if is_waived else judged
    failure_type = "xpass" if outcome is Outcome.XPASS else failure_type
    if (part.outcome, part.failure_type) != (outcome, failure_type):
        return (
            f"{label} ({part.failure_type}), though its verdicts and waivers give {outcome.label} "
            f"({failure_type})"
        )
    if not part.folder or (
        result is not None and judged in JUDGED_BY_FACTS and OBSERVATION not in part.evidence
    ):
        return f"{label} without the folder or the digest of what it was judged by"
    return ""


def _problem_of_end(header: RunHeader, results: Sequence[Redacted], footer: RunFooter) -> str:
    """Return which of the lines are missing, or why the run cannot have ended as its footer
    says.
    """
    if len(results) != header.selected:
        return f"it holds {len(results)} of its {header.selected} cases"
    digests: dict[str, str] = {result.case_id: result.digest for result in results}
    if header.selection and not header.shard and digest_of_selection(digests) != header.selection:
        return "its cases are not those that were selected, or one has another digest"
    unrun = any(
        result.outcome is Outcome.NOT_RUN and result.failure_type != NODE_LOST for result in results
    )
    if unrun and not footer.interrupted and header.options.get("fail-fast", "True") != "True":
        return "a case was not run, though nothing stopped the run"
    code = ExitCode.INTERRUPTED if footer.interrupted else conclusion_of(header, results)[0]
    if (
        header.shard
        and header.required_names
        and code is ExitCode.OK
        and footer.exit_code == ExitCode.NOTHING
    ):
        return ""  # a case of another shard may exercise the name
    return (
        ""
        if footer.exit_code == code
        else f"its exit code is {footer.exit_code}, but its cases give {int(code)}"
    )


# -- writing ---------------------------------------------------------------------------------------


class JournalWriter:
    """Appends to a journal; each line reaches the file before the call returns.

    The file is created before any case runs, in a folder that the run has locked. Alterations by
    other programs raise ``JournalAltered``. The journal of an incomplete run is continued.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # what was written to the file: any other content is an alteration
        self._size = 0
        self._digest = hashlib.sha256()
        self._stream = _open_to_append(path)
        self._is_to_continue = os.fstat(self._stream.fileno()).st_size > 0

    def write(self, kind: str, record: RunHeader | Redacted | RunFooter) -> None:
        """Write a line: ``header``, ``case``, ``attempt`` or ``footer``.

        Verify the journal before the last one.
        """
        encoded = (
            {"format": FORMAT, **codec.encode(record)} if kind == "header" else codec.encode(record)
        )
        # the id is first, so that ``run.preparation`` can read it without decoding the line
        case_first = {name: encoded[name] for name in ("case_id",) if name in encoded}
        # ASCII, so that lone surrogates and every line separator of Unicode leave one line of valid
        # UTF-8
        line = json.dumps(
            {"kind": kind, **case_first, **encoded}, allow_nan=False, ensure_ascii=True
        )
        with naming(self._path):
            if self._is_to_continue:
                # a header begins the journal of a run that has nothing to keep again
                self._continue(with_lines=kind != "header")
            self.verify(content=kind == "footer")
            self._append(line.encode("ascii") + b"\n")
            if kind in ("header", "footer"):
                os.fsync(self._stream.fileno())

    def verify(self, *, content: bool = True) -> None:
        """Raise ``JournalAltered`` if the path names another file, or the size differs; with
        ``content``, if the content does.

        A journal that is to be continued is not verified before the first write.
        """
        if self._is_to_continue:
            return
        mine = os.fstat(self._stream.fileno())
        problem = ""
        try:
            if not os.path.samestat(os.lstat(self._path), mine):
                problem = "another file is in its place"
            elif mine.st_size != self._size:
                problem = f"it has {mine.st_size} bytes, and {self._size} were written"
            elif content:
                with open_plain(self._path) as stream:
                    if hashlib.sha256(stream.read()).digest() != self._digest.digest():
                        problem = "its content is not what was written"
        except (OSError, JournalError) as error:
            problem = str(error)
        if problem:
            raise JournalAltered(
                f"{self._path}: the journal was changed while the run went on, by a case or "
                f"another program: {problem}"
            )

    def set_aside(self) -> None:
        """Rename an altered journal, so that no reader accepts it."""
        with contextlib.suppress(OSError):
            os.replace(self._path, self._path.with_name(f"{self._path.name}.altered"))
        self.close()

    def close(self) -> None:
        """Close the file; without a footer the run reads as truncated."""
        self._stream.close()

    def _append(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:  # the stream has no buffer
            rest = rest[self._stream.write(rest) :]
        self._size += len(data)
        self._digest.update(data)

    def _continue(self, *, with_lines: bool) -> None:
        """Replace the journal, atomically, by an empty one, or by one with the lines of it that a
        resumed run keeps.
        """
        former = self._stream
        temporary = self._path.parent / f".{self._path.name}.{secrets.token_hex(4)}"
        try:
            self._stream = _open_to_append(temporary)
            with open_plain(self._path) as lines:
                for line in lines if with_lines else ():
                    try:
                        value = json.loads(line)
                    except ValueError:
                        break  # torn: the last one
                    if value["kind"] != "footer" and value.get("outcome") != Outcome.NOT_RUN.label:
                        self._append(line if line.endswith(b"\n") else line + b"\n")
            os.fsync(self._stream.fileno())
            temporary.replace(self._path)
        finally:
            temporary.unlink(missing_ok=True)
        former.close()
        self._is_to_continue = False


def _open_to_append(path: Path) -> io.FileIO:
    """Open a journal unbuffered, so that a failed write is not repeated by ``close``."""
    with naming(path):
        return io.FileIO(
            os.open(
                path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644
            ),
            "ab",
        )
