"""``audit``: the expectations that could not have failed, of a recorded run or of cases that are run for it."""

import argparse
import contextlib
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from runner.core.conditions import Surroundings
from runner.core.diagnostics import Diagnostic, Position, UsageError
from runner.core.exit_codes import ExitCode
from runner.core.model import Case, CaseResult, WrittenReason
from runner.core.outcomes import Outcome
from runner.judge.audit import Audit, ControlResult, Fate, Trial, audit, judge_control, try_case, with_control
from runner.judge.waivers import Waivers
from runner.language.expand.cases import surroundings
from runner.language.load import Suite, load, load_specs, surroundings_of
from runner.language.waivers import WaiverFiles
from runner.plan import schedule
from runner.plan.selection import Shard, select, without_benches
from runner.plan.worker_plan import digest_of
from runner.record import consistency
from runner.record.evidence import OBSERVATION, EvidenceAltered, RecordedFiles
from runner.record.journal import JournalError, RunHeader, read_run
from runner.record.run_folder import JOURNAL, LATEST, RunFolder, find_run, require_still
from runner.run import recorded, rejudge
from runner.run.session import CaseRunner
from runner.system import availability, output, scratch
from runner.system.installed_torch import installed_torch

JUDGED = (Outcome.PASS, Outcome.FAIL, Outcome.FELL_BACK, Outcome.XFAIL, Outcome.XPASS)
"""Outcomes with verdicts: some expectation may have held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ran:
    """Cases with their results, wherever they were had."""

    folder: Path
    suite: Suite
    known: Surroundings
    results: tuple[tuple[Case, CaseResult], ...]


def main(arguments: argparse.Namespace) -> ExitCode:
    """Audit a run, or the cases of paths; exit 1 for a survivor without a reason, 4 when nothing was audited."""
    shard = Shard.parse(arguments.shard) if arguments.shard else None
    with contextlib.ExitStack() as stack:
        run = _run_of(arguments.targets)
        folder = stack.enter_context(scratch.make()).path if run is None or arguments.run else Path()
        ran = _recorded(run, arguments, shard) if run is not None else _executed(arguments, shard, folder / "cases")
        found = audit([(case, trials) for case, result in ran.results if (trials := _tried(ran, case, result)) is not None])
        controls = _controls(ran, arguments, folder / "controls") if arguments.run else []
    if arguments.json:
        output.document(_as_json(found, controls))
    else:
        output.lines(_lines(found, controls))
    if not found.trials and not controls:
        output.note(f"nothing was audited: {_why_nothing(ran)}")
        return ExitCode.NOTHING
    is_clean = not found.survivors and not found.stale and all(control.failed_as_it_must for control in controls)
    return ExitCode.OK if is_clean else ExitCode.FAILED


def _why_nothing(ran: _Ran) -> str:
    """Say what kept every expectation from being audited."""
    if not ran.results:
        return "no case was executed, or none is selected; 'list' shows the cases and why they cannot run here"
    counts = Counter(result.outcome.label for _, result in ran.results)
    return "no expectation held: " + ", ".join(f"{count} {label}" for label, count in counts.items())


# -- a recorded run -------------------------------------------------------------------------------------------------


def _run_of(targets: Sequence[str]) -> Path | None:
    """Return the folder of the run that is meant; None where paths are."""
    if len(targets) > 1:
        return None
    name = targets[0] if targets else LATEST
    try:
        return find_run(name)
    except UsageError as error:
        if targets and (Path(name).exists() or name.endswith((".yaml", ".yml"))):
            return None
        raise UsageError(f"{error}; name a run, or spec files and folders, which are run first") from error


def _recorded(folder: Path, arguments: argparse.Namespace, shard: Shard | None) -> _Ran:
    require_still(arguments.targets[0] if arguments.targets else LATEST, folder)
    try:
        run = read_run(folder / JOURNAL)
    except JournalError as error:
        raise UsageError(f"{folder / JOURNAL}:{error.line}: {error.reason}") from error
    known = recorded.surroundings_then(run.header)
    results = {result.case_id: result for result in run.results if result.outcome in JUDGED}
    backend_files = arguments.backends or recorded.files_of(run.header, "backends")
    suite = load_specs(recorded.specs_of(results.values()), backend_files, surroundings_of(run.header.environment.get("torch"), None))
    _require_same_files(suite, run.header)
    chosen = select(suite.cases, suite.backends, names=arguments.backend, globs=arguments.select, shard=shard)
    pairs = tuple((case, results[case.id]) for case in chosen if case.id in results)
    for case, result in pairs:
        if digest_of(case) != result.digest:
            raise UsageError(f"{case.id} is not the case that was run then; run it again")
        backend = suite.backends.by_name[case.backend]
        for problem in rejudge.problems(case, backend, surroundings(backend, known), result, folder):
            raise UsageError(f"{folder / JOURNAL}: {problem}; run it again")
    devices = {name: backend.device for name, backend in suite.backends.by_name.items()}
    if problem := consistency.of_machine(run.results, run.header.environment, devices):
        raise UsageError(f"{folder / JOURNAL}: {problem}")
    return _Ran(folder=folder, suite=suite, known=known, results=pairs)


def _require_same_files(suite: Suite, header: RunHeader) -> None:
    changed = recorded.other_files(suite.digests, header)
    if changed:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        raise UsageError(f"{changed[0]}{more}: not the file that the run {header.run_id} read; run it again, then audit")


# -- cases that are run for it --------------------------------------------------------------------------------------


def _executed(arguments: argparse.Namespace, shard: Shard | None, folder: Path) -> _Ran:
    suite = load([Path(target) for target in arguments.targets], arguments.backends)
    cases = select(suite.cases, suite.backends, names=arguments.backend, globs=arguments.select, shard=shard)
    results, known = _run(cases, suite, arguments, folder)
    return _Ran(folder=folder, suite=suite, known=known, results=tuple(results))


def _run(
    cases: Sequence[Case], suite: Suite, arguments: argparse.Namespace, folder: Path
) -> tuple[list[tuple[Case, CaseResult]], Surroundings]:
    """Run what can run here; times are no facts that anything is expected of, so nothing is timed."""
    cases = [without_benches(case) for case in cases]
    by_id = {case.id: case for case in cases}
    waivers = Waivers(WaiverFiles(waivers=(), documents=(), given=frozenset()), today=datetime.now(UTC).date())
    workers = schedule.workers(arguments.jobs)
    run_folder = RunFolder(path=folder, run_id="audit")
    found: list[tuple[Case, CaseResult]] = []
    wishes = schedule.Wishes(memory_limit=schedule.memory_limit("auto"))
    with CaseRunner(arguments, suite, waivers, cases, run_folder, workers, availability.inspect_files(installed_torch()), wishes) as runner:
        machine = runner.look_at_machine()
        known = surroundings_of(machine.torch, machine)
        possible = [case for case in cases if not availability.of_case(case, machine).reason]
        for number, result in enumerate(runner.run(possible, known, _repro), start=1):
            output.note(f"{result.outcome.label}  {number}/{len(possible)}  {shlex.quote(result.case_id)}")
            found.append((by_id[result.case_id], result))
    return found, known


def _repro(case: Case) -> str:
    return shlex.join(["torch-conformance", "run", case.spec, "--select", case.id])


def _controls(ran: _Ran, arguments: argparse.Namespace, folder: Path) -> list[ControlResult]:
    """Run the controls of the cases that passed."""
    cases = {case.id: case for case, result in ran.results if case.control is not None and result.outcome is Outcome.PASS}
    results, _ = _run([with_control(case) for case in cases.values()], ran.suite, arguments, folder) if cases else ([], None)
    controls = [judge_control(cases[case.id], result) for case, result in results]
    return sorted(controls, key=lambda control: (control.position.file, control.case_id))


# -- trials ---------------------------------------------------------------------------------------------------------


def _tried(ran: _Ran, case: Case, result: CaseResult) -> list[Trial] | None:
    """Return the trials of a case; None for one that left no facts."""
    if result.outcome not in JUDGED or not result.folder:
        return None
    folder = ran.folder / result.folder
    if OBSERVATION not in result.evidence:
        if result.outcome is Outcome.XFAIL:
            return None  # a known crash
        raise UsageError(f"{folder}: the observation of {case.id} is not there; run it again")
    files = RecordedFiles(folder, result.evidence)
    try:
        here = surroundings(ran.suite.backends.by_name[case.backend], ran.known)
        return try_case(case, here, files.observation(), files.code)
    except EvidenceAltered as error:
        raise UsageError(f"{error}; run it again") from error
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UsageError(f"{folder}: not what a run leaves: {error}") from error


# -- the report -----------------------------------------------------------------------------------------------------


def _lines(found: Audit, controls: Sequence[ControlResult]) -> Iterator[str]:
    for trials in _by_expectation(found.survivors):
        yield f"{_what(trials[0])}: still holds with {_mutants(trials)}{_cases(trials)}"
    for reason in found.stale:
        yield str(_stale(reason))
    for trials in _by_expectation([trial for trial, _ in found.excused]):
        reasons = dict.fromkeys(reason.reason for trial, reason in found.excused if trial in trials)
        yield f"{_what(trials[0])}: may hold with {_mutants(trials)}{_cases(trials)}: {'; '.join(reasons)}"
    for control in controls:
        word = "fails as it must" if control.failed_as_it_must else "does not fail as it must"
        yield f"{control.position}: control {word} with {control.patch}: {control.words}  {shlex.quote(control.case_id)}"
    yield from _not_applicable(found.trials)
    yield _score(found, controls)


def _by_expectation(trials: Sequence[Trial]) -> list[list[Trial]]:
    """Return the trials of each line of a spec: its cases differ in backend and matrix alone."""
    found: dict[tuple[Position, str, str], list[Trial]] = {}
    for trial in trials:
        found.setdefault((trial.position, trial.kind, trial.leaf), []).append(trial)
    return list(found.values())


def _what(trial: Trial) -> str:
    return f"{trial.position}: {trial.kind}{' ' + trial.leaf if trial.leaf else ''}"


def _mutants(trials: Sequence[Trial]) -> str:
    return "; ".join(dict.fromkeys(f"{trial.mutant}{' of ' + trial.where if trial.where else ''} ({trial.observed})" for trial in trials))


def _cases(trials: Sequence[Trial]) -> str:
    cases = list(dict.fromkeys(trial.case_id for trial in trials))
    return f"  {shlex.quote(cases[0])}" + (f" and {len(cases) - 1} more" if len(cases) > 1 else "")


def _stale(reason: WrittenReason) -> Diagnostic:
    leaf = f" {reason.leaf}" if reason.leaf else ""
    message = f"{reason.expectation}{leaf} fails with '{reason.mutant}', or it is not applicable: the reason is none"
    return Diagnostic(position=reason.position, message=message, hint="take it out")


def _not_applicable(trials: Sequence[Trial]) -> Iterator[str]:
    counted = Counter((trial.kind, trial.mutant, trial.observed) for trial in trials if trial.fate is Fate.NOT_APPLICABLE)
    for (kind, mutant, why), count in sorted(counted.items()):
        yield f"not applicable: {count} x {kind}, {mutant}: {why}"


def _score(found: Audit, controls: Sequence[ControlResult]) -> str:
    parts = [f"{found.killed} of {found.applicable} mutants refused by {found.expectations} expectations of {found.cases} cases"]
    parts.append(f"{len(found.survivors)} survived")
    if found.excused:
        parts.append(f"{len(found.excused)} with a written reason")
    if found.stale:
        parts.append(f"{len(found.stale)} reasons for nothing")
    if controls:
        parts.append(f"{sum(control.failed_as_it_must for control in controls)} of {len(controls)} controls failed as they must")
    share = f"{found.killed / found.applicable:.1%}" if found.applicable else "none"
    return f"score {share}: {', '.join(parts)}"


def _as_json(found: Audit, controls: Sequence[ControlResult]) -> Mapping[str, Any]:
    return {
        "format": 1,
        "score": found.killed / found.applicable if found.applicable else None,
        "killed": found.killed,
        "applicable": found.applicable,
        "not_applicable": len(found.trials) - found.applicable,
        "expectations": found.expectations,
        "cases": found.cases,
        "survivors": [_trial_as_json(trial, None) for trial in found.survivors],
        "excused": [_trial_as_json(trial, reason.reason) for trial, reason in found.excused],
        "stale": [
            {
                **_place(reason.position),
                "expectation": reason.expectation,
                "mutant": reason.mutant,
                "leaf": reason.leaf,
                "reason": reason.reason,
            }
            for reason in found.stale
        ],
        "controls": [
            {**_place(control.position), "case": control.case_id, "failed": control.failed_as_it_must, "observed": control.words}
            for control in controls
        ],
    }


def _trial_as_json(trial: Trial, reason: str | None) -> Mapping[str, Any]:
    known = {"expectation": trial.kind, "leaf": trial.leaf, "mutant": trial.mutant, "where": trial.where, "observed": trial.observed}
    return {**_place(trial.position), "case": trial.case_id, **known, "reason": reason}


def _place(position: Position) -> dict[str, Any]:
    return {"file": position.file, "line": position.line, "column": position.column}
