"""The pipeline of a run: cases become jobs, an executor runs them, and their executions become
results.

The files of a case are untrusted: its worker can write any file to the folder.
"""

import contextlib
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from torch_conformance.execute.engine import LocalExecutor
from torch_conformance.execute.executor_protocol import Execution, ExecutorSettings, Job, StartUp
from torch_conformance.judge.evidence import read_facts
from torch_conformance.judge.judge import judge
from torch_conformance.judge.waiving import Waivers, apply
from torch_conformance.language.backends import unknown_compilers
from torch_conformance.language.expand import surroundings_for
from torch_conformance.language.load import Suite
from torch_conformance.language.read.anatomy import PROGRAMS
from torch_conformance.language.read.templates import TemplateError
from torch_conformance.machine import capabilities, scratch
from torch_conformance.machine.capabilities import CaseAvailability, Machine
from torch_conformance.machine.installed_torch import installed_torch
from torch_conformance.machine.output import OUT_OF_SPACE
from torch_conformance.machine.redaction import (
    KNOWN,
    MASK,
    is_secret_name,
    redacted,
    redacted_result,
)
from torch_conformance.machine.scratch import open_untrusted, tail
from torch_conformance.machine.signals import STOP_NOW, Interrupts
from torch_conformance.model.case import Availability, Case
from torch_conformance.model.case_facts import Facts, Timing
from torch_conformance.model.conditions import Surroundings
from torch_conformance.model.diagnostics import InvalidSpecs, UsageError
from torch_conformance.model.events import Activity
from torch_conformance.model.flow import flow
from torch_conformance.model.outcomes import PASSED, RETRIED, Outcome
from torch_conformance.model.protocol import MAX_ATTACHMENT
from torch_conformance.model.results import UNAVAILABLE, CaseResult, Judged, Redacted, result_of
from torch_conformance.model.values import frozen
from torch_conformance.optional.options import ExecutionOptions, RunOptions
from torch_conformance.plan import schedule
from torch_conformance.plan.schedule import Environment
from torch_conformance.plan.selection import is_optional, without_benches
from torch_conformance.plan.worker_plan import digest_of, make_plan, seed_of
from torch_conformance.record.case_files import (
    OBSERVATION,
    SCRIPT,
    SERVICES,
    code_of_worker,
    digest,
)
from torch_conformance.record.run_folder import RunFolder
from torch_conformance.vocabulary.backend import Backend

FACTS = "facts"
"""The name of the job that reports the facts of the machine."""

_FACTS_SECONDS = 600.0


def _facts_job(environment: Environment, questions: Sequence[str], seconds: float) -> Job:
    """Return the job that reports the facts of the machine, or those of the target of an
    environment, which answers no questions.
    """
    compiler = environment.compiler
    return Job(
        name=FACTS if compiler is None else f"{FACTS} {compiler}",
        plan=None,
        questions=tuple(questions) if compiler is None else (),
        folder="",
        environment=environment,
        timeout=seconds,
    )


# -- from cases to jobs ----------------------------------------------------------------------------


