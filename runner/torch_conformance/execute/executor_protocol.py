"""What goes between a run and its executor (``engine``): jobs go in, executions come out, and both
are plain data.

Jobs and executions can be written as JSON and read back, so they can be sent to another machine
(``fleet``). They contain no closure and no absolute path: a job's ``folder`` is relative to the
folder of the run, and its plan is data; the executor adds the paths of its own machine
(``with_paths``).
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Self

from torch_conformance.machine import cache_dirs
from torch_conformance.machine.scratch import Space
from torch_conformance.model import codec
from torch_conformance.model.case_facts import Ending, ServiceReport
from torch_conformance.model.protocol import Json
from torch_conformance.model.values import frozen
from torch_conformance.plan import schedule
from torch_conformance.plan.schedule import Environment, Needs


@frozen
class Job:
    """One plan to run."""

    name: str
    """Unique in the run: each attempt of a case is a job of its own."""
    plan: Mapping[str, Json] | None
    """The worker's plan (``worker_plan.make_plan``), without paths; with None the worker reports
    the facts of its machine.
    """
    questions: tuple[str, ...] = ()
    """The predicates whose answers are among the facts of the machine."""
    folder: str
    """The folder of the job's files, relative to the folder of the run: ``cases/00001``.

    Empty for a job without files.
    """
    environment: Environment
    timeout: float
    """Seconds."""
    services: tuple[str, ...] = ()
    """The services that the case uses.

    The executor starts and stops new ones for each job, reachable from its worker.
    """
    new_process: bool = False
    """Whether it runs in a new Python process."""
    needs: Needs = field(default_factory=Needs)
    """The resources that it uses while it runs."""
    memory_limit: int | None = None
    """Bytes that its processes may use; None for no limit."""

    def to_json(self) -> str:
        """Return the job as JSON."""
        return json.dumps(codec.encode(self))

    @property
    def line(self) -> str:
        """Jobs of one line need the same preparation: the zygote of their environment and a worker
        that may run them, or none.
        """
        return "" if self.new_process else self.environment.key

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the job that ``to_json`` wrote."""
        job: Self = codec.decode(cls, json.loads(text), "job")
        return job


@frozen
class Warmup:
    """The one-time work of a first compile, which a worker for a GPU did before it had a case."""

    begun: float = 0.0
    """Seconds since the epoch by the clock of its machine; 0 where there was none."""
    seconds: float = 0.0
    context: float = 0.0
    """Seconds until the process had a context on its GPU."""
    problem: str = ""
    """The text of torch's exception; what the warm-up did not do, each case does."""


@frozen
class Execution:
    """The outcome of a job as the executor saw it.

    When it is yielded, the files of the job are in ``Job.folder``.
    """

    job: Job
    observation: Json
    """The worker's message, decoded from JSON and not validated yet."""
    ending: Ending
    seconds: float
    isolation: str
    """``fork`` or ``process``."""
    worker: int = 0
    """The worker's number in this run."""
    cpu: float = 0.0
    """Seconds of processors that its worker used, with its warm-up and the children that it waited
    for; 0 where unknown.
    """
    begun: float = 0.0
    """When the worker began it, in seconds since the epoch by the clock of its machine; 0 where
    unknown.
    """
    warmup: Warmup = field(default_factory=Warmup)
    """The warm-up of its worker."""
    gpus: tuple[int, ...] = ()
    """The GPUs that were leased to it, by number."""
    files: tuple[str, ...] = ()
    """The file names in the job's folder. They are untrusted: a worker can write any file there."""
    services: tuple[ServiceReport, ...] = ()
    """The counts of each service of the case."""
    printed: str = ""
    """The end of the worker's standard error, for a job without a folder."""
    stack_from: int = 0
    """The offset in its standard error at which the runner requested the stack, at the deadline;
    earlier stacks are of another time.
    """
    space: Space | None = None
    """The free space for temporary files at its end, on its machine; None where unknown."""
    note: str = ""
    """Why it was not forked, or how its worker ended."""
    problem: str = ""
    """How it broke the protocol; its observation is ignored then."""
    left_over: str = ""
    """Processes of its worker that outlived the answer or the kill; empty when all had ended."""
    node: str = ""
    """The node of a fleet that ran it; empty for the runner's machine."""

    @classmethod
    def of_job(cls, job: Job, fields: Mapping[str, Json]) -> Self:
        """Return the execution of a job, of its other fields as JSON has them."""
        execution: Self = codec.decode(cls, {**fields, "job": codec.encode(job)}, "execution")
        return execution


@frozen
class StartUp:
    """How torch started in the first zygote of a run."""

    begun: float
    """In seconds since the epoch."""
    phases: Mapping[str, float]
    """The seconds of its phases, which follow each other, by name."""


@frozen
class ExecutorSettings:
    """The settings with which a run starts its executor. Paths are of the runner's machine."""

    folder: Path
    """The folder of the run; the executor writes the files of each job to ``Job.folder`` below it.
    """
    workers: int
    """The maximum number of jobs that run in parallel."""
    threads: int
    """OpenMP threads of each worker."""
    spares: int = 0
    """How many workers for a GPU may warm up in addition to those that run cases."""
    timeout_factor: float = 1.0
    """How many times longer than usual processes may take to start."""
    warm_folder: Path | None = None
    """The folder of the files that zygotes built while they warmed up; None for none."""
    zygotes: int = 1
    """How many environments may have a zygote with jobs: each zygote uses a core while it starts,
    and some 300 MB.
    """
    few: bool = False
    """Whether the run has fewer cases than this machine has cores: a long warm-up of a zygote would
    take more time than it saves.
    """
    environments: tuple[Environment, ...] = ()
    """Those whose zygotes start before a job is there for them: all that have cores to start on at
    the same time.
    """
    torch_root: str | None = None
    """The torch that the runner inspected: on the runner's machine, workers must import this one.
    """

    @classmethod
    def of(
        cls,
        folder: Path,
        workers: int,
        timeout_factor: float,
        torch_root: str | None,
        environments: Iterable[Environment] = (),
        *,
        few: bool = False,
    ) -> Self:
        """Return the settings for so many jobs in parallel on this machine, in these
        environments.
        """
        return cls(
            folder=folder,
            workers=workers,
            threads=schedule.threads(workers),
            spares=schedule.spares(workers),
            timeout_factor=timeout_factor,
            warm_folder=cache_dirs.cache_folder("warm"),
            zygotes=schedule.zygotes(),
            few=few,
            environments=tuple(environments)[: schedule.zygotes(least=0)],
            torch_root=torch_root,
        )


def with_paths(
    plan: Mapping[str, Json], folder: Path, cache: Path, torch_root: str | None = None
) -> dict[str, Json]:
    """Return a plan with the paths of the worker's machine: folders for the artifacts of the case,
    and for the worker's scratch files.

    The worker must import torch from ``torch_root``; with None any torch is accepted.
    """
    return {**plan, "folder": str(folder), "cache": str(cache), "torch_root": torch_root}
