"""``plan``: print the shards of a selection as a work order."""

from runner.core.exit_codes import ExitCode
from runner.core.options import PlanOptions
from runner.run.fleet import work_order
from runner.system import output


def main(options: PlanOptions) -> ExitCode:
    """Print JSON, or a Slurm script."""
    order = work_order.work_order(options)
    if options.slurm:
        output.lines(work_order.slurm_script(order).splitlines())
    else:
        output.document(order.as_json())
    return ExitCode.OK
