"""The HTML report as a listener: it writes the page once the journal has its footer, before the terminal names it."""

from runner.core.diagnostics import shown_path
from runner.core.escaping import one_line
from runner.core.events import RunAbandoned, RunEnded, RunEvent
from runner.record.run_folder import LATEST, REPORTS
from runner.report.html.writing import PAGE, remove_page, write_page
from runner.report.setup import ReportSetup
from runner.system import output


class HtmlReporter:
    """Writes the page; the terminal names it. The run has ended by then: a page that cannot be written is a warning."""

    def __init__(self, setup: ReportSetup) -> None:
        self._folder = setup.folder

    def on_event(self, event: RunEvent) -> None:
        """Write the page of a run that ended; remove that of a run whose records cannot be believed."""
        match event:
            case RunEnded():
                self._write(event)
            case RunAbandoned():
                remove_page(self._folder.path)

    def close(self) -> None:
        """Release nothing: every file is written at once."""

    def _write(self, ended: RunEnded) -> None:
        try:
            write_page(self._folder.path, ended.header, ended.results, ended.footer)
            self._folder.page = shown_path((REPORTS / LATEST if self._folder.is_latest else self._folder.path) / PAGE)
        except OSError as error:
            where = f" {error.filename}" if error.filename else ""
            self._warn(f"cannot write{where}: {error.strerror or error}")
        except Exception as error:
            # the journal is complete and says how the run ended: a defect of the page must not change the exit code
            self._warn(f"{type(error).__name__}: {error}; this is a bug of torch-conformance, please report it")

    def _warn(self, why: str) -> None:
        """Remove a page of an earlier part of the run, which has other results."""
        remove_page(self._folder.path)
        output.note(f"warning: the HTML report was not written: {one_line(why)}")
