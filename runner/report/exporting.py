"""Writes the reports of a run that was recorded. Nothing is judged: what the journal says is written."""

from collections.abc import Mapping
from pathlib import Path

from runner.core.diagnostics import UsageError
from runner.core.options import REPORT_FILES, option_of
from runner.record.journal import JournalError, read_run
from runner.record.report_paths import require_free_reports
from runner.record.run_folder import JOURNAL, find_run, require_still
from runner.report.formats import FORMATS, write
from runner.report.html.writing import PAGE
from runner.report.junit import write_junit
from runner.report.run_report import RunReport


def export(name: str, files: Mapping[str, Path], junit_flavour: str = "default") -> RunReport:
    """Write the files of a recorded run; raise ``UsageError`` if a file cannot be written, or the run cannot be read, or is still written.

    ``name`` is the run's folder, its id or ``latest``.
    """
    require_free_reports(files)
    folder = find_run(name)
    require_still(name, folder)
    try:
        run = read_run(folder / JOURNAL)
    except JournalError as error:
        raise UsageError(f"{folder / JOURNAL}:{error.line}: {error.reason}") from error
    report = RunReport(header=run.header, results=run.results, footer=run.footer, folder=folder)
    write_reports(report, files, junit_flavour)
    return report


def write_reports(report: RunReport, files: Mapping[str, Path], junit_flavour: str = "default") -> None:
    """Write the report of a run to each file, by its option: ``{"--sarif": Path("results.sarif")}``."""
    if (path := files.get("--junit")) is not None:
        write_junit(
            path,
            report.header,
            report.results,
            truncated=report.footer is None,
            folder=report.folder,
            why=report.why,
            ledgers=report.footer.ledgers if report.footer is not None else (),
            flavour=junit_flavour,
            page=PAGE if report.folder is not None and (report.folder / PAGE).is_file() else "",
        )
    for name in REPORT_FILES:
        if (path := files.get(option_of(name))) is not None:
            write(path, FORMATS[name], report)
