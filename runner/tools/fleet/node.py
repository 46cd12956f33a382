"""``python -m runner.tools.fleet.node``: make this machine a node of a lab.

A worker is asked for the facts of this machine, which are compared with its entry in the file of the lab; with these facts as labels the
machine joins a Ray cluster. The Python and the torch of this environment run the cases. Ctrl-C leaves the cluster.
"""

import sys
from collections.abc import Sequence

from runner.cli.parser import Parser, add_options, answered, guarded_code, values_of
from runner.machine.search_path import leave_out_working_folder
from runner.tools.fleet.joining import NodeOptions


def main(argv: Sequence[str]) -> int:
    """Join a cluster; return when the node leaves it."""

    def answer() -> int:
        command = Parser(prog="python -m runner.tools.fleet.node", description=__doc__)
        add_options(command, NodeOptions)
        options = NodeOptions(**values_of(command.parse_args(argv)))
        from runner.tools.fleet import joining

        return answered(lambda: joining.join(options), argv)

    return guarded_code(answer)


if __name__ == "__main__":
    leave_out_working_folder()
    sys.exit(main(sys.argv[1:]))
