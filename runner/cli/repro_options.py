"""The options of ``repro`` and ``shrink``."""

import argparse
from pathlib import Path

from runner.cli import selecting
from runner.cli.option_types import positive, times

_REPRO = "print a Python script that shows one case with torch alone"
_REPRO_TEXT = (
    "Print a script that imports torch alone and fails where the case fails: exit 0 where every expectation held, 1 where one failed, "
    "2 where the machine cannot run it. What the script does not say is named in it. Example: torch-conformance repro "
    "'freezing/cast-result-keeps-dtype[backend=cpu]' > repro.py"
)
_SHRINK = "find a smaller case with the same failure"
_SHRINK_TEXT = (
    "Run a case that fails, make it smaller as long as it fails in the same way (fewer steps, options and inputs, a smaller function, "
    "smaller shapes), and write a spec and a script. torch's bisector then names the stage that breaks. Ctrl-C keeps the best so far. "
    "Example: torch-conformance shrink 'relu[backend=cpu,dynamic=true]' first --out smaller"
)


def _common(command: argparse.ArgumentParser) -> None:
    command.add_argument("case", metavar="CASE", help="a case's id")
    selecting.paths(command)
    selecting.backend_files(command)


def repro(command: argparse.ArgumentParser) -> None:
    """Add the options of ``repro``."""
    _common(command)
    selecting.sample(command)


def shrink(command: argparse.ArgumentParser) -> None:
    """Add the options of ``shrink``. Each candidate runs alone, in a process of its own."""
    _common(command)
    add = command.add_argument
    add("--out", type=Path, default=Path("shrunk"), metavar="DIR", help="folder of the spec and the script (default: shrunk)")
    add("--seconds", type=positive, default=600.0, metavar="S", help="end the search after this many seconds (default: 600)")
    add("--tries", type=times, default=200, metavar="N", help="run at most N candidates (default: 200)")
    add("--timeout", type=positive, default=300.0, metavar="S", help="deadline of a candidate in seconds (default: 300)")
    add("--no-stage", action="store_true", help="do not look for the stage of the compiler that breaks")
    command.set_defaults(jobs="1", timeout_factor=1.0)


COMMANDS = {"repro": (repro, _REPRO, _REPRO_TEXT), "shrink": (shrink, _SHRINK, _SHRINK_TEXT)}
"""What adds the options of each command, its help and its description."""
