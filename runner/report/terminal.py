"""The terminal as a listener: live progress and messages on standard error, the final report on standard output."""

import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from runner.machine import output
from runner.model.conformance import Conformance
from runner.model.diagnostics import shown_path
from runner.model.events import (
    Activity,
    AttemptFinished,
    CaseFinished,
    ExecutionEnded,
    Note,
    RunAbandoned,
    RunEnded,
    RunEvent,
    RunStarted,
)
from runner.model.exit_codes import ExitCode
from runner.model.header import RunFooter, RunHeader
from runner.model.results import CaseResult, executed
from runner.record.run_folder import RunFolder
from runner.report import one_line, statement
from runner.report.console import print_report, wants_bar, wants_color, why_nothing
from runner.report.excerpts import Excerpts
from runner.report.progress import Progress
from runner.report.setup import ReportSetup

_LONGEST_WARNING = 2_000
"""Characters."""


class TerminalReporter:
    """Shows a run to the person who started it."""

    def __init__(self, setup: ReportSetup) -> None:
        self._folder = setup.folder
        self._is_executing = True
        stream = output.stderr()
        self._progress = Progress(stream, color=wants_color(stream, os.environ), live=wants_bar(stream, os.environ))

    def on_event(self, event: RunEvent) -> None:
        """Show an event."""
        match event:
            case RunStarted():
                self._progress.start(event.total, lets_flaky_pass=event.header.lets_flaky_pass)
            case Activity():
                self._progress.show(event)
            case AttemptFinished():
                self._progress.attempt_finished(event.result, f"attempt {event.number} of {event.bound}")
            case CaseFinished(had_all_attempts=True):
                self._progress.case_finished(event.result)
            case ExecutionEnded() | RunAbandoned():
                self._is_executing = False
                self._progress.close()
            case Note(is_warning=True):
                output.note(f"warning: {one_line(event.text, _LONGEST_WARNING)}")
            case Note() if self._is_executing:
                self._progress.note(event.text)
            case Note():
                output.note(event.text)
            case RunEnded():
                show_end(self._folder, event.header, event.results, event.footer)
                for line in why_no_success(event.header, event.results, event.footer) if event.results else ():
                    output.note(line)
                if event.footer.interrupted:
                    output.note(f"to resume: the same command with --resume {shlex.quote(shown_path(self._folder.path))}")

    def close(self) -> None:
        """Remove the live status."""
        self._progress.close()


def show_end(folder: RunFolder, header: RunHeader, results: Sequence[CaseResult], footer: RunFooter) -> None:
    """Print the report of a run, or of a merged one, on standard output."""
    print_report(
        output.stdout(),
        results,
        header.selected,
        folder.shown_junit,
        color=wants_color(output.stdout(), os.environ),
        lets_flaky_pass=header.lets_flaky_pass,
        folder=Path(shown_path(folder.path)),
        not_requested=header.not_requested,
        source=Excerpts(header.specs),
        more=[line for stated in footer.statement for line in statement.lines_of_statement(stated)],
        page=folder.page,
    )


def why_no_success(header: RunHeader, results: Sequence[CaseResult], footer: RunFooter) -> Iterator[str]:
    """Yield why a run in which nothing failed is no success. Names of ``--require`` that no case used are not among it."""
    yield from (statement.why(stated) for stated in footer.statement if stated.conformance is not Conformance.CONFORMANT)
    least = int(header.options.get("min-executed", "1"))
    is_short = executed(results) < (max(least, 1) if footer.exit_code == ExitCode.NOTHING else 1)
    if is_short and footer.exit_code in (ExitCode.NOTHING, ExitCode.FAILED) and not footer.statement:
        yield why_nothing(results, least, header.selected)
