"""``raises``: the step ends with a certain exception."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from runner.core.conditions import Surroundings, holds
from runner.core.matching.patterns import check_pattern, search
from runner.core.matching.time_limit import PatternTooSlow
from runner.core.protocol import Json
from runner.vocabulary.expectations.base import BadExpectation, Judgement, Mutant, StepFacts

_ANOTHER = "another.Error"
_EVERY_EXCEPTION = ("builtins.Exception", "builtins.BaseException", "builtins.object")


@dataclass(frozen=True, slots=True, kw_only=True)
class Raises:
    """``raises: {type: RuntimeError, match: "after Dynamo Freezing"}``."""

    kind: ClassVar[str] = "raises"
    mutations: ClassVar[tuple[str, ...]] = ("none raised", "another type", "another text")
    type: str
    match: str | None = None
    when: Mapping[str, Any] | None = None

    @classmethod
    def parse(cls, body: Any) -> "Raises":
        """Read type and pattern."""
        pattern = body.get("match")
        reason = check_pattern(pattern) if pattern is not None else None
        if reason is not None:
            message = f"the pattern is not a regular expression: {reason}"
            raise BadExpectation(message, "escape ( ) [ ] { } . * + ? with \\", path=("match",))
        return cls(type=body["type"], match=pattern, when=body.get("when"))

    @property
    def names(self) -> tuple[str, ...]:
        """No named values."""
        return ()

    def measurement(self) -> Mapping[str, Json] | None:
        """None: every step records its exception."""
        return None

    def judge(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge the type (a subclass passes), then the text."""
        if not holds(self.when, here):
            return [Judgement.not_applicable()]
        expected = self.type + (f" with text matching /{self.match}/" if self.match else "")
        if facts.raised is None:
            return [Judgement.failed(expected=expected, observed="no exception")]
        observed = f"{facts.raised.type}: {facts.raised.message.strip().splitlines()[0] if facts.raised.message.strip() else ''}"
        if not self._is_type(facts.raised.ancestors):
            return [Judgement.failed(expected=expected, observed=observed, detail=facts.raised.traceback)]
        try:
            matches = self.match is None or search(self.match, facts.raised.message) is not None
        except PatternTooSlow:
            return [Judgement.error("pattern too slow", expected=expected)]
        return [Judgement.of(matches, expected=expected, observed=observed, detail="" if matches else facts.raised.message)]

    def mutants(self, facts: StepFacts, here: Surroundings) -> Iterator[Mutant]:
        """No exception, one of an unrelated type, and another text if the text is expected."""
        if facts.raised is None:
            return
        yield Mutant(name="none raised", facts=replace(facts, raised=None))
        other = replace(facts.raised, type=_ANOTHER, ancestors=(_ANOTHER, *_EVERY_EXCEPTION))
        yield Mutant(name="another type", facts=replace(facts, raised=other))
        if self.match is not None:
            yield Mutant(name="another text", facts=replace(facts, raised=replace(facts.raised, message="something else went wrong")))

    def _is_type(self, ancestors: tuple[str, ...]) -> bool:
        wanted = self.type if "." in self.type else f"builtins.{self.type}"
        return wanted in ancestors
