"""Whether a job fits with the running ones, on which GPUs, and which waiting job is next.

Pure logic.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from torch_conformance.execute.executor_protocol import Job
from torch_conformance.plan.schedule import Capacity, Needs

MOST_OVERTAKES = 16
"""How many later jobs may overtake a job that waits for room; after that, nothing starts until that
job has room.
"""

GPU_CONTEXT = 1 << 30
"""Bytes of a GPU that are counted for a worker without a job: half of all cases use less than 0.7
GiB with their context.
"""

_UNBOUND = 1 << 30
"""How many contexts fit where no GPU is known."""

_ROUNDING = 1e-9
"""Tolerance for sums of fractional cores: 0.1 has no exact float."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The resources that a running job holds."""

    needs: Needs
    gpus: tuple[int, ...] = ()
    """Which GPUs, by number from 0 among those that the run sees."""
    is_alone: bool = False
    """No other job starts while it runs."""


class Room:
    """The free resources of the machine.

    A job that needs more than the whole machine runs alone.
    """

    def __init__(self, capacity: Capacity) -> None:
        self._capacity = capacity
        self.leases: dict[str, Lease] = {}
        """Those of the running jobs, by name, in the order in which they started."""
        self.most = capacity.jobs
        """The maximum number of jobs that run in parallel, whatever they need."""

    @property
    def pins_of_one(self) -> list[tuple[int, ...]]:
        """To which GPUs the workers of jobs with one GPU are pinned; empty where there is no choice
        of GPUs.
        """
        return [(gpu,) for gpu in range(self._capacity.gpus)] if self._capacity.gpus > 1 else []

    def pins(self, lease: Lease) -> tuple[int, ...]:
        """Return the GPUs that a worker with a lease sees; empty where it sees all."""
        return lease.gpus if len(lease.gpus) < self._capacity.gpus else ()

    def contexts(self, gpus: tuple[int, ...]) -> int:
        """Return how many workers without a job may hold a context on each of these GPUs (all,
        where none is named), in addition to the leases.
        """
        free = (
            self._capacity.gpu_memory - self._used(gpu)
            for gpu in gpus or range(self._capacity.gpus)
        )
        return min((max(0, memory) // GPU_CONTEXT for memory in free), default=_UNBOUND)

    @property
    def is_taken_alone(self) -> bool:
        """Whether a job runs that runs alone."""
        return any(lease.is_alone for lease in self.leases.values())

    def is_bounded(self, needs: Needs) -> bool:
        """Whether as many jobs of the group run as its bound lets."""
        group = needs.group
        running = [lease.needs.group for lease in self.leases.values()]
        return group is not None and running.count(group) >= group.most

    def places(self, needs: Needs) -> list[Lease]:
        """Return the leases that a job could have now, the one with the most free GPU memory first;
        empty when there is no room.
        """
        capacity = self._capacity
        exceeds = (
            needs.cores > capacity.cores + _ROUNDING
            or needs.memory > capacity.memory
            or needs.gpus > capacity.gpus
        )
        if (
            needs.exclusive
            or exceeds
            or needs.gpu_memory > (capacity.gpu_memory if capacity.gpus else 0)
        ):
            gpus = next(iter(self._gpus_for(needs)), None) or tuple(range(capacity.gpus))
            return [] if self.leases else [Lease(needs, gpus, is_alone=True)]
        running = [lease.needs for lease in self.leases.values()]
        if (
            len(running) >= capacity.jobs
            or self.is_taken_alone
            or sum((used.cores for used in running), needs.cores) > capacity.cores + _ROUNDING
            or sum((used.memory for used in running), needs.memory) > capacity.memory
        ):
            return []
        return [Lease(needs, gpus) for gpus in self._gpus_for(needs)]

    def _gpus_for(self, needs: Needs) -> list[tuple[int, ...]]:
        """Return the GPUs that a job could use, the emptiest first; empty when too few have
        memory.
        """
        if not needs.gpus and not needs.gpu_memory:
            return [()]
        used = {gpu: self._used(gpu) for gpu in range(self._capacity.gpus)}
        free = sorted(
            (gpu for gpu in used if used[gpu] + needs.gpu_memory <= self._capacity.gpu_memory),
            key=used.__getitem__,
        )
        if needs.gpus <= 1:
            return [(gpu,) for gpu in free]
        return [tuple(sorted(free[: needs.gpus]))] if len(free) >= needs.gpus else []

    def _used(self, gpu: int) -> int:
        """Return the bytes of a GPU that are leased."""
        return sum(lease.needs.gpu_memory for lease in self.leases.values() if gpu in lease.gpus)


class Queue:
    """Waiting jobs: first in, first out, among those that fit and are ready.

    A job that does not fit now may be overtaken by later jobs that fit, ``MOST_OVERTAKES`` times.
    After that, nothing starts until the job fits. So every job starts eventually, if running jobs
    end. A job that fits and is not ready may be overtaken without limit: what it waits for goes on
    meanwhile, and has a deadline of its own. So may a job whose group is full: it is the next one
    of its group.
    """

    def __init__(self) -> None:
        # one queue for each distinct needs and line: the first job of a queue can start if and only
        # if all of them can
        self.lines: dict[tuple[Needs, str], deque[tuple[int, Job]]] = {}
        """The jobs by their needs and their lines, with the numbers in which they came."""
        self._overtaken: dict[int, int] = {}
        self._count = 0

    def put(self, job: Job) -> None:
        """Add a job behind all others."""
        self.lines.setdefault((job.needs, job.line), deque()).append((self._count, job))
        self._count += 1

    def next(self, room: Room, is_ready: Callable[[Job, Lease], bool]) -> Job | None:
        """Return the next job that can start now, with its room taken; None when there is none.

        ``is_ready`` is called with a job and a lease that it could have, and may start its
        preparation.
        """
        waiting: list[int] = []
        places: dict[Needs, list[Lease]] = {}
        for number, key in sorted((line[0][0], key) for key, line in self.lines.items()):
            needs = key[0]
            if room.is_bounded(needs):
                continue
            if needs not in places:
                places[needs] = room.places(needs)
            job = self.lines[key][0][1]
            for lease in places[needs]:
                if is_ready(job, lease):
                    room.leases[job.name] = lease
                    self.lines[key].popleft()
                    if not self.lines[key]:
                        del self.lines[key]
                    self._overtaken.pop(number, None)
                    for overtaken in waiting:
                        self._overtaken[overtaken] = self._overtaken.get(overtaken, 0) + 1
                    return job
            if not places[needs]:
                if self._overtaken.get(number, 0) >= MOST_OVERTAKES:
                    return None
                waiting.append(number)
        return None
