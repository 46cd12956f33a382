"""The table of reporters, and the listener that writes the journal. A new reporter is a module with a listener, and an entry here."""

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from runner.model.events import AttemptFinished, CaseFinished, ExecutionEnded, HeaderCompleted, Listener, RunAbandoned, RunEnded, RunEvent
from runner.model.options import MergeOptions, RunOptions
from runner.record.journal_writer import JournalWriter
from runner.record.run_folder import RunFolder
from runner.report import ReportSetup
from runner.report.junit import JUnitReporter
from runner.report.page import PAGE, HtmlReporter
from runner.report.terminal import TerminalReporter


class JournalReporter:
    """Writes the journal. Raises ``JournalAltered`` where anything else wrote to it, and ``OSError`` where there is no space left."""

    def __init__(self, setup: ReportSetup) -> None:
        self._journal = JournalWriter(setup.folder.journal)

    def on_event(self, event: RunEvent) -> None:
        """Write the line of an event."""
        match event:
            case HeaderCompleted(is_resumed=False):
                self._journal.write_header(event.header)
            case AttemptFinished():
                self._journal.write_attempt(event.result)
            case CaseFinished():
                self._journal.write_case(event.result)
            case ExecutionEnded():
                self._journal.verify()
            case RunEnded():
                self._journal.write_footer(event.footer)
            case RunAbandoned():
                self._journal.set_aside()

    def close(self) -> None:
        """Close the file; without a footer the run reads as truncated."""
        self._journal.close()


@dataclass(frozen=True, slots=True)
class Reporter:
    """An entry of the table."""

    name: str
    make: Callable[[ReportSetup], Listener]
    writes_files: bool = False
    """Whether it writes files; these are written for a merged run too."""


def _github(setup: ReportSetup) -> Listener:
    from runner.report.github import GitHubReporter  # only where GitHub reads it

    return GitHubReporter(setup)


REPORTERS: tuple[Reporter, ...] = (
    Reporter("journal", JournalReporter, writes_files=True),
    Reporter("html", HtmlReporter, writes_files=True),
    Reporter("terminal", TerminalReporter),
    Reporter("junit", JUnitReporter, writes_files=True),
    Reporter("github", _github, writes_files=True),
)
"""In the order in which they receive each event. The journal is the first: a result that cannot be recorded is not reported."""


class Reporters:
    """The listeners of one run, as one listener."""

    def __init__(self, table: Sequence[Reporter], setup: ReportSetup) -> None:
        self._open: list[Listener] = []
        with contextlib.ExitStack() as stack:
            for reporter in table:
                listener = reporter.make(setup)
                stack.callback(listener.close)
                self._open.append(listener)
            self._stack = stack.pop_all()

    def on_event(self, event: RunEvent) -> None:
        """Pass an event to each listener."""
        for listener in self._open:
            listener.on_event(event)

    def close(self) -> None:
        """Close every listener, the last one first."""
        self._stack.close()


def of_run(options: RunOptions, folder: RunFolder) -> Reporters:
    """Return the listeners of ``run``."""
    return _reporters(REPORTERS, options, folder, page=PAGE)


_OF_WATCH = ("journal", "terminal", "junit")
"""What a run of ``watch`` writes: what people read between two saves, and what the other commands read. The rest would take time."""


def of_watch(options: RunOptions, folder: RunFolder) -> Reporters:
    """Return the listeners of a run of ``watch``."""
    return _reporters([reporter for reporter in REPORTERS if reporter.name in _OF_WATCH], options, folder)


def of_merge(options: MergeOptions, folder: RunFolder) -> Reporters:
    """Return the listeners of ``merge``: those that write files."""
    return _reporters([reporter for reporter in REPORTERS if reporter.writes_files], options, folder, page=PAGE)


def _reporters(table: Sequence[Reporter], options: RunOptions | MergeOptions, folder: RunFolder, page: str = "") -> Reporters:
    setup = ReportSetup(folder=folder, junit_flavour=options.junit_flavour, page=page)
    is_on_github = os.environ.get("GITHUB_ACTIONS") == "true"
    tells_github = options.github == "on" or (options.github == "auto" and is_on_github)
    return Reporters([reporter for reporter in table if reporter.name != "github" or tells_github], setup)
