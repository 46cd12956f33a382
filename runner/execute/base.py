"""The seam between a run and what executes its cases: jobs go in, executions come out, and both are plain data.

``Executor`` is the protocol. Today's executor is ``local/``: workers on this machine. Another one (compile only, Ray, ssh) implements the
same protocol and gets a row in ``EXECUTORS`` (``executors.py``); no stage changes. Jobs and executions can be written as JSON and read
back, so they can be sent to another machine. They hold no closure and no path that another machine lacks: a job's ``folder`` is relative
to the folder of the run, and its plan travels as data; the executor adds the paths of its own machine (``worker_plan.with_paths``).
"""

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, Self

from runner.core.model import Activity, Ending, Json, ServiceReport
from runner.execute.services import Address
from runner.plan.jobs import Environment, Isolation
from runner.plan.resources import Capacity, Needs
from runner.system.scratch import Space

SHARED = "shared"
"""``Execution.isolation`` of a worker that may run several cases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One plan to run."""

    name: str
    """Unique in the run: each attempt of a case is a job of its own."""
    plan: Mapping[str, Json] | None
    """What the worker does (``worker_plan.make_plan``), without paths; None asks a worker for the facts of its machine."""
    folder: str
    """Where the files of the job lie, relative to the folder of the run: ``cases/00001``. Empty for a job that leaves no files there."""
    environment: Environment
    timeout: float
    """Seconds."""
    services: tuple[str, ...] = ()
    """The services that the case uses. The executor starts new ones for each job, where its worker reaches them, and stops them."""
    shares: bool = False
    """Whether it may run in a worker that ran other cases before."""
    new_process: bool = False
    """Whether it gets a new Python, however other jobs get their processes."""
    group: str = ""
    """A worker that ran cases of one group runs none of another."""
    needs: Needs = field(default_factory=Needs)
    """What it takes of the machine while it runs."""
    memory_limit: int | None = None
    """Bytes that its processes may use; None for no limit."""

    def to_json(self) -> str:
        """Return the job as JSON."""
        return json.dumps(dataclasses.asdict(self), default=sorted)  # sets become lists

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the job that ``to_json`` wrote."""
        found = json.loads(text)
        environment = found.pop("environment")
        return cls(
            **{
                **found,
                "environment": Environment(variables=environment["variables"], kinds=frozenset(environment["kinds"])),
                "services": tuple(found["services"]),
                "needs": Needs(**found["needs"]),
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """What became of a job. When an executor gives it, the files of the job lie in its folder below the folder of the run."""

    job: Job
    observation: Json
    """What the worker sent, decoded from JSON and not validated yet."""
    ending: Ending
    seconds: float
    isolation: str
    """``fork``, ``process``, or ``shared`` for a worker that may run several cases."""
    after: int = 0
    """How many cases its worker had run before."""
    worker: int = 0
    """The worker's number in this run."""
    files: tuple[str, ...] = ()
    """The names in the job's folder. A worker may have put anything there."""
    services: tuple[ServiceReport, ...] = ()
    """What each service of the case counted."""
    printed: str = ""
    """The end of the worker's standard error, of a job without a folder."""
    stack_from: int = 0
    """Where in its standard error the stack begins that it was asked for at its deadline: what is before it is of another moment."""
    space: Space | None = None
    """What was free for temporary files where it ran, when it had ended; None where that is not known."""
    note: str = ""
    """Why it got no fork, or why its worker was retired."""
    problem: str = ""
    """How it broke the protocol: nothing of what it sent is believed."""
    left_over: str = ""
    """What of its worker outlived the answer, or the kill; empty when all had ended."""
    contaminated: str = ""
    """What it changed, in a shared worker, of the code that measures it: it is retried alone."""

    def to_json(self) -> str:
        """Return the execution as JSON."""
        return json.dumps(dataclasses.asdict(self), default=sorted)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the execution that ``to_json`` wrote."""
        found = json.loads(text)
        return cls(
            **{
                **found,
                "job": Job.from_json(json.dumps(found["job"])),
                "ending": Ending(**found["ending"]),
                "files": tuple(found["files"]),
                "services": tuple(ServiceReport(**report) for report in found["services"]),
                "space": Space(**found["space"]) if found["space"] is not None else None,
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorSettings:
    """What a run tells its executor when it starts it. Paths are of the machine of the runner."""

    folder: Path
    """The folder of the run: below it the executor leaves the files of each job, in ``Job.folder``."""
    workers: int
    """The most jobs that run at once."""
    threads: int
    """OpenMP threads of each worker."""
    spares: int = 0
    """How many workers for a GPU may warm up beside those that run cases."""
    isolation: Isolation = Isolation.CASE
    timeout_factor: float = 1.0
    """How many times longer than usual processes may take to start."""
    servers: Mapping[str, Address] = field(default_factory=dict)
    """Servers that the user named, by service; the executor starts its own for the others."""
    object_cache: Path | None = None
    """The folder from which compiled objects may be served."""
    probe_cache: Path | None = None
    """The folder in which answers of torch's probes, and what zygotes build while they warm up, outlive a run."""
    torch_root: str | None = None
    """The torch that the runner inspected: on the machine of the runner, workers must import this one."""


class Executor(Protocol):
    """Runs jobs. One thread of the runner calls it; closing it ends whatever it started."""

    def run(self, jobs: Iterable[Job], capacity: Capacity) -> Iterator[Execution]:
        """Run every job, in order as far as ``capacity`` has room for its needs, and yield each as it ends.

        A job that could not be started is started again; a job that ended, however it ended, is yielded once.
        """

    def again(self, job: Job) -> None:
        """Add a job behind those that wait, while ``run`` goes on: a case is retried. Nothing is added after ``cancel_waiting``."""

    def retire(self, worker: int) -> None:
        """Give a worker no further job."""

    def cancel_waiting(self) -> int:
        """Drop the jobs that wait, and return how many run on, to their ends or their deadlines."""

    def on_interrupt(self, wake: int, check: Callable[[], None]) -> None:
        """Call ``check`` before any job is started, and as soon as the descriptor ``wake`` is readable; what it raises ends ``run``."""

    @property
    def activity(self) -> Activity:
        """What is waited for now, with the names of the jobs that run."""

    @property
    def warnings(self) -> Sequence[str]:
        """What a person should know of how jobs were executed."""

    def close(self) -> None:
        """Kill what runs, and remove what it left besides the files of the jobs."""
