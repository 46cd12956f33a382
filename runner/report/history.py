"""Adds a run to the history when it has ended. A problem with the history is a warning: the run's folder has everything."""

import shlex
from pathlib import Path

from runner.core.diagnostics import UsageError, shown_path
from runner.core.events import RunEnded, RunEvent
from runner.report.setup import ReportSetup
from runner.system import output


class HistoryReporter:
    """Adds the run to the file that ``--history`` or the environment names, or to the default file where that exists."""

    def __init__(self, setup: ReportSetup) -> None:
        self._named = setup.history
        self._folder = setup.folder.path

    def on_event(self, event: RunEvent) -> None:
        """Add the run at its end."""
        if isinstance(event, RunEnded):
            self._add(event)

    def close(self) -> None:
        """Release nothing."""

    def _add(self, event: RunEnded) -> None:
        from runner.record.history.adding import EndedRun, add
        from runner.record.history.database import file_of_run, opened

        path = file_of_run(self._named)
        if path is None:
            return
        try:
            with opened(path, writes=True) as connection:
                add(connection, EndedRun(header=event.header, results=event.results, footer=event.footer))
        except (UsageError, OSError) as error:
            why = f"{shown_path(path)}: {error.strerror}" if isinstance(error, OSError) else str(error)
            output.note(f"warning: this run is not in the history: {why}; later: {self._again(path)}")

    def _again(self, path: Path) -> str:
        return shlex.join(["torch-conformance", "history", "add", shown_path(self._folder), "--history", shown_path(path)])
