"""``exit``: the exit code and the output of the child of a ``spawn`` step."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from runner.core.conditions import Surroundings, holds
from runner.vocabulary.expectations.base import BadExpectation, Judgement, Mutant, OfStep, StepFacts
from runner.vocabulary.expectations.specific import check_specific
from runner.vocabulary.expectations.texts import judge_text, parts_of, text_mutants


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit(OfStep):
    """``exit: {code: 0}`` or ``exit: {nonzero: true, stderr: "planted in the choice"}``."""

    kind: ClassVar[str] = "exit"
    mutations: ClassVar[tuple[str, ...]] = ("another code", "its part removed")
    code: int | None = None
    nonzero: bool = False
    stderr: str | list[str] | None = None
    stdout: str | list[str] | None = None
    when: Mapping[str, Any] | None = None

    @classmethod
    def parse(cls, body: Any) -> "Exit":
        """Read code and text. A non-zero code needs a text, because a child that fails to start has a non-zero code too."""
        if body.get("code") != 0 and not body.keys() & {"stderr", "stdout"}:
            hint = "add stderr: a text that only this failure prints; a child that fails to start has a non-zero code too"
            raise BadExpectation("a non-zero exit code without 'stderr'", hint)
        check_specific(body, "stderr")
        return cls(**body)

    def judge(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge the code, then the texts."""
        if not holds(self.when, here):
            return [Judgement.not_applicable()]
        expected = "a non-zero exit code" if self.nonzero else f"exit code {self.code}"
        if facts.exit is None:
            return [Judgement.error("no child was spawned", expected=expected)]
        code = facts.exit.code
        if (code == 0) if self.nonzero else (code != self.code):
            return [Judgement.failed(expected=expected, observed=f"exit code {code}", detail=facts.exit.stderr)]
        judged = []
        if self.stderr is not None:
            judged.append(judge_text(facts.exit.stderr, parts_of(self.stderr), None, what=f"{expected} and standard error"))
        if self.stdout is not None:
            judged.append(replace(self._judge_stdout(facts.exit.stdout, expected), leaf="stdout"))
        return judged or [Judgement.passed(expected=expected, observed=f"exit code {code}")]

    def _judge_stdout(self, text: str | None, expected: str) -> Judgement:
        if text is None:
            return Judgement.error("the child shares the standard output of the case", expected="the standard output of a program")
        return judge_text(text, parts_of(self.stdout), None, what=f"{expected} and standard output")

    def mutants(self, facts: StepFacts, here: Surroundings) -> Iterator[Mutant]:
        """Another code, and standard error without its text."""
        child = facts.exit
        if child is None or not holds(self.when, here):
            return
        another = replace(facts, exit=replace(child, code=0 if self.nonzero else child.code + 1))
        yield Mutant(name="another code", facts=another, leaf="stdout" if self.stderr is None and self.stdout is not None else "")
        if self.stderr is not None:
            yield from text_mutants(
                child.stderr, parts_of(self.stderr), None, lambda text: replace(facts, exit=replace(child, stderr=text))
            )
        if self.stdout is not None and child.stdout is not None:
            printed = text_mutants(child.stdout, parts_of(self.stdout), None, lambda text: replace(facts, exit=replace(child, stdout=text)))
            yield from (replace(mutant, leaf="stdout") for mutant in printed)
