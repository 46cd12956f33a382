"""Conditions on generated code: ``when: {code: {contains: TEXT}}`` of an expectation, judged on the code of its step. Pure."""

from dataclasses import replace

from runner.core.case import Expected
from runner.core.conditions import Surroundings, asks_for_code
from runner.core.expectation import Judgement, StepFacts
from runner.core.matching.generated_code import code_of, joined
from runner.core.matching.time_limit import PatternTooSlow


def with_code(expected: Expected, facts: StepFacts, here: Surroundings) -> Surroundings | Judgement:
    """Return the surroundings with the code of the step, where a condition of the expectation asks for it.

    Without code the condition is neither true nor false: an error, as for ``filecheck``. Comments and boilerplate are left out.
    """
    if not asks_for_code(expected.body):
        return here
    if not facts.code:
        return Judgement.error("the step generated no code", expected="generated code, for the condition of this expectation")
    try:
        return replace(here, code=joined([code_of(piece) for piece in facts.code]).text)
    except PatternTooSlow:
        return Judgement.error("pattern too slow", expected="generated code, for the condition of this expectation")
