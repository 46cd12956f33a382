"""Validates the names of ``--require``; ``core.required`` has what they require of a run."""

from collections.abc import Sequence

from runner.core.diagnostics import UsageError, unknown
from runner.language.backends import Backends
from runner.system.capabilities import CAPABILITIES


def check_names(names: Sequence[str], backends: Backends) -> None:
    """Raise ``UsageError`` for a name that is neither a backend nor a capability."""
    for name in names:
        if name not in backends.by_name and name not in CAPABILITIES:
            message, hint = unknown("backend or capability", name, [*backends.by_name, *CAPABILITIES])
            raise UsageError(f"--require: {message} ({hint})")
