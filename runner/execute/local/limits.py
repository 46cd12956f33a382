"""How long workers and zygotes may take, and how many there may be."""

from dataclasses import dataclass, field

from runner.plan.jobs import Isolation


@dataclass(frozen=True, slots=True, kw_only=True)
class Grace:
    """How long processes may take for what they should do at once, in seconds."""

    start: float = 300
    """For a zygote, or a worker for a GPU, to warm up. It is multiplied by ``Limits.timeout_factor``."""
    fork: float = 30
    """For a zygote to fork: then the run goes on without it."""
    stack: float = 0.5
    """For a worker whose time is up to print its stack: then it is killed."""
    exit: float = 2.0
    """For a worker to end once it has answered: then it is killed. A GPU's driver may hold a process for minutes."""
    clean: float = 20.0
    """For a shared worker to clean up once it has answered."""
    gone: float = 3.0
    """For a killed worker to be gone: then its case is over, and the next one begins beside what the system still holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How workers are isolated, and how long and how many they may be."""

    isolation: Isolation = Isolation.CASE
    timeout_factor: float = 1.0
    """How many times longer than usual zygotes and workers may take to warm up."""
    spares: int = 0
    """How many workers for a GPU may warm up beside those that run cases."""
    grace: Grace = field(default_factory=Grace)

    @property
    def start_seconds(self) -> float:
        """How long a zygote, or a worker for a GPU, may take to warm up."""
        return self.grace.start * self.timeout_factor
