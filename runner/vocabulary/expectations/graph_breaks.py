"""``graph_breaks``: the graph breaks of a step, with their reasons."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from runner.core.conditions import Surroundings
from runner.core.protocol import Json
from runner.vocabulary.expectations.base import Judgement, Mutant, StepFacts
from runner.vocabulary.expectations.compile_facts import COMPILATION, Events
from runner.vocabulary.expectations.counts import COUNT_MUTATIONS
from runner.vocabulary.expectations.texts import TEXT_MUTATIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphBreaks:
    """``graph_breaks: {count: 1, reason: {contains: User-inserted graph break}}``."""

    kind: ClassVar[str] = "graph_breaks"
    mutations: ClassVar[tuple[str, ...]] = (*COUNT_MUTATIONS, *TEXT_MUTATIONS)
    count: Any = None
    reason: Mapping[str, Any] | None = None
    when: Mapping[str, Any] | None = None

    @classmethod
    def parse(cls, body: Any) -> "GraphBreaks":
        """Read count and reason; raise ``BadExpectation``."""
        made = cls(**body)
        made._events.check()
        return made

    @property
    def _events(self) -> Events:
        return Events(what="graph breaks", count=self.count, reason=self.reason, when=self.when)

    @property
    def names(self) -> tuple[str, ...]:
        """No named values."""
        return ()

    def measurement(self) -> Mapping[str, Json] | None:
        """The worker sends the graph breaks of the step."""
        return {}

    def judge(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge the number of graph breaks and each reason."""
        return self._events.judge(facts, here)

    def mutants(self, facts: StepFacts, here: Surroundings) -> Iterator[Mutant]:
        """More graph breaks and fewer; other reasons."""
        return self._events.mutants(facts, here)


def measure(arguments: Mapping[str, Any], value: Callable[[str], Any]) -> Json:
    """Measure in the worker: the graph breaks of the case's own functions in the step."""
    return value(f"{COMPILATION}graph_breaks")
