"""The pipeline of a run: cases become jobs, an executor runs them, and their executions become results."""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from runner.execute.engine import LocalExecutor
from runner.execute.executor_protocol import Execution, ExecutorSettings, Job
from runner.judge.waiving import Waivers
from runner.language.backends import Backend
from runner.language.expand.cases import surroundings_for
from runner.language.load import Suite
from runner.language.read.templates import TemplateError
from runner.machine import cache_dirs, capabilities
from runner.machine.capabilities import Machine, Verdict
from runner.machine.installed_torch import facts_of_files, installed_torch
from runner.machine.redaction import KNOWN, redacted_result
from runner.machine.signals import STOP_NOW, Interrupts
from runner.model.case import Availability, Case
from runner.model.conditions import Surroundings
from runner.model.diagnostics import UsageError
from runner.model.events import Activity
from runner.model.options import ExecutionOptions
from runner.model.outcomes import RETRIED
from runner.model.results import CaseResult
from runner.plan import schedule
from runner.plan.selection import without_benches
from runner.plan.worker_plan import make_plan
from runner.record.run_folder import RunFolder
from runner.run.case_results import result_of_execution, result_of_unavailable

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
        self.machine = machine
        """With the facts that a worker reported, once it has."""
        self._environments = schedule.environments(
            [case for case in cases if capabilities.availability_of(case, machine).availability is not Availability.NO]
        )
        self._questions = capabilities.questions_of([*cases, *recorded])
        self.cases: dict[str, Case] = {}
        """The case of each job, by the job's name; the jobs that report the facts of the machine have none."""
        for case in cases:
            KNOWN.learn_environment(case.body.settings.env)

    def for_facts(self) -> list[Job]:
        """Return the jobs that report the facts of the machine, and those of each target that a case names. Empty where no case can run."""
        seconds = _FACTS_SECONDS * self._options.timeout_factor
        jobs: list[Job] = []
        for environment in self._environments.values():
            if (compiler := environment.compiler) is not None:
                name = f"{FACTS} {compiler}"
                jobs.append(Job(name=name, plan=None, folder="", environment=environment, timeout=seconds))
            elif not any(job.name == FACTS for job in jobs):
                jobs.append(Job(name=FACTS, plan=None, questions=self._questions, folder="", environment=environment, timeout=seconds))
        return jobs

    def for_case(self, case: Case, known: Surroundings, *, number: int | None = None) -> Job:
        """Return the job of a case, with a new folder; raise ``TemplateError`` for a fact that this machine does not have."""
        folder = self._folder.case_folder(self._folder.next_number() if number is None else number)
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{case.id} ({folder.name})"  # unique for each attempt: two attempts of a case may run in parallel
        self.cases[name] = case
        surroundings = surroundings_for(self._backends[case.backend], known, case.target)
        return Job(
            name=name,
            plan=make_plan(case, surroundings, self.machine.facts),
            folder=str(folder.relative_to(self._folder.path)),
            environment=self._environments[schedule.environment_of(case).key],
            timeout=(case.body.timeout or self._options.timeout) * self._options.timeout_factor,
            services=case.body.services,
            new_process=case.body.isolation == "process",
            needs=schedule.needs_of(case, self.machine),
            memory_limit=self._scheduling.memory_limit,
        )


def exclusive(job: Job) -> Job:
    """Return a job that runs alone: no other job runs or warms up beside it."""
    return dataclasses.replace(job, needs=dataclasses.replace(job.needs, exclusive=True))


