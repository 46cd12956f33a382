"""Reads a journal: checks the form of its lines, and optionally that no lines contradict each other."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from runner.core.case import CaseId
from runner.core.header import RunFooter, RunHeader
from runner.core.outcomes import Outcome
from runner.core.results import CaseResult
from runner.record import consistency
from runner.record.journal.contents import Run, digest_of_selection, totals
from runner.record.journal.files import open_plain
from runner.record.journal.lines import AttemptLine, JournalError, Record, decode, parse


def read_run(path: Path) -> Run:
    """Read a journal, whole or truncated; raise ``JournalError`` for an invalid journal, or for lines that contradict each other."""
    return _read(path, _Reader(checks=True))


def read_form(path: Path) -> Run:
    """Read a journal like ``read_run``, but without the check for contradictions: for the writer of a resumed run."""
    return _read(path, _Reader(checks=False))


def _read(path: Path, reader: "_Reader") -> Run:
    number = 0
    for number, record in _records(path):
        if problem := reader.take(record):
            raise JournalError(number, problem)
    if reader.header is None:
        raise JournalError(1, "no header")
    if problem := reader.problem_of_end():
        raise JournalError(number, problem)
    return reader.run()


class _Reader:
    """Collects the lines of a journal, one after another."""

    def __init__(self, *, checks: bool) -> None:
        self._checks = checks
        self.header: RunHeader | None = None
        self._footer: RunFooter | None = None
        self._results: dict[CaseId, CaseResult] = {}
        self._attempts: dict[CaseId, list[CaseResult]] = {}

    def take(self, record: Record) -> str:
        """Take a line; return what is wrong with it, else an empty string."""
        if isinstance(record, RunHeader):
            return self._take_header(record)
        if self.header is None:
            return "the first line is no header"
        if self._footer is not None:
            return "a line after the footer"
        if isinstance(record, RunFooter):
            self._footer = record
            return self._problem_of_footer(record)
        return self._take_attempt(record.result) if isinstance(record, AttemptLine) else self._take_case(record)

    def _take_header(self, header: RunHeader) -> str:
        if self.header is not None:
            return "a second header"
        self.header = header
        if not self._checks:
            return ""
        said = {"retries": header.retries, "repeat": header.repeat, "flaky": header.flaky, "shard": header.shard}
        if problem := consistency.of_profile(header.profile):
            return problem
        if header.selected > header.selected_whole > 0:
            return f"{header.selected} cases are selected of {header.selected_whole}"
        return consistency.of_options(header.options, said)

    def _take_attempt(self, result: CaseResult) -> str:
        if result.case_id in self._results:
            return f"an attempt of {result.case_id!r}, which had ended"
        if self._checks and (result.attempts or result.outcome in (Outcome.NOT_RUN, Outcome.FLAKY)):
            return f"{result.case_id!r}: an attempt of attempts"
        self._attempts.setdefault(result.case_id, []).append(result)
        return self._contradiction(result)

    def _take_case(self, result: CaseResult) -> str:
        if result.case_id in self._results:
            return f"a second line for the case {result.case_id!r}"
        self._results[result.case_id] = result
        made = self._attempts.get(result.case_id, [])
        if result.outcome is not Outcome.NOT_RUN:  # it has attempts left
            self._attempts.pop(result.case_id, None)
            if problem := self._problem_of_attempts(result, made):
                return f"{result.case_id!r}: {problem}"
        return self._contradiction(result)

    def _problem_of_attempts(self, result: CaseResult, made: Sequence[CaseResult]) -> str:
        assert self.header is not None
        is_merged = bool(self.header.merged)  # a merge writes no line for an attempt
        return "" if not self._checks or is_merged or not (made or result.attempts) else consistency.of_attempt_lines(result, made)

    def _contradiction(self, result: CaseResult) -> str:
        assert self.header is not None
        if not self._checks:
            return ""
        problem = consistency.of_result(result, retries=self.header.retries, repeat=self.header.repeat)
        return f"{result.case_id!r}: {problem}" if problem else ""

    def _problem_of_footer(self, footer: RunFooter) -> str:
        assert self.header is not None
        if not self._checks:
            return ""
        results = list(self._results.values())
        problem = consistency.of_footer(
            results,
            selected=self.header.selected,
            options=self.header.options,
            totals=(footer.totals, totals(results)),
            ended=(footer.exit_code, footer.interrupted),
            lets_flaky_pass=self.header.lets_flaky_pass,
            statements=(next(iter(footer.statement), None), self.header.statement(results)),
        )
        problem = problem or consistency.of_audit(footer.audit, results)
        is_whole = self.header.selection and not self.header.shard
        return problem or (consistency.of_selection(results, self.header.selection, digest_of_selection) if is_whole else "")

    def problem_of_end(self) -> str:
        """Return which lines contradict each other, after all lines are read."""
        return consistency.of_results(list(self._results.values())) if self._checks else ""

    def run(self) -> Run:
        """Return what was read."""
        assert self.header is not None
        pending = {case_id: tuple(made) for case_id, made in self._attempts.items()}
        return Run(header=self.header, results=tuple(self._results.values()), footer=self._footer, attempts=pending)


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
