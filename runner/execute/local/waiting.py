"""The jobs that wait for a worker, and how many of each environment there are."""

from collections import Counter
from collections.abc import Callable, Iterator

from runner.execute.base import Job
from runner.plan.jobs import Environment
from runner.plan.resources import Lease, Queue, Room

_WARM_ALONE = 2
"""How many workers are warmed up for exclusive jobs: each idle worker holds a context on its GPU."""


class WaitingJobs:
    """The queue of a run."""

    def __init__(self) -> None:
        self._queue: Queue[Job] = Queue(())
        self._count: Counter[str] = Counter()
        """How many jobs wait for which spares are of use, by the key of their environment."""
        self._waiting: Counter[str] = Counter()
        """How many jobs wait for a zygote, by the key of their environment."""
        self._count_alone: Counter[str] = Counter()
        """How many of them are exclusive."""
        self._environments: dict[str, Environment] = {}
        self._is_cancelled = False

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, job: Job) -> None:
        """Append a job. Nothing is added after the queue was cancelled."""
        if self._is_cancelled:
            return
        self._environments[job.environment.key] = job.environment
        self._add_to_counts(job, 1)
        self._queue.put(job)

    def started(self, room: Room, may_start: Callable[[Job, Lease], bool]) -> Iterator[Job]:
        """Yield the jobs that can start now, each with its lease taken."""
        while (job := self._queue.next(room, may_start)) is not None:
            self._add_to_counts(job, -1)
            yield job

    def cancel(self) -> None:
        """Drop every job, and all later ones."""
        self._is_cancelled = True
        self._queue = Queue(())
        self._count.clear()
        self._waiting.clear()
        self._count_alone.clear()

    def environment(self, key: str) -> Environment | None:
        """Return the environment of jobs that were added; None where there were none."""
        return self._environments.get(key)

    def has(self, key: str) -> bool:
        """Whether a job waits for the zygote of an environment."""
        return self._waiting[key] > 0

    def useful_spares(self, key: str) -> int:
        """Return how many warm workers the waiting jobs of an environment can use; for exclusive jobs, at most two."""
        return self._count[key] - max(0, self._count_alone[key] - _WARM_ALONE)

    def _add_to_counts(self, job: Job, number: int) -> None:
        if job.new_process:
            return  # no worker is warmed up for it
        self._waiting[job.environment.key] += number
        if job.needs.gpus > 1:
            return  # a worker for several GPUs is started when they have room
        self._count[job.environment.key] += number
        if job.needs.exclusive:
            self._count_alone[job.environment.key] += number
