"""The seam to the optional tools: a folder each in ``runner/tools``, which no other part of the program imports."""

import importlib
from pathlib import Path
from typing import Any

from runner.model.diagnostics import UsageError


def is_there(tool: str) -> bool:
    """Return whether a tool was installed."""
    return (Path(__file__).parents[1] / "tools" / tool).is_dir()


def hooks(tool: str) -> Any:
    """Return the module of what a tool offers to the core, loaded by its name when a command line or a spec asks for it."""
    if not is_there(tool):
        raise UsageError(f"this installation lacks the part 'runner/tools/{tool}' (install torch-conformance whole)")
    return importlib.import_module(f"runner.tools.{tool}.hooks")
