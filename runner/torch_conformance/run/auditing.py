"""The cases that ``audit`` examines: those of a recorded run, or cases that it runs first, with
their results and trials.
"""

import contextlib
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, Self, TypeAlias

from torch_conformance.judge.evidence import CarriedOut, NoObservation, carried_out, read_facts
from torch_conformance.judge.mutants import Fate, Trial, try_case, with_control
from torch_conformance.language.load import Suite, load, surroundings_of
from torch_conformance.machine import capabilities, output, scratch
from torch_conformance.machine.signals import Interrupts
from torch_conformance.model.case import Case
from torch_conformance.model.conditions import Surroundings
from torch_conformance.model.diagnostics import Diagnostic, Position, UsageError
from torch_conformance.model.expectation import Status
from torch_conformance.model.outcomes import JUDGED_BY_FACTS, PASSED, ExitCode, Outcome
from torch_conformance.model.results import COULD_NOT_HAVE_FAILED, CaseResult
from torch_conformance.model.values import frozen
from torch_conformance.optional.options import (
    ExecutionOptions,
    Selection,
    argument,
    backend_files,
    flag,
)
from torch_conformance.optional.tools import hooks
from torch_conformance.plan import schedule
from torch_conformance.plan.selection import requested, select, without_benches
from torch_conformance.plan.worker_plan import digest_of
from torch_conformance.record.case_files import OBSERVATION, EvidenceAltered, RecordedFiles
from torch_conformance.record.journal import recorded_run
from torch_conformance.record.run_folder import JOURNAL, LATEST, RunFolder, find_run
from torch_conformance.run import rejudge
from torch_conformance.run.pipeline import CaseRunner


@frozen
class AuditOptions(ExecutionOptions, Selection):
    """The options of ``audit``."""

    targets: tuple[str, ...] = argument(
        "RUN|PATH",
        "a run (its folder, its id, or latest, the default), or spec files and folders",
        nargs="*",
    )
    run: bool = flag(
        "also run the controls: the cases with the patch of their spec's 'control', which must fail"
    )
    nodes: bool = flag(
        "instead, run the graphs of each case without a compiler and with one node changed, and "
        "print the changes that its comparisons with eager let through"
    )
    vary: bool = flag(
        "instead, change each fact that the function of a case depends on between two calls, and "
        "print the changes after which the compiled function does not give eager's answer"
    )
    json: bool = flag("print one object")
    backends: tuple[Path, ...] = backend_files()


def has_verdicts(result: CaseResult) -> bool:
    """Whether the expectations of a case were judged."""
    return (
        result.outcome in (*JUDGED_BY_FACTS, Outcome.XFAIL, Outcome.XPASS)
        or result.failure_type == COULD_NOT_HAVE_FAILED
    )


@frozen
class Ran:
    """Cases with their results, recorded or executed now."""

    folder: Path
    suite: Suite
    surroundings: Surroundings
    """Of the machine of the run; a result that names a node came from that node."""
    results: tuple[tuple[Case, CaseResult], ...]


def _selected(suite: Suite, options: AuditOptions) -> Sequence[Case]:
    return select(suite.cases, suite.backends, options)


def recorded_cases(name: str, options: AuditOptions) -> Ran:
    """Return the selected cases of a recorded run; raise ``UsageError`` where its files changed
    since it was judged.
    """
    recorded = recorded_run(name)
    folder, run = recorded.folder, recorded.run
    surroundings = rejudge.surroundings_of_record(run.header.environment)
    results = {result.case_id: result for result in run.results if has_verdicts(result)}
    suite = rejudge.suite_of(run.header, results.values(), options.backends)
    pairs = tuple(
        (case, results[case.id]) for case in _selected(suite, options) if case.id in results
    )
    for case, result in pairs:
        if digest_of(case) != result.digest:
            raise UsageError(f"{case.id} has changed since the run; run it again")
        backend = suite.backends.by_name[case.backend]
        for problem in rejudge.problems(case, backend, surroundings, result, folder):
            raise UsageError(f"{folder / JOURNAL}: {problem}; run it again")
    if problem := rejudge.impossible_on_machine(
        run.results, run.header.environment, suite.backends.by_name
    ):
        raise UsageError(f"{folder / JOURNAL}: {problem}")
    return Ran(folder=folder, suite=suite, surroundings=surroundings, results=pairs)


