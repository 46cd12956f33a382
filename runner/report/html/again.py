"""Writes the page of a recorded run again, from its journal and the files that are still there."""

from pathlib import Path

from runner.core.diagnostics import UsageError
from runner.record.journal import JournalError, read_run
from runner.record.run_folder import JOURNAL, find_run, require_still
from runner.report.html.writing import write_page


def write_again(name: str) -> Path:
    """Return the page of a run; raise ``UsageError`` for a run that cannot be read, or that a process is still writing."""
    folder = find_run(name)
    require_still(name, folder)
    try:
        run = read_run(folder / JOURNAL)
    except JournalError as error:
        raise UsageError(f"{name}: {folder / JOURNAL}:{error.line}: {error.reason}") from error
    try:
        return write_page(folder, run.header, run.results, run.footer)
    except PermissionError as error:
        raise UsageError(f"{name}: cannot write to {folder}: {error.strerror}; copy the run to a folder that you may write to") from error
