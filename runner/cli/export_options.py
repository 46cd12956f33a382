"""The options of ``run``, ``merge`` and ``export`` that name files of reports."""

import argparse
from pathlib import Path

JUNIT_FLAVOURS = ("default", "strict")

EXPORT_HELP = "write the reports of a recorded run again, in other formats"
EXPORT_DESCRIPTION = (
    "Write reports of a recorded run: JUnit, CTRF, SARIF, GitLab code quality, a badge. Name at least one file. Nothing is run or judged: "
    "exit 0 says that the files were written. Example: torch-conformance export latest --sarif results.sarif"
)


def of_run(command: argparse.ArgumentParser) -> None:
    """Add the options for the output files of a run."""
    _files(command, "also write the JUnit report to this file")
    _github(command)
    command.add_argument("--out", type=Path, metavar="DIR", help="folder of the run (default: reports/<utc>-<id>)")


def of_merge(command: argparse.ArgumentParser) -> None:
    """Add the options for the output files of a merged run."""
    command.add_argument("--out", type=Path, metavar="DIR", help="folder of the merged run (default: reports/<utc>-<id>)")
    _files(command, "also write the JUnit report to this file")
    _github(command)


def add_export(command: argparse.ArgumentParser) -> None:
    """Add the options of ``export``."""
    command.add_argument("run", metavar="RUN", help="a recorded run: its folder, its id, or latest")
    _files(command, "write the JUnit report to this file")


def _files(command: argparse.ArgumentParser, junit: str) -> None:
    add = command.add_argument
    add("--junit", type=Path, metavar="FILE", help=junit)
    add(
        "--junit-flavour",
        choices=JUNIT_FLAVOURS,
        default="default",
        help="default: with file and line of each case; strict: valid against the schema of Jenkins' xunit plugin, which knows neither",
    )
    add("--ctrf", type=Path, metavar="FILE", help="write a report in the Common Test Report Format (JSON) to this file")
    add("--sarif", type=Path, metavar="FILE", help="write the failures as SARIF 2.1.0 to this file, for code scanning and editors")
    add("--code-quality", type=Path, metavar="FILE", help="write the failures as GitLab's code quality report to this file")
    add("--badge", type=Path, metavar="FILE", help="write a badge for the endpoint of shields.io to this file")


def _github(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--github",
        choices=["auto", "on", "off"],
        default="auto",
        help="annotations and a job summary for GitHub Actions (default: auto, on where GITHUB_ACTIONS is true)",
    )


COMMANDS = {"export": (add_export, EXPORT_HELP, EXPORT_DESCRIPTION)}
"""What adds the options of each command, its help and its description."""
