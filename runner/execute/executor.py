"""The executor of a run on this machine: the engine, with folders, plan files, services and scratch space around it."""

import contextlib
import ctypes
import dataclasses
import functools
import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from runner.execute.engine import Engine
from runner.execute.executor_protocol import Execution, ExecutorSettings, Job
from runner.execute.spawn import ProcessStarter
from runner.execute.workers import OUTPUTS
from runner.machine import scratch
from runner.machine.output import naming
from runner.machine.scratch import tail
from runner.plan.resources import Capacity
from runner.plan.worker_plan import with_paths

if TYPE_CHECKING:
    from runner.execute.redis_service import Services

_PLAN = "plan.json"

_FACTS = "facts"
"""The word that a worker gets instead of a plan's file, to report the facts of the machine; predicates to call follow it."""

_PRINTED_BYTES = 64_000
"""The size limit of ``Execution.printed``."""

_PLAN_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37

_END_SECONDS = 5.0
"""How long to wait for killed processes to end."""


class LocalExecutor(Engine):
    """Runs jobs in workers on this machine (``runner.execute.executor_protocol.Executor``)."""

    def __init__(
        self,
        settings: ExecutorSettings,
        make_starter: Callable[[Path], ProcessStarter] | None = None,
    ) -> None:
        """``make_starter`` makes the starter of other processes, from the scratch folder."""
        self._scratch = scratch.make()
        self._orphans = Orphans()
        make = make_starter or (lambda folder: ProcessStarter(settings.threads, folder, settings.warm_folder))
        super().__init__(settings, make(self._scratch.path), self._write_plan)

    def run(self, jobs: Iterable[Job], capacity: Capacity) -> Iterator[Execution]:
        """Run every job, in order as far as there is room, and yield each as it ends."""
        for execution in super().run(jobs, capacity):
            job, files = execution.job, []
            with contextlib.suppress(OSError):  # its worker removed the folder
                files = sorted(os.listdir(self._folder_of(job))) if job.folder else []
            yield dataclasses.replace(
                execution,
                files=tuple(files),
                services=(self._services.stop(job.name),) if job.services else (),
                space=scratch.space_of(self._scratch.path),
                printed="" if job.folder else tail(self._folder_of(job) / OUTPUTS[1], _PRINTED_BYTES),
            )
            if job.folder:
                shutil.rmtree(self._cache_of(job), ignore_errors=True)

    def close(self) -> None:
        """Kill running workers, and remove the scratch folder."""
        super().close()
        if "_services" in vars(self):
            self._services.close()
        self._orphans.close()
        self._scratch.close()

    @functools.cached_property
    def _services(self) -> "Services":
        """The servers of cases, from the first job on that uses one."""
        from runner.execute.redis_service import Services

        return Services(self._scratch.path)

    def _folder_of(self, job: Job) -> Path:
        """Return the folder of a job's artifacts: in the folder of the run, or in the scratch folder for a job without one."""
        return self._settings.folder / job.folder if job.folder else self._scratch.path / _FACTS

    def _cache_of(self, job: Job) -> Path:
        """Return the folder for the caches of a job and the addresses of its services."""
        return self._scratch.path / Path(job.folder).name

    def _write_plan(self, job: Job) -> tuple[str, Path]:
        """Start the services of a job and write its plan with the paths of this machine; a second call does it again."""
        if job.services:
            self._services.start(job.name, self._cache_of(job))
        folder = self._folder_of(job)
        folder.mkdir(parents=True, exist_ok=True)
        if job.plan is None:
            return " ".join([_FACTS, *job.questions]), folder
        plan = with_paths(job.plan, folder, self._cache_of(job), self._settings.torch_root)
        path = folder / _PLAN
        # a parallel worker could have created a link or a folder there
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        with naming(path), os.fdopen(os.open(path, _PLAN_FLAGS, 0o644), "w", encoding="ascii") as stream:
            stream.write(json.dumps(plan, indent=1, ensure_ascii=True))
        return str(path), folder


class Orphans:
    """Orphans of workers: processes whose ancestors have ended become children of the runner, and ``close`` kills those.

    A zygote kills the orphans of its workers. This is for workers without a zygote, and for zygotes that were killed.
    """

    def __init__(self) -> None:
        self._before = set(children())
        self._library = ctypes.CDLL(None)
        was = ctypes.c_int(0)
        self._library.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(was))
        self._was = was.value
        self._library.prctl(_PR_SET_CHILD_SUBREAPER, 1)

    def close(self) -> None:
        """Kill the orphans; processes that the runner started itself have ended by now."""
        until = time.monotonic() + _END_SECONDS
        # children of a killed child are reparented to the runner next
        while (orphans := set(children()) - self._before) and time.monotonic() < until:
            for pid in orphans:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, os.WNOHANG)
            time.sleep(0.001)
        self._library.prctl(_PR_SET_CHILD_SUBREAPER, self._was)


def children() -> list[int]:
    """Return the child processes of all threads of this process; empty where the system has no list."""
    pids: list[int] = []
    for thread in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            pids += map(int, thread.read_text("ascii").split())
    return pids
