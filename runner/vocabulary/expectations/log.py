"""``log``: the standard error of a step, from the case and its children."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from runner.core.conditions import Surroundings, holds
from runner.core.protocol import Json
from runner.vocabulary.expectations.base import Judgement, Mutant, Recorded, StepFacts
from runner.vocabulary.expectations.counts import COUNT_MUTATIONS
from runner.vocabulary.expectations.specific import check_specific
from runner.vocabulary.expectations.texts import (
    LACKED,
    TEXT_MUTATIONS,
    check_lacked,
    check_text,
    check_times,
    judge_text,
    judge_times,
    lacked_mutants,
    parts_of,
    text_mutants,
    times_mutants,
)

STDERR = "<stderr>"
"""The name of the worker's standard error of the step; no value of a spec can have this name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Log(Recorded):
    """``log: {contains: planted crash}``."""

    kind: ClassVar[str] = "log"
    mutations: ClassVar[tuple[str, ...]] = (*TEXT_MUTATIONS, *COUNT_MUTATIONS, LACKED)
    contains: str | list[str] | None = None
    count: Any = None
    matches: str | None = None
    lacks: str | list[str] | None = None
    when: Mapping[str, Any] | None = None

    @classmethod
    def parse(cls, body: Any) -> "Log":
        """Read parts and pattern."""
        check_text(body)
        check_specific(body)
        check_lacked(body)
        check_times(body)
        return cls(**body)

    def judge(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge the text."""
        if not holds(self.when, here):
            return [Judgement.not_applicable()]
        if facts.measured is None:
            return [Judgement.error("nothing was measured", expected="the step's standard error")]
        text, parts = facts.measured["text"], parts_of(self.contains)
        judged = judge_text(text, parts, self.matches, what="standard error", lacks=parts_of(self.lacks))
        return [judge_times(judged, text, parts, self.count, here)]

    def mutants(self, facts: StepFacts, here: Surroundings) -> Iterator[Mutant]:
        """The text without the expected parts and matches, with parts as often as they must not be, and with what it must lack."""
        if holds(self.when, here):
            found, parts = facts.measured["text"], parts_of(self.contains)
            yield from text_mutants(found, parts, self.matches, lambda text: facts.with_measured(text=text))
            yield from times_mutants(found, parts, self.count, here, lambda text: facts.with_measured(text=text))
            yield from lacked_mutants(found, parts_of(self.lacks), lambda text: facts.with_measured(text=text))


def measure(arguments: Mapping[str, Any], value: Callable[[str], Any]) -> Json:
    """Measure in the worker: the end of the step's standard error."""
    return {"text": value(STDERR)}