@dataclass(kw_only=True)
class Jobs:
    """Makes the jobs of a run, and maps each job to its case."""

    options: ExecutionOptions
    memory_limit: int | None
    backends: Mapping[str, Backend]
    folder: Path
    """That of the run."""
    waiting: Sequence[Case]
    """The cases to run."""
    recorded: Sequence[Case] = ()
    """The cases that a resumed run executed before: the machine answers their questions too, as it
    is resumed only where they could run.
    """
    machine: Machine
    """With the facts that a worker reported, once it has."""
    cases: dict[str, Case] = field(default_factory=dict)
    """The case of each job, by the job's name; the jobs that report the facts of the machine have
    none.
    """

    def __post_init__(self) -> None:
        possible = [
            case
            for case in self.waiting
            if capabilities.availability_of(case, self.machine).availability is not Availability.NO
        ]
        self.environments = schedule.environments(possible)
        """Those of the cases that may run, by key; that with the most cases first."""
        for case in self.waiting:
            KNOWN.learn_environment(case.body.settings.env)

    def for_facts(self) -> list[Job]:
        """Return the jobs that report the facts of the machine, and those of each target that a
        case names.

        Empty where no case can run.
        """
        questions = capabilities.questions_of([*self.waiting, *self.recorded])
        seconds = _FACTS_SECONDS * self.options.timeout_factor
        jobs: dict[str, Job] = {}
        # best by a zygote that imports no module ahead
        for environment in sorted(
            self.environments.values(), key=lambda environment: bool(environment.module)
        ):
            job = _facts_job(environment, questions, seconds)
            jobs.setdefault(job.name, job)
        return list(jobs.values())

    def for_case(self, case: Case, machine_surroundings: Surroundings, *, number: int) -> Job:
        """Return the job of a case, with a new folder; raise ``TemplateError`` for a fact that this
        machine does not have.
        """
        folder = f"cases/{number:05d}"  # ids are not valid folder names
        (self.folder / folder).mkdir(parents=True, exist_ok=True)
        # unique for each attempt: two attempts of a case may run in parallel
        name = f"{case.id} ({number:05d})"
        self.cases[name] = case
        backend = self.backends[case.backend]
        served, calls = backend.proof.served, backend.proof.calls
        surroundings = surroundings_for(backend, machine_surroundings, case.target)
        return Job(
            name=name,
            plan=make_plan(
                case,
                surroundings,
                self.machine.facts,
                served,
                "" if calls is None else calls.of,
                {name: value for name, value in asdict(backend.declared).items() if value},
            ),
            folder=folder,
            environment=self.environments[schedule.environment_of(case).key],
            timeout=(case.body.timeout or self.options.timeout) * self.options.timeout_factor,
            services=case.body.services,
            new_process=case.body.isolation == "process",
            needs=schedule.needs_of(case, self.machine),
            memory_limit=self.memory_limit,
        )


def exclusive(job: Job) -> Job:
    """Return a job while which no other job runs or warms up."""
    return replace(job, needs=replace(job.needs, exclusive=True))


