"""Whether a job fits beside what runs now, and which of those that wait is next. Pure logic: nothing here starts a process."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

MOST_OVERTAKES = 16
"""How many later jobs may start before one that waits for room; then nothing starts until it has it."""

_ROUNDING = 1e-9
"""Cores are shares of one: their sum must not spill over because 0.1 is no exact float."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a job takes of the machine while it runs."""

    cores: float = 1.0
    memory: int = 0
    """Bytes."""
    gpu_memory: int = 0
    """Bytes on each GPU that it uses. Of one that asks for no whole GPU: it shares one."""
    gpus: int = 0
    """GPUs that it has to itself."""
    exclusive: bool = False
    """Nothing may run beside it: it takes times."""

    def __post_init__(self) -> None:
        if not self.cores >= 0 or min(self.memory, self.gpu_memory, self.gpus) < 0:
            raise ValueError(f"needs below 0: {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What there is to share out."""

    jobs: int
    """The most at once, whatever they need."""
    cores: float
    memory: int
    """Bytes."""
    gpus: int = 0
    gpu_memory: int = 0
    """Bytes of each GPU."""
    pinned: bool = False
    """Whether each worker is shown only the GPUs of its lease. Where it is not, every worker takes the first ones, and none is spread."""

    def __post_init__(self) -> None:
        if self.jobs < 1 or not self.cores > 0 or self.memory < 1:
            raise ValueError(f"a capacity of nothing: {self}")


@dataclass(frozen=True, slots=True)
class Lease:
    """What a running job holds."""

    needs: Needs
    gpus: tuple[int, ...] = ()
    """Which GPUs, by number from 0 among those that the run sees."""
    is_alone: bool = False
    """Nothing starts beside it."""


class Room:
    """What is left of the machine. A job that needs more than there is at all runs alone rather than never."""

    def __init__(self, capacity: Capacity) -> None:
        self._capacity = capacity
        self._leases: dict[str, Lease] = {}

    @property
    def is_empty(self) -> bool:
        """Whether nothing runs."""
        return not self._leases

    @property
    def names(self) -> tuple[str, ...]:
        """The jobs that run, in the order in which they began."""
        return tuple(self._leases)

    @property
    def most(self) -> int:
        """How many jobs may run at once, whatever they need."""
        return self._capacity.jobs

    @property
    def lease_of_alone(self) -> Lease | None:
        """The lease beside which nothing starts, if there is one."""
        return next((lease for lease in self._leases.values() if lease.is_alone), None)

    def fits(self, needs: Needs) -> bool:
        """Whether a job with these needs could start now."""
        return self._place(needs) is not None

    def take(self, name: str, needs: Needs) -> Lease:
        """Give a job its room; raise ``ValueError`` when there is none, or when it has some already."""
        if name in self._leases:
            raise ValueError(f"{name} has its room")
        lease = self._place(needs)
        if lease is None:
            raise ValueError(f"no room for {name}")
        self._leases[name] = lease
        return lease

    def lease(self, name: str) -> Lease:
        """Return what a running job holds."""
        return self._leases[name]

    def give_back(self, name: str) -> None:
        """Take back what an ended job held."""
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
        """Return the GPUs that a job gets; None when there are none for it."""
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
    """What a queue must know of a job."""

    @property
    def name(self) -> str:
        """Whose room it is."""

    @property
    def needs(self) -> Needs:
        """How much room it takes."""


_W = TypeVar("_W", bound=Waiting)


class Queue(Generic[_W]):
    """Jobs that wait, first come first served as far as there is room.

    A job for which there is no room now may be overtaken by later ones that fit, ``MOST_OVERTAKES`` times: then nothing
    starts until the room is empty enough for it. So each job is started, as long as those that run come to an end.
    """

    def __init__(self, jobs: Iterable[_W]) -> None:
        # jobs with equal needs stand in one line: whether the first fits says it for all, however many wait
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

        ``is_ready`` is asked of a job that fits, and may begin to make it ready: when it says no, no later job is asked.
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
