"""Audit: facts of a case are changed in one respect, and the expectations that held must not hold. Pure.

``judge`` makes an ERROR of a case that passes although an expectation holds for changed facts; the command ``audit`` prints all of them.
"""

import functools
import itertools
import shlex
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from runner.judge.evidence import ANOTHER_FORM, CarriedOut, judge_expectation
from runner.judge.verdicts import facts_of, with_code
from runner.model.case import Case, Expected
from runner.model.conditions import Surroundings
from runner.model.diagnostics import Diagnostic, Position
from runner.model.expectation import Judgement, Mutant, Status, StepFacts, Verdict
from runner.model.matching.time_limit import PatternTooSlow
from runner.model.results import COULD_NOT_HAVE_FAILED, WEAK, CaseResult
from runner.plan.worker_plan import expects_raise
from runner.vocabulary.steps import TRITON

_SECONDS = 5.0
"""The time limit for all mutants of one expectation: patterns may be slow, although each is within its own limit."""


class Fate(Enum):
    """The outcome of a mutant."""

    KILLED = "killed"
    """The expectation failed, or could not be judged."""
    SURVIVED = "survived"
    NOT_APPLICABLE = "not-applicable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One mutant of one leaf of an expectation, judged."""

    case_id: str
    spec: str
    kind: str
    leaf: str
    position: Position
    mutant: str
    where: str
    fate: Fate
    observed: str
    """The observed text under the mutant; or why the mutant is not applicable."""
    weak: str = ""
    """Why the spec lets its mutants survive."""

    @property
    def expectation(self) -> tuple[str, str, str, str]:
        """The identity of a leaf of an expectation."""
        return (self.case_id, self.kind, str(self.position), self.leaf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The trials of some cases."""

    cases: int
    trials: tuple[Trial, ...]

    @property
    def expectations(self) -> int:
        """How many leaves of expectations were tried."""
        return len({trial.expectation for trial in self.trials})

    @property
    def applicable(self) -> int:
        """How many mutants could be made."""
        return sum(trial.fate is not Fate.NOT_APPLICABLE for trial in self.trials)

    @property
    def killed(self) -> int:
        """How many mutants made their expectation fail."""
        return sum(trial.fate is Fate.KILLED for trial in self.trials)

    @property
    def survivors(self) -> list[Trial]:
        """The mutants that survived without a reason in the spec."""
        return [trial for trial in self.trials if trial.fate is Fate.SURVIVED and not trial.weak]

    @property
    def excused(self) -> list[Trial]:
        """The mutants that survived with a reason in the spec."""
        return [trial for trial in self.trials if trial.fate is Fate.SURVIVED and trial.weak]

    @property
    def stale(self) -> list[Trial]:
        """A trial of each expectation that the spec calls weak, and that no mutant survives in any case."""
        used = {(trial.kind, trial.weak) for trial in self.excused}
        stale = {(trial.kind, trial.weak): trial for trial in self.trials if trial.weak and trial.fate is Fate.KILLED}
        return [trial for key, trial in stale.items() if key not in used]


def audit(tried: Iterable[Sequence[Trial]]) -> Audit:
    """Sum up the trials of cases."""
    tried = list(tried)
    return Audit(cases=len(tried), trials=tuple(trial for trials in tried for trial in trials))


_INSTEAD = {
    "close": "write no tolerance or a smaller one, or use inputs whose results are not small beside it",
    "filecheck": "name what only the code of this function has",
    "graph": "name what only the graph of this function has, or count its operators",
    "differs": "name a value that it may have",
    **dict.fromkeys(("raises", "text", "log", "exit"), "name words that only the expected text has"),
}
_OF_COUNTS = "write the number itself, or a bound that is near it"


def verdicts_of_audit(case: Case, surroundings: Surroundings, steps: Iterable[CarriedOut]) -> Iterator[Verdict]:
    """Yield a verdict for each expectation of a case that also holds for changed facts: an ERROR where the spec does not say why it may."""
    survivors: dict[tuple[Position, str, str], list[Trial]] = {}
    for trial in try_case(case, surroundings, steps):
        if trial.fate is Fate.SURVIVED and trial.mutant not in _FINER:
            survivors.setdefault((trial.position, trial.kind, trial.weak), []).append(trial)
    for (position, kind, weak), trials in survivors.items():
        mutants = dict.fromkeys(" of ".join(filter(None, (trial.mutant, trial.where or trial.leaf))) for trial in trials)
        more = [f"{len(mutants) - _MOST_NAMED} more"] if len(mutants) > _MOST_NAMED else []
        shown = ", ".join([*itertools.islice(mutants, _MOST_NAMED), *more])
        if weak:
            yield Verdict(kind=WEAK, status=Status.HELD, position=position, observed=f"{kind} also holds with {shown}: {weak}")
        else:
            hint = f"{_INSTEAD.get(kind, _OF_COUNTS)}; where that is meant: weak: the reason, beside {kind}"
            observed = f"{kind} could not have failed: it also holds with {shown} ({hint})"
            yield Verdict(kind=COULD_NOT_HAVE_FAILED, status=Status.ERROR, position=position, observed=observed, detail=trials[0].observed)


_MOST_NAMED = 4

_FINER = ("lower precision", "sign of zero")
"""Mutants that a claim worth making may let pass, as where results are whole numbers: the command ``audit`` alone names them."""


def try_case(case: Case, surroundings: Surroundings, steps: Iterable[CarriedOut]) -> list[Trial]:
    """Try every expectation of a case that held; raise ``OSError`` where generated code is missing."""
    trials: list[Trial] = []
    for known in steps:
        if known.facts.raised is not None and not expects_raise(known.step, surroundings):
            break
        for index, expected in enumerate(known.step.expectations if known.step.runs(surroundings) else ()):
            trials.extend(_try_expectation(case, expected, facts_of(index, known), surroundings))
    return trials


def _try_expectation(case: Case, expected: Expected, facts: StepFacts, surroundings: Surroundings) -> Iterator[Trial]:
    known_here = with_code(expected, facts, surroundings)
    if isinstance(known_here, Judgement):
        return
    surroundings = known_here
    held_leaves = {judgement.leaf for judgement in judge_expectation(expected, facts, surroundings) if judgement.status is Status.HELD}
    if not held_leaves:
        return
    trial = functools.partial(Trial, case_id=case.id, spec=case.spec, kind=expected.kind, weak=expected.weak)
    try:
        for mutant in _in_time(expected.check.mutants(facts, surroundings)):
            if mutant.leaf not in held_leaves:
                continue
            fate, observed = Fate.NOT_APPLICABLE, mutant.why_not
            if mutant.facts is not None:
                judgements = judge_expectation(expected, mutant.facts, surroundings)
                # the failure of one leaf may be reported for the whole expectation
                fate, observed = Fate.KILLED, ""
                if (judged := next((judgement for judgement in judgements if judgement.leaf == mutant.leaf), None)) is not None:
                    fate = Fate.SURVIVED if judged.status in (Status.HELD, Status.NOT_APPLICABLE) else Fate.KILLED
                    observed = judged.observed
            position = expected.place(mutant.leaf)
            yield trial(leaf=mutant.leaf, position=position, mutant=mutant.name, where=mutant.where, fate=fate, observed=observed)
    except (PatternTooSlow, *ANOTHER_FORM) as error:
        # untrusted facts: the expectation may pass for facts of another form
        why = f"{type(error).__name__}: {error}"
        yield trial(leaf="", position=expected.place(""), mutant="any", where="", fate=Fate.NOT_APPLICABLE, observed=why)


def _in_time(mutants: Iterable[Mutant]) -> Iterator[Mutant]:
    begun = time.monotonic()
    for mutant in mutants:
        yield mutant
        if time.monotonic() - begun > _SECONDS:
            raise PatternTooSlow(_SECONDS)


# -- controls -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlResult:
    """The outcome of a case under its control."""

    case_id: str
    position: Position
    patch: str
    """The options that the control sets, on one line."""
    failed_as_it_must: bool
    words: str


def with_control(case: Case) -> Case:
    """Return the case as its control patches it."""
    from runner.vocabulary.steps.triton import patched

    assert case.control is not None
    patch = case.control.patch
    settings = case.body.settings.patched(patch)
    steps = case.steps
    if TRITON in patch:
        steps = tuple(replace(step, arguments=patched(step.arguments, patch[TRITON])) if step.kind == TRITON else step for step in steps)
    return replace(case, body=replace(case.body, settings=settings), steps=steps, control=None)


def judge_control(case: Case, result: CaseResult) -> ControlResult:
    """Judge the result of ``with_control(case)``: at least one expectation of each kind in ``fails`` must have failed."""
    assert case.control is not None
    kinds = {expected.kind for step in case.steps for expected in step.expectations}
    failed = {verdict.kind for verdict in result.verdicts if verdict.status is Status.FAILED and verdict.kind in kinds}
    missing = [kind for kind in case.control.fails if kind not in failed]
    fails = bool(failed) and not missing
    words = f"{', '.join(sorted(failed))} failed" if failed else "no expectation failed"
    if missing and failed:
        words += f", but not {', '.join(missing)}"
    if not fails:
        words += f" ({result.outcome.label}{': ' + result.reason if result.reason else ''})"
    patch = ", ".join(f"{section} {name} = {value!r}" for section, options in case.control.patch.items() for name, value in options.items())
    return ControlResult(case_id=case.id, position=case.control.position, patch=patch, failed_as_it_must=fails, words=words)


def lines(audited: Audit, controls: Sequence[ControlResult]) -> Iterator[str]:
    """Yield a line for each survivor, each stale reason, each control, and the score."""
    for text, _ in _by_expectation(audited.survivors, "still passes with"):
        yield text
    for trial in audited.stale:
        yield str(Diagnostic.of("not-weak", kind=trial.kind).at(trial.position))
    for text, trials in _by_expectation(audited.excused, "may pass with"):
        yield f"{text}: {trials[0].weak}"
    for control in controls:
        word = "fails as it must" if control.failed_as_it_must else "does not fail as it must"
        yield f"{control.position}: control {word} with {control.patch}: {control.words}  {shlex.quote(control.case_id)}"
    counted = Counter((trial.kind, trial.mutant, trial.observed) for trial in audited.trials if trial.fate is Fate.NOT_APPLICABLE)
    for (kind, mutant, why), count in sorted(counted.items()):
        yield f"not applicable: {count} x {kind}, {mutant}: {why}"
    parts = [f"{audited.killed} of {audited.applicable} mutants refused by {audited.expectations} expectations of {audited.cases} cases"]
    parts.append(f"{len(audited.survivors)} survived")
    if audited.excused:
        parts.append(f"{len(audited.excused)} with a written reason")
    if audited.stale:
        parts.append(f"{len(audited.stale)} stale reasons")
    if controls:
        parts.append(f"{sum(control.failed_as_it_must for control in controls)} of {len(controls)} controls failed as they must")
    share = f"{audited.killed / audited.applicable:.1%}" if audited.applicable else "none"
    yield f"score {share}: {', '.join(parts)}"


def _by_expectation(trials: Sequence[Trial], what: str) -> Iterator[tuple[str, list[Trial]]]:
    """Yield a line for the trials of each line of the spec, whose cases differ only in backend and matrix point, and these trials."""
    groups: dict[tuple[Position, str, str], list[Trial]] = {}
    for trial in trials:
        groups.setdefault((trial.position, trial.kind, trial.leaf), []).append(trial)
    for (position, kind, leaf), group in groups.items():
        mutants = dict.fromkeys(f"{trial.mutant}{' of ' + trial.where if trial.where else ''} ({trial.observed})" for trial in group)
        cases = list(dict.fromkeys(trial.case_id for trial in group))
        more = f" and {len(cases) - 1} more" if len(cases) > 1 else ""
        yield f"{position}: {kind}{' ' + leaf if leaf else ''}: {what} {'; '.join(mutants)}  {shlex.quote(cases[0])}{more}", group


def as_json(audited: Audit, controls: Sequence[ControlResult]) -> Mapping[str, Any]:
    """Return the JSON of ``audit --json``."""
    return {
        "format": 1,
        "score": audited.killed / audited.applicable if audited.applicable else None,
        "killed": audited.killed,
        "applicable": audited.applicable,
        "not_applicable": len(audited.trials) - audited.applicable,
        "expectations": audited.expectations,
        "cases": audited.cases,
        "survivors": [_trial_as_json(trial) for trial in audited.survivors],
        "excused": [_trial_as_json(trial) for trial in audited.excused],
        "stale": [{**_place(trial.position), "expectation": trial.kind, "reason": trial.weak} for trial in audited.stale],
        "controls": [
            {**_place(control.position), "case": control.case_id, "failed": control.failed_as_it_must, "observed": control.words}
            for control in controls
        ],
    }


def _trial_as_json(trial: Trial) -> Mapping[str, Any]:
    known = {"expectation": trial.kind, "leaf": trial.leaf, "mutant": trial.mutant, "where": trial.where, "observed": trial.observed}
    return {**_place(trial.position), "case": trial.case_id, **known, "reason": trial.weak or None}


def _place(position: Position) -> dict[str, Any]:
    return {"file": position.file, "line": position.line, "column": position.column}
