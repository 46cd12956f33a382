"""Audit: facts of a case are changed in one respect, and the expectations that held must not hold.

Pure.

``judge`` makes an ERROR of a case that passes although an expectation holds for changed facts;
``run/auditing`` prints all of them.
"""

import functools
import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any

from torch_conformance.judge.evidence import ANOTHER_FORM, CarriedOut, judge_expectation
from torch_conformance.judge.verdicts import reading_of
from torch_conformance.matching.filecheck import verdicts_only
from torch_conformance.matching.time_limit import PatternTooSlow
from torch_conformance.model.case import Case, Expected
from torch_conformance.model.conditions import Surroundings
from torch_conformance.model.diagnostics import Position
from torch_conformance.model.escaping import one_line
from torch_conformance.model.expectation import Expectation, Mutant, Reading, Status, Verdict
from torch_conformance.model.results import COULD_NOT_HAVE_FAILED, WEAK
from torch_conformance.model.values import frozen
from torch_conformance.vocabulary.steps import MEASURED, TRITON, expects_raise

_SECONDS = 5.0
"""The time limit for all mutants of one expectation: patterns may be slow, although each is within
its own limit.
"""


class Fate(Enum):
    """The outcome of a mutant."""

    KILLED = "killed"
    """The expectation failed, or could not be judged."""
    SURVIVED = "survived"
    NOT_APPLICABLE = "not-applicable"


@frozen
class Trial:
    """One mutant of one leaf of an expectation, judged."""

    case_id: str
    kind: str
    leaf: str = ""
    position: Position
    mutant: str
    where: str = ""
    fate: Fate
    observed: str
    """The observed text under the mutant; or why the mutant is not applicable."""
    observed_unchanged: str = ""
    """The observed text of the unchanged facts."""
    weak: str = ""
    """Why the spec lets its mutants survive."""


UNREACHED = "any function, because nothing in the case reaches another number"
"""A mutant of a count of 0, where nothing shows that it could be another one."""
TRIVIAL_CALLS = "the calls of a trivial function"
_OF_ZEROS = (
    "add a step or a value of the matrix where it is more than 0, or control: a patch under which "
    "it is"
)


def verdicts_of_audit(
    case: Case, surroundings: Surroundings, steps: Iterable[CarriedOut]
) -> Iterator[Verdict]:
    """Yield a verdict for each expectation of a case that also holds for changed facts: an ERROR
    where the spec does not say why it may.
    """
    survivors: dict[tuple[Position, str, str], list[Trial]] = {}
    for trial in try_case(case, surroundings, steps):
        if trial.fate is Fate.SURVIVED and trial.mutant not in _FINER:
            survivors.setdefault((trial.position, trial.kind, trial.weak), []).append(trial)
    for (position, kind, weak), trials in survivors.items():
        mutants = dict.fromkeys(
            " of ".join(filter(None, (trial.mutant, trial.where or trial.leaf))) for trial in trials
        )
        more = [f"{len(mutants) - _MOST_NAMED} more"] if len(mutants) > _MOST_NAMED else []
        shown = ", ".join([*itertools.islice(mutants, _MOST_NAMED), *more])
        if weak:
            yield Verdict(
                kind=WEAK,
                status=Status.HELD,
                position=position,
                observed=f"{kind} also holds with {shown}: {weak}",
            )
        else:
            instead = _OF_ZEROS if UNREACHED in shown else MEASURED[kind].instead
            observed = trials[0].observed_unchanged
            if instead == Expectation.instead and observed.isdecimal():
                instead = f"write {trials[0].leaf or kind}: {observed}"
            observed = (
                f"this {kind} cannot fail: it also holds with {shown}; observed here: "
                f"{one_line(observed) or 'nothing'} "
                f"({instead}; where that is meant, add weak: REASON)"
            )
            yield Verdict(
                kind=COULD_NOT_HAVE_FAILED,
                status=Status.ERROR,
                position=position,
                observed=observed,
            )


_MOST_NAMED = 4

_FINER = ("lower precision", "sign of zero")
"""Mutants that a claim worth making may let pass, as where results are whole numbers: the command
only ``audit`` names them.
"""


