"""The interface between a run and its executor: jobs go in, executions come out, and both are plain data.

``Executor`` is the protocol. Today's executor is ``local/``: workers on this machine. Another one (compile only, Ray, ssh) implements the
same protocol and gets a row in ``EXECUTORS`` (``executors.py``); no stage changes. Jobs and executions can be written as JSON and read
back, so they can be sent to another machine. They contain no closure and no absolute path: a job's ``folder`` is relative to the folder
of the run, and its plan is data; the executor adds the paths of its own machine (``worker_plan.with_paths``).
"""

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, Self, TypeAlias

from runner.core.events import Activity
from runner.core.observation import Ending, ServiceReport
from runner.core.protocol import Json
from runner.plan.resources import Capacity, Environment, Needs
from runner.system.scratch import Space

LOCAL = "local"
"""The executor of a job that names no other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One plan to run."""

    name: str
    """Unique in the run: each attempt of a case is a job of its own."""
    plan: Mapping[str, Json] | None
    """The worker's plan (``worker_plan.make_plan``), without paths; with None the worker reports the facts of its machine."""
    questions: tuple[str, ...] = ()
    """The predicates whose answers are among the facts of the machine."""
    folder: str
    """The folder of the job's files, relative to the folder of the run: ``cases/00001``. Empty for a job without files."""
    environment: Environment
    timeout: float
    """Seconds."""
    services: tuple[str, ...] = ()
    """The services that the case uses. The executor starts and stops new ones for each job, reachable from its worker."""
    new_process: bool = False
    """Whether it runs in a new Python process."""
    needs: Needs = field(default_factory=Needs)
    """The resources that it uses while it runs."""
    memory_limit: int | None = None
    """Bytes that its processes may use; None for no limit."""
    executor: str = LOCAL
    """The row of ``EXECUTORS`` that runs it."""

    def to_json(self) -> str:
        """Return the job as JSON."""
        return json.dumps(dataclasses.asdict(self), default=sorted)  # sets become lists

    @property
    def line(self) -> str:
        """Jobs of one line need the same preparation: the zygote of their environment and a worker that may run them, or none."""
        return "" if self.new_process else self.environment.key

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the job that ``to_json`` wrote."""
        found = json.loads(text)
        environment = found.pop("environment")
        return cls(
            **{
                **found,
                "environment": Environment(variables=environment["variables"], kinds=frozenset(environment["kinds"])),
                "questions": tuple(found["questions"]),
                "services": tuple(found["services"]),
                "needs": Needs(**found["needs"]),
            }
        )


Fields: TypeAlias = Mapping[str, Json]
"""The fields of an execution as JSON, without its job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmup:
    """The one-time work of a first compile, which a worker for a GPU did before it had a case."""

    begun: float = 0.0
    """Seconds since the epoch by the clock of its machine; 0 where there was none."""
    seconds: float = 0.0
    problem: str = ""
    """The text of torch's exception; what the warm-up did not do, each case does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """The outcome of a job as the executor saw it. When it is yielded, the files of the job are in ``Job.folder``."""

    job: Job
    observation: Json
    """The worker's message, decoded from JSON and not validated yet."""
    ending: Ending
    seconds: float
    isolation: str
    """``fork`` or ``process``."""
    worker: int = 0
    """The worker's number in this run."""
    begun: float = 0.0
    """When the worker began it, in seconds since the epoch by the clock of its machine; 0 where unknown."""
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
    """The offset in its standard error at which the runner requested the stack, at the deadline; earlier stacks are of another time."""
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

    def to_json(self) -> str:
        """Return the execution as JSON."""
        return json.dumps(dataclasses.asdict(self), default=sorted)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the execution that ``to_json`` wrote."""
        found = json.loads(text)
        return cls.of_job(Job.from_json(json.dumps(found["job"])), found)

    @classmethod
    def of_job(cls, job: Job, found: Fields) -> Self:
        """Return the execution of a job that is known already, of the fields that ``to_json`` wrote."""
        return cls(
            **{
                **found,
                "job": job,
                "ending": Ending(**found["ending"]),
                "warmup": Warmup(**found["warmup"]),
                "files": tuple(found["files"]),
                "gpus": tuple(found["gpus"]),
                "services": tuple(ServiceReport(**report) for report in found["services"]),
                "space": Space(**found["space"]) if found["space"] is not None else None,
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorSettings:
    """The settings with which a run starts its executor. Paths are of the runner's machine."""

    folder: Path
    """The folder of the run; the executor writes the files of each job to ``Job.folder`` below it."""
    workers: int
    """The maximum number of jobs that run in parallel."""
    threads: int
    """OpenMP threads of each worker."""
    spares: int = 0
    """How many workers for a GPU may warm up beside those that run cases."""
    timeout_factor: float = 1.0
    """How many times longer than usual processes may take to start."""
    warm_folder: Path | None = None
    """The folder of the files that zygotes built while they warmed up; None for none."""
    zygotes: int = 1
    """How many environments may have a zygote with jobs: each zygote uses a core while it starts, and some 300 MB."""
    keeps_zygotes: bool = False
    """Whether zygotes without jobs stay while one starts. By default they end."""
    torch_root: str | None = None
    """The torch that the runner inspected: on the runner's machine, workers must import this one."""


class Executor(Protocol):
    """Runs jobs. One thread of the runner calls it; ``close`` ends every process that it started."""

    def run(self, jobs: Iterable[Job], capacity: Capacity) -> Iterator[Execution]:
        """Run every job, in order as far as its needs fit into ``capacity``, and yield each as it ends.

        A job that could not be started is started again; a job that ended in any way is yielded once.
        """

    def again(self, job: Job) -> None:
        """Append a job to the queue of ``run``. Nothing is added after ``cancel_waiting``."""

    def cancel_waiting(self) -> int:
        """Drop the waiting jobs, and return the number of running ones, which continue to their ends or deadlines."""

    def on_interrupt(self, wake: int, check: Callable[[], None]) -> None:
        """Call ``check`` before a job starts, and when the descriptor ``wake`` is readable; an exception from ``check`` ends ``run``."""

    @property
    def activity(self) -> Activity:
        """What the run waits for now, with the names of the running jobs."""

    @property
    def warnings(self) -> Sequence[str]:
        """Warnings for the user about the execution of jobs."""

    def close(self) -> None:
        """Kill running processes, and remove temporary files; the files of the jobs stay."""