class CaseRunner:
    """Runs cases in an executor; a context manager that closes it."""

    checks_machine = True
    """Whether a resumed run compares its one machine with that of its header; a fleet compares each node."""

    def __init__(
        self,
        options: ExecutionOptions,
        suite: Suite,
        cases: Sequence[Case],
        folder: RunFolder,
        workers: int,
        *,
        waivers: Waivers | None = None,
        scheduling: schedule.SchedulingOptions | None = None,
        recorded: Sequence[Case] = (),
        make_executor: Callable[[ExecutorSettings], LocalExecutor] | None = None,
    ) -> None:
        self._scheduling = scheduling or schedule.SchedulingOptions(memory_limit=schedule.memory_limit("auto"))
        self._workers = workers
        """How many cases run at a time."""
        self._folder = folder
        self._machine = capabilities.inspect_files(installed_torch())
        self._backends = suite.backends.by_name
        self._jobs = Jobs(options, self._scheduling, suite.backends.by_name, folder, cases, self._machine, recorded)
        self._waivers = waivers or Waivers()
        self.unrun: Mapping[str, str] = {}
        """Why cases were not run although the run was not interrupted, by id: the nodes that could run them are gone."""
        self._is_looking = False
        """Whether the job that reports the facts of the machine runs."""
        settings = ExecutorSettings(
            folder=folder.path,
            workers=workers,
            threads=schedule.threads(workers),
            spares=schedule.spares(workers),
            zygotes=schedule.zygotes(),
            timeout_factor=options.timeout_factor,
            warm_folder=cache_dirs.warm_folder(),
            torch_root=self._machine.torch_root,
        )
        self._executor = (make_executor or LocalExecutor)(settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._executor.close()

    @property
    def warnings(self) -> list[str]:
        """Warnings for the user about the execution of the cases."""
        return list(self._executor.warnings)

    def on_interrupt(self, interrupts: Interrupts, say: Callable[[str], None], show: Callable[[Activity], None]) -> None:
        """Start no further case after one interrupt, and raise ``KeyboardInterrupt`` after two; report the activity to ``show``."""
        reported: list[int] = []

        def check() -> None:
            interrupts.clear_wake()
            # with the ids of cases; the job for the facts of the machine counts as starting torch
            now = self._executor.activity
            looking = [job.since for job in now.running if job.name.split(" ")[0] == FACTS]
            running = [dataclasses.replace(job, name=case.id) for job in now.running if (case := self._jobs.cases.get(job.name))]
            starting = min([*looking, *([] if now.starting is None else [now.starting])], default=None)
            show(Activity(starting=starting, warming=now.warming, held=now.held, running=tuple(running)))
            if interrupts.asked >= STOP_NOW or (interrupts.asked and self._is_looking):
                raise KeyboardInterrupt
            if interrupts.asked:
                count = self._executor.cancel_waiting()
                if not reported:
                    reported.append(count)
                    say(f"interrupted: finishing {count} running case{'' if count == 1 else 's'}; again stops now")

        self._executor.on_interrupt(interrupts.wake, check)

    def verdict_of(self, case: Case, machine: Machine) -> Verdict:
        """Return whether a case can run, and why not."""
        return capabilities.availability_of(case, machine)

    def facts_of_files(self) -> Mapping[str, str]:
        """Return the facts of the machine that files show."""
        return facts_of_files(installed_torch())

    def look_at_machine(self) -> Machine:
        """Let a worker report the facts of the machine, if any case can run."""
        jobs = self._jobs.for_facts()
        self._is_looking = True
        for execution in self._executor.run(jobs, schedule.capacity(self._workers, self._machine)) if jobs else ():
            self._machine = informed(self._machine, execution)
        self._is_looking = False
        self._jobs.machine = self._machine
        return self._machine

    def run(self, cases: Sequence[Case], known: Surroundings, repro: Callable[[Case], str], *, alone: bool = False) -> Iterator[CaseResult]:
        """Run the cases and yield each result when its case ends. A case that is listed twice runs twice.

        ``alone``: each case runs alone, after every other job has ended.
        """
        jobs: list[Job] = []
        by = self._scheduling
        ordered = schedule.order(cases, by.seconds, by.seed, zygotes=schedule.zygotes())
        for number, case in enumerate(ordered, start=self._folder.next_number()):
            try:
                job = self._jobs.for_case(case, known, number=number)
            except TemplateError as error:
                verdict = Verdict(Availability.NO, f"this machine lacks a fact: {error}")
                yield result_of_unavailable(case, verdict, (), repro(case))
            else:
                jobs.append(exclusive(job) if alone else job)
        for execution in self._executor.run(jobs, schedule.capacity(self._workers, self._machine)):
            case = self._jobs.cases[execution.job.name]
            result = result_of_execution(self._folder.path, self._backends, self._waivers, case, execution, known, repro(case))
            surroundings = surroundings_for(self._backends[case.backend], known, case.target)
            write_script(case, surroundings, self._machine, result, self._folder.path)
            yield redacted_result(result)


def informed(machine: Machine, execution: Execution) -> Machine:
    """Return the machine with the facts of a job; raise ``UsageError`` where torch could not report any."""
    words = (execution.printed or execution.note).strip()
    facts = execution.observation if isinstance(execution.observation, dict) else None
    if (compiler := execution.job.environment.compiler) is not None:
        return capabilities.with_target(machine, compiler, facts, words)
    if facts is None:
        raise UsageError(f"no worker with torch could report the facts of this machine; its output:\n{words}")
    return capabilities.with_facts(machine, facts)


NAME = "repro.py"


def write_script(case: Case, surroundings: Surroundings, machine: Machine, result: CaseResult, run_folder: Path) -> None:
    """Write the script of a failed case, where there is one. It is a help for people: without it the run goes on."""
    if result.outcome not in RETRIED or not result.folder or case.target:
        return
    from runner.plan.script import NothingChecked, script_of  # jinja2 costs too much for a run in which nothing fails

    with contextlib.suppress(NothingChecked, TemplateError, ValueError, OSError):
        text = script_of(without_benches(case), surroundings, machine.facts, machine.torch or "unknown").text
        path = run_folder / result.folder / NAME
        path.unlink(missing_ok=True)
        # the worker may have left a link under this name: only a new file is written
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(text)