def run_cases(
    cases: Sequence[Case],
    suite: Suite,
    options: ExecutionOptions,
    folder: Path,
    *,
    label: str = "",
    interrupts: Interrupts | None = None,
) -> tuple[list[tuple[Case, CaseResult]], Surroundings]:
    """Run the cases that can run here, without bench steps: no expectation judges times.

    With ``interrupts``, an interrupt ends the run, and what ended before it is returned.
    """
    cases = [without_benches(case) for case in cases]
    by_id = {case.id: case for case in cases}
    results: list[tuple[Case, CaseResult]] = []
    run_folder = RunFolder(path=folder, run_id="audit")
    surroundings = surroundings_of(None, None)
    with contextlib.ExitStack() as stack:
        workers = schedule.workers(options.jobs)
        runner = CaseRunner(options, suite, cases, run_folder, workers)
        stack.enter_context(contextlib.closing(runner))
        if interrupts is not None:
            stack.enter_context(contextlib.suppress(KeyboardInterrupt))
            runner.on_interrupt(interrupts, output.note, lambda _: None)
        machine = runner.look_at_machine()
        surroundings = surroundings_of(machine.torch, machine)
        possible = [
            case for case in cases if not capabilities.availability_of(case, machine).reason
        ]
        for number, result in enumerate(runner.run(possible, surroundings, lambda _: ""), start=1):
            output.note(
                f"{label or result.outcome.label}  {number}/{len(possible)}  "
                f"{shlex.quote(result.case_id)}"
            )
            results.append((by_id[result.case_id], result))
    return results, surroundings


@frozen
class ControlResult:
    """The outcome of a case under its control."""

    case_id: str
    position: Position
    patch: str
    """The options that the control sets, on one line."""
    failed_as_it_must: bool
    words: str


def judge_control(case: Case, result: CaseResult) -> ControlResult:
    """Judge the result of ``with_control(case)``: at least one expectation of each kind in
    ``fails`` must have failed.
    """
    assert case.control is not None
    kinds = {expected.kind for step in case.steps for expected in step.expectations}
    failed = {
        verdict.kind
        for verdict in result.verdicts
        if verdict.status is Status.FAILED and verdict.kind in kinds
    }
    missing = [kind for kind in case.control.fails if kind not in failed]
    fails = bool(failed) and not missing
    words = f"{', '.join(sorted(failed))} failed" if failed else "no expectation failed"
    if missing and failed:
        words += f", but not {', '.join(missing)}"
    if not fails:
        words += f" ({result.outcome.label}{': ' + result.reason if result.reason else ''})"
    patch = ", ".join(
        f"{section} {name} = {value!r}"
        for section, options in case.control.patch.items()
        for name, value in options.items()
    )
    return ControlResult(
        case_id=case.id,
        position=case.control.position,
        patch=patch,
        failed_as_it_must=fails,
        words=words,
    )


def controls_of(ran: Ran, options: AuditOptions, folder: Path) -> list[ControlResult]:
    """Run the controls of the cases that passed."""
    cases = {
        case.id: case
        for case, result in ran.results
        if case.control is not None and result.outcome in PASSED
    }
    results, _ = (
        run_cases([with_control(case) for case in cases.values()], ran.suite, options, folder)
        if cases
        else ([], None)
    )
    controls = [judge_control(cases[case.id], result) for case, result in results]
    return sorted(controls, key=lambda control: (control.position.file, control.case_id))


