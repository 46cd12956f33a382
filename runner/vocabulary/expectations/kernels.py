"""``kernels``: the kernel calls of a step, and the kernels that were compiled in it."""

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from runner.core.conditions import Surroundings, holds
from runner.core.expectation import Status
from runner.core.protocol import Json
from runner.vocabulary.expectations.base import Judgement, Mutant, Recorded, StepFacts
from runner.vocabulary.expectations.compile_facts import COMPILATION, NOT_MEASURED, check_counts
from runner.vocabulary.expectations.counts import COUNT_MUTATIONS, count_mutants, judge_count

KINDS = ("fused", "extern", "user")
"""The kinds of kernel calls; ``launched`` is their sum."""

COUNTS = ("launched", *KINDS, "compiled")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels(Recorded):
    """``kernels: {launched: 1, compiled: 1}``, or by kind: ``kernels: {fused: 1, extern: 0}``."""

    kind: ClassVar[str] = "kernels"
    mutations: ClassVar[tuple[str, ...]] = COUNT_MUTATIONS
    launched: Any = None
    fused: Any = None
    extern: Any = None
    user: Any = None
    compiled: Any = None
    when: Mapping[str, Any] | None = None

    @classmethod
    def parse(cls, body: Any) -> "Kernels":
        """Read the counts; raise ``BadExpectation``."""
        check_counts(body, *COUNTS)
        return cls(**body)

    @property
    def _counts(self) -> Mapping[str, Any]:
        return {key: getattr(self, key) for key in COUNTS if getattr(self, key) is not None}

    def judge(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge each count on its own. What could not be counted is an ERROR."""
        if not holds(self.when, here):
            return [Judgement.not_applicable()]
        judged = []
        for key, count in self._counts.items():
            why = _why_not(key, facts)
            found = judge_count(count, None if why else _number(key, facts), here, leaf=key, absent=why)
            if found.status is Status.HELD and key == "compiled" and not facts.measured["compiled"] and not facts.measured["ran"]:
                found = Judgement.error(_NOTHING_RAN, expected=found.expected, leaf=key)
            judged.append(found if why or key == "compiled" else replace(found, detail="\n".join(facts.measured["names"][:50])))
        return judged

    def mutants(self, facts: StepFacts, here: Surroundings) -> Iterator[Mutant]:
        """Each count on its own, with another number."""
        if holds(self.when, here):
            for key, count in self._counts.items():
                yield from count_mutants(count, _number(key, facts), here, functools.partial(_with, facts, key), leaf=key)


_NOTHING_RAN = "the step ran no compiled graph of the case's function"


def _why_not(key: str, facts: StepFacts) -> str:
    found = facts.measured
    if found is None:
        return NOT_MEASURED
    if not found["recorded"]:
        return "the backend of the case compiles nothing"
    reasons = found["uncompiled"] if key == "compiled" else found["uncounted"]
    if not reasons and not found["ran"] and key != "compiled":
        return _NOTHING_RAN
    return "; ".join(reasons)


def _number(key: str, facts: StepFacts) -> int:
    if key == "compiled":
        return int(facts.measured["compiled"])
    return sum(int(facts.measured["launched"][kind]) for kind in (KINDS if key == "launched" else (key,)))


def _with(facts: StepFacts, key: str, number: float) -> StepFacts:
    if key == "compiled":
        return facts.with_measured(compiled=int(number))
    launched = facts.measured["launched"]
    # a change of the sum is a change of the fused kernels, whatever their number is
    changed = {"fused": launched["fused"] + int(number) - sum(launched.values())} if key == "launched" else {key: int(number)}
    return facts.with_measured(launched={**launched, **changed})


def measure(arguments: Mapping[str, Any], value: Callable[[str], Any]) -> Json:
    """Measure in the worker: kernel calls by kind, compiled kernels, and why something could not be counted."""
    return value(f"{COMPILATION}kernels")
