"""The cases that ``audit`` examines: those of a recorded run, or cases that it runs first, with their results and trials."""

import contextlib
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.judge.evidence import carried_out, recorded_facts
from runner.judge.mutants import Audit, ControlResult, Trial, as_json, audit, judge_control, lines, try_case, with_control
from runner.language.load import Suite, load, load_specs, surroundings_of
from runner.machine import capabilities, output, scratch
from runner.model.case import Case
from runner.model.conditions import Surroundings
from runner.model.diagnostics import UsageError
from runner.model.options import ExecutionOptions, argument, backend_files, backends_chosen, flag, globs, shard_option, tags
from runner.model.outcomes import JUDGED_BY_FACTS, PASSED, ExitCode, Outcome
from runner.model.results import COULD_NOT_HAVE_FAILED, CaseResult
from runner.plan import schedule
from runner.plan.selection import Shard, requested, select, without_benches
from runner.plan.worker_plan import digest_of
from runner.record.case_files import OBSERVATION, EvidenceAltered, RecordedFiles
from runner.record.journal import JournalError, read_run
from runner.record.run_folder import JOURNAL, LATEST, RunFolder, find_run, require_still
from runner.run import rejudge
from runner.run.machines_then import here_of, impossible_on_machine, surroundings_then
from runner.run.pipeline import CaseRunner


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions(ExecutionOptions):
    """The options of ``audit``."""

    targets: tuple[str, ...] = argument(
        "RUN|PATH", "a run (its folder, its id, or latest, the default), or spec files and folders", nargs="*"
    )
    run: bool = flag("also run the controls: the cases with the patch of their spec's 'control', which must fail")
    json: bool = flag("print one object")
    backends: tuple[Path, ...] = backend_files()
    backend: tuple[str, ...] = backends_chosen()
    select: tuple[str, ...] = globs()
    tag: tuple[str, ...] = tags()
    shard: str | None = shard_option()


def has_verdicts(result: CaseResult) -> bool:
    """Whether the expectations of a case were judged."""
    return result.outcome in (*JUDGED_BY_FACTS, Outcome.XFAIL, Outcome.XPASS) or result.failure_type == COULD_NOT_HAVE_FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """Cases with their results, recorded or executed now."""

    folder: Path
    suite: Suite
    known: Surroundings
    """Of the machine of the run; a result that names a node came from that node."""
    results: tuple[tuple[Case, CaseResult], ...]


# -- a recorded run -------------------------------------------------------------------------------------------------


def run_of(targets: Sequence[str]) -> Path | None:
    """Return the folder of the run that the targets name; None where they are paths of specs."""
    if len(targets) > 1:
        return None
    name = targets[0] if targets else LATEST
    try:
        return find_run(name)
    except UsageError as error:
        if targets and (Path(name).exists() or name.endswith((".yaml", ".yml"))):
            return None
        raise UsageError(f"{error}; name a run, or spec files and folders, which are run first") from error


def recorded_cases(
    targets: Sequence[str],
    folder: Path,
    backends: Sequence[Path],
    *,
    names: Sequence[str] = (),
    globs: Sequence[str] = (),
    tags: Sequence[str] = (),
    shard: Shard | None = None,
) -> Ran:
    """Return the selected cases of a recorded run; raise ``UsageError`` where its files changed since it was judged."""
    require_still(targets[0] if targets else LATEST, folder)
    try:
        run = read_run(folder / JOURNAL)
    except JournalError as error:
        raise UsageError(f"{folder / JOURNAL}:{error.line}: {error.reason}") from error
    known = surroundings_then(run.header)
    results = {result.case_id: result for result in run.results if has_verdicts(result)}
    backends = backends or rejudge.files_of(run.header, "backends")
    suite = load_specs(rejudge.specs_of(results.values()), backends, surroundings_of(run.header.environment.get("torch"), None))
    rejudge.require_same(suite.digests, run.header)
    chosen = select(suite.cases, suite.backends, names=names, globs=globs, tags=tags, shard=shard)
    pairs = tuple((case, results[case.id]) for case in chosen if case.id in results)
    for case, result in pairs:
        if digest_of(case) != result.digest:
            raise UsageError(f"{case.id} is not the case that was run then; run it again")
        backend = suite.backends.by_name[case.backend]
        for problem in rejudge.problems(case, backend, known, result, folder):
            raise UsageError(f"{folder / JOURNAL}: {problem}; run it again")
    devices = {name: backend.device for name, backend in suite.backends.by_name.items()}
    if problem := impossible_on_machine(run.results, run.header.environment, devices):
        raise UsageError(f"{folder / JOURNAL}: {problem}")
    return Ran(folder=folder, suite=suite, known=known, results=pairs)


# -- cases that audit runs ------------------------------------------------------------------------------------------


