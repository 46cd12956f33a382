"""The options of the commands that change specs: ``bless`` and ``lint``."""

import argparse

from runner.cli import selecting

BLESS = "print a patch of specs that says what recorded runs observed"
BLESS_DESCRIPTION = (
    "Print a patch under which the red cases of recorded runs pass: counts, strides and FileCheck directives as they were observed, with "
    "the smallest condition or matrix value that explains the cases and machines. Wrong numbers, crashes and proofs are never blessed; "
    "each red case that is not blessed has a line that says why. The recorded runs are judged again by the patch before it is printed."
)
LINT = "print what is valid in specs and waivers, but unsound"
LINT_DESCRIPTION = (
    "Print findings of specs and waivers that are valid: claims twice, waivers for no case, conditions that never hold, loose tolerances, "
    "unused names. '# lint: ignore RULE -- REASON' on the line of a finding or above it suppresses it."
)


def bless(command: argparse.ArgumentParser) -> None:
    """Add the options of ``bless``."""
    option = command.add_argument
    option(
        "targets", nargs="+", metavar="RUN", help="recorded runs: a folder, an id, or latest; of several machines or versions, if there are"
    )
    option("--all", action="store_true", help="also narrow the ranges of cases that passed to the counts that were observed")
    option("--write", action="store_true", help="change the specs instead of printing the patch")
    option("--json", action="store_true", help="print one object")
    selecting.backend_files(command)
    option("--backend", action="append", default=[], metavar="NAME", help="bless the cases of this backend alone (repeatable)")
    option("--select", action="append", default=[], metavar="GLOB", help="bless the ids that match; * and ? are special (repeatable)")
    option("--tag", action="append", default=[], metavar="NAME", help="bless the cases whose spec has this tag (repeatable)")


def lint(command: argparse.ArgumentParser) -> None:
    """Add the options of ``lint``."""
    option = command.add_argument
    selecting.paths(command)
    selecting.backend_files(command)
    selecting.waiver_files(command)
    option("--run", metavar="RUN", help="also apply the rules that need facts, to those of this recorded run")
    option("--select", action="append", default=[], metavar="RULE", help="apply this rule alone (repeatable)")
    option("--ignore", action="append", default=[], metavar="RULE", help="do not apply this rule (repeatable)")
    option("--fix", action="store_true", help="change the files where that is safe: the same cases with the same content must come of them")
    option("--json", action="store_true", help="print one object")


COMMANDS = {"bless": (bless, BLESS, BLESS_DESCRIPTION), "lint": (lint, LINT, LINT_DESCRIPTION)}
"""What adds the options of each command, its help and its description."""