class CaseRunner:
    """Runs cases in an executor, until it is closed."""

    facts_of_files: Mapping[str, str] | None = None
    """What files show of the machine of the run, where it is not this one."""
    checks_machine = True
    """Whether a resumed run compares its one machine with that of its header; a fleet compares each
    node.
    """

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
        self._scheduling = scheduling or schedule.SchedulingOptions(
            memory_limit=schedule.memory_limit("auto")
        )
        self._workers = workers
        """How many cases run at a time."""
        self._folder = folder
        self._machine = capabilities.inspect_files(installed_torch())
        self._backends = suite.backends.by_name
        self._jobs = Jobs(
            options=options,
            memory_limit=self._scheduling.memory_limit,
            backends=self._backends,
            folder=folder.path,
            waiting=cases,
            recorded=recorded,
            machine=self._machine,
        )
        self._waivers = waivers or Waivers()
        self.unrun: Mapping[str, str] = {}
        """Why cases were not run although the run was not interrupted, by id: the nodes that could
        run them are gone.
        """
        self._is_looking = False
        """Whether the job that reports the facts of the machine runs."""
        environments = self._jobs.environments.values()
        settings = ExecutorSettings.of(
            folder.path,
            workers,
            options.timeout_factor,
            self._machine.torch_root,
            environments,
            few=len(cases) < schedule.cores(),
        )
        self._executor = (make_executor or LocalExecutor)(settings)
        self.close = self._executor.close

    @property
    def start_up(self) -> StartUp | None:
        """How torch started; None where no zygote of this run started it."""
        return self._executor.start_up

    @property
    def warnings(self) -> list[str]:
        """Warnings for the user about the execution of the cases."""
        return list(self._executor.warnings)

    def on_interrupt(
        self, interrupts: Interrupts, say: Callable[[str], None], show: Callable[[Activity], None]
    ) -> None:
        """Start no further case after one interrupt, and raise ``KeyboardInterrupt`` after two;
        report the activity to ``show``.
        """
        has_said = False

        def check() -> None:
            nonlocal has_said
            interrupts.clear_wake()
            # with the ids of cases; the job for the facts of the machine counts as starting torch
            activity = self._executor.activity
            looking = [job.since for job in activity.running if job.name.split(" ")[0] == FACTS]
            running = [
                replace(job, name=case.id)
                for job in activity.running
                if (case := self._jobs.cases.get(job.name))
            ]
            starting = min(
                [*looking, *([] if activity.starting is None else [activity.starting])],
                default=None,
            )
            show(replace(activity, starting=starting, running=tuple(running)))
            if interrupts.asked >= STOP_NOW or (interrupts.asked and self._is_looking):
                raise KeyboardInterrupt
            if interrupts.asked:
                count = self._executor.cancel_waiting()
                if not has_said:
                    say(
                        f"interrupted: finishing {count} running "
                        f"case{'' if count == 1 else 's'}; again stops now"
                    )
                has_said = True

        self._executor.on_interrupt(interrupts.wake, check)

    def verdict_of(self, case: Case, machine: Machine) -> CaseAvailability:
        """Return whether a case can run, and why not."""
        return capabilities.availability_of(case, machine)

    def look_at_machine(self) -> Machine:
        """Let a worker report the facts of the machine, if any case can run; raise ``InvalidSpecs``
        for unknown compilers.
        """
        jobs = self._jobs.for_facts()
        self._is_looking = True
        for execution in (
            self._executor.run(jobs, schedule.capacity(self._workers, self._machine))
            if jobs
            else ()
        ):
            self._machine = informed(self._machine, execution)
        self._is_looking = False
        self._jobs.machine = self._machine
        if problems := unknown_compilers(self._backends.values(), self._machine.answers or {}):
            raise InvalidSpecs(problems)
        return self._machine

    def run(
        self,
        cases: Sequence[Case],
        surroundings: Surroundings,
        repro: Callable[[Case], str],
        *,
        exclusively: bool = False,
    ) -> Iterator[Redacted]:
        """Run the cases and yield each result when its case ends.

        A case that is listed twice runs twice.

        ``exclusively``: each case runs alone, after every other job has ended.
        """
        jobs: list[Job] = []
        by = self._scheduling
        ordered = schedule.order(cases, by.seconds, by.seed, zygotes=schedule.zygotes())
        for number, case in enumerate(ordered, start=self._folder.next_number()):
            try:
                job = self._jobs.for_case(case, surroundings, number=number)
            except TemplateError as error:
                verdict = CaseAvailability(Availability.NO, f"this machine lacks a fact: {error}")
                yield result_of_unavailable(case, verdict, (), repro(case))
            else:
                jobs.append(exclusive(job) if exclusively else job)
        for execution in self._executor.run(jobs, schedule.capacity(self._workers, self._machine)):
            case = self._jobs.cases[execution.job.name]
            yield self.result(case, execution, surroundings, self._machine, repro(case))

    def result(
        self,
        case: Case,
        execution: Execution,
        machine_surroundings: Surroundings,
        machine: Machine,
        repro: str,
        node: Mapping[str, str] | None = None,
    ) -> Redacted:
        """Return the result of an execution, without secrets; leave a script in the folder of a
        failure.

        ``node`` is who executed it in a fleet.
        """
        result = result_of_execution(
            self._folder.path,
            self._backends,
            self._waivers,
            case,
            execution,
            machine_surroundings,
            repro,
            node,
        )
        if result.outcome in RETRIED and result.folder and not case.target:
            surroundings = surroundings_for(
                self._backends[case.backend], machine_surroundings, case.target
            )
            write_script(case, surroundings, machine, self._folder.path / result.folder / SCRIPT)
        return redacted_result(result)


