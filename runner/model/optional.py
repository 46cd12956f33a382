"""What is imported only when it is used: the optional tools, a folder each in ``runner/tools``, and the kinds that a run has."""

import functools
import importlib
from collections import UserDict
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


class OnDemand(UserDict[str, Any]):
    """A table of ``module:name``; looking a key up imports the module."""

    def __getitem__(self, key: str) -> Any:
        return _imported(self.data[key])


@functools.cache
def _imported(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)
