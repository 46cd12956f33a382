"""Modes of torch before and after a call, compiled and eager: what every later call of the process sees."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runner.core import devices
from runner.worker.process.settings import SETTINGS

NAMES = (
    "grad mode",
    "inference mode",
    "anomaly detection",
    "default device",  # a function mode, too
    "function modes",
    "dispatch modes",
    "default dtype",
    *(f"autocast of {kind}" for kind in (devices.CPU, *devices.ACCELERATORS)),
    "threads",
    "deterministic algorithms",
    "matmul precision",
)
"""Settings of a process that change what later calls compute. Compiled code must leave each as eager does."""

_MOST = 100
"""Characters of a value that are sent."""


@dataclass(frozen=True)
class Modes:
    """The value of each mode at one time; those that this torch does not have are left out."""

    values: Mapping[str, Any]

    @classmethod
    def now(cls) -> "Modes":
        """Return the current values."""
        found: dict[str, Any] = {}
        for name in NAMES:
            try:
                found[name] = SETTINGS[name][0]()
            except (AttributeError, ImportError, RuntimeError):
                continue
        return cls(found)

    def restore(self) -> None:
        """Set every mode that differs now to its value of that time."""
        now = Modes.now().values
        for name, value in self.values.items():
            if name in now and now[name] != value:
                SETTINGS[name][1](value)


def compared(eager: Modes, compiled: Modes) -> list[dict[str, str]]:
    """Return the modes that the two calls left otherwise, by name, each with both values."""
    return [
        {"name": name, "eager": str(theirs)[:_MOST], "compiled": str(compiled.values[name])[:_MOST]}
        for name, theirs in eager.values.items()
        if name in compiled.values and compiled.values[name] != theirs
    ]
