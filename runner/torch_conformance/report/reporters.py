"""The table of reporters, and the listener that writes the journal.

A new reporter is a module with a listener, and an entry here.
"""

import contextlib
import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch_conformance.model.events import (
    AttemptFinished,
    CaseFinished,
    ExecutionEnded,
    HeaderCompleted,
    Listener,
    RunAbandoned,
    RunEnded,
    RunEvent,
)
from torch_conformance.model.header import ReportedRun
from torch_conformance.optional.options import MergeOptions, ReportOptions, RunOptions
from torch_conformance.record.journal import JournalWriter
from torch_conformance.record.run_folder import JOURNAL, RunFolder
from torch_conformance.report import FileReport, ReportSetup
from torch_conformance.report.junit import JUnitReporter
from torch_conformance.report.page import PAGE, HtmlReporter
from torch_conformance.report.terminal import TerminalReporter


class JournalReporter:
    """Writes the journal.

    Raises ``JournalAltered`` where anything else wrote to it, and ``OSError`` where there is no
    space left.
    """

    def __init__(self, setup: ReportSetup) -> None:
        self._journal = JournalWriter(setup.folder.path / JOURNAL)
        self.close = self._journal.close
        """Without a footer the run reads as truncated."""

    def on_event(self, event: RunEvent) -> None:
        """Write the line of an event."""
        match event:
            case HeaderCompleted(is_resumed=False):
                self._journal.write("header", event.header)
            case AttemptFinished():
                self._journal.write("attempt", event.result)
            case CaseFinished():
                self._journal.write("case", event.result)
            case ExecutionEnded():
                self._journal.verify()
            case RunEnded():
                self._journal.write("footer", event.footer)
            case RunAbandoned():
                self._journal.set_aside()


@dataclass(frozen=True, slots=True)
class Reporter:
    """An entry of the table.

    A file that the user names for a report is a ``report_file`` (``optional/options``).
    """

    make: Callable[[ReportSetup], Listener]
    commands: Sequence[str] = ("run", "watch", "merge")
    """The commands whose runs it reports."""
    is_wanted: Callable[[Any], bool] = lambda options: True


def _late(module: str, name: str, setup: ReportSetup) -> Listener:
    """Make a reporter that is imported only where it is wanted."""
    reporter: Listener = getattr(
        importlib.import_module(f"torch_conformance.report.{module}"), name
    )(setup)
    return reporter


REPORTERS: Mapping[str, Reporter] = {
    "journal": Reporter(JournalReporter),
    "html": Reporter(HtmlReporter, ("run", "merge", "report")),
    "terminal": Reporter(TerminalReporter, ("run", "watch")),
    "junit": Reporter(JUnitReporter, ("run", "watch", "merge", "report")),
    "support": Reporter(
        partial(_late, "support_table", "SupportReporter"),
        ("run", "merge", "report"),
        lambda options: options.support is not None,
    ),
    "hud": Reporter(
        partial(_late, "hud", "HudReporter"), ("report",), lambda options: options.hud is not None
    ),
    "github": Reporter(
        partial(_late, "github", "GitHubReporter"),
        ("run", "merge"),
        lambda options: (
            options.github == "on"
            or (options.github == "auto" and os.environ.get("GITHUB_ACTIONS") == "true")
        ),
    ),
}
"""In the order in which they receive each event.

The journal is the first: a result that cannot be recorded is not reported.
"""


class Reporters:
    """The listeners of one run of a command, as one listener."""

    def __init__(
        self, command: str, options: RunOptions | MergeOptions | ReportOptions, folder: RunFolder
    ) -> None:
        table = [
            reporter
            for reporter in REPORTERS.values()
            if command in reporter.commands and reporter.is_wanted(options)
        ]
        setup = ReportSetup(
            folder=folder,
            options=options,
            page=PAGE if command in REPORTERS["html"].commands else "",
        )
        self._listeners: list[Listener] = []
        with contextlib.ExitStack() as stack:
            for reporter in table:
                self._listeners.append(reporter.make(setup))
                stack.callback(self._listeners[-1].close)
            self.close = stack.pop_all().close
            """Closes every listener, the last one first."""

    def write(self, run: ReportedRun) -> list[Path]:
        """Write the files of each report; return them."""
        reports = [listener for listener in self._listeners if isinstance(listener, FileReport)]
        files = [(report, path) for report in reports for path in report.files()]
        for report, path in files:
            report.write(path, run)
        return [path for _, path in files]

    def on_event(self, event: RunEvent) -> None:
        """Pass an event to each listener."""
        for listener in self._listeners:
            listener.on_event(event)
