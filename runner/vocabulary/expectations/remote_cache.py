"""``remote_cache``: torch's statistics of its remote caches."""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from runner.core.conditions import Surroundings
from runner.core.diagnostics import unknown
from runner.vocabulary.expectations.base import BadExpectation, Judgement, Mutant, OfStep, StepFacts
from runner.vocabulary.expectations.counter import allows_zero
from runner.vocabulary.expectations.counts import COUNT_MUTATIONS, check_count, count_mutants, judge_count

CACHES = ("RemoteFxGraphCache", "RemoteAOTAutogradCache", "RemoteAutotuneCache", "RemoteBundledAutotuneCache", "RemoteDynamoPGOCache")
"""The remote caches with statistics in torch, by class name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteCache(OfStep):
    """``remote_cache: {RemoteFxGraphCache: {hit: 3, miss: 1, put: 1}}``."""

    kind: ClassVar[str] = "remote_cache"
    mutations: ClassVar[tuple[str, ...]] = COUNT_MUTATIONS
    caches: Mapping[str, Mapping[str, Any]]

    @classmethod
    def parse(cls, body: Any) -> "RemoteCache":
        """Read the counts by cache."""
        for cache, counts in body.items():
            if cache not in CACHES:
                message, hint = unknown("remote cache", cache, CACHES)
                raise BadExpectation(message, hint, path=(cache,))
            for word, count in counts.items():
                try:
                    check_count(count)
                except BadExpectation as error:
                    raise BadExpectation(str(error), error.hint, path=(cache, word, *error.path)) from error
        if all(allows_zero(count) for counts in body.values() for count in counts.values()):
            raise BadExpectation("every count may be 0: it passes without any request to a cache", "expect a hit, a miss or a put")
        return cls(caches={cache: dict(counts) for cache, counts in body.items()})

    def judge(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge each count on its own. A cache without requests from torch has the counts 0."""
        return [
            judge_count(count, _read(facts, cache, word), here, leaf=f"{cache} {word}", absent=_ABSENT)
            for cache, counts in self.caches.items()
            for word, count in counts.items()
        ]

    def mutants(self, facts: StepFacts, here: Surroundings) -> Iterator[Mutant]:
        """Each count on its own, with another number."""
        for cache, counts in self.caches.items():
            for word, count in counts.items():
                changed = functools.partial(_with, facts, cache, word)
                yield from count_mutants(count, _read(facts, cache, word), here, changed, leaf=f"{cache} {word}")


_ABSENT = "no statistics of remote caches were read"


def _read(facts: StepFacts, cache: str, word: str) -> int | None:
    return None if facts.remote is None else facts.remote.get(cache, {}).get(word, 0)


def _with(facts: StepFacts, cache: str, word: str, number: float) -> StepFacts:
    remote = facts.remote or {}
    return replace(facts, remote={**remote, cache: {**remote.get(cache, {}), word: int(number)}})
