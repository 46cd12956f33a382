"""Expectations judged by measurements of a worker, which may have any form."""

from runner.core.case import Expected
from runner.core.conditions import Surroundings
from runner.core.expectation import Judgement, StepFacts

ANOTHER_FORM = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""Exceptions while reading a measurement of an unexpected form."""


def judge_expectation(expected: Expected, facts: StepFacts, here: Surroundings) -> list[Judgement]:
    """Judge one expectation by the facts of its step and its own measurement, which is untrusted."""
    try:
        return list(expected.check.judge(facts, here))
    except ANOTHER_FORM as error:
        return [nonsense(error)]


def nonsense(error: Exception) -> Judgement:
    """Return the judgement of a measurement that cannot be read."""
    return Judgement.error(f"the measurement makes no sense: {type(error).__name__}: {error}")
