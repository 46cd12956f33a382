"""``log``: the standard error of a step, from the case and its children."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from runner.core.conditions import Surroundings, holds
from runner.core.protocol import Json
from runner.vocabulary.expectations.base import Judgement, Mutant, Recorded, StepFacts
from runner.vocabulary.expectations.texts import TEXT_MUTATIONS, check_text, judge_text, parts_of, text_mutants

STDERR = "<stderr>"
"""The name of the worker's standard error of the step; no value of a spec can have this name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Log(Recorded):
    """``log: {contains: planted crash}``."""

    kind: ClassVar[str] = "log"
    mutations: ClassVar[tuple[str, ...]] = TEXT_MUTATIONS
    contains: str | list[str] | None = None
    matches: str | None = None
    when: Mapping[str, Any] | None = None

    @classmethod
    def parse(cls, body: Any) -> "Log":
        """Read parts and pattern."""
        check_text(body)
        return cls(**body)

    def judge(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge the text."""
        if not holds(self.when, here):
            return [Judgement.not_applicable()]
        if facts.measured is None:
            return [Judgement.error("nothing was measured", expected="the step's standard error")]
        return [judge_text(facts.measured["text"], parts_of(self.contains), self.matches, what="standard error")]

    def mutants(self, facts: StepFacts, here: Surroundings) -> Iterator[Mutant]:
        """The text without the expected parts and matches."""
        if holds(self.when, here):
            found = facts.measured["text"]
            yield from text_mutants(found, parts_of(self.contains), self.matches, lambda text: facts.with_measured(text=text))


def measure(arguments: Mapping[str, Any], value: Callable[[str], Any]) -> Json:
    """Measure in the worker: the end of the step's standard error."""
    return {"text": value(STDERR)}
