"""The options of ``waive``."""

import argparse
from pathlib import Path

from runner.cli import selecting

HELP = "propose waivers from runs, print the patch that removes void ones, or import lists of other projects"
DESCRIPTION = (
    "Print a waiver for each failure of recorded runs that no waiver excuses, with the smallest condition that holds where a case "
    "failed and not where it passed. With --remove: print the patch that removes waivers that ended or whose cases passed. "
    "With --from: print a waiver for each entry of another project's list of known failures."
)


def add(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    option = command.add_argument
    option("targets", nargs="+", metavar="RUN|FILE", help="recorded runs: a folder, an id, or latest; with --from: files")
    option("--to", type=Path, metavar="FILE", help="add the waivers at the end of this file, and leave the rest of it as it is")
    option("--remove", action="store_true", help="print a unified diff that removes waivers that ended, or whose cases passed")
    option(
        "--from",
        dest="form",
        default="",
        metavar="FORM",
        help="known-bugs (rocBLAS, hipBLASLt), xpu-skip-list or xpu-issue (torch-xpu-ops), cuml-xfail-list (cuML)",
    )
    option("--cases", default="", metavar="GLOB", help="with --from: the cases (default: of specs that cover the named upstream tests)")
    option("--type", default="", metavar="TYPE", help="with --from: the type of the failure: close, crash ...")
    option("--match", default="", metavar="REGEX", help="with --from: the regular expression for the message of the failure")
    option("--issue", default="", metavar="ID", help="the issue that tracks the defect: a link or an id")
    option("--reason", default="", metavar="TEXT", help="the defect, as a sentence")
    option("--until", default="", metavar="DATE", help="the last day of the waivers (default: 90 days from now)")
    selecting.waiver_files(command)


COMMANDS = {"waive": (add, HELP, DESCRIPTION)}
"""What adds the options of each command, its help and its description."""
