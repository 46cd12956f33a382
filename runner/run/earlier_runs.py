"""What a run takes from an earlier one where an option asks for it: the cases that failed, and whether they run first."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from runner.core.case import Case
from runner.core.diagnostics import UsageError, one_line, shown_path
from runner.core.options import RunOptions
from runner.core.outcomes import Outcome
from runner.record.journal import JournalError, read_run
from runner.record.run_folder import JOURNAL, LATEST, find_run, require_still
from runner.system import output


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The cases that failed in an earlier run."""

    run: str
    """Its id."""
    ids: frozenset[str] = field(default_factory=frozenset)

    def among(self, cases: Sequence[Case], read: Sequence[Case]) -> list[Case]:
        """Return the cases that failed; print how many of them are not among the cases that were read."""
        lost = len(self.ids - {case.id for case in read})
        if lost and lost < len(self.ids):
            output.note(f"{lost} of the {len(self.ids)} cases that failed in {self.run} are not among the cases that were read")
        return [case for case in cases if case.id in self.ids]

    @property
    def why_none(self) -> str:
        """Why no failed case is selected."""
        if not self.ids:
            return f"no case is selected: no case failed in {self.run}"
        count = f"{len(self.ids)} case{'' if len(self.ids) == 1 else 's'}"
        return (
            f"no case is selected: none of the {count} that failed in {self.run} is among those that the paths and the other options select"
        )


def with_failed(options: RunOptions) -> tuple[RunOptions, Failed]:
    """Return the options with the id of the run that ``--failed-in`` or ``--last-failed`` names, and its failed cases.

    Without a PATH those of that run are read, with its files of backends and waivers. Raise ``UsageError`` for a run that cannot be read.
    """
    if options.last_failed and options.failed_in:
        raise UsageError(f"--last-failed with --failed-in {options.failed_in}: each selects the failed cases of a run (use one of them)")
    if options.last_failed and options.resume:
        why = "the latest run may be another one than then (write --failed-in with the id in its header)"
        raise UsageError(f"--last-failed with --resume: {why}")
    option, name = ("--last-failed", LATEST) if options.last_failed else (f"--failed-in {options.failed_in}", options.failed_in or "")
    folder = find_run(name)
    require_still(name, folder)
    try:
        run = read_run(folder / JOURNAL)
    except (OSError, JournalError) as error:
        raise UsageError(f"{option}: cannot read {shown_path(folder / JOURNAL)}: {one_line(str(error))}") from error
    failed = Failed(
        run=run.header.run_id or folder.name, ids=frozenset(result.case_id for result in run.results if _failed(result.outcome))
    )
    not_run = sum(result.outcome is Outcome.NOT_RUN for result in run.results)
    if run.footer is None:
        output.note(f"{failed.run} was cut off: what it would have run later is not known")
    if not_run:
        cases = "1 case was" if not_run == 1 else f"{not_run} cases were"
        output.note(f"{cases} not run in {failed.run}, and {'is' if not_run == 1 else 'are'} not selected (--resume runs what is left)")
    options = replace(options, last_failed=False, failed_in=failed.run)
    if not options.paths:
        files = {name: tuple(map(Path, shlex.split(run.header.options.get(name, "")))) for name in ("paths", "backends", "waivers")}
        backends, waivers = options.backends or files["backends"], options.waivers or files["waivers"]
        options = replace(options, paths=files["paths"], backends=backends, waivers=waivers)
    return options, failed


def _failed(outcome: Outcome) -> bool:
    return outcome.is_failure and outcome is not Outcome.NOT_RUN


def ranks_of_latest() -> dict[str, float]:
    """Return 1 for each case that failed in the latest run, and 0 for the others; nothing where it cannot be read, as it is a hint."""
    try:
        run = read_run(find_run(LATEST) / JOURNAL)
    except (UsageError, OSError, JournalError):
        return {}
    return {str(result.case_id): float(_failed(result.outcome)) for result in run.results}
