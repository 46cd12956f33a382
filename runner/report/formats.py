"""The table of report formats besides JUnit, and the listener that writes one of them.

Each format is a function from a ``RunReport`` to JSON. A file is replaced atomically: first by a report of a truncated run, so that a
killed run leaves a failure, and at the end by the whole.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from runner.core.escaping import json_text
from runner.core.events import HeaderCompleted, Listener, ResultsCompleted, RunAbandoned, RunEvent, RunStarted
from runner.core.options import option_of
from runner.report import badge, code_quality, ctrf, sarif
from runner.report.files import is_special, replace
from runner.report.junit_elements import forget_files
from runner.report.run_report import RunReport
from runner.report.setup import ReportSetup

Document: TypeAlias = Callable[[RunReport, int], object]

FORMATS: Mapping[str, Document] = {
    "ctrf": ctrf.document,
    "sarif": sarif.document,
    "code_quality": code_quality.document,
    "badge": badge.document,
}
"""What makes the report of each field of ``REPORT_FILES``; the second argument is how many bytes of text a case may have."""

EVENTS: tuple[type[RunEvent], ...] = (RunStarted, HeaderCompleted, ResultsCompleted, RunAbandoned)
"""The events at which files are written."""

FILE_LIMIT = 29_000_000
"""The maximum size in bytes, as of JUnit. Texts are shortened to it, cases are never dropped."""

_TEXT_LIMITS = (64_000, 16_000, 4_000, 1_000, 0)


@dataclass(frozen=True, slots=True)
class FormatReporter:
    """Writes one format to the file of its option, where the option is given."""

    document: Document
    setup: ReportSetup
    path: Path | None

    def on_event(self, event: RunEvent) -> None:
        """Write the file if it is due. A pipe or a device gets the last report alone."""
        if self.path is None:
            return
        folder = self.setup.folder.path
        match event:
            case RunStarted(is_resumed=False) | HeaderCompleted(is_resumed=True):
                if not is_special(self.path):
                    write(self.path, self.document, RunReport(header=event.header, results=(), folder=folder))
            case ResultsCompleted():
                whole = RunReport(header=event.header, results=event.results, footer=event.footer, folder=folder)
                write(self.path, self.document, whole)
            case RunAbandoned():
                write(self.path, self.document, RunReport(header=event.header, results=event.results, why=event.why, folder=folder))

    def close(self) -> None:
        """Release nothing: every file is written at once."""


def maker(name: str) -> Callable[[ReportSetup], Listener]:
    """Return what makes the listener of a format, for the table of reporters."""
    return lambda setup: FormatReporter(FORMATS[name], setup, setup.folder.report_files.get(option_of(name)))


def write(path: Path, document: Document, report: RunReport) -> None:
    """Write a report with the most text that fits into the limit."""
    forget_files()
    replace(path, text_of(document, report))


def text_of(document: Document, report: RunReport) -> bytes:
    """Return a report as JSON in ASCII, with the most text that fits into the limit."""
    data = b""
    for limit in _TEXT_LIMITS:
        data = f"{json_text(document(report, limit))}\n".encode("ascii")
        if len(data) <= FILE_LIMIT:
            break
    return data
