"""``submit``: hand a recorded run over, in one of the forms of ``submit_options.FORMATS``."""

import importlib

from runner.cli.submit_options import FORMATS
from runner.core.exit_codes import ExitCode
from runner.core.options import SubmitOptions


def main(options: SubmitOptions) -> ExitCode:
    """Write the submission in the form of ``--format``."""
    return ExitCode(importlib.import_module(FORMATS[options.format]).main(options))
