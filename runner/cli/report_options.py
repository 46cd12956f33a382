"""The options of ``report``."""

import argparse

HELP = "write the HTML report of a run again"
DESCRIPTION = (
    "Write the HTML report of a recorded run again, from its journal and the files beside it: index.html in the run's folder, and the "
    "folder 'report', which the page loads. Example: torch-conformance report latest --open"
)


def add(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    option = command.add_argument
    option("run", metavar="RUN", help="a run: its folder, its id, or latest")
    option("--open", action="store_true", help="also open the page in a browser")


COMMANDS = {"report": (add, HELP, DESCRIPTION)}
"""What adds the options of each command, its help and its description."""