# -- what they show --------------------------------------------------------------------------------


@frozen
class Audit:
    """The trials of some cases, and what their controls showed."""

    trials: Sequence[Trial]
    survivors: Sequence[Trial]
    """The mutants that survived without a reason in the spec."""
    excused: Sequence[Trial]
    """The mutants that survived with a reason in the spec."""
    stale: Sequence[Trial]
    """A trial of each expectation that the spec calls weak, and that no mutant survives in any
    case.
    """
    counts: Mapping[str, int]
    """How many mutants were killed, could be made and could not, of how many leaves of expectations
    and cases.
    """
    score: float | None
    """The part of the mutants that was killed; None without mutants."""
    controls: Sequence[ControlResult]

    @classmethod
    def of(cls, tried: Iterable[Sequence[Trial]], controls: Sequence[ControlResult] = ()) -> Self:
        """Sum up the trials of cases."""
        tried = list(tried)
        trials = [trial for trials_of_case in tried for trial in trials_of_case]
        fates = Counter(trial.fate for trial in trials)
        survived = [trial for trial in trials if trial.fate is Fate.SURVIVED]
        killed_weak = {
            (trial.kind, trial.weak): trial
            for trial in trials
            if trial.weak and trial.fate is Fate.KILLED
        }
        used = {(trial.kind, trial.weak) for trial in survived}
        applicable = fates[Fate.KILLED] + fates[Fate.SURVIVED]
        return cls(
            trials=trials,
            survivors=[trial for trial in survived if not trial.weak],
            excused=[trial for trial in survived if trial.weak],
            stale=[trial for key, trial in killed_weak.items() if key not in used],
            counts={
                "killed": fates[Fate.KILLED],
                "applicable": applicable,
                "not_applicable": fates[Fate.NOT_APPLICABLE],
                "expectations": len(
                    {(trial.case_id, trial.kind, trial.position, trial.leaf) for trial in trials}
                ),
                "cases": len(tried),
            },
            score=fates[Fate.KILLED] / applicable if applicable else None,
            controls=controls,
        )

    @property
    def is_empty(self) -> bool:
        """Whether nothing was tried."""
        return not self.trials and not self.controls

    @property
    def is_clean(self) -> bool:
        """Whether each mutant was killed or has a reason, and each control failed."""
        are_failed = all(control.failed_as_it_must for control in self.controls)
        return not self.survivors and not self.stale and are_failed

    def lines(self) -> Iterator[str]:
        """Yield a line for each survivor, each stale reason, each control, and the score."""
        yield from _by_expectation(self.survivors, "still passes with")
        for trial in self.stale:
            yield str(Diagnostic.of("not-weak", kind=trial.kind).at(trial.position))
        yield from _by_expectation(self.excused, "may pass with")
        for control in self.controls:
            word = "fails as it must" if control.failed_as_it_must else "does not fail as it must"
            yield (
                f"{control.position}: control {word} with {control.patch}: {control.words}  "
                f"{shlex.quote(control.case_id)}"
            )
        unmade = Counter(
            (trial.kind, trial.mutant, trial.observed)
            for trial in self.trials
            if trial.fate is Fate.NOT_APPLICABLE
        )
        for (kind, mutant, why), count in sorted(unmade.items()):
            yield f"not applicable: {count} x {kind}, {mutant}: {why}"
        share = "none" if self.score is None else f"{self.score:.1%}"
        refused = (
            "{killed} of {applicable} mutants refused by {expectations} expectations of {cases} "
            "cases".format(**self.counts)
        )
        parts = [refused, f"{len(self.survivors)} survived"]
        parts += [f"{len(self.excused)} with a written reason"] if self.excused else []
        parts += [f"{len(self.stale)} stale reasons"] if self.stale else []
        failed = sum(control.failed_as_it_must for control in self.controls)
        parts += (
            [f"{failed} of {len(self.controls)} controls failed as they must"]
            if self.controls
            else []
        )
        yield f"score {share}: {', '.join(parts)}"

    def as_json(self) -> Mapping[str, Any]:
        """Return the JSON of ``audit --json``."""
        controls = [
            (control, {"case": control.case_id, "failed": control.failed_as_it_must})
            for control in self.controls
        ]
        return {
            "format": 1,
            "score": self.score,
            **self.counts,
            "survivors": [_as_json(trial) for trial in self.survivors],
            "excused": [_as_json(trial) for trial in self.excused],
            "stale": [
                {**asdict(trial.position), "expectation": trial.kind, "reason": trial.weak}
                for trial in self.stale
            ],
            "controls": [
                {**asdict(control.position), **described, "observed": control.words}
                for control, described in controls
            ],
        }