def informed(machine: Machine, execution: Execution) -> Machine:
    """Return the machine with the facts of a job; raise ``UsageError`` where torch could not report
    any.
    """
    words = (execution.printed or execution.note).strip()
    facts = execution.observation if isinstance(execution.observation, dict) else None
    if (compiler := execution.job.environment.compiler) is not None:
        return capabilities.with_target(machine, compiler, facts, words)
    if facts is None:
        raise UsageError(
            f"no worker with torch could report the facts of this machine; its output:\n{words}"
        )
    return capabilities.with_facts(machine, facts)


def write_script(case: Case, surroundings: Surroundings, machine: Machine, path: Path) -> None:
    """Write the script of a failed case, where there is one.

    It is a help for people: without it the run goes on.
    """
    from torch_conformance.plan.script import (
        NothingChecked,
        script_of,
    )  # jinja2 costs too much for a run in which nothing fails

    with contextlib.suppress(NothingChecked, TemplateError, ValueError, OSError):
        text = script_of(
            without_benches(case), surroundings, machine.facts, machine.torch or "unknown"
        ).text
        path.unlink(missing_ok=True)
        # the worker may have left a link under this name: only a new file is written
        with path.open("x", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(text)


# -- from executions to results --------------------------------------------------------------------

_OUTPUT_BYTES = 64_000
"""The end of a worker's output that the journal records."""

_STACK_BYTES = 512_000
"""The end of standard error that is searched for the stack of a case that timed out: other threads
may continue to print.
"""

_CODE_FILE = re.compile(
    r"(?P<what>code|graph)-(?P<step>[0-9]{1,4})(?P<stage>-[a-z_]{1,20})?-(?P<index>[0-9]{1,4})\.txt"
)
_MOST_CODE_FILES = 100


def result_of_execution(
    run_folder: Path,
    backends: Mapping[str, Backend],
    waivers: Waivers,
    case: Case,
    execution: Execution,
    machine_surroundings: Surroundings,
    repro: str,
    node: Mapping[str, str] | None = None,
) -> CaseResult:
    """Judge an execution, and return the result of its case.

    Write the observation to the folder of the case in ``run_folder``.
    """
    folder = run_folder / execution.job.folder
    digests: dict[str, str] = {}
    backend = backends[case.backend]
    surroundings = surroundings_for(backend, machine_surroundings, case.target)
    problem = execution.problem or _keep(digests, folder / OBSERVATION, execution.observation)
    if execution.services:
        problem = problem or _keep(
            digests, folder / SERVICES, [asdict(service) for service in execution.services]
        )
    ending = execution.ending
    stack = ""  # the text that may contain the stack of a case that timed out or died
    if ending.timed_out or ending.signal or ending.exit_code or execution.observation is None:
        stack = tail(
            folder / "stderr.txt",
            _STACK_BYTES,
            start=execution.stack_from if ending.timed_out else 0,
        )
    facts = read_facts(
        execution.observation,
        partial(code_of_worker, folder, digests),
        ending=ending,
        note=execution.note,
        problem=problem,
        services=execution.services,
        stderr=stack,
    )
    judged = judge(case, backend, surroundings, facts)
    if judged.outcome not in PASSED and not problem and execution.space is not None:
        texts = "\n".join(f"{verdict.observed}\n{verdict.detail}" for verdict in judged.verdicts)
        if shortage := scratch.shortage(execution.space, texts):
            # with no space left on the device a failure is an ERROR
            problem = shortage
            judged = judge(case, backend, surroundings, replace(facts, problem=problem))
    if problem or facts.nonsense:  # no facts decided: nothing can be judged again
        digests.clear()
    has_benches = not problem and any(step.bench is not None for step in facts.steps)
    timings, attachments, notes = benches_of(folder, facts) if has_benches else ((), (), ())
    # the files of generated code, by step and piece, then those of graphs
    matches = [match for name in execution.files if (match := _CODE_FILE.fullmatch(name))]
    pieces = [match for match in matches if (match["what"] == "graph") is bool(match["stage"])]
    pieces.sort(
        key=lambda match: (
            match["what"],
            int(match["step"]),
            match["stage"] or "",
            int(match["index"]),
        )
    )
    begun, warmup_begun = (
        datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds") if moment else ""
        for moment in (execution.begun, execution.warmup.begun)
    )
    return with_case(
        case,
        apply(judged, case, surroundings, waivers),
        seconds=round(execution.seconds, 3),
        phases=phases_of(facts),
        isolation=execution.isolation,
        begun=begun,
        worker=execution.worker,
        gpus=execution.gpus,
        warmup_begun=warmup_begun,
        warmup=round(execution.warmup.seconds, 3),
        context=round(execution.warmup.context, 3),
        cpu=round(execution.cpu, 3),
        folder=execution.job.folder,
        evidence=digests,
        repro=repro,
        node=node or {},
        code=tuple(match[0] for match in pieces[:_MOST_CODE_FILES]),
        stdout=_printed(folder / "stdout.txt"),
        stderr=_printed(folder / "stderr.txt"),
        benches_left_out=len(case.left_out),
        timings=timings,
        attachments=attachments,
        notes=(*judged.notes, *notes, *filter(None, [execution.left_over])),
    )


def with_case(case: Case, judged: Judged, **more: Any) -> CaseResult:
    """Return a result with the report's data about the case and its execution."""
    if judged.outcome is Outcome.PASS and judged.flaky_waiver is None:
        # many passes with a flaky waiver become an XPASS
        return result_of(case, judged, digest=digest_of(case), **{**more, "code": ()})
    # the options in force, as a spec would write them, and the seed, which follows from the id
    # where the spec gives none
    options = [
        f"{section}.{name}: "
        f"{MASK if section == 'env' and is_secret_name(name) else flow(option.value)}"
        for section, named in case.options.items()
        for name, option in named.items()
    ]
    if "seed" not in case.body.settings.torch:
        options.append(f"torch.seed: {seed_of(case)}")
    return result_of(
        case,
        judged,
        digest=digest_of(case),
        **{"summary": case.summary, "options": tuple(options), **more},
    )


def result_of_unavailable(
    case: Case, verdict: CaseAvailability, required: Sequence[str], repro: str
) -> Redacted:
    """Return the result of a case that cannot run here: an ERROR if ``--require`` names the missing
    capability or backend.
    """
    outcome, reason = Outcome.UNAVAILABLE, verdict.reason
    if case.backend in required or verdict.capability in required:
        name = case.backend if case.backend in required else verdict.capability
        outcome, reason = Outcome.ERROR, f"--require {name}: {reason}"
    return _unexecuted(case, outcome, reason, UNAVAILABLE, repro)


def result_of_unrun(case: Case, reason: str, repro: str, failure_type: str = "not-run") -> Redacted:
    """Return the result of a case that the run did not start."""
    return _unexecuted(case, Outcome.NOT_RUN, reason, failure_type, repro)


def _unexecuted(
    case: Case, outcome: Outcome, reason: str, failure_type: str, repro: str
) -> Redacted:
    judged = Judged(
        outcome=outcome, reason=reason, failure_type=failure_type, position=case.position
    )
    return redacted_result(with_case(case, judged, repro=repro))


def repro(options: RunOptions, case: Case, required: Sequence[str] = ()) -> str:
    """Return the command that runs only this case; ``required`` are the names of ``--require`` that
    caused the case's result.
    """
    paths = [case.spec] if Path(case.spec).parent.name == PROGRAMS else options.paths
    parts = ["torch-conformance", "run", *map(str, paths)]
    for name, values in (("backends", options.backends), ("waivers", options.waivers)):
        parts += [part for file in values for part in (f"--{name}", str(file))]
    if options.bench and not case.left_out and any(map(is_optional, case.steps)):
        parts.append("--bench")
    if options.challenge:
        parts += ["--challenge", options.challenge]
    for name in required:
        parts += ["--require", name]
    return shlex.join(map(redacted, [*parts, "--select", case.id]))


def _keep(digests: dict[str, str], path: Path, facts: object) -> str:
    """Write facts to the folder of the case, and add their digest; return why that failed, empty if
    it did not.
    """
    try:
        scratch.remove(path)
        if facts is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            data = json.dumps(facts, ensure_ascii=True).encode("ascii")
            path.write_bytes(data)
            digests[path.name] = digest(data)
    except OSError as error:
        if error.errno in OUT_OF_SPACE:
            # no space left on the device is not a fault of the worker: the run cannot be recorded
            raise OSError(error.errno, error.strerror, str(path)) from error
        return f"the worker prevented the writing of its {path.stem}: {error.strerror}"
    return ""


def _printed(path: Path) -> str:
    """Return the end of a worker's output, with the size of the omitted beginning."""
    text = tail(path, _OUTPUT_BYTES)
    with contextlib.suppress(OSError), open_untrusted(path) as stream:
        left_out = stream.seek(0, 2) - _OUTPUT_BYTES
        return (
            f"... {left_out} bytes before this are left out; {path.name} has them ...\n{text}"
            if left_out > 0
            else text
        )
    return text


def phases_of(facts: Facts) -> dict[str, float]:
    """Return the seconds of each phase, without impossible values."""
    return {name: round(seconds, 4) for name, seconds in facts.phases.items() if 0 <= seconds < 1e9}


def benches_of(
    folder: Path, facts: Facts
) -> tuple[tuple[Timing, ...], tuple[str, ...], tuple[str, ...]]:
    """Return the timings, attachments and notes of the bench steps; a file that cannot be attached
    to a report is in the notes.
    """
    benches = [step.bench for step in facts.steps if step.bench is not None]
    notes = [note for bench in benches for note in bench.notes]
    attachments: list[str] = []
    for name in dict.fromkeys(name for bench in benches for name in bench.attachments):
        try:
            with open_untrusted(folder / name) as stream:
                if stream.seek(0, 2) <= MAX_ATTACHMENT:
                    attachments.append(name)
                else:
                    notes.append(
                        f"{name} was left out: it is larger than {MAX_ATTACHMENT >> 20} MiB"
                    )
        except OSError as error:
            notes.append(f"{name} was left out: {error.strerror or error}")
    return (
        tuple(timing for bench in benches for timing in bench.timings),
        tuple(attachments),
        tuple(notes),
    )


# -- the facts of this machine, for ``doctor`` and for a node that joins a lab ---------------

SHOWN_BYTES = 600
"""How much of what a failed process printed is shown: the end has the exception."""


@frozen
class WorkerReport:
    """The facts of a worker, and the machine with them; or why there are none."""

    machine: Machine
    facts: Mapping[str, Any] | None = None
    problem: str = ""


def ask_worker(machine: Machine, questions: Sequence[str] = ()) -> WorkerReport:
    """Let a worker report the facts of the machine, as the first job of a run does.

    A worker that dies is the answer too.
    """
    settings = ExecutorSettings(folder=Path(), workers=1, threads=1, torch_root=machine.torch_root)
    job = _facts_job(Environment(), questions, 300.0)
    with contextlib.closing(LocalExecutor(settings)) as executor:
        execution = next(iter(executor.run([job], schedule.capacity(1, machine))))
    facts = execution.observation
    if not isinstance(facts, dict):
        printed = (execution.printed or execution.note).strip()[-SHOWN_BYTES:]
        return WorkerReport(machine=machine, problem=printed or "a worker ended without an answer")
    try:
        return WorkerReport(machine=informed(machine, execution), facts=facts)
    except UsageError as error:
        return WorkerReport(machine=machine, problem=str(error))
    except (AttributeError, TypeError, ValueError) as error:
        # not the form that facts.collect writes
        return WorkerReport(
            machine=machine, problem=f"the facts cannot be read: {type(error).__name__}: {error}"
        )
