"""The options of the commands that read recorded runs: ``merge`` and ``diff``."""

import argparse
from pathlib import Path

from runner.cli import report_options
from runner.cli.option_types import over_one

MERGE_HELP = "join the runs of shards"
MERGE_DESCRIPTION = (
    "Join the runs of all shards of one selection into one run, with its journal, report and evidence. Refuses missing and "
    "duplicate shards, and shards with another selection, torch or machine; prints one line for each problem."
)

DIFF_HELP = "compare two recorded runs"
DIFF_DESCRIPTION = (
    "Compare two recorded runs, case by case: what broke, was fixed, is new or gone, is no longer executed, is slower, or fails in another "
    "way. Exit 0: compared; 1: a change of --fail-on was found; 2: a run cannot be read; 4: no case has a result in both runs. "
    "Example: torch-conformance diff shard-1 latest --fail-on broken,gone"
)


def add_merge(command: argparse.ArgumentParser) -> None:
    """Add the options of ``merge``."""
    add = command.add_argument
    add("runs", nargs="+", metavar="RUN", help="a run of a shard: its folder, its id, or latest")
    report_options.of_merge(command)
    add("--json", action="store_true", help="print one object")


def add_diff(command: argparse.ArgumentParser) -> None:
    """Add the options of ``diff``."""
    option = command.add_argument
    option("before", metavar="RUN", help="the first run: its folder, its id, latest, or a journal (a .jsonl file) alone")
    option("after", metavar="RUN", help="the second run")
    option(
        "--map-backend",
        action="append",
        default=[],
        metavar="A=B",
        help="compare the cases of backend A of the first run with those of backend B of the second, and no others; "
        "the two runs may be one (repeatable)",
    )
    option(
        "--fail-on",
        action="append",
        default=[],
        metavar="WORDS",
        help="exit 1 if a case has one of these words, with commas between them: broken, new-failure, gone, no-longer-executed, waived, "
        "changed, still-failing, fixed, new, now-executed, slower, spec-changed (repeatable)",
    )
    option(
        "--slower",
        type=over_one,
        default=2.0,
        metavar="F",
        help="a case is slower if it took more than F times as long, and a second more, after the pace of the whole run is taken "
        "out (default: 2)",
    )
    option("--code", action="store_true", help="print what differs in the generated code and the graphs of changed cases")
    option("--html", type=Path, metavar="FILE", help="also write one HTML page, with what differs in generated code and graphs")
    option("--json", action="store_true", help="print one object")


def of_run(command: argparse.ArgumentParser) -> None:
    """Add what ``run`` takes from recorded runs: the order, and the cases that failed."""
    add = command.add_argument
    add(
        "--order",
        choices=["longest-first", "failed-first"],
        default="longest-first",
        help="the cases that start first: those that took longest in the run 'latest' (default), or those that failed in it",
    )
    add("--last-failed", action="store_true", help="select the cases that failed in the run 'latest'")
    add("--failed-in", metavar="RUN", help="select the cases that failed in this run: its folder, its id, or latest")


COMMANDS = {
    "merge": (add_merge, MERGE_HELP, MERGE_DESCRIPTION),
    "diff": (add_diff, DIFF_HELP, DIFF_DESCRIPTION),
}
"""What adds the options of each command, its help and its description."""
