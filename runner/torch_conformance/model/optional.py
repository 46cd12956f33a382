"""What is imported only when it is used: the optional tools, a folder each in
``runner/torch_conformance/tools``, and the kinds that a run has.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections import UserDict

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


class OnDemand(UserDict):  # type: ignore[type-arg]  # UserDict[str, Any] would be evaluated, and --help imports no typing
    """A table of ``module:name``; looking a key up imports the module."""

    def __getitem__(self, key: str) -> Any:
        return _imported(self.data[key])


@functools.cache
def _imported(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)