def _by_expectation(trials: Sequence[Trial], what: str) -> Iterator[str]:
    """Yield a line for the trials of each line of the spec, whose cases differ only in backend and
    matrix point.
    """
    groups: dict[tuple[Position, str, str], list[Trial]] = {}
    for trial in trials:
        groups.setdefault((trial.position, trial.kind, trial.leaf), []).append(trial)
    for (position, kind, leaf), group in groups.items():
        mutants = dict.fromkeys(
            f"{trial.mutant}{' of ' + trial.where if trial.where else ''} ({trial.observed})"
            for trial in group
        )
        cases = list(dict.fromkeys(trial.case_id for trial in group))
        more = f" and {len(cases) - 1} more" if len(cases) > 1 else ""
        why = f": {group[0].weak}" if group[0].weak else ""
        yield (
            f"{position}: {kind}{' ' + leaf if leaf else ''}: {what} {'; '.join(mutants)}  "
            f"{shlex.quote(cases[0])}{more}{why}"
        )


def _as_json(trial: Trial) -> Mapping[str, Any]:
    described = {
        "expectation": trial.kind,
        "leaf": trial.leaf,
        "mutant": trial.mutant,
        "where": trial.where,
        "observed": trial.observed,
    }
    return {
        **asdict(trial.position),
        "case": trial.case_id,
        **described,
        "reason": trial.weak or None,
    }


# -- trials ----------------------------------------------------------------------------------------


def _tried(ran: Ran, case: Case, result: CaseResult) -> list[Trial] | None:
    """Return the trials of a case; None for one that recorded no facts."""
    if not has_verdicts(result) or not result.folder:
        return None
    folder = ran.folder / result.folder
    if OBSERVATION not in result.evidence:
        if result.outcome is Outcome.XFAIL:
            return None  # a known crash
        raise UsageError(f"{folder}: the observation of {case.id} is not there; run it again")
    backend = ran.suite.backends.by_name[case.backend]
    try:
        surroundings = rejudge.surroundings_of_part(case, backend, result, ran.surroundings)
        return try_case(case, surroundings, recorded_steps(case, result, ran.folder))
    except EvidenceAltered as error:
        raise UsageError(f"{error}; run it again") from error
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UsageError(f"{folder}: not the files of a run: {error}") from error


def recorded_steps(case: Case, result: CaseResult, run: Path) -> list[CarriedOut]:
    """Return the steps of a recorded result in the folder of its run, with their generated code;
    none without an observation.
    """
    if OBSERVATION not in result.evidence:
        return []
    files = RecordedFiles(run / result.folder, result.evidence)
    facts = read_facts(files.observation(), files.code)
    if facts.nonsense or not facts.is_answered:
        raise NoObservation(facts.nonsense or "it is null")
    return list(carried_out(case, facts.steps))


RunCases: TypeAlias = Callable[[Sequence[Case]], tuple[list[tuple[Case, CaseResult]], Surroundings]]
"""Runs cases; returns those that were executed with their results, and what is known of the
machine.
"""


