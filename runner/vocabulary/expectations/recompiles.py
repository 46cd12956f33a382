"""``recompiles``: how often dynamo compiled a function again in a step, and why."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from runner.core.conditions import Surroundings
from runner.core.expectation import Status
from runner.core.protocol import Json
from runner.vocabulary.expectations.base import Judgement, StepFacts
from runner.vocabulary.expectations.compile_facts import COMPILATION, Events

_AGAIN = "judge a later call of the same function: add a call above this step, or remove recompiles here"


class Recompiles(Events):
    """``recompiles: {count: 1, reason: {contains: size mismatch at index 0}}``."""

    __slots__ = ()
    kind: ClassVar[str] = "recompiles"
    what: ClassVar[str] = "recompiles"

    def judge(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge as other events. That there were none means something only where compiled code was found again by its guards."""
        found = super().judge(facts, here)
        if all(one.status is Status.HELD for one in found) and facts.measured["count"] == 0 and facts.measured["reused"] == 0:
            return [Judgement.error(_why_hollow(facts), expected=found[0].expected)]
        return found


def _why_hollow(facts: StepFacts) -> str:
    if facts.measured["frames"]:
        return f"dynamo compiled the functions of the step for the first time, so nothing could be compiled again: {_AGAIN}"
    return f"no code that dynamo had compiled ran in the step, so nothing could be compiled again: {_AGAIN}"


def measure(arguments: Mapping[str, Any], value: Callable[[str], Any]) -> Json:
    """Measure in the worker: the recompiles of the case's own functions in the step."""
    return value(f"{COMPILATION}recompiles")
