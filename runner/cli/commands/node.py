"""``node``: make this machine a node of a lab."""

from runner.core.exit_codes import ExitCode
from runner.core.options import NodeOptions
from runner.run.fleet import joining


def main(options: NodeOptions) -> ExitCode:
    """Join a cluster; return when the node leaves it."""
    return joining.join(options)
