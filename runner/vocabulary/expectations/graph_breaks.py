"""``graph_breaks``: the graph breaks of a step, with their reasons."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from runner.core.conditions import Surroundings
from runner.core.expectation import Status
from runner.core.protocol import Json
from runner.vocabulary.expectations.base import Judgement, StepFacts
from runner.vocabulary.expectations.compile_facts import COMPILATION, Events

_NOTHING_TRACED = (
    "dynamo traced no frame of the case's functions in the step: the code of an earlier compile ran, and may have graph breaks"
)


class GraphBreaks(Events):
    """``graph_breaks: {count: 1, reason: {contains: User-inserted graph break}}``."""

    __slots__ = ()
    kind: ClassVar[str] = "graph_breaks"
    what: ClassVar[str] = "graph breaks"

    def judge(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge as other events. That there are none means something only where dynamo traced a frame in the step."""
        found = super().judge(facts, here)
        if all(one.status is Status.HELD for one in found) and facts.measured["frames"] == 0:
            return [Judgement.error(_NOTHING_TRACED, expected=found[0].expected)]
        return found


def measure(arguments: Mapping[str, Any], value: Callable[[str], Any]) -> Json:
    """Measure in the worker: the graph breaks of the case's own functions in the step."""
    return value(f"{COMPILATION}graph_breaks")
