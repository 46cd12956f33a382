"""Whether a job can start now: its zygote is warm, and for a GPU a worker that has warmed up on it. What is missing is started."""

from runner.core import devices
from runner.execute.base import Job
from runner.execute.local.forks import Forks
from runner.execute.local.limits import Limits
from runner.execute.local.pool import Pool
from runner.execute.local.spares import Spares
from runner.execute.local.zygotes import Zygotes
from runner.plan.jobs import Isolation
from runner.plan.resources import Lease, Room


def pins(job: Job, room: Room, lease: Lease) -> tuple[int, ...]:
    """Return the GPUs that the worker of a job sees; empty for one that sees all, or whose spec says which it sees."""
    return () if devices.sees_own(job.environment.variables) else room.pins(lease)


class Readiness:
    """Answers for the queue whether a job can start, and starts what it waits for."""

    def __init__(self, limits: Limits, zygotes: Zygotes, forks: Forks, pool: Pool, spares: Spares) -> None:
        self._limits = limits
        self._zygotes = zygotes
        self._forks = forks
        self._pool = pool
        self._spares = spares

    def shares(self, job: Job) -> bool:
        """Whether a job may run in a shared worker."""
        return job.shares and self._limits.shares

    def may_start(self, room: Room, job: Job, lease: Lease) -> bool:
        """Whether a job can start now with a lease; starts its zygote if there is none and there may be one more."""
        key = job.environment.key
        if self._limits.isolation is Isolation.PROCESS or job.new_process or key in self._zygotes.broken:
            return True
        if key not in self._zygotes:
            self._forks.start_zygote(job.environment)
        if not self._zygotes.is_ready(key):
            return False
        gpus = pins(job, room, lease)
        if job.plan is None or not self._spares.are_for(job.environment) or self._pool.idle_for(job, gpus, shares=self.shares(job)):
            return True
        self._spares.ensure_one(job.environment, gpus)
        return False
