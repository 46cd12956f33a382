"""Spare workers: a GPU cannot be warmed up before the fork, so workers warm up while others run cases."""

from collections import Counter

from runner.core import devices
from runner.execute.local.limits import Limits
from runner.execute.local.pool import Pool
from runner.execute.local.waiting import WaitingJobs
from runner.execute.local.zygotes import Zygotes
from runner.plan.jobs import Environment
from runner.plan.resources import Room


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

    def ensure_one(self, wanted: Environment, gpus: tuple[int, ...] = ()) -> None:
        """Start the warm-up of a worker for a job that fits now, unless one warms up already; ``gpus`` are those that it sees."""
        if not any(one.key == wanted.key and one.gpus == gpus and not one.is_warm and not one.is_retired for one in self._pool):
            self._pool.start(wanted, gpus, is_warm=False)

    def warm(self, room: Room) -> None:
        """Start warm-ups for the next waiting jobs, as far as the machine has cores."""
        for key in self._zygotes:
            environment = self._waiting.environment(key)
            if environment is not None and self._zygotes.is_ready(key) and self.are_for(environment):
                unused = sum(one.key == key and one.running is None and not one.is_retired for one in self._pool)
                free = room.most + self._limits.spares - sum(not one.is_retired for one in self._pool)
                for _ in range(min(self._waiting.useful_spares(key) - unused, free)):
                    self._pool.start(environment, self._next_gpus(environment, room), is_warm=False)

    def _next_gpus(self, wanted: Environment, room: Room) -> tuple[int, ...]:
        """Return the GPU that the fewest workers of an environment see; empty where workers see all GPUs."""
        if devices.sees_own(wanted.variables):
            return ()
        seen = Counter(one.gpus for one in self._pool if one.key == wanted.key and not one.is_retired)
        return min(room.pins_of_one, key=seen.__getitem__, default=())
