"""``filecheck``: LLVM FileCheck directives on the code that a step generated."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from runner.conditions import Surroundings, holds
from runner.expectations.base import BadExpectation, Judgement, Mutant, StepFacts
from runner.filecheck import CheckFile, ChecksError, EmptyText, parse, run
from runner.filecheck.mutation import Change, changes
from runner.model import Json
from runner.patterns import PatternTooSlow

ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCheck:
    """``filecheck: {code: 0, checks: "CHECK: conv"}``, or the directives alone."""

    kind: ClassVar[str] = "filecheck"
    mutations: ClassVar[tuple[str, ...]] = tuple(change.value for change in Change)
    checks: CheckFile
    code: int | str | None = None
    when: Mapping[str, Any] | None = None

    @classmethod
    def parse(cls, body: Any) -> "FileCheck":
        """Read the directives; whatever FileCheck would ignore is an error."""
        options: Mapping[str, Any] = {"checks": body} if isinstance(body, str) else body
        path = () if isinstance(body, str) else ("checks",)
        try:
            checks = parse(options["checks"])
        except ChecksError as error:
            raise BadExpectation(error.message, error.hint, path=path, line=error.line, column=error.column) from error
        return cls(checks=checks, code=options.get("code"), when=options.get("when"))

    @property
    def names(self) -> tuple[str, ...]:
        """No named values."""
        return ()

    def measurement(self) -> Mapping[str, Json] | None:
        """Every step has its code."""
        return None

    def judge(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Run the directives over the chosen code."""
        if not holds(self.when, here):
            return [Judgement.not_applicable()]
        chosen = self._choose(facts.code)
        if isinstance(chosen, Judgement):
            return [chosen]
        try:
            outcome = run(self.checks, chosen)
        except PatternTooSlow:
            return [Judgement.error("pattern too slow", expected="an answer within the time limit")]
        except EmptyText:
            return [Judgement.error("the generated code is blank", expected="code to look at")]
        expected = "every directive matches" if outcome.held else f"line {outcome.line}: {outcome.directive}"
        detail = "\n".join(part for part in (outcome.excerpt, outcome.possible) if part)
        return [Judgement.of(outcome.held, expected=expected, observed=outcome.reason or "matched", detail=detail)]

    def mutants(self, facts: StepFacts, here: Surroundings) -> Iterator[Mutant]:
        """Each directive by itself: what it matched is removed, what it forbids is put in."""
        chosen = self._choose(facts.code)
        if isinstance(chosen, Judgement):
            return
        for change in changes(self.checks, chosen):
            where = f"line {change.directive.line}: {change.directive}"
            if change.text is None:
                yield Mutant.not_applicable(change.kind.value, change.why_not, where=where)
            else:
                yield Mutant(name=change.kind.value, facts=replace(facts, code=self._with(facts.code, change.text)), where=where)

    def _with(self, code: tuple[str, ...], text: str) -> tuple[str, ...]:
        if self.code == ALL:
            return (text,)
        index = self.code if isinstance(self.code, int) else 0
        return (*code[:index], text, *code[index + 1 :])

    def _choose(self, code: tuple[str, ...]) -> str | Judgement:
        if not code:
            return Judgement.error("the step generated no code", expected="code to look at")
        if self.code == ALL:
            return "\n".join(code)
        if self.code is None and len(code) > 1:
            return Judgement.error(f"{len(code)} pieces of code", expected="one piece, or code: INDEX, or code: all")
        index = self.code or 0
        if not isinstance(index, int) or index >= len(code):
            return Judgement.error(f"{len(code)} pieces of code", expected=f"a piece with the index {index}")
        return code[index]
