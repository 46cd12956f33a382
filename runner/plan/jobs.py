"""The environment with which a process that imports torch is started."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from runner.core import devices
from runner.core.protocol import SIMULATED, TARGET
from runner.core.targets import simulated


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The environment in which a zygote is started: variables added to the runner's own (None removes one)."""

    variables: Mapping[str, str | None] = field(default_factory=dict)
    kinds: frozenset[str] = frozenset()
    """Kinds of device that its cases compile for; the warm-up depends on them."""

    @property
    def key(self) -> str:
        """Equal for environments that may share a zygote. A zygote is warmed up for a GPU or for the CPU, not for both."""
        return repr((self.uses_accelerator, sorted(self.variables.items())))

    @property
    def uses_accelerator(self) -> bool:
        """Whether one of its cases compiles for an accelerator, for which torch queries the driver."""
        return devices.any_accelerator(self.kinds)


def compiler_of(environment: Environment) -> str | None:
    """Return the name of what an environment compiles with: a target, or a simulated target; None for one that executes."""
    target = environment.variables.get(TARGET)
    return simulated(target) if target is not None and SIMULATED in environment.variables else target
