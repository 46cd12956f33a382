"""Carries cases from the plan to the result: executes them, reads what the workers left, has it judged."""

import argparse
import contextlib
import dataclasses
import functools
import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from runner.core.conditions import Surroundings
from runner.core.diagnostics import UsageError
from runner.core.model import Activity, Availability, Case, CaseResult, Timing
from runner.core.outcomes import Outcome
from runner.core.protocol import KEPT, MAX_ATTACHMENT, WARM
from runner.execute.local.engine import Engine, Limits
from runner.execute.local.orphans import Orphans
from runner.execute.services import Services, named_servers
from runner.judge.judge import Evidence, Judged, judge
from runner.judge.waivers import Waivers, apply
from runner.language.backends import Backend
from runner.language.expand.cases import surroundings
from runner.language.flow import flow
from runner.language.load import Suite
from runner.language.read.schema import fits
from runner.language.read.templates import TemplateError
from runner.plan import schedule
from runner.plan.isolation import needs_new_process, why_alone
from runner.plan.jobs import FACTS, SHARED, Environment, Execution, Isolation, Job
from runner.plan.worker_plan import digest_of, make_plan
from runner.record.evidence import OBSERVATION, SERVICES, CaseFiles
from runner.record.run_folder import RunFolder
from runner.system import availability, cache_dirs, scratch
from runner.system.availability import Verdict as AvailabilityVerdict
from runner.system.capabilities import Machine
from runner.system.known_secrets import KNOWN, MASK
from runner.system.redaction import redacted_result
from runner.system.safe_open import open_untrusted
from runner.system.secret_names import is_secret_name
from runner.system.signals import STOP_NOW, Interrupts
from runner.system.streams import OUT_OF_SPACE, naming

_FACTS_SECONDS = 600.0
_OUTPUT_BYTES = 64_000
"""How much of what a worker printed goes into the journal: the end of it."""

_STACK_BYTES = 512_000
"""How much of it is searched for the stack of a case whose time was up: other threads may go on printing."""


