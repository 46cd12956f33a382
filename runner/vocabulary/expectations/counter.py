"""``counter``: values of ``torch._dynamo.utils.counters`` after a step."""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from runner.core.conditions import Surroundings
from runner.vocabulary.expectations.base import BadExpectation, Judgement, Mutant, OfStep, StepFacts
from runner.vocabulary.expectations.counts import COUNT_MUTATIONS, check_count, count_mutants, judge_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter(OfStep):
    """``counter: {inductor.fxgraph_cache_hit: 1, inductor.fxgraph_cache_miss: {min: 1}}``."""

    kind: ClassVar[str] = "counter"
    mutations: ClassVar[tuple[str, ...]] = COUNT_MUTATIONS
    counts: Mapping[str, Any]

    @classmethod
    def parse(cls, body: Any) -> "Counter":
        """Read the counts by ``namespace.name``; raise ``BadExpectation``."""
        for name, count in body.items():
            _check(name, count)
        return cls(counts=dict(body))

    def judge(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge each counter on its own. A counter that torch has not touched is 0, as in torch."""
        return [
            judge_count(count, _read(facts, name), here, leaf=name, absent="no counters were read") for name, count in self.counts.items()
        ]

    def mutants(self, facts: StepFacts, here: Surroundings) -> Iterator[Mutant]:
        """Each counter on its own, with another count."""
        for name, count in self.counts.items():
            yield from count_mutants(count, _read(facts, name), here, functools.partial(_with, facts, name), leaf=name)


def is_unlisted(count: Any) -> bool:
    """Whether the spec marks the counter with ``unlisted: true``: its name is in no table."""
    if isinstance(count, list):
        return any(is_unlisted(entry.get("value")) for entry in count)
    return isinstance(count, dict) and count.get("unlisted") is True


def _check(name: str, count: Any) -> None:
    if "." not in name:
        raise BadExpectation(f"the counter '{name}' has no namespace", f"did you mean 'inductor.{name}'?", path=(name,))
    try:
        check_count(count)
    except BadExpectation as error:
        raise BadExpectation(str(error), error.hint, path=(name, *error.path)) from error
    if is_unlisted(count) and allows_zero(count):
        hint = "a misspelt name is always 0: expect at least 1"
        raise BadExpectation(f"the unlisted counter '{name}' may not be expected to be 0", hint, path=(name,))


def allows_zero(count: Any) -> bool:
    """Whether an untouched counter passes."""
    if isinstance(count, list):
        return any(allows_zero(entry["value"]) for entry in count)
    if isinstance(count, dict):
        if "any" in count:
            return 0 in count["any"]
        return (count.get("value") if "value" in count else count.get("min")) in (None, 0)
    return bool(count == 0)


def _read(facts: StepFacts, name: str) -> int | None:
    namespace, _, counter = name.partition(".")
    return facts.counters.get(namespace, {}).get(counter, 0)


def _with(facts: StepFacts, name: str, number: float) -> StepFacts:
    namespace, _, counter = name.partition(".")
    counters = {**facts.counters, namespace: {**facts.counters.get(namespace, {}), counter: int(number)}}
    return replace(facts, counters=counters)
