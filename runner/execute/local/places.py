"""The paths of jobs on this machine: their folders, caches and plan files."""

import json
import os
import shutil
from pathlib import Path

from runner.execute.base import ExecutorSettings, Job
from runner.execute.local.running import LocalJob
from runner.plan.worker_plan import with_paths
from runner.system.streams import naming

PLAN = "plan.json"

FACTS = "facts"
"""The word that a worker gets instead of a plan's file, to report the facts of the machine; predicates to call follow it."""

_PLAN_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Places:
    """Maps jobs to folders: artifacts are in the folder of the run, temporary files in the scratch folder."""

    def __init__(self, settings: ExecutorSettings, scratch: Path) -> None:
        self._settings = settings
        self._scratch = scratch

    def folder_of(self, job: Job) -> Path:
        """Return the folder of a job's artifacts."""
        return self._settings.folder / job.folder if job.folder else self._scratch / FACTS

    def cache_of(self, job: Job) -> Path:
        """Return the folder for the caches of a job and the addresses of its services."""
        return self._scratch / Path(job.folder).name

    def place(self, job: Job) -> LocalJob:
        """Write the plan of a job with the paths of this machine, and return its path; a second call rewrites it."""
        folder = self.folder_of(job)
        folder.mkdir(parents=True, exist_ok=True)
        if job.plan is None:
            return LocalJob(job=job, plan=" ".join([FACTS, *job.questions]), folder=folder)
        plan = with_paths(job.plan, folder, self.cache_of(job), self._settings.torch_root)
        _write_new(folder / PLAN, json.dumps(plan, indent=1, ensure_ascii=True))
        return LocalJob(job=job, plan=str(folder / PLAN), folder=folder)

    def files_of(self, job: Job) -> tuple[str, ...]:
        """Return the file names in the folder of a job; empty if its worker removed the folder."""
        try:
            return tuple(sorted(os.listdir(self.folder_of(job)))) if job.folder else ()
        except OSError:
            return ()

    def remove_cache(self, job: Job) -> None:
        """Remove the caches of a job that has ended."""
        if job.folder:
            shutil.rmtree(self.cache_of(job), ignore_errors=True)


def _write_new(path: Path, text: str) -> None:
    """Write a file, and replace what is at its path: a parallel worker could have created a link or a folder there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    with naming(path), os.fdopen(os.open(path, _PLAN_FLAGS, 0o644), "w", encoding="ascii") as stream:
        stream.write(text)
