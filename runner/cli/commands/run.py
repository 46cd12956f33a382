"""``run``: load, select, execute, judge, record, report. The stages are in ``run/controller``."""

from runner.core.exit_codes import ExitCode
from runner.core.options import RunOptions
from runner.report import table
from runner.run import controller


def main(options: RunOptions) -> ExitCode:
    """Run the selected cases; return the exit code for CI systems."""
    return controller.run(options, table.of_run)
