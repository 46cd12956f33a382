"""The journal as a listener: the first in the table, so that every reported result is recorded."""

from runner.core.events import (
    AttemptFinished,
    CaseFinished,
    CaseUnfinished,
    ExecutionEnded,
    HeaderCompleted,
    RunAbandoned,
    RunEnded,
    RunEvent,
)
from runner.record.journal import JournalWriter
from runner.report.setup import ReportSetup


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
            case CaseFinished() | CaseUnfinished():
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
