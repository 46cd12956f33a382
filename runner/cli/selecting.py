"""The options by which several commands select files and cases."""

import argparse
from pathlib import Path

from runner.cli.option_types import natural


def paths(command: argparse.ArgumentParser) -> None:
    """Add the files and folders of specs."""
    command.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="spec files or folders (default: the shipped specs)")


def backend_files(command: argparse.ArgumentParser) -> None:
    """Add files with further backends."""
    command.add_argument(
        "--backends", action="append", default=[], type=Path, metavar="FILE", help="file with additional backends (repeatable)"
    )


def waiver_files(command: argparse.ArgumentParser) -> None:
    """Add files with further waivers."""
    command.add_argument(
        "--waivers", action="append", default=[], type=Path, metavar="FILE", help="file with additional waivers (repeatable)"
    )


def choice(command: argparse.ArgumentParser, *, shard: bool = True) -> None:
    """Add what selects cases: backend, glob, tag, shard."""
    command.add_argument("--backend", action="append", default=[], metavar="NAME", help="select the cases of this backend (repeatable)")
    command.add_argument(
        "--select", action="append", default=[], metavar="GLOB", help="select the ids that match; * and ? are special (repeatable)"
    )
    command.add_argument(
        "--tag",
        action="append",
        default=[],
        metavar="NAME",
        help="select the cases whose spec has this tag, also those on request; with !NAME, those whose spec does not have it (repeatable)",
    )
    if shard:
        command.add_argument("--shard", metavar="I/N", help="select the I-th of N parts, by a hash of the id")


def profile(command: argparse.ArgumentParser, does: str) -> None:
    """Add the profile; ``does`` says what the command does with it."""
    command.add_argument("--profile", metavar="NAME|FILE", help=f"{does}: the name of a shipped profile, or a file")


def sample(command: argparse.ArgumentParser) -> None:
    """Add the number of a sample."""
    command.add_argument(
        "--sample", type=natural, metavar="N", help="the sample with this number, of a case of torch's database of operators"
    )
