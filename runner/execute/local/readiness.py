"""Whether a job can start now: its zygote is warm, and for a GPU a worker that has warmed up on it. What is missing is started.

A missing worker is started when every job that can start has started: a place that a job of another group takes at the same moment needs
no further worker.
"""

from runner.core import devices
from runner.execute.base import Job
from runner.execute.local.forks import Forks
from runner.execute.local.pool import Pool
from runner.execute.local.spares import Spares
from runner.execute.local.zygotes import Zygotes
from runner.plan.jobs import Environment
from runner.plan.resources import Lease, Room


def pins(job: Job, room: Room, lease: Lease) -> tuple[int, ...]:
    """Return the GPUs that the worker of a job sees; empty for one that sees all, or whose spec says which it sees."""
    return () if devices.sees_own(job.environment.variables) else room.pins(lease)


class Readiness:
    """Answers for the queue whether a job can start, and starts what it waits for."""

    def __init__(self, zygotes: Zygotes, forks: Forks, pool: Pool, spares: Spares) -> None:
        self._zygotes = zygotes
        self._forks = forks
        self._pool = pool
        self._spares = spares
        self._missing: dict[tuple[str, tuple[int, ...]], Environment] = {}
        """The workers that jobs with room lacked since the last job started, by environment and GPUs."""

    def may_start(self, room: Room, job: Job, lease: Lease) -> bool:
        """Whether a job can start now with a lease; starts its zygote if there is none and there may be one more."""
        key = job.environment.key
        if job.new_process or key in self._zygotes.broken:
            return True
        if key not in self._zygotes:
            self._forks.start_zygote(job.environment)
        if not self._zygotes.is_ready(key):
            return False
        gpus = pins(job, room, lease)
        if job.plan is None or not self._spares.are_for(job.environment) or self._pool.idle_for(job, gpus):
            return True
        self._missing.setdefault((key, gpus), job.environment)
        return False

    def started(self) -> None:
        """Drop what was missing: a job took the worker of a place, and the others are asked again."""
        self._missing.clear()

    def start_missing(self) -> None:
        """Start a worker of each kind that a job with room lacks, now that no other job can take that room."""
        for (_, gpus), environment in self._missing.items():
            self._spares.ensure_one(environment, gpus)
        self._missing.clear()
