"""The terminal as a listener: live progress and messages on standard error, the final report on standard output."""

import os
import shlex
from pathlib import Path

from runner.core.conformance import Conformance
from runner.core.diagnostics import shown_path
from runner.core.events import (
    AttemptFinished,
    CaseFinished,
    ExecutionEnded,
    Note,
    RunAbandoned,
    RunEnded,
    RunEvent,
    RunStarted,
    Waiting,
    Warned,
)
from runner.core.exit_codes import ExitCode
from runner.report import one_line, plain, statement
from runner.report.console import print_report, wants_bar, wants_color, why_nothing
from runner.report.excerpts import Excerpts
from runner.report.progress import Progress, can_draw
from runner.report.setup import ReportSetup
from runner.system import output

_LONGEST_WARNING = 2_000
"""Characters."""


class TerminalReporter:
    """Shows a run to the person who started it."""

    def __init__(self, setup: ReportSetup) -> None:
        self._setup = setup
        self._is_executing = True
        stream = output.stderr()
        live = wants_bar(stream, os.environ) and can_draw()
        self._progress = Progress(stream, color=wants_color(stream, os.environ), live=live, lets_flaky_pass=setup.lets_flaky_pass)

    def on_event(self, event: RunEvent) -> None:
        """Show an event."""
        match event:
            case RunStarted():
                self._progress.start(event.total)
            case Waiting():
                self._progress.show(event.activity)
            case AttemptFinished():
                self._progress.attempt_finished(event.result, f"attempt {event.number} of {event.bound}")
            case CaseFinished():
                self._progress.case_finished(event.result)
            case ExecutionEnded() | RunAbandoned():
                self._is_executing = False
                self._progress.close()
            case Warned():
                output.note(f"warning: {one_line(event.text, _LONGEST_WARNING)}")
            case Note() if self._is_executing:
                self._progress.note(event.text)
            case Note():
                output.note(event.text)
            case RunEnded():
                self._report(event)

    def close(self) -> None:
        """Remove the live status."""
        self._progress.close()

    def _report(self, ended: RunEnded) -> None:
        folder, results = self._setup.folder, ended.results
        print_report(
            output.stdout(),
            results,
            len(results),
            folder.shown_junit,
            color=wants_color(output.stdout(), os.environ),
            lets_flaky_pass=ended.header.lets_flaky_pass,
            folder=Path(shown_path(folder.path)),
            not_requested=ended.header.not_requested,
            source=Excerpts(ended.header.specs),
            coverage=[*map(plain, ended.void_waivers), *statement.lines_of(ended.footer)],
            page=folder.page,
        )
        for stated in ended.footer.statement:
            if stated.conformance is not Conformance.CONFORMANT:
                output.note(statement.why(stated))
        is_nothing = ended.footer.exit_code == ExitCode.NOTHING and not ended.footer.statement
        # where --min-executed is met, exit code 4 has another reason, which is printed already
        if is_nothing and results and sum(result.is_executed for result in results) < max(self._setup.min_executed, 1):
            output.note(why_nothing(results, self._setup.min_executed, len(results)))
        if ended.footer.interrupted:
            output.note(f"to resume: the same command with --resume {shlex.quote(shown_path(folder.path))}")
