"""The optional tools, a folder each in ``runner/torch_conformance/tools``, loaded by name."""

from __future__ import annotations

import importlib
import os

TYPE_CHECKING = False  # ``--help`` imports no typing
if TYPE_CHECKING:
    from typing import Any


def is_there(tool: str) -> bool:
    """Return whether a tool was installed."""
    return os.path.isdir(os.path.join(os.path.dirname(os.path.dirname(__file__)), "tools", tool))


def hooks(tool: str) -> Any:
    """Return the module of what a tool offers to the core, loaded by its name when a command line
    or a spec asks for it.
    """
    if not is_there(tool):
        from torch_conformance.model.diagnostics import UsageError

        raise UsageError(
            f"this installation lacks the part 'torch_conformance/tools/{tool}' (install "
            "torch-conformance whole)"
        )
    return importlib.import_module(f"torch_conformance.tools.{tool}.hooks")
