"""The JUnit report: one flat suite for each YAML file; the file is replaced atomically.

``junit_elements`` makes the elements; this module makes one document of them, below the size limit of CI systems.
"""

import functools
import math
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from runner.core.events import HeaderCompleted, ResultsCompleted, RunAbandoned, RunEvent, RunStarted
from runner.core.header import LedgerCount, RunHeader
from runner.core.outcomes import Outcome
from runner.core.results import CaseResult
from runner.report import TEXT_LIMIT
from runner.report.files import is_special, replace
from runner.report.junit_elements import (
    REPORT_NAME,
    decimal,
    forget_files,
    ledger_properties,
    left_out,
    make_strict,
    properties_of,
    seconds_of,
    spec_file,
    suite_of,
    truncated_suite,
)
from runner.report.setup import ReportSetup

__all__ = ["FILE_LIMIT", "JUnitReporter", "spec_file", "write_junit", "write_stub"]

FILE_LIMIT = 29_000_000
"""The maximum size in bytes; GitLab reads at most 30 MB."""

_TEXT_LIMITS = (TEXT_LIMIT, 16_000, 4_000, 1_000, 250, 0)
"""Bytes of text for each case: the first value that keeps the file below its limit is used. Cases are never dropped."""
_TOTALS = ("tests", "failures", "errors")
_TRUNCATED = "the run did not reach its end; cases that are not in this report were not judged"


class JUnitReporter:
    """Writes a stub when a run begins, and the report when all results are known."""

    def __init__(self, setup: ReportSetup) -> None:
        self._folder = setup.folder
        self._flavour = setup.junit_flavour
        self._page = setup.page

    def on_event(self, event: RunEvent) -> None:
        """Write the files that are due."""
        match event:
            case RunStarted(is_resumed=False) | HeaderCompleted(is_resumed=True):
                for path in self._folder.junit_files:
                    write_stub(path, event.header, flavour=self._flavour)
            case ResultsCompleted():
                for path in self._folder.junit_files:
                    self._write(path, event)
            case RunAbandoned():
                for path in self._folder.junit_files:
                    self._write(path, event)

    def _write(self, path: Path, event: ResultsCompleted | RunAbandoned) -> None:
        write_junit(
            path,
            event.header,
            event.results,
            truncated=isinstance(event, RunAbandoned),
            why=event.why if isinstance(event, RunAbandoned) else "",
            folder=self._folder.path,
            ledgers=event.footer.ledgers if isinstance(event, ResultsCompleted) else (),
            flavour=self._flavour,
            page=self._page,
        )

    def close(self) -> None:
        """Release nothing: every file is written at once."""


def write_stub(path: Path, header: RunHeader, *, flavour: str = "default") -> None:
    """Write the report of a run that has just begun, so that a killed run has a failing report. Pipes and devices get none."""
    if is_special(path):
        return
    write_junit(path, header, (), truncated=True, flavour=flavour)


def write_junit(
    path: Path,
    header: RunHeader,
    results: Sequence[CaseResult],
    *,
    truncated: bool = False,
    folder: Path | None = None,
    why: str = "",
    ledgers: Sequence[LedgerCount] = (),
    flavour: str = "default",
    page: str = "",
) -> None:
    """Write the report, and replace a former one atomically.

    ``why`` is the reason why a run is truncated; the counts of ``ledgers`` stand in the first suite. With the run's ``folder``, cases
    list their attachments in the form for CI systems; with its ``page``, the name of the HTML report in it, red ones have their
    address there. The ``flavour`` ``strict`` is valid for Jenkins' xunit plugin.
    """
    _refuse_impossible(results)
    forget_files()
    document = functools.partial(
        _document, header, results, truncated=truncated, folder=folder, why=why, ledgers=ledgers, flavour=flavour, page=page
    )
    replace(path, _fitting(document))


def document_of(header: RunHeader, results: Sequence[CaseResult], ledgers: Sequence[LedgerCount] = ()) -> bytes:
    """Return the report of a run that has ended, without files beside it: a submission holds it."""
    _refuse_impossible(results)
    forget_files()
    return _fitting(functools.partial(_document, header, results, truncated=False, folder=None, ledgers=ledgers))


def _fitting(document: Callable[..., bytes]) -> bytes:
    """Return the document with the most text that fits into the limit, or else with the least text.

    The least is tried second: if it is too large itself, the sizes between are skipped.
    """
    largest, *between, smallest = _TEXT_LIMITS
    if whole := document(limit=largest, most=FILE_LIMIT):
        return whole
    least = document(limit=smallest, most=None)
    fitting = (document(limit=limit, most=FILE_LIMIT) for limit in between) if len(least) <= FILE_LIMIT else iter(())
    return next((data for data in fitting if data), least)


def _refuse_impossible(results: Iterable[CaseResult]) -> None:
    seen: set[str] = set()
    for result in results:
        if result.outcome is not Outcome.PASS and not result.reason.strip():
            raise ValueError(f"{result.case_id}: {result.outcome.label} without a reason")
        if result.case_id in seen:
            raise ValueError(f"{result.case_id} has two results")
        seen.add(result.case_id)


class _Suites:
    """The suites as text: elements of all suites together need many times the memory."""

    def __init__(self, *, is_strict: bool) -> None:
        self._is_strict = is_strict
        self._texts: list[bytes] = []
        self._totals = dict.fromkeys(_TOTALS, 0)
        self.size = 0

    def __len__(self) -> int:
        return len(self._texts)

    def append(self, suite: ET.Element) -> None:
        for total in _TOTALS:
            self._totals[total] += int(suite.get(total, "0"))
        if self._is_strict:
            make_strict(suite)
        ET.indent(suite, level=1)
        text = b"\n  " + ET.tostring(suite, encoding="utf-8")
        self._texts.append(text)
        self.size += len(text)

    def document(self, seconds: float) -> bytes:
        """Return the document, indented like one tree."""
        totals = {name: str(total) for name, total in self._totals.items()}
        root = ET.Element("testsuites", {"name": REPORT_NAME, **totals, "time": decimal(seconds)})
        end = b"</testsuites>"
        if not self._texts:
            return bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"
        head = bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True, short_empty_elements=False)).removesuffix(end)
        return b"".join([head, *self._texts, b"\n", end, b"\n"])


def _document(
    header: RunHeader,
    results: Sequence[CaseResult],
    *,
    truncated: bool,
    limit: int,
    folder: Path | None,
    most: int | None = None,
    why: str = "",
    ledgers: Sequence[LedgerCount] = (),
    flavour: str = "default",
    page: str = "",
) -> bytes:
    """Return the report; empty if it would have more than ``most`` bytes."""
    properties = properties_of(header, results)
    suites = _Suites(is_strict=flavour == "strict")
    if truncated:
        suites.append(truncated_suite(header, properties, why or _TRUNCATED))
    for spec, group in _by_spec(results).items():
        # the properties of the run stand once: a reader shows those of every suite
        said = {} if suites else {**properties, **ledger_properties(ledgers)}
        suites.append(suite_of(spec, group, header, properties={**said, **left_out(group)}, limit=limit, folder=folder, page=page))
        if most is not None and suites.size > most:
            return b""
    data = suites.document(math.fsum(seconds_of(result) for result in results))
    return b"" if most is not None and len(data) > most else data


def _by_spec(results: Iterable[CaseResult]) -> Mapping[str, list[CaseResult]]:
    groups: dict[str, list[CaseResult]] = {}
    for result in results:
        groups.setdefault(result.spec, []).append(result)
    return groups