def try_case(case: Case, surroundings: Surroundings, steps: Iterable[CarriedOut]) -> list[Trial]:
    """Try every expectation of a case that held; raise ``OSError`` where generated code is
    missing.
    """
    trials: list[Trial] = []
    steps = list(steps)
    for carried_out in steps:
        step = carried_out.step
        if carried_out.facts.raised is not None and not expects_raise(step, surroundings):
            break
        for index, expected in enumerate(step.expectations if step.runs(surroundings) else ()):
            facts = reading_of(expected, index, carried_out.facts, surroundings)
            if not isinstance(facts, Verdict):
                trials.extend(_try_expectation(case, expected, facts, steps))
    return trials


def _try_expectation(
    case: Case, expected: Expected, facts: Reading, steps: Sequence[CarriedOut]
) -> Iterator[Trial]:
    held_by_leaf = {
        judgement.leaf: judgement
        for judgement in judge_expectation(expected, facts)
        if judgement.status is Status.HELD
    }
    trial = functools.partial(Trial, case_id=case.id, kind=expected.kind, weak=expected.weak)
    checks_of_kind: list[Any] = [
        other.check
        for step in case.steps
        for other in step.expectations
        if other.kind == expected.kind
    ]
    is_shown = expected.is_varied or (
        case.control is not None and expected.kind in (case.control.fails or [expected.kind])
    )
    for leaf, judgement in held_by_leaf.items():
        why = ""
        if expected.check.holds_of_every_compile(case.body.spies):
            why = TRIVIAL_CALLS
        elif (
            judgement.is_absence
            and not is_shown
            and not expected.check.is_reached(leaf, [done.facts for done in steps], checks_of_kind)
        ):
            why = UNREACHED
        if why:
            yield trial(
                leaf=leaf,
                position=expected.place(leaf),
                mutant=why,
                fate=Fate.SURVIVED,
                observed=judgement.observed,
                observed_unchanged=judgement.observed,
            )
    try:
        for mutant in _in_time(expected.check.mutants(facts)):
            if mutant.leaf not in held_by_leaf:
                continue
            fate, observed = Fate.NOT_APPLICABLE, mutant.why_not
            if mutant.facts is not None:
                # the failure of one leaf may be reported for the whole expectation
                fate, observed = Fate.KILLED, ""
                with verdicts_only():
                    judgements = list(judge_expectation(expected, mutant.facts))
                for judgement in judgements:
                    if judgement.leaf == mutant.leaf:
                        observed = judgement.observed
                        if judgement.status in (Status.HELD, Status.NOT_APPLICABLE):
                            fate = Fate.SURVIVED
                        break
            yield trial(
                leaf=mutant.leaf,
                position=expected.place(mutant.leaf),
                mutant=mutant.name,
                where=mutant.where,
                fate=fate,
                observed=observed,
                observed_unchanged=held_by_leaf[mutant.leaf].observed,
            )
    except (PatternTooSlow, *ANOTHER_FORM) as error:
        # untrusted facts: the expectation may pass for facts of another form
        yield trial(
            position=expected.place(""),
            mutant="any",
            fate=Fate.NOT_APPLICABLE,
            observed=f"{type(error).__name__}: {error}",
        )


def _in_time(mutants: Iterable[Mutant]) -> Iterator[Mutant]:
    begun = time.monotonic()
    for mutant in mutants:
        yield mutant
        if time.monotonic() - begun > _SECONDS:
            raise PatternTooSlow(_SECONDS)


def with_control(case: Case) -> Case:
    """Return the case as its control patches it: then its expectations must fail."""
    from torch_conformance.vocabulary.steps.triton import patched

    assert case.control is not None
    patch = case.control.patch
    settings = case.body.settings.patched(patch)
    steps = case.steps
    if TRITON in patch:
        steps = tuple(
            replace(step, arguments=patched(step.arguments, patch[TRITON]))
            if step.kind == TRITON
            else step
            for step in steps
        )
    return replace(case, body=replace(case.body, settings=settings), steps=steps, control=None)
