"""The program, called in the process of a test: for what it says and its exit code where no case is
run, without a new Python each time.
"""

import contextlib
import io
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from unittest import mock

from tests.fakes import ROOT, environment
from torch_conformance.cli.parser import main


def called(
    *arguments: object, cwd: Path = ROOT, env: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Call the command line as ``tests.fakes.program`` does in a new process, and return what it
    said.
    """
    words = [str(argument) for argument in arguments]
    out, err = io.StringIO(), io.StringIO()
    variables = mock.patch.dict(os.environ, environment() if env is None else env)
    with (
        contextlib.chdir(cwd),
        variables,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            code = main(words)
        except SystemExit as stop:  # argparse exits after --help and after wrong usage
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return subprocess.CompletedProcess(words, int(code), out.getvalue(), err.getvalue())
