"""Resuming a run: records of the interrupted run count only if they are compatible with this machine and with their own files."""

from collections.abc import Iterable, Mapping

from runner.core.case import Availability, Case
from runner.core.conditions import Surroundings
from runner.core.diagnostics import UsageError
from runner.core.results import CaseResult
from runner.plan.worker_plan import digest_of
from runner.record.compatibility import machine_differences
from runner.record.run_folder import RunFolder, open_run, resume_run
from runner.run import rejudge
from runner.run.header import judging_files
from runner.run.machines_then import here_of
from runner.run.preparation import Prepared, Selection
from runner.system import availability
from runner.system.capabilities import Machine


def open_folder(prepared: Prepared) -> RunFolder:
    """Open and lock the folder of a new run, or with ``--resume`` that of the interrupted run."""
    options, selection = prepared.options, prepared.selection
    if not options.resume:
        return open_run(options.out)
    digests: dict[str, str] = {case.id: digest_of(case) for case in selection.selected}
    files = judging_files(selection.suite, selection.waivers)
    files |= {profile.file: profile.digest for profile in prepared.header.profile}
    return resume_run(options.resume, prepared.header, digests, files, options.out)


def check_machine(name: str, now: Mapping[str, str], then: Mapping[str, str]) -> None:
    """Raise ``UsageError`` if the machine is not compatible with that of the run; ``name`` is the value of ``--resume``."""
    if other := machine_differences(now, then):
        words = "; ".join(difference.between("now", "then") for difference in other)
        raise UsageError(f"--resume {name}: {words}; begin a new run")


def check_executions(
    name: str, selection: Selection, folder: RunFolder, executions: Iterable[CaseResult], machine: Machine, known: Surroundings
) -> None:
    """Raise ``UsageError`` for a recorded execution that cannot run here, or that its own files contradict."""
    cases: dict[str, Case] = {case.id: case for case in selection.selected}
    for result in executions:
        problem = _problem(selection, folder, cases[result.case_id], result, machine, known) if result.folder else ""
        if problem:
            raise UsageError(f"--resume {name}: {problem}; begin a new run")


def _problem(selection: Selection, folder: RunFolder, case: Case, result: CaseResult, machine: Machine, known: Surroundings) -> str:
    backend = selection.suite.backends.by_name[case.backend]
    missing = availability.of_case(case, machine)
    if missing.availability is Availability.NO and not result.node:  # a node of a fleet may have what this machine lacks
        return f"{case.id}: {result.outcome.label} is recorded, and it cannot run here: {missing.reason}"
    problem = next(rejudge.problems(case, backend, known, result, folder.path), "")
    return problem or rejudge.not_excused(case, result, here_of(case, backend, result, known), selection.waivers)
