"""``report``: write the reports of a recorded run again."""

import webbrowser
from dataclasses import dataclass
from pathlib import Path

from runner.machine import output
from runner.model.diagnostics import shown_path
from runner.model.escaping import one_line
from runner.model.options import argument, flag, flavour_option, option
from runner.model.outcomes import ExitCode
from runner.report.recorded_run import write_again


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """The options of ``report``."""

    run: str = argument("RUN", "a run: its folder, its id, or latest")
    junit: Path | None = option("FILE", "write the JUnit report of the run to this file", reads=Path)
    junit_flavour: str = flavour_option()
    open: bool = flag("also open the page in a browser")


def main(options: ReportOptions) -> ExitCode:
    """Write the page and print its path. The exit code says nothing about the outcomes of the run; what is wrong with it is a note."""
    page, report = write_again(options.run, options.junit, options.junit_flavour)
    output.raw(f"{one_line(shown_path(page))}\n")
    if options.junit is not None:
        output.line(f"junit: {shown_path(options.junit)}")
    for problem in report.problems:
        output.note(problem)
    if options.open and not webbrowser.open(page.as_uri()):
        output.note("no browser could be opened; open the page yourself")
    return ExitCode.OK
