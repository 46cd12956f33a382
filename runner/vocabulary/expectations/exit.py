"""``exit``: the exit code and standard error of the child of a ``spawn`` step."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from runner.core.conditions import Surroundings, holds
from runner.core.protocol import Json
from runner.vocabulary.expectations.base import BadExpectation, Judgement, Mutant, StepFacts
from runner.vocabulary.expectations.texts import judge_text, parts_of, text_mutants


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """``exit: {code: 0}`` or ``exit: {nonzero: true, stderr: "planted in the choice"}``."""

    kind: ClassVar[str] = "exit"
    mutations: ClassVar[tuple[str, ...]] = ("another code", "its part removed")
    code: int | None = None
    nonzero: bool = False
    stderr: str | list[str] | None = None
    when: Mapping[str, Any] | None = None

    @classmethod
    def parse(cls, body: Any) -> "Exit":
        """Read code and text. A non-zero code needs a text, because a child that fails to start has a non-zero code too."""
        if body.get("code") != 0 and "stderr" not in body:
            hint = "add stderr: a text that only this failure prints; a child that fails to start has a non-zero code too"
            raise BadExpectation("a non-zero exit code without 'stderr'", hint)
        return cls(**body)

    @property
    def names(self) -> tuple[str, ...]:
        """No named values."""
        return ()

    def measurement(self) -> Mapping[str, Json] | None:
        """None: every spawn step has its exit."""
        return None

    def judge(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge the code, then the text."""
        if not holds(self.when, here):
            return [Judgement.not_applicable()]
        expected = "a non-zero exit code" if self.nonzero else f"exit code {self.code}"
        if facts.exit is None:
            return [Judgement.error("no child was spawned", expected=expected)]
        code = facts.exit.code
        if (code == 0) if self.nonzero else (code != self.code):
            return [Judgement.failed(expected=expected, observed=f"exit code {code}", detail=facts.exit.stderr)]
        if self.stderr is not None:
            return [judge_text(facts.exit.stderr, parts_of(self.stderr), None, what=f"{expected} and standard error")]
        return [Judgement.passed(expected=expected, observed=f"exit code {code}")]

    def mutants(self, facts: StepFacts, here: Surroundings) -> Iterator[Mutant]:
        """Another code, and standard error without its text."""
        child = facts.exit
        if child is None or not holds(self.when, here):
            return
        yield Mutant(name="another code", facts=replace(facts, exit=replace(child, code=0 if self.nonzero else child.code + 1)))
        if self.stderr is not None:
            yield from text_mutants(
                child.stderr, parts_of(self.stderr), None, lambda text: replace(facts, exit=replace(child, stderr=text))
            )
