"""Time limits and numbers of workers and zygotes."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Grace:
    """Grace periods in seconds, for operations that should be immediate."""

    start: float = 300
    """For a zygote, or a worker for a GPU, to warm up. It is multiplied by ``Limits.timeout_factor``."""
    fork: float = 30
    """For a zygote to fork; after that, the run continues without it."""
    stack: float = 0.5
    """For a worker at its deadline to print its stack; after that, it is killed."""
    exit: float = 2.0
    """For a worker to end after its answer; after that, it is killed. A GPU's driver may hold a process for minutes."""
    gone: float = 3.0
    """For a killed worker to end; after that, its case is over even if the process stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The time limits and the number of workers."""

    timeout_factor: float = 1.0
    """How many times longer than usual zygotes and workers may take to warm up."""
    spares: int = 0
    """How many workers for a GPU may warm up beside those that run cases."""
    zygotes: int = 1
    """How many environments may have a zygote with jobs. With more than one, a zygote for a GPU has one for the CPU beside it."""
    keeps_zygotes: bool = False
    """Whether zygotes without jobs stay while one starts."""
    grace: Grace = field(default_factory=Grace)

    @property
    def start_seconds(self) -> float:
        """How long a zygote, or a worker for a GPU, may take to warm up."""
        return self.grace.start * self.timeout_factor
