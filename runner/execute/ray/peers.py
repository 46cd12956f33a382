"""What the runner knows of each node of a fleet: its state, the jobs that it has, and its answers."""

import math
import time
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from runner.core.protocol import Json
from runner.execute.base import Job
from runner.execute.ray.link import Node

_AHEAD_SECONDS = 1.0
"""A node has so much work waiting beside what it runs: more than a message takes to arrive, and little enough that the end is even."""

_MOST_AHEAD = 32
"""For each parallel job of a node, the jobs that may wait there."""

_STALLED_SECONDS = 900.0
"""Beyond twice the longest deadline of its jobs: starting torch from a slow disk takes minutes."""


class State(Enum):
    """The states of a node."""

    OPENING = "opening"
    READY = "ready"
    LOST = "lost"
    QUARANTINED = "quarantined"


@dataclass(frozen=True, slots=True)
class Dispatch:
    """A job that a node has."""

    job: Job
    sent: float


@dataclass
class Peer:
    """One node."""

    node: Node
    number: int
    state: State = State.OPENING
    why: str = ""
    """Why it is lost or quarantined."""
    is_late: bool = False
    """Whether it joined while the run went on."""
    is_open: bool = False
    """Whether its agent started: then no other run holds it."""
    jobs: int = 1
    """How many jobs run there in parallel."""
    hello: dict[str, Json] = field(default_factory=dict)
    in_flight: dict[str, Dispatch] = field(default_factory=dict)
    """By token."""
    heard: float = field(default_factory=time.monotonic)
    check_sent: float = 0.0
    mean_seconds: float = 1.0
    busy_seconds: float = 0.0
    """The sum of the seconds of its executions."""
    executions: int = 0

    @property
    def name(self) -> str:
        """The name of the node."""
        return self.node.name

    @property
    def has_room(self) -> bool:
        """Whether it gets a further job: so that it has a second of work waiting, and no more."""
        ahead = math.ceil(self.jobs * _AHEAD_SECONDS / max(self.mean_seconds, 1e-3))
        return len(self.in_flight) < self.jobs + min(max(1, ahead), _MOST_AHEAD * self.jobs)

    def took(self, seconds: float) -> None:
        """Take the duration of an execution into account."""
        self.mean_seconds += 0.2 * (seconds - self.mean_seconds)
        self.busy_seconds += seconds
        self.executions += 1

    def stalled(self, factor: float) -> str:
        """Return why it must be considered lost although its connection is there; empty while it may only be slow."""
        silent = time.monotonic() - self.heard
        if self.check_sent and time.monotonic() - self.check_sent > _STALLED_SECONDS * factor:
            return f"it did not answer a health check for {silent:.0f} s"
        longest = max((dispatch.job.timeout for dispatch in self.in_flight.values()), default=None)
        if longest is not None and silent > 2 * longest + _STALLED_SECONDS * factor:
            return f"it has {len(self.in_flight)} jobs, and none ended for {silent:.0f} s"
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSettings:
    """The settings that every agent receives."""

    isolation: str
    timeout_factor: float
    jobs: str
    """``--jobs``: a number, or auto, by the cores and the memory of each node."""
    memory_limit: str
    servers: dict[str, tuple[str, int]]
    object_cache: bool
    caches: bool
    packages: tuple[str, ...]
    """The top-level packages that cases require."""
    reconnect_seconds: float = 180.0
    """How long a head that is gone may take to come back."""

    def begin(self, node: Node, image: str) -> dict[str, Any]:
        """Return the first message to an agent."""
        return {
            "kind": "begin",
            "isolation": self.isolation,
            "timeout_factor": self.timeout_factor,
            "jobs": self.jobs,
            "memory_limit": self.memory_limit,
            "servers": {name: list(address) for name, address in self.servers.items()},
            "object_cache": self.object_cache,
            "caches": self.caches,
            "packages": list(self.packages),
            "shares": node.shares,
            "image": image,
        }
