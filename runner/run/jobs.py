"""Converts cases to jobs for an executor. The only module of the pipeline that reads the body of a case."""

import dataclasses
from collections.abc import Mapping, Sequence

from runner.core.case import Availability, Case, OwnProcess
from runner.core.conditions import Surroundings
from runner.core.options import ExecutionOptions
from runner.execute.base import LOCAL, Job
from runner.execute.executors import OFFLINE
from runner.language.backends import Backend
from runner.language.expand.cases import surroundings
from runner.plan import schedule
from runner.plan.resources import Environment, compiler_of
from runner.plan.worker_plan import make_plan
from runner.record.run_folder import RunFolder
from runner.system import availability
from runner.system.capabilities import Machine
from runner.system.redaction import KNOWN

FACTS = "facts"
"""The name of the job that reports the facts of the machine."""

_FACTS_SECONDS = 600.0


class Jobs:
    """Makes the jobs of a run, and maps each job to its case.

    ``recorded`` are the cases that a resumed run executed before. The machine answers the questions of these too: a run is resumed only
    where they could run.
    """

    def __init__(
        self,
        options: ExecutionOptions,
        scheduling: schedule.SchedulingOptions,
        backends: Mapping[str, Backend],
        folder: RunFolder,
        cases: Sequence[Case],
        machine: Machine,
        recorded: Sequence[Case],
    ) -> None:
        self._options = options
        self._scheduling = scheduling
        self._backends = backends
        self._folder = folder
        self._machine = machine
        self._environments = schedule.environments([case for case in cases if _may_run(case, machine)])
        self._questions = availability.questions_of([*cases, *recorded])
        self._cases: dict[str, Case] = {}
        for case in cases:
            KNOWN.learn_options(case.body.settings.env)

    def case_of(self, name: str) -> Case | None:
        """Return the case of a job; None for the job that reports the facts of the machine."""
        return self._cases.get(name)

    def for_facts(self) -> list[Job]:
        """Return the jobs that report the facts of the machine, and those of each target that a case names. Empty where no case can run."""
        seconds = _FACTS_SECONDS * self._options.timeout_factor
        jobs: list[Job] = []
        for environment in self._environments.values():
            if (compiler := compiler_of(environment)) is not None:
                jobs.append(_job_of_compiler(compiler, environment, seconds))
            elif not any(job.name == FACTS for job in jobs):
                jobs.append(Job(name=FACTS, plan=None, questions=self._questions, folder="", environment=environment, timeout=seconds))
        return jobs

    def inform(self, machine: Machine) -> None:
        """Set the facts of the machine that a worker reported."""
        self._machine = machine

    def for_case(self, case: Case, known: Surroundings, *, number: int | None = None) -> Job:
        """Return the job of a case, with a new folder; raise ``TemplateError`` for a fact that this machine does not have."""
        folder = self._folder.case_folder(self._folder.next_number() if number is None else number)
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{case.id} ({folder.name})"  # unique for each attempt: two attempts of a case may run in parallel
        self._cases[name] = case
        here = surroundings(self._backends[case.backend], known, case.target)
        return Job(
            name=name,
            plan=make_plan(case, here, self._machine.facts),
            folder=str(folder.relative_to(self._folder.path)),
            environment=self._environment_of(case),
            timeout=(case.body.timeout or self._options.timeout) * self._options.timeout_factor,
            services=case.body.services,
            new_process=case.body.isolation is OwnProcess.PROCESS,
            needs=schedule.needs_of(case, self._machine),
            memory_limit=self._scheduling.memory_limit,
            executor=OFFLINE if case.target else LOCAL,
        )

    def _environment_of(self, case: Case) -> Environment:
        return self._environments[schedule.environment_of(case).key]


def _job_of_compiler(compiler: str, environment: Environment, seconds: float) -> Job:
    return Job(name=f"{FACTS} {compiler}", plan=None, folder="", environment=environment, timeout=seconds, executor=OFFLINE)


def exclusive(job: Job) -> Job:
    """Return a job that runs alone: no other job runs or warms up beside it."""
    return dataclasses.replace(job, needs=dataclasses.replace(job.needs, exclusive=True))


def _may_run(case: Case, machine: Machine) -> bool:
    return availability.of_case(case, machine).availability is not Availability.NO
