"""What the executor of a fleet takes jobs from: a job is chosen, and made, for the node that has room for it."""

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Protocol, runtime_checkable

from runner.core.observation import Ending
from runner.execute.base import Execution, Job
from runner.execute.ray.frames import Message

MOST_LOSSES = 2
"""How many nodes a job may be lost with. A job that takes nodes with it must not take all of them."""


class Order(Enum):
    """What a node does instead of a job."""

    CHECK = "check"
    """It reports its state: clock, space, memory of its GPUs."""


@runtime_checkable
class Source(Protocol):
    """The jobs of a run that wait."""

    def take(self, node: str, in_flight: int) -> Job | Order | None:
        """Return what a node gets next, while it has so many jobs; None where it waits."""

    def put_back(self, job: Job, node: str, why: str) -> None:
        """Take back a job whose node was lost before it ended: another node may run it."""

    def lost(self, node: str, why: str) -> None:
        """Record that a node is gone, after its jobs were put back."""

    def joined(self, node: str) -> None:
        """Record that a node that was lost is there again."""

    def checked(self, node: str, state: Message, seconds: float) -> None:
        """Take the state that a node reported, and how long the answer took."""

    def unrunnable(self, nodes: Collection[str]) -> Iterable[Execution]:
        """Remove the jobs that none of these nodes may run; return their executions, with the reason in ``unrun``."""

    def is_done(self, busy: Collection[str]) -> bool:
        """Whether nothing waits, and none of the nodes that have jobs has one that the run needs."""

    def cancel(self) -> None:
        """Drop what waits."""


class PinnedSource:
    """Jobs of each node, which no other may run; ``ANY`` is the name of those that any node may run."""

    def __init__(self, jobs: Mapping[str, Iterable[Job]]) -> None:
        self._jobs = {node: deque(waiting) for node, waiting in jobs.items()}
        self._losses: dict[str, list[str]] = {}
        self._gone: list[tuple[Job, str]] = []

    def take(self, node: str, in_flight: int) -> Job | Order | None:
        """Return the next job of a node."""
        return next((self._jobs[name].popleft() for name in (node, ANY) if self._jobs.get(name)), None)

    def put(self, job: Job) -> None:
        """Append a job that any node may run."""
        self._jobs.setdefault(ANY, deque()).append(job)

    def put_back(self, job: Job, node: str, why: str) -> None:
        """Take back a job: another node may run it, unless it was lost too often, or is pinned."""
        losses = self._losses.setdefault(job.name, [])
        losses.append(f"{node}: {why}")
        if ANY not in self._jobs or len(losses) >= MOST_LOSSES:
            self._gone.append((job, "; ".join(losses)))
        else:
            self._jobs[ANY].appendleft(job)

    def lost(self, node: str, why: str) -> None:
        """Drop the jobs that are pinned to a node."""
        self._gone += [(job, f"{node}: {why}") for job in self._jobs.pop(node, ())]

    def joined(self, node: str) -> None:
        """Nothing depends on a node."""

    def checked(self, node: str, state: Message, seconds: float) -> None:
        """No check is ordered."""

    def unrunnable(self, nodes: Collection[str]) -> Iterable[Execution]:
        """Remove and return the jobs that were lost too often, and with no node left all of them."""
        found, self._gone = self._gone, []
        if not nodes:
            found += [(job, "; ".join(self._losses.get(job.name, ["no node is left"]))) for line in self._jobs.values() for job in line]
            self.cancel()
        return [_unrun(job, why) for job, why in found]

    def is_done(self, busy: Collection[str]) -> bool:
        """Whether nothing waits, and no node has a job."""
        return not any(self._jobs.values()) and not self._gone and not busy

    def cancel(self) -> None:
        """Drop what waits."""
        for line in self._jobs.values():
            line.clear()


ANY = ""


def _unrun(job: Job, why: str) -> Execution:
    return Execution(job=job, observation=None, ending=Ending(exit_code=None), seconds=0.0, isolation="", unrun=why)
