"""What goes into the engine and what comes out of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from runner.execute.room import Needs
from runner.model import Ending, Json

FACTS = "facts"
"""The plan that asks a worker what the machine is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What a template must have been started with: variables on top of the runner's own (None removes one)."""

    variables: Mapping[str, str | None] = field(default_factory=dict)
    kinds: frozenset[str] = frozenset()
    """Kinds of device that its cases compile for; what is warmed depends on it."""

    @property
    def key(self) -> str:
        """Equal for environments that may share a template."""
        return repr(sorted(self.variables.items()))


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
    begin: Callable[[], None] | None = None
    """Called before its worker is started, again where it gets another worker."""
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
    """``fork`` or ``process``."""
    note: str = ""
    """Why it got no fork."""
    problem: str = ""
    """How it broke the protocol: nothing of what it sent is believed."""
