"""``filecheck``: LLVM FileCheck directives on the code that a step generated."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from runner.core.conditions import Surroundings, holds
from runner.core.matching.filecheck import CheckFile, CheckOutcome, ChecksError, EmptyText, parse, run
from runner.core.matching.filecheck.mutation import Change, changes
from runner.core.matching.generated_code import Code, code_of, commented_out, joined, whole
from runner.core.matching.time_limit import PatternTooSlow
from runner.core.model import Json
from runner.vocabulary.expectations.base import BadExpectation, Judgement, Mutant, StepFacts

ALL = "all"
"""Of ``code``: every piece."""

WHOLE = "whole"
"""Of ``text``: comments and boilerplate too."""

COMMENTED_OUT = "all code commented out"

IN_THE_REST = (
    "the directives match the whole text: what this one looks for is in a comment or in boilerplate, which is no code"
    " (text: whole looks there too)"
)


class _AsRead(str):
    """A text of which comments and boilerplate were taken already."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCheck:
    """``filecheck: {code: 0, checks: "CHECK: conv"}``, or the directives alone."""

    kind: ClassVar[str] = "filecheck"
    mutations: ClassVar[tuple[str, ...]] = (*(change.value for change in Change), COMMENTED_OUT)
    checks: CheckFile
    code: int | str | None = None
    text: str = "code"
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
        return cls(checks=checks, code=options.get("code"), text=options.get("text", "code"), when=options.get("when"))

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
        try:
            chosen = self._choose(facts.code, self.text)
            if isinstance(chosen, Judgement):
                return [chosen]
            outcome = run(self.checks, chosen.text, numbers=chosen.numbers)
        except PatternTooSlow:
            return [Judgement.error("pattern too slow", expected="an answer within the time limit")]
        except EmptyText:
            return [Judgement.error(self._why_empty(facts.code), expected="code to look at")]
        expected = "every directive matches" if outcome.passed else f"line {outcome.line}: {outcome.directive}"
        observed = outcome.reason or "matched"
        if not outcome.passed and self._holds_for_the_whole(facts.code):
            observed = f"{observed}: {IN_THE_REST}"
        return [Judgement.of(outcome.passed, expected=expected, observed=observed, detail=_detail(outcome))]

    def _holds_for_the_whole(self, code: tuple[str, ...]) -> bool:
        if self.text == WHOLE:
            return False
        chosen = self._choose(code, WHOLE)
        try:
            return isinstance(chosen, Code) and run(self.checks, chosen.text).passed
        except PatternTooSlow:
            return False  # the verdict stands already

    def _why_empty(self, code: tuple[str, ...]) -> str:
        blank = self.text == WHOLE or not any(piece.strip() for piece in code)
        return "the generated code is blank" if blank else "the generated code has nothing but comments and boilerplate"

    def mutants(self, facts: StepFacts, here: Surroundings) -> Iterator[Mutant]:
        """Each directive by itself: what it matched is removed, what it forbids is put in; then all that is code is made a comment."""
        chosen = self._choose(facts.code, self.text)
        if isinstance(chosen, Judgement):
            return
        for change in changes(self.checks, chosen.text):
            where = f"line {change.directive.line}: {change.directive}"
            if change.text is None:
                yield Mutant.not_applicable(change.kind.value, change.why_not, where=where)
            else:
                # what is put in may be no code, and what is left of a line may read otherwise
                text = change.text if change.kind is Change.FORBIDDEN else _AsRead(change.text)
                yield Mutant(name=change.kind.value, facts=replace(facts, code=self._with(facts.code, text)), where=where)
        yield Mutant(name=COMMENTED_OUT, facts=replace(facts, code=tuple(map(commented_out, facts.code))))

    def _with(self, code: tuple[str, ...], text: str) -> tuple[str, ...]:
        if self.code == ALL:
            return (text,)
        index = self.code if isinstance(self.code, int) else 0
        return (*code[:index], text, *code[index + 1 :])

    def _choose(self, code: tuple[str, ...], text: str) -> Code | Judgement:
        """Return what is looked at; raise ``PatternTooSlow`` where it cannot be read in time."""
        if not code:
            return Judgement.error("the step generated no code", expected="code to look at")
        if self.code == ALL:
            return joined([_read(piece, text) for piece in code])
        if self.code is None and len(code) > 1:
            return Judgement.error(f"{len(code)} pieces of code", expected="one piece, or code: INDEX, or code: all")
        index = self.code or 0
        if not isinstance(index, int) or index >= len(code):
            return Judgement.error(f"{len(code)} pieces of code", expected=f"a piece with the index {index}")
        return _read(code[index], text)


def _read(piece: str, text: str) -> Code:
    return whole(piece) if text == WHOLE or isinstance(piece, _AsRead) else code_of(piece)


def _detail(outcome: CheckOutcome) -> str:
    return "\n".join(part for part in (outcome.excerpt, outcome.possible) if part)
