"""The options of ``watch``."""

import argparse

from runner.cli import selecting
from runner.cli.option_types import factor, positive

HELP = "run specs, and run a spec again when its file is saved"
DESCRIPTION = (
    "Run the selected cases, then wait. When a spec is saved, or a file that it depends on (defaults, backends, waivers, a module of "
    "yours), its cases run again. torch stays loaded between the runs; each case still has a process of its own. "
    "Enter: again, f: the cases that fail, a: all, q: quit."
)


def add(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    selecting.paths(command)
    selecting.backend_files(command)
    selecting.waiver_files(command)
    selecting.choice(command, shard=False)
    option = command.add_argument
    option("--jobs", default="auto", metavar="N", help="maximum number of cases that run in parallel (default: auto, by cores and memory)")
    option("--timeout", type=positive, default=300.0, metavar="S", help="deadline of a case in seconds (default: 300)")
    option("--timeout-factor", type=factor, default=1.0, metavar="F", help="multiply every deadline (default: 1)")


COMMANDS = {"watch": (add, HELP, DESCRIPTION)}
"""What adds the options of each command, its help and its description."""
