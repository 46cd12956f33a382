"""Counts of what torch did in a step: ``counter``, ``metric``, ``generated_files``, ``runs``, ``remote_cache``, ``calls`` of spies."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from runner.core.conditions import Surroundings, holds
from runner.core.diagnostics import unknown
from runner.core.expectation import Judgement, Mutant, StepFacts
from runner.core.observation import Raised, SpyCalls
from runner.core.protocol import Json, decode, encode
from runner.vocabulary.expectations.base import (
    COUNT_MUTATIONS,
    BadExpectation,
    Conditional,
    Kind,
    allows_zero,
    check_count,
    count_mutants,
    is_unlisted,
    judge_count,
    text_of,
)
from runner.vocabulary.expectations.values import same


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter(Kind):
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
            judge_count(count, _counter(facts, name), here, leaf=name, absent="no counters were read")
            for name, count in self.counts.items()
        ]

    def mutants(self, facts: StepFacts, here: Surroundings) -> Iterator[Mutant]:
        """Each counter on its own, with another count."""
        for name, count in self.counts.items():
            yield from count_mutants(count, _counter(facts, name), here, functools.partial(_with_counter, facts, name), leaf=name)


def _check(name: str, count: Any) -> None:
    if "." not in name:
        raise BadExpectation(f"the counter '{name}' has no namespace", f"did you mean 'inductor.{name}'?", path=(name,))
    check_count(count, name)
    if is_unlisted(count) and allows_zero(count):
        hint = "a misspelt name is always 0: expect at least 1"
        raise BadExpectation(f"the unlisted counter '{name}' may not be expected to be 0", hint, path=(name,))


def _counter(facts: StepFacts, name: str) -> int | None:
    namespace, _, counter = name.partition(".")
    return facts.counters.get(namespace, {}).get(counter, 0)


def _with_counter(facts: StepFacts, name: str, number: float) -> StepFacts:
    namespace, _, counter = name.partition(".")
    counters = {**facts.counters, namespace: {**facts.counters.get(namespace, {}), counter: int(number)}}
    return replace(facts, counters=counters)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric(Kind):
    """``metric: {generated_kernel_count: 1}``."""

    kind: ClassVar[str] = "metric"
    mutations: ClassVar[tuple[str, ...]] = COUNT_MUTATIONS
    counts: Mapping[str, Any]

    @classmethod
    def parse(cls, body: Any) -> "Metric":
        """Read the counts by name."""
        for name, count in body.items():
            check_count(count, name)
        return cls(counts=dict(body))

    def judge(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge each metric on its own. A metric that torch lacks is an error, because it would always be 0."""
        absent = "this torch has no such metric"
        return [judge_count(count, facts.metrics.get(name), here, leaf=name, absent=absent) for name, count in self.counts.items()]

    def mutants(self, facts: StepFacts, here: Surroundings) -> Iterator[Mutant]:
        """Each metric on its own, with another count."""
        for name, count in self.counts.items():
            yield from count_mutants(count, facts.metrics.get(name), here, functools.partial(_with_metric, facts, name), leaf=name)


