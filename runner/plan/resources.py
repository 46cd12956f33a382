"""Whether a job fits beside the running ones, and which waiting job is next. Pure logic: nothing here starts a process."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

MOST_OVERTAKES = 16
"""How many later jobs may overtake a job that waits for room; after that, nothing starts until that job has room."""

_ROUNDING = 1e-9
"""Tolerance for sums of fractional cores: 0.1 has no exact float."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """The resources of the machine that a job uses while it runs."""

    cores: float = 1.0
    memory: int = 0
    """Bytes."""
    gpu_memory: int = 0
    """Bytes on each GPU that it uses. A job with ``gpus`` 0 shares one GPU."""
    gpus: int = 0
    """Whole GPUs that it uses alone."""
    exclusive: bool = False
    """No other job may run beside it: it measures times."""

    def __post_init__(self) -> None:
        if not self.cores >= 0 or min(self.memory, self.gpu_memory, self.gpus) < 0:
            raise ValueError(f"needs below 0: {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The resources of the machine that jobs share."""

    jobs: int
    """The maximum number of jobs that run in parallel, whatever they need."""
    cores: float
    memory: int
    """Bytes."""
    gpus: int = 0
    gpu_memory: int = 0
    """Bytes of each GPU."""
    pinned: bool = False
    """Whether each worker sees only the GPUs of its lease. Otherwise every worker uses the first GPUs; jobs are not spread."""

    def __post_init__(self) -> None:
        if self.jobs < 1 or not self.cores > 0 or self.memory < 1:
            raise ValueError(f"a capacity of nothing: {self}")


@dataclass(frozen=True, slots=True)
class Lease:
    """The resources that a running job holds."""

    needs: Needs
    gpus: tuple[int, ...] = ()
    """Which GPUs, by number from 0 among those that the run sees."""
    is_alone: bool = False
    """No other job starts beside it."""


class Room:
    """The free resources of the machine. A job that needs more than the whole machine runs alone."""

    def __init__(self, capacity: Capacity) -> None:
        self._capacity = capacity
        self._leases: dict[str, Lease] = {}

    @property
    def is_empty(self) -> bool:
        """Whether nothing runs."""
        return not self._leases

    @property
    def names(self) -> tuple[str, ...]:
        """The running jobs, in the order in which they started."""
        return tuple(self._leases)

    @property
    def most(self) -> int:
        """The maximum number of jobs that run in parallel, whatever they need."""
        return self._capacity.jobs

    @property
    def lease_of_alone(self) -> Lease | None:
        """The lease of a job that runs alone, if there is one."""
        return next((lease for lease in self._leases.values() if lease.is_alone), None)

    def fits(self, needs: Needs) -> bool:
        """Whether a job with these needs could start now."""
        return self._place(needs) is not None

    def take(self, name: str, needs: Needs) -> Lease:
        """Lease resources to a job; raise ``ValueError`` when there are not enough, or when it has a lease already."""
        if name in self._leases:
            raise ValueError(f"{name} has its room")
        lease = self._place(needs)
        if lease is None:
            raise ValueError(f"no room for {name}")
        self._leases[name] = lease
        return lease

    def lease(self, name: str) -> Lease:
        """Return the lease of a running job."""
        return self._leases[name]

    def give_back(self, name: str) -> None:
        """Release the lease of a job that ended."""
        del self._leases[name]

    def _place(self, needs: Needs) -> Lease | None:
        if needs.exclusive or self._exceeds(needs):
            return None if self._leases else Lease(needs, self._gpus_for(needs) or tuple(range(self._capacity.gpus)), is_alone=True)
        if len(self._leases) >= self._capacity.jobs or self.lease_of_alone is not None:
            return None
        running = [lease.needs for lease in self._leases.values()]
        if sum((one.cores for one in running), needs.cores) > self._capacity.cores + _ROUNDING:
            return None
        if sum((one.memory for one in running), needs.memory) > self._capacity.memory:
            return None
        gpus = self._gpus_for(needs)
        return None if gpus is None else Lease(needs, gpus)

    def _exceeds(self, needs: Needs) -> bool:
        capacity = self._capacity
        return (
            needs.cores > capacity.cores + _ROUNDING
            or needs.memory > capacity.memory
            or needs.gpus > capacity.gpus
            or needs.gpu_memory > (capacity.gpu_memory if capacity.gpus else 0)
        )

    def _gpus_for(self, needs: Needs) -> tuple[int, ...] | None:
        """Return the GPUs for a job; None when not enough are free."""
        if not needs.gpus and not needs.gpu_memory:
            return ()
        leases = [lease for lease in self._leases.values() if lease.gpus]
        count = needs.gpus or 1
        within = range(self._capacity.gpus) if self._capacity.pinned else range(min(count, self._capacity.gpus))
        if needs.gpus:
            held = {gpu for lease in leases for gpu in lease.gpus}
            free = [gpu for gpu in within if gpu not in held]
            return tuple(free[:count]) if len(free) >= count else None
        whole = {gpu for lease in leases if lease.needs.gpus for gpu in lease.gpus}
        used = {gpu: sum(lease.needs.gpu_memory for lease in leases if gpu in lease.gpus) for gpu in within if gpu not in whole}
        emptiest = min(used, key=used.__getitem__, default=None)
        if emptiest is None or used[emptiest] + needs.gpu_memory > self._capacity.gpu_memory:
            return None
        return (emptiest,)


class Waiting(Protocol):
    """The part of a job that a queue uses."""

    @property
    def name(self) -> str:
        """The name of its lease."""

    @property
    def needs(self) -> Needs:
        """The resources that it uses."""


_W = TypeVar("_W", bound=Waiting)


class Queue(Generic[_W]):
    """Waiting jobs: first in, first out, among those that fit.

    A job that does not fit now may be overtaken by later jobs that fit, ``MOST_OVERTAKES`` times. After that, nothing starts until the
    job fits. So every job starts eventually, if running jobs end.
    """

    def __init__(self, jobs: Iterable[_W]) -> None:
        # one line for each distinct needs: the first job of a line fits if and only if all of them do
        self._lines: dict[Needs, deque[tuple[int, _W]]] = {}
        self._overtaken: dict[int, int] = {}
        self._count = 0
        for job in jobs:
            self.put(job)

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def put(self, job: _W) -> None:
        """Add a job behind all others."""
        self._lines.setdefault(job.needs, deque()).append((self._count, job))
        self._count += 1

    def next(self, room: Room, is_ready: Callable[[_W], bool]) -> _W | None:
        """Return the next job that can start now, with its room taken; None when there is none.

        ``is_ready`` is called with a job that fits, and may start its preparation. If it returns False, no later job is tried.
        """
        waiting: list[int] = []
        for number, needs in sorted((line[0][0], needs) for needs, line in self._lines.items()):
            if room.fits(needs):
                return self._start(needs, room, is_ready, waiting)
            if self._overtaken.get(number, 0) >= MOST_OVERTAKES:
                return None
            waiting.append(number)
        return None

    def _start(self, needs: Needs, room: Room, is_ready: Callable[[_W], bool], waiting: list[int]) -> _W | None:
        line = self._lines[needs]
        number, job = line[0]
        if not is_ready(job):
            return None
        room.take(job.name, needs)
        line.popleft()
        if not line:
            del self._lines[needs]
        self._overtaken.pop(number, None)
        for overtaken in waiting:
            self._overtaken[overtaken] = self._overtaken.get(overtaken, 0) + 1
        return job
