"""What a job needs: an environment and resources; whether it fits beside the running ones, and which waiting job is next. Pure logic."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from runner.model import devices
from runner.model.protocol import SIMULATED, TARGET
from runner.model.targets import simulated

MOST_OVERTAKES = 16
"""How many later jobs may overtake a job that waits for room; after that, nothing starts until that job has room."""

GPU_CONTEXT = 1 << 30
"""Bytes of a GPU that are counted for a worker without a job: half of all cases use less than 0.7 GiB with their context."""

_UNBOUND = 1 << 30
"""How many contexts fit where no GPU is known."""

_ROUNDING = 1e-9
"""Tolerance for sums of fractional cores: 0.1 has no exact float."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The environment in which a zygote is started: variables added to the runner's own (None removes one)."""

    variables: Mapping[str, str | None] = field(default_factory=dict)
    kinds: frozenset[str] = frozenset()
    """Kinds of device that its cases compile for; the warm-up depends on them."""

    @property
    def key(self) -> str:
        """Equal for environments that may share a zygote. A zygote is warmed up for a GPU or for the CPU, not for both."""
        return repr((self.uses_accelerator, sorted(self.variables.items())))

    @property
    def uses_accelerator(self) -> bool:
        """Whether one of its cases compiles for an accelerator, for which torch queries the driver."""
        return devices.any_accelerator(self.kinds)


