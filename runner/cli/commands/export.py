"""``export``: the reports of a recorded run, written again in other formats."""

from runner.core.diagnostics import UsageError
from runner.core.exit_codes import ExitCode
from runner.core.options import REPORT_FILES, ExportOptions, option_of
from runner.report.exporting import export
from runner.system import output


def main(options: ExportOptions) -> ExitCode:
    """Write the files, and say what is wrong with the run itself."""
    files = options.files.by_option()
    if not files:
        names = ", ".join(map(option_of, ("junit", *REPORT_FILES)))
        raise UsageError(f"export writes the files that you name, and none is named (add one of {names}, each with a file)")
    report = export(options.run, files, options.files.junit_flavour)
    for option, path in files.items():
        output.line(f"{option.removeprefix('--')}: {path}")
    for problem in report.problems:
        output.note(f"{problem.kind}: {problem.text}")
    return ExitCode.OK
