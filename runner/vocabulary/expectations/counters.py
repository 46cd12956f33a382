"""Counts of what torch did in a step: ``counter``, ``metric``, ``generated_files``, ``runs``, ``remote_cache``, ``calls`` of spies."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from runner.model.case_facts import Raised, SpyCalls
from runner.model.conditions import Surroundings, holds
from runner.model.diagnostics import unknown
from runner.model.expectation import Judgement, Mutant, StepFacts
from runner.model.protocol import Json, decode, encode
from runner.vocabulary.expectations.expectation_base import (
    AT_LEAST_ONE,
    COUNT_MUTATIONS,
    BadExpectation,
    Conditional,
    Counts,
    allows_zero,
    check_count,
    count_mutants,
    is_unlisted,
    judge_count,
    text_of,
)
from runner.vocabulary.expectations.values import same


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter(Counts):
    """``counter: {inductor.fxgraph_cache_hit: 1, inductor.fxgraph_cache_miss: {min: 1}}``, by ``namespace.name``."""

    kind: ClassVar[str] = "counter"
    of_trivial_function: ClassVar[Mapping[str, int]] = dict.fromkeys(
        ("frames.total", "frames.ok", "stats.unique_graphs", "stats.calls_captured", "aot_autograd.total", "aot_autograd.ok"), 1
    )
    counts: Mapping[str, Any]

    @classmethod
    def parse(cls, body: Any) -> "Counter":
        """Read the counts; raise ``BadExpectation``."""
        for name, count in body.items():
            if "." not in name:
                raise BadExpectation(f"the counter '{name}' has no namespace", f"did you mean 'inductor.{name}'?", path=(name,))
            check_count(count, name)
            if is_unlisted(count) and allows_zero(count):
                hint = "a misspelt name is always 0: expect at least 1"
                raise BadExpectation(f"the unlisted counter '{name}' may not be expected to be 0", hint, path=(name,))
        return cls(counts=dict(body))

    @property
    def claims_capture(self) -> bool:
        """How many graphs dynamo captured."""
        return "stats.unique_graphs" in self.counts

    @property
    def by_leaf(self) -> Mapping[str, Any]:
        """Each counter."""
        return self.counts

    def number(self, facts: StepFacts, leaf: str) -> float | None:
        """Return the number of a counter. One that torch has not touched is 0, as in torch."""
        namespace, _, counter = leaf.partition(".")
        return facts.counters.get(namespace, {}).get(counter, 0)

    def with_number(self, facts: StepFacts, leaf: str, number: float) -> StepFacts:
        """Return the facts with another number for a counter."""
        namespace, _, counter = leaf.partition(".")
        counters = {**facts.counters, namespace: {**facts.counters.get(namespace, {}), counter: int(number)}}
        return replace(facts, counters=counters)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric(Counts):
    """``metric: {generated_kernel_count: 1}``. A metric that torch lacks is an error, because it would always be 0."""

    kind: ClassVar[str] = "metric"
    absent: ClassVar[str] = "this torch has no such metric"
    of_trivial_function: ClassVar[Mapping[str, int]] = {"generated_kernel_count": 1, "ir_nodes_pre_fusion": 1}
    counts: Mapping[str, Any]

    @classmethod
    def parse(cls, body: Any) -> "Metric":
        """Read the counts by name."""
        for name, count in body.items():
            check_count(count, name)
        return cls(counts=dict(body))

    @property
    def by_leaf(self) -> Mapping[str, Any]:
        """Each metric."""
        return self.counts

    def number(self, facts: StepFacts, leaf: str) -> float | None:
        """Return the number of a metric."""
        return facts.metrics.get(leaf)

    def with_number(self, facts: StepFacts, leaf: str, number: float) -> StepFacts:
        """Return the facts with another number for a metric."""
        return replace(facts, metrics={**facts.metrics, leaf: number})


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedFiles(Counts):
    """``generated_files: 1``: the number of pieces of code."""

    kind: ClassVar[str] = "generated_files"
    of_trivial_function: ClassVar[Mapping[str, int]] = {"": 1}
    count: Any

    @classmethod
    def parse(cls, body: Any) -> "GeneratedFiles":
        """Read the count."""
        check_count(body)
        return cls(count=body)

    @property
    def by_leaf(self) -> Mapping[str, Any]:
        """The count alone."""
        return {"": self.count}

    def number(self, facts: StepFacts, leaf: str) -> float | None:
        """Return how many pieces there are."""
        return len(facts.code)

    def with_number(self, facts: StepFacts, leaf: str, number: float) -> StepFacts:
        """Return the facts with more pieces or fewer."""
        size = int(number)
        return replace(facts, code=(*facts.code[:size], *[""] * (size - len(facts.code))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs(Conditional):
    """``runs: {}``."""

    kind: ClassVar[str] = "runs"
    mutations: ClassVar[tuple[str, ...]] = ("an exception",)

    def judged(self, facts: StepFacts, surroundings: Surroundings) -> list[Judgement]:
        """Judge that there is no exception."""
        observed = "no exception" if facts.raised is None else f"{facts.raised.type} while {facts.raised.phase}"
        return [Judgement.of(facts.raised is None, expected="no exception", observed=observed)]

    def mutants(self, facts: StepFacts, surroundings: Surroundings) -> Iterator[Mutant]:
        """An exception."""
        raised = Raised(type="builtins.Exception", ancestors=("builtins.Exception",), message="raised", traceback="", phase="run")
        yield Mutant(name="an exception", facts=replace(facts, raised=raised))


CACHES = ("RemoteFxGraphCache", "RemoteAOTAutogradCache", "RemoteAutotuneCache", "RemoteBundledAutotuneCache", "RemoteDynamoPGOCache")
"""The remote caches with statistics in torch, by class name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteCache(Counts):
    """``remote_cache: {RemoteFxGraphCache: {hit: 3, miss: 1, put: 1}}``. A cache without requests from torch has the counts 0."""

    kind: ClassVar[str] = "remote_cache"
    absent: ClassVar[str] = "no statistics of remote caches were read"
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

    @property
    def by_leaf(self) -> Mapping[str, Any]:
        """Each count of each cache, by the names of both."""
        return {f"{cache} {word}": count for cache, counts in self.caches.items() for word, count in counts.items()}

    def number(self, facts: StepFacts, leaf: str) -> float | None:
        """Return a count of a cache."""
        cache, word = leaf.split()
        return None if facts.remote is None else facts.remote.get(cache, {}).get(word, 0)

    def with_number(self, facts: StepFacts, leaf: str, number: float) -> StepFacts:
        """Return the facts with another number for a count of a cache."""
        cache, word = leaf.split()
        remote = facts.remote or {}
        return replace(facts, remote={**remote, cache: {**remote.get(cache, {}), word: int(number)}})


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls(Conditional):
    """``calls: {of: order, where: {same: true}, count: 1}``."""

    kind: ClassVar[str] = "calls"
    mutations: ClassVar[tuple[str, ...]] = (*COUNT_MUTATIONS, "entries that do not fit")
    of: str
    where: Mapping[str, Any] | None = None
    count: Any = None

    @classmethod
    def check(cls, body: Any) -> None:
        """Check the count."""
        if "count" in body:
            check_count(body["count"], "count")

    def judged(self, facts: StepFacts, surroundings: Surroundings) -> list[Judgement]:
        """Judge the number of entries that match ``where``."""
        required = AT_LEAST_ONE if self.count is None else self.count
        what = f"calls of {self.of}" + (f" where {text_of(dict(self.where))}" if self.where else "")
        calls = facts.calls.get(self.of)
        if calls is None:
            return [Judgement.error("the case has no such spy", expected=what)]
        entries = [decode(entry) for entry in calls.entries]
        if self.where and len(entries) < calls.count:
            return [Judgement.error(f"only {len(entries)} of {calls.count} entries were recorded", expected=what)]
        number = sum(_matches(entry, self.where) for entry in entries) if self.where else calls.count
        judged = judge_count(required, number, surroundings, leaf="", absent="")
        shown = "\n".join(text_of(entry) for entry in entries[:20])
        return [replace(judged, expected=f"{what}: {judged.expected}", detail=shown)]

    def mutants(self, facts: StepFacts, surroundings: Surroundings) -> Iterator[Mutant]:
        """More matching entries and fewer; and none, if some are required."""
        calls = facts.calls.get(self.of)
        if calls is None or not holds(self.when, surroundings):
            return
        required = AT_LEAST_ONE if self.count is None else self.count
        where = self.where or {}
        fitting = [entry for entry in calls.entries if _matches(decode(entry), where)]
        others = [entry for entry in calls.entries if entry not in fitting] if self.where else []
        # an entry that matches, where none was recorded
        sample = {key: encode(value["contains"] if isinstance(value, Mapping) else value) for key, value in where.items()}

        def with_entries(entries: Sequence[Mapping[str, Json]]) -> StepFacts:
            seen = SpyCalls(count=len(others) + len(entries), entries=(*others, *entries))
            return replace(facts, calls={**facts.calls, self.of: seen})

        number = len(fitting) if self.where else calls.count
        yield from count_mutants(
            required, number, surroundings, lambda count: with_entries(((fitting or [sample]) * int(count))[: int(count)])
        )
        if self.where and fitting:
            yield Mutant(name="entries that do not fit", facts=with_entries([{}] * len(fitting)))


def _matches(entry: Mapping[str, Any], where: Mapping[str, Any]) -> bool:
    return all(key in entry and _matches_value(entry[key], expected) for key, expected in where.items())


def _matches_value(value: Any, expected: Any) -> bool:
    if isinstance(expected, Mapping) and set(expected) == {"contains"}:
        parts = expected["contains"] if isinstance(expected["contains"], list) else [expected["contains"]]
        if isinstance(value, str):
            return all(isinstance(part, str) and part in value for part in parts)
        return isinstance(value, list) and all(any(same(item, part) for item in value) for part in parts)
    return same(value, expected)
