"""How cases get their processes: which share one, and what a process must have been started with."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from runner.core import devices


class Isolation(Enum):
    """How cases get their processes; the values are the words of ``--isolation``."""

    CASE = "case"
    """A worker for each case, forked from a warm zygote."""
    WORKER = "worker"
    """A worker runs several cases one after another, where their specs say that they may; in a clean state each time."""
    NONE = "none"
    """One worker for all cases of an environment, whatever their specs say. It is never the runner."""
    PROCESS = "process"
    """A new Python for each case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What a zygote must have been started with: variables on top of the runner's own (None removes one)."""

    variables: Mapping[str, str | None] = field(default_factory=dict)
    kinds: frozenset[str] = frozenset()
    """Kinds of device that its cases compile for; what is warmed depends on it."""

    @property
    def key(self) -> str:
        """Equal for environments that may share a zygote: what is warmed for a GPU is nothing for the CPU, and the other way round."""
        return repr((self.uses_accelerator, sorted(self.variables.items())))

    @property
    def uses_accelerator(self) -> bool:
        """Whether a case of it compiles for a device of which torch asks the driver."""
        return devices.any_accelerator(self.kinds)
