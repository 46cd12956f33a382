"""The executor of a run on this machine: the engine, with folders, services and scratch space around it."""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path

from runner.core.activity import Activity
from runner.execute.base import Execution, ExecutorSettings, Job
from runner.execute.local.engine import Engine
from runner.execute.local.limits import Limits
from runner.execute.local.orphans import Orphans
from runner.execute.local.places import Places
from runner.execute.local.running import OUTPUTS, LocalJob
from runner.execute.local.spawn import ProcessStarter, Starter
from runner.execute.services import Services
from runner.plan.resources import Capacity
from runner.system import scratch
from runner.system.safe_open import tail

_PRINTED_BYTES = 64_000
"""The size limit of ``Execution.printed``."""


class LocalExecutor:
    """Runs jobs in workers on this machine (``runner.execute.base.Executor``)."""

    def __init__(
        self,
        settings: ExecutorSettings,
        starter: Starter | None = None,
        make_starter: Callable[[Path], Starter] | None = None,
        kept: Callable[[], Collection[int]] = tuple,
    ) -> None:
        """``make_starter`` makes the starter of other processes, from the scratch folder; ``kept`` returns those that outlive a run."""
        self._kept = kept
        self._settings = settings
        self._scratch = scratch.make()
        self._places = Places(settings, self._scratch.path)
        self._services = Services(self._scratch.path)
        self._orphans = Orphans()
        limits = Limits(
            timeout_factor=settings.timeout_factor,
            spares=settings.spares,
            zygotes=settings.zygotes,
            keeps_zygotes=settings.keeps_zygotes,
        )
        if starter is None:
            made = make_starter or (lambda scratch: ProcessStarter(settings.threads, scratch, settings.warm_folder))
            starter = made(self._scratch.path)
        self._engine = Engine(limits, starter, self._prepare)

    def run(self, jobs: Iterable[Job], capacity: Capacity) -> Iterator[Execution]:
        """Run every job, in order as far as there is room, and yield each as it ends."""
        waiting = list(jobs)
        self._services.announce(sum(bool(job.services) for job in waiting))
        for execution in self._engine.run(waiting, capacity):
            yield self._completed(execution)
            self._places.remove_cache(execution.job)

    def again(self, job: Job) -> None:
        """Append a job to the queue."""
        self._engine.again(job)

    def cancel_waiting(self) -> int:
        """Drop the waiting jobs, and return the number of running ones."""
        return self._engine.cancel_waiting()

    def on_interrupt(self, wake: int, check: Callable[[], None]) -> None:
        """Call ``check`` before a job starts, and when ``wake`` is readable; an exception from ``check`` ends ``run``."""
        self._engine.on_interrupt(wake, check)

    @property
    def activity(self) -> Activity:
        """What the run waits for now."""
        return self._engine.activity

    @property
    def warnings(self) -> Sequence[str]:
        """Warnings for the user about the execution of jobs."""
        slow = [f"cases got a new process each instead of a fork, which is slow: {why}" for why in self._engine.broken]
        cold = [f"the warm-up of workers for a GPU failed, so each case does its work again: {why}" for why in self._engine.warm_problems]
        return [*slow, *cold, *self._engine.left_over]

    def close(self) -> None:
        """Kill running workers, and remove the scratch folder."""
        self._engine.close()
        self._services.close()
        self._orphans.close(self._kept())
        self._scratch.close()

    def _prepare(self, job: Job) -> LocalJob:
        if job.services:
            self._services.start(job.name, self._places.cache_of(job))
        return self._places.place(job)

    def _completed(self, execution: Execution) -> Execution:
        """Add the data that the engine lacks: files, reports of services, free space, output outside of the run's folder."""
        job = execution.job
        return dataclasses.replace(
            execution,
            files=self._places.files_of(job),
            services=(self._services.stop(job.name),) if job.services else (),
            space=scratch.space_of(self._scratch.path),
            printed="" if job.folder else tail(self._places.folder_of(job) / OUTPUTS[1], _PRINTED_BYTES),
        )
