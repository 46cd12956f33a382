"""``deterministic``: more calls on the same inputs give the same bits."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from runner.core.conditions import Surroundings, holds
from runner.core.protocol import Json
from runner.vocabulary.expectations.again import Again, differing_bits, tensors_of, trouble
from runner.vocabulary.expectations.base import OUTPUT, Judgement, Mutant, StepFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Deterministic:
    """``deterministic: {runs: 5}``."""

    kind: ClassVar[str] = "deterministic"
    mutations: ClassVar[tuple[str, ...]] = ("other bits", "fewer runs")
    runs: int = 3
    when: Mapping[str, Any] | None = None

    @classmethod
    def parse(cls, body: Any) -> "Deterministic":
        """Read the arguments."""
        return cls(**body)

    @property
    def names(self) -> tuple[str, ...]:
        """The step's result."""
        return (OUTPUT,)

    def measurement(self) -> Mapping[str, Json] | None:
        """The worker calls the function this often."""
        return {"runs": self.runs}

    def judge(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge every run. The judgement shows the first difference."""
        if not holds(self.when, here):
            return [Judgement.not_applicable()]
        expected = f"the same bits in {self.runs} more runs"
        if (problem := trouble(facts, expected)) is not None:
            return [problem]
        runs = facts.measured["runs"]
        for number, differences in enumerate(runs, 1):
            if differences:
                one = differences[0]
                return [Judgement.failed(expected=expected, observed=f"run {number}: {OUTPUT}{one['path']}: {one['why']}")]
        if len(runs) != self.runs:
            return [Judgement.error(f"{len(runs)} runs were made", expected=expected)]
        return [Judgement.passed(expected=expected, observed=f"{facts.measured['tensors']} tensors with the same bits in {len(runs)} runs")]

    def mutants(self, facts: StepFacts, here: Surroundings) -> Iterator[Mutant]:
        """A difference in the last run, and a run that is missing."""
        runs = facts.measured["runs"]
        changed = [*runs[:-1], [{"path": "", "why": "1 of 1 elements"}]]
        yield Mutant(name="other bits", facts=facts.with_measured(runs=changed))
        yield Mutant(name="fewer runs", facts=facts.with_measured(runs=runs[:-1]))


def repeat(arguments: Mapping[str, Any], again: Again) -> Json:
    """Call the function again, from the same state, and compare each result with the step's result."""
    runs = [differing_bits(again.run(), again.result) for _ in range(arguments["runs"])]
    return {"runs": runs, "tensors": tensors_of(again.result)}
