"""``guards``: the guards of the frames that dynamo compiled in a step."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from runner.core.conditions import Surroundings, holds
from runner.core.protocol import Json
from runner.vocabulary.expectations.base import Judgement, Mutant, Recorded, StepFacts
from runner.vocabulary.expectations.compile_facts import COMPILATION, NOT_MEASURED, check_counts, checks_mutants, judge_checks
from runner.vocabulary.expectations.counts import COUNT_MUTATIONS, count_mutants, judge_count
from runner.vocabulary.expectations.filecheck import COMMENTED_OUT, WHOLE, FileCheck
from runner.vocabulary.expectations.specific import check_guards, check_specific_pattern
from runner.vocabulary.expectations.texts import TEXT_MUTATIONS, check_text, judge_text, parts_of, text_mutants

_OF_CHECKS = tuple(name for name in FileCheck.mutations if name not in (COMMENTED_OUT, *TEXT_MUTATIONS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Guards(Recorded):
    """``guards: {contains: "L['x'].size()[0]", checks: "CHECK-NOT: DUPLICATE"}``."""

    kind: ClassVar[str] = "guards"
    mutations: ClassVar[tuple[str, ...]] = (*COUNT_MUTATIONS, *TEXT_MUTATIONS, *_OF_CHECKS)
    count: Any = None
    contains: str | list[str] | None = None
    matches: str | None = None
    checks: FileCheck | None = None
    when: Mapping[str, Any] | None = None

    @classmethod
    def parse(cls, body: Any) -> "Guards":
        """Read count, parts, pattern and directives; raise ``BadExpectation``."""
        check_counts(body, "count")
        check_text(body)
        check_specific_pattern(body, "matches")
        # a guard is no program: a mark of a comment in it is a part of it
        checks = FileCheck.parse({"checks": body["checks"], "text": WHOLE}) if "checks" in body else None
        check_guards(body, checks.checks if checks else None)
        return cls(**{**body, "checks": checks})

    def judge(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge the number of guards, then their text."""
        if not holds(self.when, here):
            return [Judgement.not_applicable()]
        found, what = facts.measured, "guards of the step"
        if found is None or not found["frames"]:
            why = NOT_MEASURED if found is None else "dynamo compiled no frame of the case's function in the step: there are no new guards"
            return [Judgement.error(why, expected=what)]
        if found["problem"]:
            return [Judgement.error(found["problem"], expected=what)]
        judged = [] if self.count is None else [judge_count(self.count, found["count"], here, leaf="count", absent="")]
        if self.contains is None and self.matches is None and self.checks is None:
            return judged
        if len(found["texts"]) < found["count"]:
            return [*judged, Judgement.error(f"only {len(found['texts'])} of {found['count']} guards were recorded", expected=what)]
        text = _text(facts)
        if self.contains is not None:
            judged.append(replace(judge_text(text, parts_of(self.contains), None, what="guards"), leaf="contains"))
        if self.matches is not None:
            judged.append(replace(judge_text(text, (), self.matches, what="guards"), leaf="matches"))
        return judged if self.checks is None else [*judged, judge_checks(self.checks, text, here)]

    def mutants(self, facts: StepFacts, here: Surroundings) -> Iterator[Mutant]:
        """More guards and fewer; the text without what is expected in it."""
        if not holds(self.when, here):
            return
        if self.count is not None:
            observed = facts.measured["count"]
            yield from count_mutants(self.count, observed, here, lambda number: facts.with_measured(count=int(number)), leaf="count")
        text, put = _text(facts), lambda text: _with_text(facts, text)
        for mutant in text_mutants(text, parts_of(self.contains), None, put):
            yield replace(mutant, leaf="contains")
        for mutant in text_mutants(text, (), self.matches, put):
            yield replace(mutant, leaf="matches")
        if self.checks is not None:
            found = checks_mutants(self.checks, text, here, put)
            yield from (mutant for mutant in found if mutant.name != COMMENTED_OUT)


def _text(facts: StepFacts) -> str:
    return "\n".join(facts.measured["texts"])


def _with_text(facts: StepFacts, text: str) -> StepFacts:
    return facts.with_measured(texts=[text], count=1)


def measure(arguments: Mapping[str, Any], value: Callable[[str], Any]) -> Json:
    """Measure in the worker: the guards of the case's own functions in the step."""
    return value(f"{COMPILATION}guards")
