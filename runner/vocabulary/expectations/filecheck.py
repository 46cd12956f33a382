"""``filecheck``: LLVM FileCheck directives on the generated code of a step, or on one stage of a kernel that was compiled for a target."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from runner.model.conditions import Surroundings, holds
from runner.model.expectation import Judgement, Mutant, StepFacts
from runner.model.matching.filecheck import Change, CheckFile, ChecksError, Directive, EmptyText, changes, parse, run
from runner.model.matching.filecheck import Kind as Kinds
from runner.model.matching.generated_code import Code, code_of, commented_out, joined, whole
from runner.model.matching.time_limit import PatternTooSlow
from runner.model.protocol import Json
from runner.model.targets import STAGES_OF_VENDOR, WRAPPER
from runner.vocabulary import compiler_output
from runner.vocabulary.expectations.emitted import trivial_code, words_of
from runner.vocabulary.expectations.expectation_base import BadExpectation, Kind
from runner.vocabulary.expectations.texts import check_specific_checks

ALL = "all"
"""A value of ``code``: all pieces."""

WHOLE = "whole"
"""A value of ``text``: with comments and boilerplate."""

COMMENTED_OUT = "all code commented out"

TRIVIAL = "the code of a trivial function"

ANY_CODE = "any code"

IN_THE_REST = (
    "the directives match the whole text: the match of this one is in a comment or in boilerplate, which is not code"
    " (text: whole includes both)"
)


_INDEX = {WRAPPER: -1, **{stage: index for stages in STAGES_OF_VENDOR.values() for index, stage in enumerate(stages)}}
"""The piece of code of each stage. The wrapper is the last."""


class _CodeOnly(str):
    """Text from which comments and boilerplate are already removed."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCheck(Kind):
    """``filecheck: {code: 0, checks: "CHECK: conv"}``, or the directives alone."""

    kind: ClassVar[str] = "filecheck"
    mutations: ClassVar[tuple[str, ...]] = (*(change.value for change in Change), COMMENTED_OUT, TRIVIAL, ANY_CODE)
    checks: CheckFile
    code: int | str | None = None
    text: str = "code"
    stage: str | None = None
    """A text that the compiler of a target makes; not applicable where it makes no such text."""
    when: Mapping[str, Any] | None = None

    @classmethod
    def parse(cls, body: Any) -> "FileCheck":
        """Read the directives; raise ``BadExpectation`` for lines that FileCheck would ignore."""
        options: Mapping[str, Any] = {"checks": body} if isinstance(body, str) else body
        path = () if isinstance(body, str) else ("checks",)
        try:
            checks = parse(options["checks"])
        except ChecksError as error:
            raise BadExpectation(error.message, error.hint, path=path, line=error.line, column=error.column) from error
        try:
            check_specific_checks(checks)
        except BadExpectation as error:
            raise BadExpectation(str(error), error.hint, path=path) from error
        stage = options.get("stage")
        if stage is not None and "code" in options:
            raise BadExpectation("stage together with code", "a stage is one text: remove code", path=("code",))
        return cls(checks=checks, code=options.get("code"), text=options.get("text", "code"), stage=stage, when=options.get("when"))

    def measurement(self) -> Mapping[str, Json] | None:
        """The worker says which of the forbidden words nothing emits. Instructions are words of compilers that it cannot read."""
        words = [word for directive in self.checks for word in _forbidden_words(directive)]
        return {"words": words} if words and self.stage in (None, WRAPPER) else None

    def judge(self, facts: StepFacts, surroundings: Surroundings) -> list[Judgement]:
        """Match the directives against the selected code."""
        if not self._applies(surroundings):
            return [Judgement.not_applicable()]
        try:
            chosen = self._choose(facts.code, self.text)
            if isinstance(chosen, Judgement):
                return [chosen]
            outcome = run(self.checks, chosen.text, numbers=chosen.numbers)
        except PatternTooSlow:
            return [Judgement.error("pattern too slow", expected="an answer within the time limit")]
        except EmptyText:
            is_blank = self.text == WHOLE or not any(piece.strip() for piece in facts.code)
            why = "the generated code is blank" if is_blank else "the generated code has only comments and boilerplate"
            return [Judgement.error(why, expected="generated code")]
        expected = "every directive matches" if outcome.passed else f"line {outcome.line}: {outcome.directive}"
        observed = outcome.reason or "matched"
        if not outcome.passed and self.text != WHOLE:
            chosen = self._choose(facts.code, WHOLE)
            with contextlib.suppress(PatternTooSlow):  # the verdict does not depend on it
                if isinstance(chosen, Code) and run(self.checks, chosen.text).passed:
                    observed = f"{observed}: {IN_THE_REST}"
        detail = [outcome.excerpt, f"possible match: {outcome.possible}" if outcome.possible else ""]
        return [Judgement.of(outcome.passed, expected=expected, observed=observed, detail="\n".join(filter(None, detail)))]

    def _applies(self, surroundings: Surroundings) -> bool:
        if self.stage is not None and self.stage not in (WRAPPER, *STAGES_OF_VENDOR.get(surroundings.vendor or "", ())):
            return False
        return holds(self.when, surroundings)

    def mutants(self, facts: StepFacts, surroundings: Surroundings) -> Iterator[Mutant]:
        """Each directive on its own: its match removed, or its forbidden line inserted; then all code commented out."""
        chosen = self._choose(facts.code, self.text)
        if isinstance(chosen, Judgement) or not self._applies(surroundings):
            return
        for change in changes(self.checks, chosen.text):
            where = f"line {change.directive.line}: {change.directive}"
            if change.text is None:
                yield Mutant.not_applicable(change.kind.value, change.why_not, where=where)
            else:
                # an inserted line may not be code; the rest of a line after a removal must not be parsed again
                text = change.text if change.kind is Change.FORBIDDEN else _CodeOnly(change.text)
                yield Mutant(name=change.kind.value, facts=replace(facts, code=self._with(facts.code, text)), where=where)
        for directive in self.checks:
            never = [word for word in _forbidden_words(directive) if word in (facts.measured or {}).get("unknown", ())]
            if never := [word for word in never if not any(word in piece for piece in facts.code)]:
                where = f"line {directive.line}: {directive}: neither torch nor the spec nor a loaded package has the word {never[0]}"
                yield Mutant(name=ANY_CODE, facts=facts, where=where)
        is_python = self.stage in (None, WRAPPER)
        code = [commented_out(piece) if is_python else compiler_output.commented_out(piece, str(self.stage)) for piece in facts.code]
        yield Mutant(name=COMMENTED_OUT, facts=replace(facts, code=tuple(code)))
        kind = surroundings.device if is_python else f"{surroundings.vendor} {self.stage}"
        yield from self.trivial_mutants(kind, lambda text: replace(facts, code=self._with(facts.code, text)))

    def trivial_mutants(self, kind: str, changed: Callable[[str], StepFacts]) -> Iterator[Mutant]:
        """Yield the code of a trivial function, of two such one for which the directives fail if there is one.

        ``kind`` is that of the code or of a graph. Directives that forbid something claim that, whatever else they match.
        """
        texts = trivial_code().get(kind, [])
        if texts and not any(directive.kind is Kinds.NOT for directive in self.checks):
            chosen = next((text for text in texts if not run(self.checks, self._read(text, self.text).text).passed), texts[0])
            yield Mutant(name=TRIVIAL, facts=changed(chosen))

    def _with(self, code: tuple[str, ...], text: str) -> tuple[str, ...]:
        if self.code == ALL:
            return (text,)
        index = _INDEX[self.stage] % len(code) if self.stage is not None else self.code if isinstance(self.code, int) else 0
        return (*code[:index], text, *code[index + 1 :])

    def text_of(self, code: tuple[str, ...]) -> str | None:
        """Return the text that the directives are matched against; None where there is none, or where reading it takes too long."""
        try:
            chosen = self._choose(code, self.text)
        except PatternTooSlow:
            return None
        return chosen.text if isinstance(chosen, Code) and chosen.text.strip() else None

    def _choose(self, code: tuple[str, ...], text: str) -> Code | Judgement:
        """Return the selected code; raise ``PatternTooSlow`` if parsing takes too long."""
        if not code:
            return Judgement.error("the step generated no code", expected="generated code")
        if self.stage is not None:
            if _INDEX[self.stage] >= len(code):
                return Judgement.error(f"{len(code)} texts", expected=f"the stage {self.stage}")
            return self._read(code[_INDEX[self.stage]], text)
        if self.code == ALL:
            return joined([self._read(piece, text) for piece in code])
        if self.code is None and len(code) > 1:
            return Judgement.error(f"{len(code)} pieces of code", expected="one piece, or code: INDEX, or code: all")
        index = self.code or 0
        if not isinstance(index, int) or index >= len(code):
            return Judgement.error(f"{len(code)} pieces of code", expected=f"a piece with the index {index}")
        return self._read(code[index], text)

    def _read(self, piece: str, text: str) -> Code:
        if text == WHOLE or isinstance(piece, _CodeOnly):
            return whole(piece)
        return code_of(piece) if self.stage in (None, WRAPPER) else compiler_output.code_of_stage(piece, self.stage)


def _forbidden_words(directive: Directive) -> list[str]:
    """Return the words of the fixed text of a ``CHECK-NOT``; none of other directives."""
    parts = directive.parts if directive.kind is Kinds.NOT else ()
    return [word for part in parts for word in words_of(part.text)]
