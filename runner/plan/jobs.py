"""What goes into the engine and what comes out of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from runner.core import devices
from runner.core.model import Ending, Json
from runner.plan.resources import Needs

FACTS = "facts"
"""The plan that asks a worker what the machine is."""


SHARED = "shared"
"""How a worker is isolated that may run several cases."""


class Isolation(Enum):
    """How cases get their processes; the values are the words of ``--isolation``."""

    CASE = "case"
    """A worker for each case, forked from a warm template."""
    WORKER = "worker"
    """A worker runs several cases one after another, where their specs say that they may; in a clean state each time."""
    NONE = "none"
    """One worker for all cases of an environment, whatever their specs say. It is never the runner."""
    PROCESS = "process"
    """A new Python for each case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What a template must have been started with: variables on top of the runner's own (None removes one)."""

    variables: Mapping[str, str | None] = field(default_factory=dict)
    kinds: frozenset[str] = frozenset()
    """Kinds of device that its cases compile for; what is warmed depends on it."""

    @property
    def key(self) -> str:
        """Equal for environments that may share a template: what is warmed for a GPU is nothing for the CPU, and the other way round."""
        return repr((self.uses_accelerator, sorted(self.variables.items())))

    @property
    def uses_accelerator(self) -> bool:
        """Whether a case of it compiles for a device of which torch asks the driver."""
        return devices.any_accelerator(self.kinds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One plan to run."""

    name: str
    plan: str
    """The plan's file, or ``facts``."""
    folder: Path
    """Where stdout and stderr of the worker go."""
    environment: Environment
    timeout: float
    """Seconds."""
    shares: bool = False
    """Whether it may run in a worker that ran other cases before."""
    new_process: bool = False
    """Whether it gets a new Python, however other jobs get their processes."""
    group: str = ""
    """A worker that ran cases of one group runs none of another."""
    begin: Callable[[], None] | None = None
    """Called before it is given to a worker, again where it is given to another."""
    needs: Needs = field(default_factory=Needs)
    """What it takes of the machine while it runs."""
    memory_limit: int | None = None
    """Bytes that its processes may use; None for no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """What became of a job. ``observation`` is what the worker sent, decoded from JSON and not yet believed."""

    job: Job
    observation: Json
    ending: Ending
    seconds: float
    isolation: str
    """``fork``, ``process``, or ``shared`` for a worker that may run several cases."""
    after: int = 0
    """How many cases its worker had run before."""
    worker: int = 0
    """The worker's number in this run."""
    stack_from: int = 0
    """Where in its standard error the stack begins that it was asked for when its time was up: what is before it is of another moment."""
    note: str = ""
    """Why it got no fork, or what was odd about its worker afterwards."""
    problem: str = ""
    """How it broke the protocol: nothing of what it sent is believed."""
    left_over: str = ""
    """What of its worker outlived the answer, or the kill; empty when all had ended."""
    contaminated: str = ""
    """What it changed, in a worker of several cases, of what measures it: it is run again alone."""
