"""The command that runs one case alone."""

import shlex
from collections.abc import Sequence

from runner.core.case import Case
from runner.core.options import RunOptions
from runner.plan.selection import is_optional
from runner.system.redaction import redacted_command


def repro(options: RunOptions, case: Case, required: Sequence[str] = ()) -> str:
    """Return the command; ``required`` are the names of ``--require`` that caused the case's result."""
    parts = ["torch-conformance", "run", *map(str, options.paths)]
    for file in options.backends:
        parts += ["--backends", str(file)]
    for file in options.waivers:
        parts += ["--waivers", str(file)]
    if options.bench and not case.left_out and any(map(is_optional, case.steps)):
        parts.append("--bench")
    for name in required:
        parts += ["--require", name]
    return shlex.join(redacted_command([*parts, "--select", case.id]))