def compiler_of(environment: Environment) -> str | None:
    """Return the name of what an environment compiles with: a target, or a simulated target; None for one that executes."""
    target = environment.variables.get(TARGET)
    return simulated(target) if target is not None and SIMULATED in environment.variables else target


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """The resources of the machine that a job uses while it runs."""

    cores: float = 1.0
    memory: int = 0
    """Bytes."""
    gpu_memory: int = 0
    """Bytes on each GPU that it uses. A job with GPU memory and ``gpus`` 0 uses one GPU."""
    gpus: int = 0
    """How many GPUs it uses. Jobs share GPUs as far as their memory suffices."""
    exclusive: bool = False
    """No other job may run beside it: it measures times."""


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
    def names(self) -> tuple[str, ...]:
        """The running jobs, in the order in which they started."""
        return tuple(self._leases)

    @property
    def most(self) -> int:
        """The maximum number of jobs that run in parallel, whatever they need."""
        return self._capacity.jobs

    @property
    def pins_of_one(self) -> list[tuple[int, ...]]:
        """To which GPUs the workers of jobs with one GPU are pinned; empty where there is no choice of GPUs."""
        return [(gpu,) for gpu in range(self._capacity.gpus)] if self._capacity.gpus > 1 else []

    def pins(self, lease: Lease) -> tuple[int, ...]:
        """Return the GPUs that a worker with a lease sees; empty where it sees all."""
        return lease.gpus if len(lease.gpus) < self._capacity.gpus else ()

    def contexts(self, gpus: tuple[int, ...]) -> int:
        """Return how many workers without a job may hold a context on each of these GPUs (all, where none is named), beside the leases."""
        seen = gpus or range(self._capacity.gpus)
        free = (self._capacity.gpu_memory - _leased_of(gpu, self._leases.values()) for gpu in seen)
        return min((max(0, memory) // GPU_CONTEXT for memory in free), default=_UNBOUND)

    @property
    def lease_of_alone(self) -> Lease | None:
        """The lease of a job that runs alone, if there is one."""
        return next((lease for lease in self._leases.values() if lease.is_alone), None)

    def hold(self, name: str, lease: Lease) -> Lease:
        """Lease to a job what ``places`` returned."""
        self._leases[name] = lease
        return lease

    def lease(self, name: str) -> Lease:
        """Return the lease of a running job."""
        return self._leases[name]

    def give_back(self, name: str) -> None:
        """Release the lease of a job that ended."""
        del self._leases[name]

    def places(self, needs: Needs) -> list[Lease]:
        """Return the leases that a job could have now, the one with the most free GPU memory first; empty when there is no room."""
        capacity = self._capacity
        exceeds = needs.cores > capacity.cores + _ROUNDING or needs.memory > capacity.memory or needs.gpus > capacity.gpus
        if needs.exclusive or exceeds or needs.gpu_memory > (capacity.gpu_memory if capacity.gpus else 0):
            gpus = next(iter(self._gpus_for(needs)), None) or tuple(range(self._capacity.gpus))
            return [] if self._leases else [Lease(needs, gpus, is_alone=True)]
        if len(self._leases) >= self._capacity.jobs or self.lease_of_alone is not None:
            return []
        running = [lease.needs for lease in self._leases.values()]
        if sum((used.cores for used in running), needs.cores) > self._capacity.cores + _ROUNDING:
            return []
        if sum((used.memory for used in running), needs.memory) > self._capacity.memory:
            return []
        return [Lease(needs, gpus) for gpus in self._gpus_for(needs)]

    def _gpus_for(self, needs: Needs) -> list[tuple[int, ...]]:
        """Return the GPUs that a job could use, the emptiest first; empty when too few have memory."""
        if not needs.gpus and not needs.gpu_memory:
            return [()]
        count = needs.gpus or 1
        within = range(self._capacity.gpus)
        used = {gpu: _leased_of(gpu, self._leases.values()) for gpu in within}
        free = sorted((gpu for gpu in within if used[gpu] + needs.gpu_memory <= self._capacity.gpu_memory), key=used.__getitem__)
        if count == 1:
            return [(gpu,) for gpu in free]
        return [tuple(sorted(free[:count]))] if len(free) >= count else []


def _leased_of(gpu: int, leases: Iterable[Lease]) -> int:
    return sum(lease.needs.gpu_memory for lease in leases if gpu in lease.gpus)


class Waiting(Protocol):
    """The part of a job that a queue uses."""

    @property
    def name(self) -> str:
        """The name of its lease."""

    @property
    def needs(self) -> Needs:
        """The resources that it uses."""

    @property
    def line(self) -> str:
        """Jobs of one line need the same preparation: while one is not ready, none of them is."""


_W = TypeVar("_W", bound=Waiting)


class Queue(Generic[_W]):
    """Waiting jobs: first in, first out, among those that fit and are ready.

    A job that does not fit now may be overtaken by later jobs that fit, ``MOST_OVERTAKES`` times. After that, nothing starts until the
    job fits. So every job starts eventually, if running jobs end. A job that fits and is not ready may be overtaken without limit: what it
    waits for goes on meanwhile, and has a deadline of its own.
    """

    def __init__(self, jobs: Iterable[_W] = ()) -> None:
        # one queue for each distinct needs and line: the first job of a queue can start if and only if all of them can
        self._lines: dict[tuple[Needs, str], deque[tuple[int, _W]]] = {}
        self._overtaken: dict[int, int] = {}
        self._count = 0
        for job in jobs:
            self.put(job)

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    @property
    def sizes(self) -> dict[tuple[Needs, str], int]:
        """How many jobs of each needs and line wait."""
        return {key: len(line) for key, line in self._lines.items()}

    def put(self, job: _W) -> None:
        """Add a job behind all others."""
        self._lines.setdefault((job.needs, job.line), deque()).append((self._count, job))
        self._count += 1

    def next(self, room: Room, is_ready: Callable[[_W, Lease], bool]) -> _W | None:
        """Return the next job that can start now, with its room taken; None when there is none.

        ``is_ready`` is called with a job and a lease that it could have, and may start its preparation.
        """
        waiting: list[int] = []
        places: dict[Needs, list[Lease]] = {}
        for number, key in sorted((line[0][0], key) for key, line in self._lines.items()):
            needs = key[0]
            if needs not in places:
                places[needs] = room.places(needs)
            job = self._lines[key][0][1]
            for lease in places[needs]:
                if is_ready(job, lease):
                    room.hold(job.name, lease)
                    self._remove(key, waiting)
                    return job
            if not places[needs]:
                if self._overtaken.get(number, 0) >= MOST_OVERTAKES:
                    return None
                waiting.append(number)
        return None

    def _remove(self, key: tuple[Needs, str], waiting: Iterable[int]) -> None:
        line = self._lines[key]
        number, _ = line.popleft()
        if not line:
            del self._lines[key]
        self._overtaken.pop(number, None)
        for overtaken in waiting:
            self._overtaken[overtaken] = self._overtaken.get(overtaken, 0) + 1