class CaseRunner:
    """Runs cases in an engine; a context manager that removes what the workers left in the scratch folder."""

    def __init__(
        self,
        arguments: argparse.Namespace,
        suite: Suite,
        waivers: Waivers,
        cases: Sequence[Case],
        folder: RunFolder,
        workers: int,
        machine: Machine,
        wishes: schedule.Wishes | None = None,
    ) -> None:
        self._wishes = wishes or schedule.Wishes()
        self._timeout: float = arguments.timeout
        self._patience: float = arguments.timeout_factor
        self._isolation = Isolation(arguments.isolation)
        self._shares_across_folders = self._isolation is Isolation.NONE or getattr(arguments, "share_across_folders", False)
        self._company: dict[str, tuple[str, str]] = {}
        """By the name of the attempt that followed alone: a case, and what it came to after others in a worker."""
        self._suite = suite
        for case in cases:
            KNOWN.learn_options(case.body["env"])
        self._workers = 1 if self._isolation is Isolation.NONE else workers
        self._waivers = waivers
        self._folder = folder
        self._machine = machine
        self._objects = cache_dirs.object_folder(getattr(arguments, "object_cache", None))
        self._answers = answers = None if getattr(arguments, "no_kept", False) else cache_dirs.probe_cache_folder()
        environments = schedule.environments([case for case in cases if _may_run(case, machine)])
        self._environments = {key: _knowing(environment, answers) for key, environment in environments.items()}
        self._no_objects: dict[str, None] = {}
        self._own = scratch.make()
        self._scratch = self._own.path
        limits = Limits(
            threads=schedule.threads(workers),
            scratch=self._scratch,
            isolation=self._isolation,
            patience=self._patience,
            spares=schedule.spares(self._workers),
        )
        self._orphans = Orphans()
        self._engine = Engine(limits)
        self._is_asking = False
        self._ids: dict[str, str] = {}
        """The case of each job, by its name."""
        self._services = Services(named_servers(getattr(arguments, "service", ())), self._scratch)

    def __enter__(self) -> "CaseRunner":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._engine.close()
        self._services.close()
        self._orphans.close()
        if self._objects is not None:
            cache_dirs.prune(self._objects)
        if self._answers is not None:
            cache_dirs.prune(self._answers / WARM, most=cache_dirs.WARM_BYTES)
        self._own.close()

    @property
    def warnings(self) -> list[str]:
        """What a person should know of how the cases were isolated."""
        return [
            f"cases got a new process each instead of a fork, which is slow: {why}" for why in dict.fromkeys(self._engine.broken.values())
        ] + [
            *self._in_company(),
            *self._services.warnings,
            *(f"--object-cache: {why}" for why in self._no_objects),
            *self._engine.left_over,
        ]

    def _in_company(self) -> Iterator[str]:
        for name, what in self._company.values():
            yield f"{name} was {what}; it was run again alone. If it may share no worker, its spec says 'isolation: case'"

    def heed(self, interrupts: Interrupts, say: Callable[[str], None], show: Callable[[Activity], None]) -> None:
        """Begin nothing more when that is asked for, and raise ``KeyboardInterrupt`` when asked to stop now; show what is waited for."""
        said: list[int] = []

        def asked() -> None:
            interrupts.clear_wake()
            show(self._activity())
            if interrupts.asked >= STOP_NOW or (interrupts.asked and self._is_asking):
                raise KeyboardInterrupt
            if interrupts.asked:
                count = self._engine.stop_starting()
                if not said:
                    said.append(count)
                    say(f"interrupted: finishing {count} running case{'' if count == 1 else 's'}; again stops now")

        self._engine.heed(interrupts.wake, asked)

    def _activity(self) -> Activity:
        """Return what is waited for, with the ids of cases; asking what the machine is belongs to starting torch."""
        now = self._engine.activity
        asking = [case.since for case in now.running if case.name == FACTS]
        running = [dataclasses.replace(case, name=self._ids[case.name]) for case in now.running if case.name in self._ids]
        starting = min([*asking, *([] if now.starting is None else [now.starting])], default=None)
        return Activity(starting=starting, warming=now.warming, running=tuple(running))

    def look_at_machine(self) -> Machine:
        """Ask a worker what the machine is, if any case may run at all."""
        if not self._environments:
            return self._machine
        environment = next(iter(self._environments.values()))
        seconds = _FACTS_SECONDS * self._patience
        job = Job(name=FACTS, plan=FACTS, folder=self._scratch / FACTS, environment=environment, timeout=seconds)
        self._is_asking = True  # nothing of a case runs yet
        execution = next(iter(self._engine.run([job], schedule.capacity(1, self._machine))))
        self._is_asking = False
        if not isinstance(execution.observation, dict):
            words = (_tail(job.folder / "stderr.txt") or execution.note).strip()
            raise UsageError(f"torch could not be asked what this machine is; it said:\n{words}")
        self._machine = availability.with_facts(self._machine, execution.observation)
        return self._machine

    def run(self, cases: Sequence[Case], known: Surroundings, repro: Callable[[Case], str], *, alone: bool = False) -> Iterator[CaseResult]:
        """Run the cases and yield each result as it is known. A case that stands there twice is run twice.

        ``alone``: one after another with nothing beside them, and not before everything else has ended.
        """
        by_name: dict[str, Case] = {}
        jobs: list[Job] = []
        for number, case in enumerate(self._in_order(cases), start=self._folder.next_number()):
            try:
                job = self._job(number, case, known, alone=alone)
            except TemplateError as error:
                verdict = AvailabilityVerdict(Availability.NO, f"this machine lacks a fact: {error}")
                yield result_of_unavailable(case, verdict, (), repro(case))
            else:
                # exclusive: nor does a worker warm up beside it
                jobs.append(dataclasses.replace(job, needs=dataclasses.replace(job.needs, exclusive=True)) if alone else job)
                by_name[job.name] = case
        self._services.announce(sum(job.begin is not None for job in jobs))
        for execution in self._engine.run(jobs, schedule.capacity(self._workers, self._machine)):
            case = by_name[execution.job.name]
            result = self._result(case, execution, known, repro(case))
            shutil.rmtree(self._cache_of(execution.job), ignore_errors=True)
            company = self._company_of(result, execution)
            if company:
                job = self._job(self._folder.next_number(), case, known, alone=True)
                by_name[job.name] = case
                self._company[job.name] = (case.id, company)
                self._engine.again(job)
            else:
                _, company = self._company.get(execution.job.name, ("", ""))
                yield redacted_result(dataclasses.replace(result, company=company))

    def _company_of(self, result: CaseResult, execution: Execution) -> str:
        """Return what a case came to that may be the doing of others, and retire their worker: it is run again alone. Empty for its own."""
        if execution.isolation != SHARED or (result.outcome is Outcome.PASS and not execution.contaminated):
            return ""
        self._engine.retire(execution.worker)
        if execution.after == 0:
            return ""
        cases = f"{execution.after} other case{'' if execution.after == 1 else 's'}"
        if execution.contaminated:
            return f"{result.outcome.label} after {cases} in a worker, and changed what measures it: {execution.contaminated}"
        return f"{result.outcome.label} after {cases} in a worker: {result.reason}"

    def _in_order(self, cases: Sequence[Case]) -> list[Case]:
        return schedule.order(cases, self._wishes.seconds, self._wishes.seed)

    def _job(self, number: int, case: Case, known: Surroundings, *, alone: bool = False) -> Job:
        folder = self._folder.case_folder(number)
        folder.mkdir(parents=True, exist_ok=True)
        cache = self._scratch / folder.name
        here = surroundings(self._suite.backends.by_name[case.backend], known)
        name = f"{case.id} ({folder.name})"  # of this attempt: another may run beside it
        self._ids[name] = case.id
        plan = make_plan(case, here, self._machine.facts, folder, cache, self._objects) | {"torch_root": self._machine.torch_root}
        with naming(folder / "plan.json"):
            (folder / "plan.json").write_text(json.dumps(plan, indent=1, ensure_ascii=True), encoding="ascii")
        return Job(
            name=name,
            plan=str(folder / "plan.json"),
            folder=folder,
            environment=self._environment_of(case),
            timeout=(case.body["timeout"] or self._timeout) * self._patience,
            shares=not alone and not needs_new_process(case) and (self._isolation is Isolation.NONE or not why_alone(case)),
            new_process=needs_new_process(case),
            group="" if self._shares_across_folders else str(Path(case.spec).parent),
            begin=functools.partial(self._services.start, name, cache) if case.body["services"] else None,
            needs=schedule.needs_of(case, self._machine),
            memory_limit=self._wishes.memory_limit,
        )

    def _environment_of(self, case: Case) -> Environment:
        return self._environments[schedule.environment_of(case).key]

    def _cache_of(self, job: Job) -> Path:
        return self._scratch / job.folder.name

    def _result(self, case: Case, execution: Execution, known: Surroundings, repro: str) -> CaseResult:
        folder = execution.job.folder
        services = [self._services.stop(execution.job.name)] if execution.job.begin is not None else []
        files = CaseFiles(folder)
        problem = execution.problem or _keep(files, folder / OBSERVATION, execution.observation)
        if services:
            problem = problem or _keep(files, folder / SERVICES, [dataclasses.asdict(service) for service in services])
        backend = self._suite.backends.by_name[case.backend]
        evidence = Evidence(
            ending=execution.ending,
            observation=execution.observation,
            code=files.code,
            note=execution.note,
            problem=problem,
            services=services,
            stderr=_stack_text(folder / "stderr.txt", execution),
        )
        here = surroundings(backend, known)
        objects = _objects(execution.observation)
        if why := objects.get("unavailable"):
            self._no_objects[str(why)[:500]] = None
        return _case_result(
            case,
            apply(self._judged(case, backend, here, evidence), case.id, here, self._waivers),
            seconds=round(execution.seconds, 3),
            phases=_phases(execution.observation),
            isolation=execution.isolation,
            after=execution.after,
            folder=str(folder.relative_to(self._folder.path)),
            evidence=files.digests,
            repro=repro,
            code=_code_files(folder),
            stdout=_printed(folder / "stdout.txt"),
            stderr=_printed(folder / "stderr.txt"),
            objects_served=_count(objects.get("served")),
            objects_built=_count(objects.get("built")),
            benches_left_out=len(case.left_out),
            **_with_note({} if problem else _benches(folder, execution.observation), execution.left_over),
        )

    def _judged(self, case: Case, backend: Backend, here: Surroundings, evidence: Evidence) -> Judged:
        """Judge a case; what failed where torch had no room to build claims nothing."""
        judged = judge(case, backend, here, evidence)
        if judged.outcome is Outcome.PASS or evidence.problem:
            return judged
        said = "\n".join(f"{verdict.observed}\n{verdict.detail}" for verdict in judged.verdicts)
        problem = scratch.shortage(self._scratch, said)
        return judged if not problem else judge(case, backend, here, dataclasses.replace(evidence, problem=problem))


