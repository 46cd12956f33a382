"""The options of runs on a fleet, of ``node`` and of ``plan``."""

import argparse
from pathlib import Path

from runner.cli import selecting
from runner.cli.option_types import natural


def of_run(command: argparse.ArgumentParser) -> None:
    """Add the options that choose where the cases run."""
    add = command.add_argument
    add(
        "--executor",
        choices=["local", "ray"],
        default="local",
        help="local: this machine (default); ray: the nodes that joined a Ray cluster with 'node join' (extra ray)",
    )
    add("--address", metavar="HOST:PORT", help="with --executor ray: the head of the cluster, of which this machine is a part")
    add("--lab", type=Path, metavar="FILE", help="with --executor ray: the file of the lab; nodes that are not what it says are not used")
    add(
        "--shard-by",
        choices=["id", "label"],
        default="id",
        help="with --shard: by a hash of the ids (default), or by label, as 'plan --by label' divides",
    )


def _node(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("action", choices=["join"], metavar="join", help="make this machine a node of a lab, until it is stopped")
    add("--address", required=True, metavar="HOST:PORT", help="the head of the Ray cluster")
    add("--lab", type=Path, metavar="FILE", help="the file of the lab, which has the node's entry")
    add("--as", dest="name", default="", metavar="NAME", help="the name of the node, in the lab (default: the name of this machine)")
    add("--image", default="", metavar="NAME", help="the image that this machine runs, for the reports (default: that of the lab)")
    add("--once", action="store_true", help="end when the head of the cluster is gone, and do not join again")
    add("--print", dest="dry", action="store_true", help="print the facts and the command, and do not join")


NODE_HELP = "make this machine a node of a lab"
NODE_DESCRIPTION = (
    "Ask a worker for the facts of this machine, compare them with its entry in the file of the lab, and join a Ray cluster with these "
    "facts as labels. The Python and the torch of this environment run the cases. Ctrl-C leaves the cluster."
)


def _plan(command: argparse.ArgumentParser) -> None:
    selecting.paths(command)
    selecting.backend_files(command)
    selecting.choice(command, shard=False)
    add = command.add_argument
    add("--shards", type=natural, required=True, metavar="N", help="into how many shards the cases are divided")
    add("--by", choices=["id", "label"], default="id", help="id: any machine (default); label: shards of cases with the same requirements")
    add("--slurm", action="store_true", help="print a script with a Slurm array instead of JSON")


PLAN_HELP = "print the shards of a selection, for Slurm arrays and CI matrices"
PLAN_DESCRIPTION = (
    "Print the work order of N shards: the command of each, and its number of cases; with --by label also what its machine must have. "
    "'merge' joins the runs."
)

COMMANDS = {"node": (_node, NODE_HELP, NODE_DESCRIPTION), "plan": (_plan, PLAN_HELP, PLAN_DESCRIPTION)}
"""What adds the options of each command, its help and its description."""
