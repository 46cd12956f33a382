"""Resuming a run: records of the interrupted run count only if they are compatible with this machine and with their own files."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from runner.machine import capabilities
from runner.machine.capabilities import Machine
from runner.model.case import Availability, Case
from runner.model.conditions import Surroundings
from runner.model.diagnostics import UsageError, shown_path
from runner.model.header import RunHeader
from runner.model.results import CaseResult
from runner.plan.worker_plan import digest_of
from runner.record.compatibility import Difference, machine_differences, option_differences, variable_differences
from runner.record.journal import JournalError, Run, read_run
from runner.record.run_folder import JOURNAL, RunFolder, find_run, lock_folder
from runner.run import rejudge
from runner.run.preparation import Prepared, judging_files


def open_folder(prepared: Prepared) -> RunFolder:
    """Open and lock the folder of the interrupted run that ``--resume`` names."""
    options = prepared.options
    digests: dict[str, str] = {case.id: digest_of(case) for case in prepared.selected}
    files = judging_files(prepared.suite, prepared.waivers)
    files |= {profile.file: profile.digest for profile in prepared.header.profile}
    return resume_run(options.resume or "", prepared.header, digests, files, options.out)


def resume_run(name: str, now: RunHeader, digests: Mapping[str, str], files: Mapping[str, str], out: Path | None = None) -> RunFolder:
    """Return the folder of an incomplete run, with its results; raise ``UsageError`` if it cannot be resumed.

    ``now`` is the header that this command would write, ``digests`` are those of the selected cases by id, ``files`` those of backends
    and waivers. A run without a judged case starts again, in its folder.
    """
    path = find_run(name)
    if out is not None and out.absolute() != path:
        raise UsageError(f"--resume {name} --out {out}: a resumed run stays in its folder; remove --out")
    lock = lock_folder(path)
    try:
        return replace(_resumed(path, name, now, digests, files), locks=[lock])
    except BaseException:
        lock.release()
        raise


def _resumed(path: Path, name: str, now: RunHeader, digests: Mapping[str, str], files: Mapping[str, str]) -> RunFolder:
    try:
        run = read_run(path / JOURNAL)
    except JournalError as error:
        if not (path / JOURNAL).stat().st_size:
            hint = f"write the same command with --out {shown_path(path)} in place of --resume"
            raise UsageError(f"--resume {name}: that run ended before anything was recorded; {hint}") from error
        raise UsageError(f"--resume {name}: {path / JOURNAL}:{error.line}: {error.reason}") from error
    if run.has_come_to_its_end:
        raise UsageError(f"--resume {name}: this run came to its end; run the failures with --select")
    problem = _why_another(run, now, digests, files)
    if problem:
        raise UsageError(f"--resume {name}: {problem}; begin a new run, or resume with the command of that run")
    begun = RunFolder(path=path, run_id=run.header.run_id)
    return replace(begun, header=run.header, finished=run.finished, attempts=run.attempts) if run.has_something else begun


def _why_another(run: Run, now: RunHeader, digests: Mapping[str, str], files: Mapping[str, str]) -> str:
    """Return why this command is not compatible with the interrupted run; empty if it is."""
    then = run.header
    if then.merged:
        return "this run was joined from others, and ran nothing itself"
    if then.version != now.version:
        return f"it was begun by version {then.version}, and this is {now.version}"
    options = option_differences(now.options, then.options)
    if options:
        return f"this command differs from that run's: {_in_words(options)}"
    recorded = itertools.chain(run.results, *run.attempts.values())
    changed = [result.case_id for result in recorded if digests.get(result.case_id) != result.digest]
    if changed:
        return f"{changed[0]} is not the case that was run then"
    if then.profile != now.profile:
        return "the profile requires other cases than then, or permits other waivers"
    if then.selection != now.selection:
        return f"other cases are selected than then, or a case has changed: {then.selected_whole} then, {now.selected_whole} now"
    other = [file for file, digest in files.items() if then.specs.get(file) != digest]
    if other:
        return f"{other[0]} is not the file that was read then"
    return _in_words(variable_differences(now.variables, then.variables))


def _in_words(differences: Sequence[Difference]) -> str:
    return "; ".join(difference.between("now", "then") for difference in differences)


def check_machine(name: str, now: Mapping[str, str], then: Mapping[str, str]) -> None:
    """Raise ``UsageError`` if the machine is not compatible with that of the run; ``name`` is the value of ``--resume``."""
    if other := machine_differences(now, then):
        raise UsageError(f"--resume {name}: {_in_words(other)}; begin a new run")


def check_executions(
    name: str, prepared: Prepared, folder: RunFolder, executions: Iterable[CaseResult], machine: Machine, known: Surroundings
) -> None:
    """Raise ``UsageError`` for a recorded execution that cannot run here, or that its own files contradict."""
    cases: dict[str, Case] = {case.id: case for case in prepared.selected}
    for result in (result for result in executions if result.folder):
        case = cases[result.case_id]
        backend = prepared.suite.backends.by_name[case.backend]
        missing = capabilities.availability_of(case, machine)
        if missing.availability is Availability.NO and not result.node:  # a node of a fleet may have what this machine lacks
            problem = f"{case.id}: {result.outcome.label} is recorded, and it cannot run here: {missing.reason}"
        else:
            problem = next(iter(rejudge.problems(case, backend, known, result, folder.path, prepared.waivers)), "")
        if problem:
            raise UsageError(f"--resume {name}: {problem}; begin a new run")
