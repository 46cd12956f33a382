"""The options that concern ledgers: the committed lists of all cases."""

import argparse
from pathlib import Path


def of_list(command: argparse.ArgumentParser) -> None:
    """Add what ``list`` does with a ledger instead of printing the cases."""
    add = command.add_argument
    add(
        "--against",
        type=Path,
        metavar="LEDGER",
        help="instead of the cases, print the ids of this ledger that no spec has any more; exit 1 if there are some",
    )
    add("--update", type=Path, metavar="LEDGER", help="instead of printing the cases, write this ledger again, and print what is gone")


def of_run(command: argparse.ArgumentParser) -> None:
    """Add the comparison with an earlier run."""
    command.add_argument(
        "--against",
        metavar="RUN",
        help="name the cases that this earlier run executed and the new one does not: its folder, its id, or latest",
    )
