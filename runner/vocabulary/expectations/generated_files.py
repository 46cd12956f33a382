"""``generated_files``: the number of pieces of code that a step generated or loaded from a cache."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from runner.core.conditions import Surroundings
from runner.vocabulary.expectations.base import Judgement, Mutant, OfStep, StepFacts
from runner.vocabulary.expectations.counts import COUNT_MUTATIONS, check_count, count_mutants, judge_count


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedFiles(OfStep):
    """``generated_files: 1``."""

    kind: ClassVar[str] = "generated_files"
    mutations: ClassVar[tuple[str, ...]] = COUNT_MUTATIONS
    count: Any

    @classmethod
    def parse(cls, body: Any) -> "GeneratedFiles":
        """Read the count."""
        check_count(body)
        return cls(count=body)

    def judge(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge the number of pieces."""
        return [judge_count(self.count, len(facts.code), here, leaf="", absent="")]

    def mutants(self, facts: StepFacts, here: Surroundings) -> Iterator[Mutant]:
        """More pieces and fewer."""
        yield from count_mutants(self.count, len(facts.code), here, functools.partial(_with, facts))


def _with(facts: StepFacts, number: float) -> StepFacts:
    size = int(number)
    return replace(facts, code=(*facts.code[:size], *[""] * (size - len(facts.code))))