def _with_note(benches: dict[str, Any], note: str) -> dict[str, Any]:
    """Add what outlived the case's answer to what is noted of it."""
    return {**benches, "notes": (*benches.get("notes", ()), note)} if note else benches


def _may_run(case: Case, machine: Machine) -> bool:
    return availability.of_case(case, machine).availability is not Availability.NO


def _case_result(case: Case, judged: Judged, **more: Any) -> CaseResult:
    if judged.outcome is not Outcome.PASS:
        more = {"summary": case.summary, "options": _options(case), **more}
    else:
        more["code"] = ()
    return CaseResult(
        case_id=case.id,
        spec=case.spec,
        area=case.area,
        name=case.name,
        backend=case.backend,
        outcome=judged.outcome,
        reason=judged.reason,
        failure_type=judged.failure_type,
        verdicts=judged.verdicts,
        position=judged.position,
        digest=digest_of(case),
        covers=case.covers,
        requires=tuple(dict.fromkeys(requirement.name for requirement in case.requires)),
        waivers=judged.waivers,
        **{"seconds": 0.0, **more},
    )


def result_of_unavailable(case: Case, verdict: AvailabilityVerdict, required: Sequence[str], repro: str) -> CaseResult:
    """Return the result of a case that cannot run here; an error where the command line requires what is missing."""
    reason = verdict.reason
    if case.backend in required or verdict.capability in required:
        name = case.backend if case.backend in required else verdict.capability
        judged = Judged(
            outcome=Outcome.ERROR, reason=f"--require {name}: {reason}", failure_type="unavailable", verdicts=(), position=case.position
        )
    else:
        judged = Judged(outcome=Outcome.UNAVAILABLE, reason=reason, failure_type="unavailable", verdicts=(), position=case.position)
    return _case_result(case, judged, repro=repro)


