"""The options of ``report``, and those of ``run`` and ``merge`` that name the files of reports."""

import argparse
from pathlib import Path

JUNIT_FLAVOURS = ("default", "strict")

HELP = "write the reports of a run again"
DESCRIPTION = (
    "Write the HTML report of a recorded run again, from its journal and the files beside it: index.html in the run's folder, and the "
    "folder 'report', which the page loads. With --junit, write the JUnit report too. Nothing is run or judged: exit 0 says that the files "
    "were written. Example: torch-conformance report latest --open"
)


def add(command: argparse.ArgumentParser) -> None:
    """Add the options of ``report``."""
    command.add_argument("run", metavar="RUN", help="a run: its folder, its id, or latest")
    _junit(command, "write the JUnit report of the run to this file")
    command.add_argument("--open", action="store_true", help="also open the page in a browser")


def of_run(command: argparse.ArgumentParser) -> None:
    """Add the options for the output files of a run."""
    _of_new_run(command, "folder of the run")


def of_merge(command: argparse.ArgumentParser) -> None:
    """Add the options for the output files of a merged run."""
    _of_new_run(command, "folder of the merged run")


def _of_new_run(command: argparse.ArgumentParser, folder: str) -> None:
    _junit(command, "also write the JUnit report to this file")
    command.add_argument(
        "--github",
        choices=["auto", "on", "off"],
        default="auto",
        help="annotations and a job summary for GitHub Actions (default: auto, on where GITHUB_ACTIONS is true)",
    )
    command.add_argument("--out", type=Path, metavar="DIR", help=f"{folder} (default: reports/<utc>-<id>)")


def _junit(command: argparse.ArgumentParser, does: str) -> None:
    command.add_argument("--junit", type=Path, metavar="FILE", help=does)
    command.add_argument(
        "--junit-flavour",
        choices=JUNIT_FLAVOURS,
        default="default",
        help="default: with file and line of each case; strict: valid against the schema of Jenkins' xunit plugin, which knows neither",
    )


COMMANDS = {"report": (add, HELP, DESCRIPTION)}
"""What adds the options of each command, its help and its description."""
