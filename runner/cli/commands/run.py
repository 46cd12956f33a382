"""``run``: load, select, execute, judge, record, report. The stages are in ``run/controller``."""

from runner.model.options import RunOptions
from runner.model.outcomes import ExitCode
from runner.report import reporters
from runner.run import controller


def main(options: RunOptions) -> ExitCode:
    """Run the selected cases; return the exit code for CI systems."""
    return controller.run(options, reporters.of_run)
