"""``poisoned``: the result does not depend on what fresh memory holds."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from runner.core.conditions import Surroundings, holds
from runner.core.protocol import Json
from runner.vocabulary.expectations.again import Again, differing_bits, tensors_of, trouble
from runner.vocabulary.expectations.base import OUTPUT, BadExpectation, Judgement, Mutant, StepFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Poisoned:
    """``poisoned: true``, or ``poisoned: {when: {...}}``."""

    kind: ClassVar[str] = "poisoned"
    mutations: ClassVar[tuple[str, ...]] = ("other bits", "no memory was poisoned")
    when: Mapping[str, Any] | None = None

    @classmethod
    def parse(cls, body: Any) -> "Poisoned":
        """Read the condition; raise ``BadExpectation`` for false."""
        if body is False:
            raise BadExpectation("poisoned is false", "leave it out: only poisoned: true claims something")
        return cls(when=body.get("when") if isinstance(body, Mapping) else None)

    @property
    def names(self) -> tuple[str, ...]:
        """The step's result."""
        return (OUTPUT,)

    def measurement(self) -> Mapping[str, Json] | None:
        """No arguments."""
        return {}

    def judge(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge the result with poisoned memory. Without poisoned memory nothing is claimed."""
        if not holds(self.when, here):
            return [Judgement.not_applicable()]
        expected = "the same bits where fresh memory holds NaN"
        if (problem := trouble(facts, expected)) is not None:
            return [problem]
        for one in facts.measured["differences"]:
            return [Judgement.failed(expected=expected, observed=f"{OUTPUT}{one['path']}: {one['why']}")]
        count = facts.measured["allocations"]
        if not count:
            return [Judgement.error("the generated code allocated no memory that could be poisoned", expected=expected)]
        return [
            Judgement.passed(expected=expected, observed=f"the same bits; {count} allocations of {facts.measured['bytes']} bytes poisoned")
        ]

    def mutants(self, facts: StepFacts, here: Surroundings) -> Iterator[Mutant]:
        """A difference; no allocation."""
        differences = [{"path": "", "why": "1 of 1 elements"}]
        yield Mutant(name="other bits", facts=facts.with_measured(differences=differences))
        yield Mutant(name="no memory was poisoned", facts=facts.with_measured(allocations=0))


def repeat(arguments: Mapping[str, Any], again: Again) -> Json:
    """Call the function again while fresh memory is poisoned."""
    with again.poisoned() as poison:
        result = again.run()
    differences = differing_bits(result, again.result)
    facts: dict[str, Json] = {"allocations": poison.allocations, "bytes": poison.bytes}
    return {**facts, "differences": differences, "tensors": tensors_of(again.result)}
