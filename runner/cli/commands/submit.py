"""``submit``: hand a recorded run over, in one of the forms of ``submit_options.FORMATS``."""

import importlib

from runner.cli.submit_options import FORMATS
from runner.core.diagnostics import UsageError
from runner.core.exit_codes import ExitCode
from runner.core.options import SubmitOptions

CRCR = "crcr"
"""The form that is made for a relay: it takes what the relay sent."""


def main(options: SubmitOptions) -> ExitCode:
    """Write the submission in the form of ``--format``."""
    if options.format != CRCR and (options.dispatch or options.artifact_url):
        word = "--dispatch" if options.dispatch else "--artifact-url"
        raise UsageError(f"{word} goes with --format {CRCR} alone (remove it, or add --format {CRCR})")
    return ExitCode(importlib.import_module(FORMATS[options.format]).main(options))