def executed_cases(options: AuditOptions, shard: Shard | None, folder: Path) -> Ran:
    """Run the selected cases in a folder of their own."""
    suite = load([Path(target) for target in options.targets], options.backends)
    cases = select(suite.cases, suite.backends, names=options.backend, globs=options.select, tags=options.tag, shard=shard)
    cases = requested(cases, suite.cases, paths=list(map(Path, options.targets)), globs=options.select, tags=options.tag)
    results, known = _run(cases, suite, options, folder)
    return Ran(folder=folder, suite=suite, known=known, results=tuple(results))


def _run(cases: Sequence[Case], suite: Suite, options: AuditOptions, folder: Path) -> tuple[list[tuple[Case, CaseResult]], Surroundings]:
    """Run the cases that can run here, without bench steps: no expectation judges times."""
    cases = [without_benches(case) for case in cases]
    by_id = {case.id: case for case in cases}
    workers = schedule.workers(options.jobs)
    run_folder = RunFolder(path=folder, run_id="audit")
    results: list[tuple[Case, CaseResult]] = []

    def repro(case: Case) -> str:
        return shlex.join(["torch-conformance", "run", case.spec, "--select", case.id])

    with CaseRunner(options, suite, cases, run_folder, workers) as runner:
        machine = runner.look_at_machine()
        known = surroundings_of(machine.torch, machine)
        possible = [case for case in cases if not capabilities.availability_of(case, machine).reason]
        for number, result in enumerate(runner.run(possible, known, repro), start=1):
            output.note(f"{result.outcome.label}  {number}/{len(possible)}  {shlex.quote(result.case_id)}")
            results.append((by_id[result.case_id], result))
    return results, known


def controls_of(ran: Ran, options: AuditOptions, folder: Path) -> list[ControlResult]:
    """Run the controls of the cases that passed."""
    cases = {case.id: case for case, result in ran.results if case.control is not None and result.outcome in PASSED}
    results, _ = _run([with_control(case) for case in cases.values()], ran.suite, options, folder) if cases else ([], None)
    controls = [judge_control(cases[case.id], result) for case, result in results]
    return sorted(controls, key=lambda control: (control.position.file, control.case_id))


# -- trials ---------------------------------------------------------------------------------------------------------


def audit_of(ran: Ran) -> Audit:
    """Try the expectations of every case that recorded facts."""
    return audit(trials for case, result in ran.results if (trials := _tried(ran, case, result)) is not None)


def _tried(ran: Ran, case: Case, result: CaseResult) -> list[Trial] | None:
    """Return the trials of a case; None for one that recorded no facts."""
    if not has_verdicts(result) or not result.folder:
        return None
    folder = ran.folder / result.folder
    if OBSERVATION not in result.evidence:
        if result.outcome is Outcome.XFAIL:
            return None  # a known crash
        raise UsageError(f"{folder}: the observation of {case.id} is not there; run it again")
    files = RecordedFiles(folder, result.evidence)
    try:
        surroundings = here_of(case, ran.suite.backends.by_name[case.backend], result, ran.known)
        return try_case(case, surroundings, carried_out(case, recorded_facts(files.observation(), files.code).steps))
    except EvidenceAltered as error:
        raise UsageError(f"{error}; run it again") from error
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UsageError(f"{folder}: not what a run leaves: {error}") from error


def why_nothing(ran: Ran) -> str:
    """Return why no expectation was audited."""
    if not ran.results:
        return "no case was executed, or none is selected; 'list' shows the cases and why they cannot run here"
    counts = Counter(result.outcome.label for _, result in ran.results)
    return "no expectation passed: " + ", ".join(f"{count} {label}" for label, count in counts.items())


def main(options: AuditOptions) -> ExitCode:
    """Audit a run, or the cases of paths; exit 1 for a survivor without a reason, 4 when nothing was audited."""
    shard = Shard.parse(options.shard) if options.shard else None
    with contextlib.ExitStack() as stack:
        run = run_of(options.targets)
        folder = stack.enter_context(contextlib.closing(scratch.make())).path if run is None or options.run else Path()
        if run is None:
            ran = executed_cases(options, shard, folder / "cases")
        else:
            chosen = {"names": options.backend, "globs": options.select, "tags": options.tag}
            ran = recorded_cases(options.targets, run, options.backends, **chosen, shard=shard)
        report = audit_of(ran)
        controls = controls_of(ran, options, folder / "controls") if options.run else []
    if options.json:
        output.document(as_json(report, controls))
    else:
        output.lines(lines(report, controls))
    if not report.trials and not controls:
        output.note(f"nothing was audited: {why_nothing(ran)}")
        return ExitCode.NOTHING
    is_clean = not report.survivors and not report.stale and all(control.failed_as_it_must for control in controls)
    return ExitCode.OK if is_clean else ExitCode.FAILED
