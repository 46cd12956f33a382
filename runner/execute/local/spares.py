"""Spare workers: a GPU cannot be warmed up before the fork, so workers warm up while others run cases."""

from runner.execute.local.limits import Limits
from runner.execute.local.pool import Pool
from runner.execute.local.waiting import WaitingJobs
from runner.execute.local.zygotes import Zygotes
from runner.plan.jobs import Environment


class Spares:
    """Starts spare workers, up to the number of parallel jobs plus ``Limits.spares``."""

    def __init__(self, pool: Pool, zygotes: Zygotes, waiting: WaitingJobs, limits: Limits) -> None:
        self._pool = pool
        self._zygotes = zygotes
        self._waiting = waiting
        self._limits = limits

    def are_for(self, wanted: Environment) -> bool:
        """Whether the workers of an environment warm up before they have a job."""
        return wanted.uses_accelerator and wanted.key in self._zygotes and wanted.key not in self._pool.cold

    @property
    def warming_since(self) -> float | None:
        """The time at which the oldest warm-up began; None if no case waits for one."""
        if self._pool.busy:
            return None  # while cases run, no case waits for a warm-up
        waited_for = [worker for worker in self._pool if not (worker.is_warm or worker.is_retired or worker.has_ended)]
        return min((worker.warm_until - self._limits.start_seconds for worker in waited_for), default=None)

    def ensure_one(self, wanted: Environment) -> None:
        """Start the warm-up of a worker for a job that fits now, unless one warms up already."""
        if not any(one.key == wanted.key and not one.is_warm and not one.is_retired for one in self._pool):
            self._pool.start(wanted, is_warm=False)

    def warm(self, jobs: int) -> None:
        """Start warm-ups for the next waiting jobs; ``jobs`` is the number of parallel jobs."""
        for key in self._zygotes:
            environment = self._waiting.environment(key)
            if self._zygotes.is_ready(key) and self.are_for(environment):
                unused = sum(one.key == key and one.running is None and not one.is_retired for one in self._pool)
                room = jobs + self._limits.spares - sum(not one.is_retired for one in self._pool)
                for _ in range(min(self._waiting.useful_spares(key) - unused, room)):
                    self._pool.start(environment, is_warm=False)