def _with_metric(facts: StepFacts, name: str, number: float) -> StepFacts:
    return replace(facts, metrics={**facts.metrics, name: number})


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedFiles(Kind):
    """``generated_files: 1``."""

    kind: ClassVar[str] = "generated_files"
    mutations: ClassVar[tuple[str, ...]] = COUNT_MUTATIONS
    count: Any

    @classmethod
    def parse(cls, body: Any) -> "GeneratedFiles":
        """Read the count."""
        check_count(body)
        return cls(count=body)

    def judged(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge the number of pieces."""
        return [judge_count(self.count, len(facts.code), here, leaf="", absent="")]

    def mutants(self, facts: StepFacts, here: Surroundings) -> Iterator[Mutant]:
        """More pieces and fewer."""
        yield from count_mutants(self.count, len(facts.code), here, functools.partial(_with_files, facts))


def _with_files(facts: StepFacts, number: float) -> StepFacts:
    size = int(number)
    return replace(facts, code=(*facts.code[:size], *[""] * (size - len(facts.code))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs(Conditional):
    """``runs: {}``."""

    kind: ClassVar[str] = "runs"
    mutations: ClassVar[tuple[str, ...]] = ("an exception",)

    @classmethod
    def parse(cls, body: Any) -> "Runs":
        """Read the condition."""
        return cls(when=body.get("when"))

    def judged(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge that there is no exception."""
        observed = "no exception" if facts.raised is None else f"{facts.raised.type} while {facts.raised.phase}"
        return [Judgement.of(facts.raised is None, expected="no exception", observed=observed)]

    def mutants(self, facts: StepFacts, here: Surroundings) -> Iterator[Mutant]:
        """An exception."""
        raised = Raised(type="builtins.Exception", ancestors=("builtins.Exception",), message="raised", traceback="", phase="run")
        yield Mutant(name="an exception", facts=replace(facts, raised=raised))


CACHES = ("RemoteFxGraphCache", "RemoteAOTAutogradCache", "RemoteAutotuneCache", "RemoteBundledAutotuneCache", "RemoteDynamoPGOCache")
"""The remote caches with statistics in torch, by class name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteCache(Kind):
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
                check_count(count, cache, word)
        if all(allows_zero(count) for counts in body.values() for count in counts.values()):
            raise BadExpectation("every count may be 0: it passes without any request to a cache", "expect a hit, a miss or a put")
        return cls(caches={cache: dict(counts) for cache, counts in body.items()})

    def judge(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge each count on its own. A cache without requests from torch has the counts 0."""
        return [
            judge_count(count, _remote(facts, cache, word), here, leaf=f"{cache} {word}", absent=_ABSENT)
            for cache, counts in self.caches.items()
            for word, count in counts.items()
        ]

    def mutants(self, facts: StepFacts, here: Surroundings) -> Iterator[Mutant]:
        """Each count on its own, with another number."""
        for cache, counts in self.caches.items():
            for word, count in counts.items():
                changed = functools.partial(_with_remote, facts, cache, word)
                yield from count_mutants(count, _remote(facts, cache, word), here, changed, leaf=f"{cache} {word}")


_ABSENT = "no statistics of remote caches were read"


def _remote(facts: StepFacts, cache: str, word: str) -> int | None:
    return None if facts.remote is None else facts.remote.get(cache, {}).get(word, 0)


def _with_remote(facts: StepFacts, cache: str, word: str, number: float) -> StepFacts:
    remote = facts.remote or {}
    return replace(facts, remote={**remote, cache: {**remote.get(cache, {}), word: int(number)}})


_AT_LEAST_ONE = {"min": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls(Conditional):
    """``calls: {of: order, where: {same: true}, count: 1}``."""

    kind: ClassVar[str] = "calls"
    mutations: ClassVar[tuple[str, ...]] = (*COUNT_MUTATIONS, "entries that do not fit")
    of: str
    where: Mapping[str, Any] | None = None
    count: Any = None

    @classmethod
    def parse(cls, body: Any) -> "Calls":
        """Read the count; raise ``BadExpectation``."""
        if "count" in body:
            check_count(body["count"], "count")
        return cls(**body)

    def judged(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge the number of entries that match ``where``."""
        required = _AT_LEAST_ONE if self.count is None else self.count
        what = f"calls of {self.of}" + (f" where {text_of(dict(self.where))}" if self.where else "")
        found = facts.calls.get(self.of)
        if found is None:
            return [Judgement.error("the case has no such spy", expected=what)]
        entries = [decode(entry) for entry in found.entries]
        if self.where and len(entries) < found.count:
            return [Judgement.error(f"only {len(entries)} of {found.count} entries were recorded", expected=what)]
        number = sum(_matches(entry, self.where) for entry in entries) if self.where else found.count
        judged = judge_count(required, number, here, leaf="", absent="")
        shown = "\n".join(text_of(entry) for entry in entries[:20])
        return [replace(judged, expected=f"{what}: {judged.expected}", detail=shown)]

    def mutants(self, facts: StepFacts, here: Surroundings) -> Iterator[Mutant]:
        """More matching entries and fewer; and none, if some are required."""
        found = facts.calls.get(self.of)
        if found is None or not holds(self.when, here):
            return
        required = _AT_LEAST_ONE if self.count is None else self.count
        fitting = [entry for entry in found.entries if _matches(decode(entry), self.where or {})]
        others = [entry for entry in found.entries if entry not in fitting] if self.where else []
        number = len(fitting) if self.where else found.count

        def changed(count: float) -> StepFacts:
            entries = ((fitting or [_matching_entry(self.where or {})]) * int(count))[: int(count)]
            return _with_calls(facts, self.of, [*others, *entries])

        yield from count_mutants(required, number, here, changed)
        if self.where and fitting:
            yield Mutant(name="entries that do not fit", facts=_with_calls(facts, self.of, [*others, *[{}] * len(fitting)]))


def _with_calls(facts: StepFacts, spy: str, entries: Sequence[Mapping[str, Json]]) -> StepFacts:
    return replace(facts, calls={**facts.calls, spy: SpyCalls(count=len(entries), entries=tuple(entries))})


def _matching_entry(where: Mapping[str, Any]) -> dict[str, Json]:
    """Return an entry that matches ``where``."""
    return {key: encode(value["contains"] if isinstance(value, Mapping) else value) for key, value in where.items()}


def _matches(entry: Mapping[str, Any], where: Mapping[str, Any]) -> bool:
    return all(key in entry and _matches_value(entry[key], expected) for key, expected in where.items())


def _matches_value(value: Any, expected: Any) -> bool:
    if isinstance(expected, Mapping) and set(expected) == {"contains"}:
        parts = expected["contains"] if isinstance(expected["contains"], list) else [expected["contains"]]
        if isinstance(value, str):
            return all(isinstance(part, str) and part in value for part in parts)
        return isinstance(value, list) and all(any(same(item, part) for item in value) for part in parts)
    return same(value, expected)
