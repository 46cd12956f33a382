"""``metric``: values of ``torch._inductor.metrics`` after a step."""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from runner.core.conditions import Surroundings
from runner.vocabulary.expectations.base import BadExpectation, Judgement, Mutant, OfStep, StepFacts
from runner.vocabulary.expectations.counts import COUNT_MUTATIONS, check_count, count_mutants, judge_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric(OfStep):
    """``metric: {generated_kernel_count: 1}``."""

    kind: ClassVar[str] = "metric"
    mutations: ClassVar[tuple[str, ...]] = COUNT_MUTATIONS
    counts: Mapping[str, Any]

    @classmethod
    def parse(cls, body: Any) -> "Metric":
        """Read the counts by name."""
        for name, count in body.items():
            try:
                check_count(count)
            except BadExpectation as error:
                raise BadExpectation(str(error), error.hint, path=(name, *error.path)) from error
        return cls(counts=dict(body))

    def judge(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge each metric on its own. A metric that torch lacks is an error, because it would always be 0."""
        absent = "this torch has no such metric"
        return [judge_count(count, facts.metrics.get(name), here, leaf=name, absent=absent) for name, count in self.counts.items()]

    def mutants(self, facts: StepFacts, here: Surroundings) -> Iterator[Mutant]:
        """Each metric on its own, with another count."""
        for name, count in self.counts.items():
            yield from count_mutants(count, facts.metrics.get(name), here, functools.partial(_with, facts, name), leaf=name)


def _with(facts: StepFacts, name: str, number: float) -> StepFacts:
    return replace(facts, metrics={**facts.metrics, name: number})
