"""Spare workers: a GPU cannot be warmed up before the fork, so workers warm up while others run cases."""

from collections import Counter

from runner.core import devices
from runner.execute.local.limits import Limits
from runner.execute.local.pool import Pool
from runner.execute.local.waiting import WaitingJobs
from runner.execute.local.zygotes import Zygotes
from runner.plan.jobs import Environment
from runner.plan.resources import Room

_LEAST_ON_GPU = 2
"""How many workers without a case may hold a context on a GPU whose memory is leased: a lease counts several times what most cases use."""


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
                for _ in range(min(self._useful(key), self._free(room))):
                    gpus = self._next_gpus(environment, room)
                    if self._idle_on(gpus) >= max(room.contexts(gpus), _LEAST_ON_GPU):
                        break
                    self._pool.start(environment, gpus, is_warm=False)

    def _idle_on(self, gpus: tuple[int, ...]) -> int:
        """Return how many workers without a case see these GPUs alone, or all, where none is named."""
        return sum(one.gpus == gpus and one.running is None and not one.is_retired for one in self._pool)

    def _useful(self, key: str) -> int:
        """Return how many more workers the waiting jobs of an environment can use."""
        unused = sum(one.key == key and not one.is_retired and one.running is None and not one.cases for one in self._pool)
        return self._waiting.useful_spares(key) - unused

    def _free(self, room: Room) -> int:
        """Return how many more workers may warm up now.

        While jobs run in all places, a quarter as many warm up beside them: the cases need the cores.
        """
        live = [one for one in self._pool if not one.is_retired]
        warming = sum(not one.is_warm for one in live)
        at_a_time = max(room.most - len(self._pool.busy), room.most // 4, 1)
        return min(room.most + self._limits.spares - len(live), at_a_time - warming)

    def _next_gpus(self, wanted: Environment, room: Room) -> tuple[int, ...]:
        """Return the GPU that the fewest workers of an environment see; empty where workers see all GPUs."""
        if devices.sees_own(wanted.variables):
            return ()
        seen = Counter(one.gpus for one in self._pool if one.key == wanted.key and not one.is_retired)
        return min(room.pins_of_one, key=seen.__getitem__, default=())
