"""What an engine does at a moment, for displays of a run."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningCase:
    """A case that runs just now, or the engine's name for it."""

    name: str
    since: float
    """As ``time.monotonic`` counts."""
    phase: str
    """What its worker said last; it may say anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What an engine waits for just now."""

    starting: float | None = None
    """Since when a zygote warms up: the longest of several; None where none does."""
    warming: float | None = None
    """Since when a worker for a GPU warms up while no case runs: the longest of several; None where none does."""
    held: float | None = None
    """Since when a node of a fleet is waited for, which another run may hold: the longest of several; None where none is."""
    running: tuple[RunningCase, ...] = ()
