"""Writes the reports of a recorded run again, from its journal and the files that are still there. Nothing is judged."""

from pathlib import Path

from runner.model.diagnostics import UsageError
from runner.record.journal import JournalError, read_run
from runner.record.run_folder import JOURNAL, find_run, require_free_report, require_still
from runner.report.github import RunReport
from runner.report.html.writing import write_page
from runner.report.junit import write_junit


def write_again(name: str, junit: Path | None = None, flavour: str = "default") -> tuple[Path, RunReport]:
    """Write the page of a run, and the JUnit report where a file is named; return the page, and what is wrong with the run itself.

    Raise ``UsageError`` for a run that cannot be read, or that a process is still writing, and for a file that cannot be written.
    """
    require_free_report(junit)
    folder = find_run(name)
    require_still(name, folder)
    try:
        run = read_run(folder / JOURNAL)
    except JournalError as error:
        raise UsageError(f"{name}: {folder / JOURNAL}:{error.line}: {error.reason}") from error
    report = RunReport(header=run.header, results=tuple(run.results), footer=run.footer, folder=folder)
    try:
        page = write_page(folder, run.header, run.results, run.footer)
    except PermissionError as error:
        raise UsageError(f"{name}: cannot write to {folder}: {error.strerror}; copy the run to a folder that you may write to") from error
    if junit is not None:
        write_junit(junit, run.header, run.results, truncated=run.footer is None, folder=folder, flavour=flavour, page=page.name)
    return page, report
