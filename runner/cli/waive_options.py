"""The options of ``waive``."""

import argparse
from pathlib import Path

from runner.cli import selecting

HELP = "propose waivers from runs, or print the patch that removes void ones"
DESCRIPTION = (
    "Print a waiver for each failure of recorded runs that no waiver excuses, with the smallest condition that holds where a case "
    "failed and not where it passed. With --remove: print the patch that removes waivers that ended or whose cases passed."
)


def add(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    option = command.add_argument
    option("targets", nargs="+", metavar="RUN", help="recorded runs: a folder, an id, or latest")
    option("--to", type=Path, metavar="FILE", help="add the waivers at the end of this file, and leave the rest of it as it is")
    option("--remove", action="store_true", help="print a unified diff that removes waivers that ended, or whose cases passed")
    option("--issue", default="", metavar="ID", help="the issue that tracks the defect: a link or an id")
    option("--reason", default="", metavar="TEXT", help="the defect, as a sentence")
    option("--until", default="", metavar="DATE", help="the last day of the waivers (default: 90 days from now)")
    selecting.waiver_files(command)


COMMANDS = {"waive": (add, HELP, DESCRIPTION)}
"""What adds the options of each command, its help and its description."""