def result_of_unrun(case: Case, reason: str, repro: str) -> CaseResult:
    """Return the result of a case that the run did not come to."""
    judged = Judged(outcome=Outcome.NOT_RUN, reason=reason, failure_type="not-run", verdicts=(), position=case.position)
    return _case_result(case, judged, repro=repro)


def _options(case: Case) -> tuple[str, ...]:
    """Return the options in force, as a spec would write them."""
    return tuple(
        f"{section}.{name}: {MASK if section == 'env' and is_secret_name(name) else flow(option.value)}"
        for section, found in case.options.items()
        for name, option in found.items()
    )


_CODE_FILE = re.compile(r"code-([0-9]{1,4})-([0-9]{1,4})\.txt")
_MOST_CODE_FILES = 100


def _code_files(folder: Path) -> tuple[str, ...]:
    """Return the names of the files of generated code, in their order; a worker may have put anything there."""
    with contextlib.suppress(OSError):
        found = [name for path in folder.iterdir() if (name := _CODE_FILE.fullmatch(path.name))]
        return tuple(name[0] for name in sorted(found, key=lambda name: (int(name[1]), int(name[2])))[:_MOST_CODE_FILES])
    return ()


def _keep(files: CaseFiles, path: Path, facts: Any) -> str:
    """Write facts beside the worker's output, and their digest to ``files``; return why not, where it left something in the way."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        if facts is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            data = json.dumps(facts, ensure_ascii=True).encode("ascii")
            path.write_bytes(data)
            files.note(path.name, data)
    except OSError as error:
        if error.errno in OUT_OF_SPACE:
            # that is no worker's doing, and the run cannot be recorded
            raise OSError(error.errno, error.strerror, str(path)) from error
        return f"the worker left no room for its {path.stem}: {error.strerror}"
    return ""


def _knowing(environment: Environment, answers: Path | None) -> Environment:
    """Tell a template where it finds what earlier runs found out; a variable that the runner was started with says nothing of it."""
    return dataclasses.replace(environment, variables={**environment.variables, KEPT: str(answers) if answers is not None else None})


def _objects(observation: Any) -> dict[str, Any]:
    found = observation.get("objects") if isinstance(observation, dict) else None
    return found if isinstance(found, dict) else {}


def _count(found: Any) -> int:
    # a worker may say anything
    return found if isinstance(found, int) and not isinstance(found, bool) and 0 <= found < 1 << 31 else 0


def _phases(observation: Any) -> dict[str, float]:
    found = observation.get("phases") if isinstance(observation, dict) else None
    if not isinstance(found, dict):
        return {}
    numbers = {str(name): seconds for name, seconds in found.items() if isinstance(seconds, int | float)}
    # a worker may say anything: some numbers are no time that a case can take
    return {name: round(float(seconds), 4) for name, seconds in numbers.items() if 0 <= seconds < 1e9}


def _benches(folder: Path, observation: Any) -> dict[str, Any]:
    """Return what bench steps timed and left, for a ``CaseResult``: nothing of an observation that no schema lets through."""
    if not _has_bench(observation) or not fits("observation")(observation):
        return {}
    benches = [step["bench"] for step in observation["steps"] if "bench" in step]
    names = list(dict.fromkeys(name for bench in benches for name in bench["attachments"]))
    refused = {name: why for name in names if (why := _why_no_attachment(folder / name))}
    return {
        "timings": tuple(Timing(**timing) for bench in benches for timing in bench["timings"]),
        "attachments": tuple(name for name in names if name not in refused),
        "notes": (*(note for bench in benches for note in bench["notes"]), *refused.values()),
    }


def _has_bench(observation: Any) -> bool:
    steps = observation.get("steps") if isinstance(observation, dict) else None
    return isinstance(steps, list) and any(isinstance(step, dict) and "bench" in step for step in steps)


def _why_no_attachment(path: Path) -> str:
    try:
        with open_untrusted(path) as stream:
            size = stream.seek(0, 2)
    except OSError as error:
        return f"{path.name} was left out: {error.strerror or error}"
    return "" if size <= MAX_ATTACHMENT else f"{path.name} was left out: it is larger than {MAX_ATTACHMENT >> 20} MiB"


def _stack_text(path: Path, execution: Execution) -> str:
    """Return what may hold the stack of a case whose time was up, or that died."""
    ending = execution.ending
    if ending.timed_out:
        return _tail(path, _STACK_BYTES, start=execution.stack_from)
    return _tail(path, _STACK_BYTES) if ending.signal or ending.exit_code or execution.observation is None else ""


def _printed(path: Path) -> str:
    """Return the end of what a worker printed, and how much came before."""
    text = _tail(path)
    with contextlib.suppress(OSError), open_untrusted(path) as stream:
        left_out = stream.seek(0, 2) - _OUTPUT_BYTES
        return f"... {left_out} bytes before this are left out; {path.name} has them ...\n{text}" if left_out > 0 else text
    return text


def _tail(path: Path, limit: int = _OUTPUT_BYTES, start: int = 0) -> str:
    try:
        with open_untrusted(path) as stream:
            size = stream.seek(0, 2)
            stream.seek(max(size - limit, start))
            return stream.read(limit).decode("utf-8", "backslashreplace")
    except OSError:
        return ""
