"""``text``: the contents of a value that is a text."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from runner.core.conditions import Surroundings, holds
from runner.core.protocol import Json
from runner.vocabulary.expectations.base import OUTPUT, Judgement, Mutant, StepFacts
from runner.vocabulary.expectations.counts import COUNT_MUTATIONS
from runner.vocabulary.expectations.texts import (
    LACKED,
    MOST,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """``text: {of: command, contains: ["nvcc ", "-Wx"], lacks: -Wy}``."""

    kind: ClassVar[str] = "text"
    mutations: ClassVar[tuple[str, ...]] = (*TEXT_MUTATIONS, *COUNT_MUTATIONS, LACKED)
    of: str = OUTPUT
    contains: str | list[str] | None = None
    count: Any = None
    matches: str | None = None
    lacks: str | list[str] | None = None
    when: Mapping[str, Any] | None = None

    @classmethod
    def parse(cls, body: Any) -> "Text":
        """Read parts and pattern."""
        check_text(body)
        check_lacked(body)
        check_times(body)
        return cls(**body)

    @property
    def names(self) -> tuple[str, ...]:
        """The name of the value."""
        return (self.of,)

    def measurement(self) -> Mapping[str, Json] | None:
        """The worker sends the text."""
        return {"of": self.of}

    def judge(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge the text; a value of another type is a failure."""
        if not holds(self.when, here):
            return [Judgement.not_applicable()]
        if facts.measured is None:
            return [Judgement.error("nothing was measured", expected=f"the text {self.of}")]
        if facts.measured["text"] is None:
            return [Judgement.failed(expected=f"{self.of} is a text", observed=facts.measured["type"])]
        text, parts = facts.measured["text"], parts_of(self.contains)
        judged = judge_text(text, parts, self.matches, what=self.of, lacks=parts_of(self.lacks))
        return [judge_times(judged, text, parts, self.count, here)]

    def mutants(self, facts: StepFacts, here: Surroundings) -> Iterator[Mutant]:
        """The text without the expected parts and matches, with parts as often as they must not be, and with what it must lack."""
        if holds(self.when, here):
            found, parts = facts.measured["text"], parts_of(self.contains)
            yield from text_mutants(found, parts, self.matches, lambda text: facts.with_measured(text=text))
            yield from times_mutants(found, parts, self.count, here, lambda text: facts.with_measured(text=text))
            yield from lacked_mutants(found, parts_of(self.lacks), lambda text: facts.with_measured(text=text))


def measure(arguments: Mapping[str, Any], value: Callable[[str], Any]) -> Json:
    """Measure in the worker: the text, or null for a value of another type; and the type."""
    found = value(arguments["of"])
    return {"text": found[-MOST:] if isinstance(found, str) else None, "type": f"a {type(found).__name__}"}
