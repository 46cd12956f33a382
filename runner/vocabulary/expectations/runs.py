"""``runs``: the step ends without an exception."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from runner.core.conditions import Surroundings, holds
from runner.vocabulary.expectations.base import Judgement, Mutant, OfStep, Raised, StepFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs(OfStep):
    """``runs: {}``."""

    kind: ClassVar[str] = "runs"
    mutations: ClassVar[tuple[str, ...]] = ("an exception",)
    when: Mapping[str, Any] | None = None

    @classmethod
    def parse(cls, body: Any) -> "Runs":
        """Read the condition."""
        return cls(when=body.get("when"))

    def judge(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge that there is no exception."""
        if not holds(self.when, here):
            return [Judgement.not_applicable()]
        observed = "no exception" if facts.raised is None else f"{facts.raised.type} while {facts.raised.phase}"
        return [Judgement.of(facts.raised is None, expected="no exception", observed=observed)]

    def mutants(self, facts: StepFacts, here: Surroundings) -> Iterator[Mutant]:
        """An exception."""
        raised = Raised(type="builtins.Exception", ancestors=("builtins.Exception",), message="raised", traceback="", phase="run")
        yield Mutant(name="an exception", facts=replace(facts, raised=raised))
