"""What a run takes from an earlier one where an option asks for it: the cases that failed, or
everything that an interrupted run has left.

Records of an interrupted run count only if they are compatible with this command, with this machine
and with their own files.
"""

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from torch_conformance.judge.waiving import Waivers
from torch_conformance.machine import capabilities, output
from torch_conformance.machine.capabilities import Machine
from torch_conformance.model.case import Availability, Case
from torch_conformance.model.conditions import Surroundings
from torch_conformance.model.diagnostics import UsageError, shown_path
from torch_conformance.model.header import RunHeader
from torch_conformance.model.outcomes import Outcome
from torch_conformance.model.results import CaseResult
from torch_conformance.optional.options import RunOptions
from torch_conformance.record.comparison import differences, machine_differences
from torch_conformance.record.journal import Run, readable, recorded_run
from torch_conformance.record.run_folder import JOURNAL, RunFolder, RunLock, find_run, last_run_of
from torch_conformance.run import rejudge
from torch_conformance.vocabulary.backend import Backend

# -- the cases that failed -------------------------------------------------------------------------


def with_failed(options: RunOptions) -> tuple[RunOptions, frozenset[str]]:
    """Return the options with the id of the run that ``--failed-in`` or ``--last-failed`` names,
    and the ids of its failed cases.

    Without a PATH those of that run are read, with its files of backends and waivers. Raise
    ``UsageError`` for a run that cannot be read.
    """
    if options.last_failed and options.failed_in:
        raise UsageError(
            f"--last-failed with --failed-in {options.failed_in}: each selects the failed "
            "cases of a run (use one of them)"
        )
    if options.last_failed and options.resume:
        why = "'latest' may be a different run now (write --failed-in with the id in its header)"
        raise UsageError(f"--last-failed with --resume: {why}")
    recorded = recorded_run(options.failed_in or last_run_of(options.paths))
    run = recorded.run
    failing = {
        result.case_id
        for result in run.results
        if result.outcome.is_failure and result.outcome is not Outcome.NOT_RUN
    }
    run_id = run.header.run_id or recorded.folder.name
    if not failing:
        output.note(f"no case failed in {run_id}")
    not_run = sum(result.outcome is Outcome.NOT_RUN for result in run.results)
    if run.footer is None:
        output.note(f"{run_id} was cut off: what it would have run later is not known")
    if not_run:
        cases = "1 case was" if not_run == 1 else f"{not_run} cases were"
        output.note(
            f"{cases} not run in {run_id}, and {'is' if not_run == 1 else 'are'} not selected "
            "(--resume runs what is left)"
        )
    options = replace(options, last_failed=False, failed_in=run_id)
    if not options.paths:
        paths, backends, waivers = (
            tuple(rejudge.files_of(run.header, name)) for name in ("paths", "backends", "waivers")
        )
        options = replace(
            options,
            paths=paths,
            backends=options.backends or backends,
            waivers=options.waivers or waivers,
        )
    return options, frozenset(failing)


# -- the interrupted run ---------------------------------------------------------------------------


def resume_run(
    name: str,
    now: RunHeader,
    digests: Mapping[str, str],
    files: Mapping[str, str],
    out: Path | None = None,
) -> RunFolder:
    """Return the folder of an incomplete run, with its results; raise ``UsageError`` if it cannot
    be resumed.

    ``now`` is the header that this command would write, ``digests`` are those of the selected cases
    by id, ``files`` those of backends and waivers. A run without a judged case starts again, in its
    folder.
    """
    path = find_run(name)
    if out is not None and out.absolute() != path:
        raise UsageError(
            f"--resume {name} --out {out}: a resumed run stays in its folder; remove --out"
        )
    with contextlib.ExitStack() as stack:
        lock = RunLock(path)
        stack.callback(lock.release)
        if not (path / JOURNAL).stat().st_size:
            hint = f"write the same command with --out {shown_path(path)} in place of --resume"
            raise UsageError(
                f"--resume {name}: that run ended before anything was recorded; {hint}"
            )
        run = readable(path / JOURNAL)
        if run.has_come_to_its_end:
            raise UsageError(
                f"--resume {name}: this run is complete; to run its failed cases again, write "
                f"--failed-in {name} in place of --resume"
            )
        if problem := _why_another(run, now, digests, files):
            raise UsageError(
                f"--resume {name}: {problem}; begin a new run, or resume with the command of "
                "that run"
            )
        stack.pop_all()
    begun = RunFolder(path=path, run_id=run.header.run_id, locks=[lock])
    if not run.finished and not run.attempts:
        return begun
    return replace(begun, header=run.header, finished=run.finished, attempts=run.attempts)


def durations_of(name: str, durations: str | None) -> str | None:
    """Return ``--durations`` of an interrupted run; ``durations`` where it cannot be read, which
    ``resume_run`` reports.
    """
    with contextlib.suppress(UsageError):
        return readable(find_run(name) / JOURNAL).header.options.get("durations") or None
    return durations


def _why_another(
    run: Run, now: RunHeader, digests: Mapping[str, str], files: Mapping[str, str]
) -> str:
    """Return why this command is not compatible with the interrupted run; empty if it is."""
    then = run.header
    if then.merged:
        return "this run was joined from others, and ran nothing itself"
    # a spec may have changed where no case of it did
    read = replace(
        then, specs={file: digest for file, digest in then.specs.items() if file in files}
    )
    if others := differences(replace(now, specs=files), read, same_machine=False):
        return "; ".join(difference.between("now", "then") for difference in others)
    if then.selection == now.selection and then.assignment != now.assignment:
        return (
            "the shards were made with other durations (--durations, or a durations.txt next to "
            "the specs)"
        )
    for result in (
        *run.results,
        *(result for results in run.attempts.values() for result in results),
    ):
        if digests.get(result.case_id) != result.digest:
            return f"{result.case_id} has changed since the run"
    if then.selection != now.selection:
        return (
            f"the selection or a case has changed: {then.selected_whole} "
            f"then, {now.selected_whole} now"
        )
    return ""


def check_machine(name: str, now: Mapping[str, str], then: Mapping[str, str]) -> None:
    """Raise ``UsageError`` if the machine is not compatible with that of the run; ``name`` is the
    value of ``--resume``.
    """
    if others := machine_differences(now, then):
        raise UsageError(
            f"--resume {name}: {'; '.join(other.between('now', 'then') for other in others)}; "
            "begin a new run"
        )


def check_executions(
    executions: Iterable[CaseResult],
    cases: Iterable[Case],
    backends: Mapping[str, Backend],
    waivers: Waivers,
    folder: Path,
    machine: Machine,
    surroundings: Surroundings,
) -> None:
    """Raise ``UsageError`` for an execution recorded in ``folder`` that cannot run here, or that
    its own files contradict.
    """
    by_id = {case.id: case for case in cases}
    for result in (result for result in executions if result.folder):
        case = by_id[result.case_id]
        missing = capabilities.availability_of(case, machine)
        if missing.availability is Availability.NO and not result.node:
            # a node of a fleet may have what this machine lacks
            problem = (
                f"{case.id}: {result.outcome.label} is recorded, and it cannot run here: "
                f"{missing.reason}"
            )
        else:
            problem = next(
                iter(
                    rejudge.problems(
                        case, backends[case.backend], surroundings, result, folder, waivers
                    )
                ),
                "",
            )
        if problem:
            raise UsageError(f"--resume {shown_path(folder)}: {problem}; begin a new run")
