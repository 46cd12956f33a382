"""``plan``: print the shards of a selection as a work order."""

from runner.core.exit_codes import ExitCode
from runner.core.options import PlanOptions
from runner.run.fleet import work_order


def main(options: PlanOptions) -> ExitCode:
    """Print JSON, or a Slurm script."""
    order = work_order.work_order(options)
    print(work_order.slurm_script(order) if options.slurm else f"{order.to_json()}\n", end="")
    return ExitCode.OK
