"""The repetitions of a step before the last: ``close: {to: eager}`` must hold for each of them. Pure."""

from dataclasses import replace

from runner.core.case import Expected
from runner.core.conditions import Surroundings, holds
from runner.core.expectation import Judgement, Status
from runner.core.observation import Repetition
from runner.core.protocol import decode
from runner.judge.evidence import CarriedOut
from runner.judge.measurements import ANOTHER_FORM, judge_expectation, nonsense
from runner.plan.worker_plan import expects_raise
from runner.vocabulary.expectations.close import Close
from runner.vocabulary.expectations.close_rules import is_eager


def problem(expected: Expected, index: int, known: CarriedOut, here: Surroundings) -> Judgement | None:
    """Return the judgement of the first repetition that does not hold, or of missing ones; None where each holds, or none is judged."""
    check, step = expected.check, known.step
    if not isinstance(check, Close) or not is_eager(check.to) or not holds(check.when, here):
        return None
    if step.repeat == 1 or known.facts.raised is not None or expects_raise(step, here):
        return None
    entries = known.observed.repetitions.get(str(index), ())
    for entry in entries:
        judged = _judged(expected, entry, known, here)
        if judged.status is not Status.HELD:
            return _named(judged, entry.first, step.repeat)
    count = sum(entry.times for entry in entries)
    if count != step.repeat - 1:
        return Judgement.error(f"{count + 1} of {step.repeat} repetitions were measured", expected=f"{check.of} close to {check.to}")
    return None


def _judged(expected: Expected, entry: Repetition, known: CarriedOut, here: Surroundings) -> Judgement:
    if entry.measured is None:
        return Judgement.error(entry.why_not)
    try:
        facts = replace(known.facts, measured=decode(entry.measured))
    except ANOTHER_FORM as error:
        return nonsense(error)
    found = judge_expectation(expected, facts, here)
    return next((one for one in found if one.status is not Status.HELD), found[0])


def _named(judged: Judgement, number: int, count: int) -> Judgement:
    return replace(judged, expected=f"repetition {number + 1} of {count}: {judged.expected}".removesuffix(": "))