class AuditReport(Protocol):
    """What a tool found."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing was tried."""

    @property
    def is_clean(self) -> bool:
        """Whether it has no finding."""

    def lines(self) -> Iterator[str]:
        """Yield it for people."""

    def as_json(self) -> Mapping[str, Any]:
        """Return it for programs."""


class AuditTool(Protocol):
    """A tool that ``audit`` has an option for."""

    def report(
        self, cases: Iterable[Case], suite: Suite, run: RunCases, folder: Path
    ) -> AuditReport:
        """Run the cases as the tool changes them."""


def _shown(report: AuditReport, options: AuditOptions) -> ExitCode:
    """Print a report; return the exit code that it gives."""
    if options.json:
        output.document(report.as_json())
    else:
        output.lines(report.lines())
    if report.is_empty:
        return ExitCode.NOTHING
    return ExitCode.OK if report.is_clean else ExitCode.FAILED


def _with(
    tool: str, cases: Sequence[Case], suite: Suite, options: AuditOptions, folder: Path
) -> ExitCode:
    """Print what a tool finds in cases that it runs, also after an interrupt; exit 1 for a
    finding.
    """
    with Interrupts() as interrupts:
        progress = [len(cases)] * 2

        def run(chosen: Sequence[Case]) -> tuple[list[tuple[Case, CaseResult]], Surroundings]:
            outcome = run_cases(chosen, suite, options, folder, label="ran", interrupts=interrupts)
            progress[:] = len(chosen) - len(outcome[0]), len(chosen)
            return outcome

        audit: AuditTool = hooks(tool)
        report = audit.report(cases, suite, run, folder)
    code = _shown(report, options)
    if interrupts.asked:
        output.note("interrupted: {} of {} cases were not tried".format(*progress))
        return ExitCode.INTERRUPTED
    return code


def main(options: AuditOptions) -> ExitCode:
    """Audit a run, or the cases of paths; exit 1 for a survivor without a reason, 4 when nothing
    was audited.
    """
    name = options.targets[0] if options.targets else LATEST
    is_run = len(options.targets) < 2
    if is_run:
        try:
            find_run(name)
        except UsageError as error:
            is_run = False
            if not options.targets or not (Path(name).exists() or name.endswith((".yaml", ".yml"))):
                raise UsageError(
                    f"{error}; name a run, or spec files and folders, which are run first"
                ) from error
    tool = "nodes" if options.nodes else "vary" if options.vary else ""
    with contextlib.ExitStack() as stack:
        folder = (
            stack.enter_context(contextlib.closing(scratch.make())).path
            if options.run or tool or not is_run
            else Path()
        )
        if is_run:
            ran = recorded_cases(name, options)
            if tool:
                passed = [case for case, result in ran.results if result.outcome in PASSED]
                return _with(tool, passed, ran.suite, options, folder)
        else:
            paths = [Path(target) for target in options.targets]
            suite = load(paths, options.backends)
            cases = requested(_selected(suite, options), suite.cases, options, paths=paths)
            if tool:
                return _with(tool, cases, suite, options, folder)
            results, surroundings = run_cases(cases, suite, options, folder / "cases")
            ran = Ran(
                folder=folder / "cases",
                suite=suite,
                surroundings=surroundings,
                results=tuple(results),
            )
        tried = [
            trials
            for case, result in ran.results
            if (trials := _tried(ran, case, result)) is not None
        ]
        report = Audit.of(
            tried, controls_of(ran, options, folder / "controls") if options.run else ()
        )
    code = _shown(report, options)
    if report.is_empty:
        why = (
            "no case was executed, or none is selected; 'list' shows the cases and why they "
            "cannot run here"
        )
        if ran.results:
            counts = Counter(result.outcome.label for _, result in ran.results)
            why = "no expectation passed: " + ", ".join(
                f"{count} {label}" for label, count in counts.items()
            )
        output.note(f"nothing was audited: {why}")
    return code
