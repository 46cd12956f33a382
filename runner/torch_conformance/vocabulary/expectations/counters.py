"""Counts of what torch did in a step: counters, metrics, pieces of code, remote caches, calls of
spies, candidates of autotuning.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self

from torch_conformance.model.case_facts import TALLIED, Raised, SpyCalls, StepFacts, Tuning, Tunings
from torch_conformance.model.diagnostics import unknown
from torch_conformance.model.expectation import About, Mutant, Reading, Status, Verdict
from torch_conformance.model.protocol import Json, decode, encode
from torch_conformance.model.values import frozen
from torch_conformance.vocabulary.expectations.expectation_base import (
    AT_LEAST_ONE,
    BadExpectation,
    Conditional,
    ConditionalOnCode,
    OneCount,
    OnlyCounts,
    allows_zero,
    count_mutants,
    counts_in,
    is_unlisted,
    judge_count,
    or_some,
    parse_count,
    text_of,
)
from torch_conformance.vocabulary.expectations.filecheck import trivial_code
from torch_conformance.vocabulary.expectations.values import same
from torch_conformance.vocabulary.forms import TEMPLATE, Count, Form, Name, common
from torch_conformance.vocabulary.worker_session import Facts

_BY_NAME = Form(
    {
        "type": ["object", "string"],
        **TEMPLATE,
        "minProperties": 1,
        "additionalProperties": common("count"),
    }
)


@frozen
class _ByName(OnlyCounts):
    may_be_blessed = True
    counts: Mapping[str, Any]

    def numbers(self, facts: StepFacts) -> Mapping[str, float]:
        """Return all numbers, by their names."""
        raise NotImplementedError

    def number(self, facts: Reading, leaf: str) -> float | None:
        """Return a number. A counter that torch has not touched is 0, as in torch."""
        return self.numbers(facts).get(leaf, None if self.absent else 0)

    def near(self, facts: StepFacts, leaf: str) -> float:
        """Return the sum of the numbers that a leaf could have: of a cache, hits may be misses."""
        name = leaf.rpartition("_")[0] if "cache" in leaf else leaf
        return sum(
            number for known, number in self.numbers(facts).items() if known.startswith(name)
        )

    def is_reached(self, leaf: str, steps: Sequence[StepFacts], others: Sequence[Self]) -> bool:
        """A step counts it, every function does, or the spec expects another number under another
        condition.
        """
        count = self.body[leaf]
        return (
            leaf in self.of_trivial_function
            or leaf.endswith("cache_miss")  # as any function that a cache keeps
            or any(self.near(facts, leaf) for facts in steps)
            or any(
                isinstance(other_count := other.body.get(leaf, count), list) or other_count != count
                for other in others
            )
        )


_OF_DYNAMO = ("frames", "stats", "graph_break", "unimplemented", "recompiles")
"""Namespaces of counters that dynamo counts whichever compiler gets its graphs."""


class Counter(_ByName):
    """Values of torch._dynamo.utils.counters after the step, by namespace.name.

    ``counter: {inductor.fxgraph_cache_hit: 1, inductor.fxgraph_cache_miss: {min: 1}}``
    """

    form = Form({**_BY_NAME, "allOf": [{"$ref": "names.schema.json#/$defs/counter"}]})
    of_trivial_function = dict.fromkeys(
        (
            "frames.total",
            "frames.ok",
            "stats.unique_graphs",
            "stats.calls_captured",
            "aot_autograd.total",
            "aot_autograd.ok",
        ),
        1,
    )

    @property
    def subject(self) -> About:
        """Dynamo, where each of the counters is dynamo's own."""
        return (
            About.DYNAMO
            if all(name.partition(".")[0] in _OF_DYNAMO for name in self.body)
            else About.INDUCTOR
        )

    @classmethod
    def check(cls, body: Json) -> None:
        """Refuse unlisted counters without a namespace, or of which 0 is expected; the tables of
        names have the problems of the others.
        """
        for name, count in body.items():
            if is_unlisted(count) and "." not in name:
                raise BadExpectation(
                    f"the counter '{name}' has no namespace",
                    f"did you mean 'inductor.{name}'?",
                    name,
                )
            if is_unlisted(count) and allows_zero(count):
                hint = "a misspelt name is always 0: expect at least 1"
                raise BadExpectation(
                    f"the unlisted counter '{name}' may not be expected to be 0", hint, name
                )

    @property
    def claims_capture(self) -> bool:
        """How many graphs dynamo captured."""
        return "stats.unique_graphs" in self.body

    @classmethod
    def expression(cls, leaf: str) -> str:
        """Return the item of torch's counters."""
        namespace, _, name = leaf.partition(".")
        return f"torch._dynamo.utils.counters[{namespace!a}][{name!a}]"

    def numbers(self, facts: StepFacts) -> Mapping[str, float]:
        """Return the counters that torch has touched."""
        return {
            f"{namespace}.{name}": number
            for namespace, counters in facts.counters.items()
            for name, number in counters.items()
        }

    def most(self, facts: Reading, leaf: str) -> float | None:
        """Return how often a cache was asked."""
        return max(1, self.near(facts, leaf)) if "cache" in leaf else None

    def with_number(self, facts: Reading, leaf: str, number: float) -> Reading:
        """Return the facts with another number for a counter."""
        namespace, _, counter = leaf.partition(".")
        counters = {
            **facts.counters,
            namespace: {**facts.counters.get(namespace, {}), counter: int(number)},
        }
        return replace(facts, counters=counters)


class Metric(_ByName):
    """Values of torch._inductor.metrics after the step.

    ``metric: {generated_kernel_count: 1}``
    """

    form = Form({**_BY_NAME, "allOf": [{"$ref": "names.schema.json#/$defs/metric"}]})
    absent = "this torch has no such metric"  # it would always be 0
    of_trivial_function: ClassVar[Mapping[str, int]] = {
        "generated_kernel_count": 1,
        "ir_nodes_pre_fusion": 1,
    }

    @classmethod
    def expression(cls, leaf: str) -> str:
        """Return the attribute of torch's metrics."""
        return f"pkgutil.resolve_name({f'torch._inductor.metrics:{leaf}'!a})"

    def numbers(self, facts: StepFacts) -> Mapping[str, float]:
        """Return the metrics."""
        return facts.metrics

    def with_number(self, facts: Reading, leaf: str, number: float) -> Reading:
        """Return the facts with another number for a metric."""
        return replace(facts, metrics={**facts.metrics, leaf: number})


class GeneratedFiles(OneCount):
    """How many pieces of code the step generated or loaded from a cache.

    ``generated_files: 1``
    """

    may_be_blessed = True
    judges_code = True
    of_trivial_function: ClassVar[Mapping[str, int]] = {"": 1}

    def number(self, facts: Reading, leaf: str) -> float | None:
        """Return how many pieces there are."""
        return len(facts.code)

    def with_number(self, facts: Reading, leaf: str, number: float) -> Reading:
        """Return the facts with more pieces or fewer."""
        size = int(number)
        return replace(facts, code=(*facts.code[:size], *[""] * (size - len(facts.code))))


@frozen
class Runs(ConditionalOnCode):
    """The step ended without an exception. For a spec that claims no more than that.

    ``runs: {}``
    """

    about = About.ANYTHING
    is_offline = True

    def judged(self, facts: Reading) -> list[Verdict]:
        """Judge that there is no exception."""
        observed = (
            "no exception"
            if facts.raised is None
            else f"{facts.raised.type} while {facts.raised.phase}"
        )
        return [Verdict.of(facts.raised is None, "no exception", observed)]

    def mutants(self, facts: Reading) -> Iterator[Mutant]:
        """An exception."""
        raised = Raised(
            type="builtins.Exception",
            ancestors=("builtins.Exception",),
            message="raised",
            traceback="",
            phase="run",
        )
        yield Mutant("an exception", replace(facts, raised=raised))


CACHES = (
    "RemoteFxGraphCache",
    "RemoteAOTAutogradCache",
    "RemoteAutotuneCache",
    "RemoteBundledAutotuneCache",
    "RemoteDynamoPGOCache",
)
"""The remote caches with statistics in torch, by class name."""


@frozen
class RemoteCounts:
    """How often a remote cache had an entry, had none, and received one.

    ``remote_counts: {hit: 3, put: 1}``
    """

    form = Form({"title": "remote counts", "minProperties": 1})
    hit: Count = None
    """Look-ups that found an entry."""
    miss: Count = None
    """Look-ups that found none."""
    put: Count = None
    """Entries that were written."""
    exception: Count = None
    """Look-ups and writes that raised."""


@frozen
class RemoteCache(OnlyCounts):
    """What torch counted for its remote caches since the last clear_counters, by the cache's name
    in torch.

    The names are RemoteFxGraphCache, RemoteAOTAutogradCache, RemoteAutotuneCache,
    RemoteBundledAutotuneCache and RemoteDynamoPGOCache. Not all counts may be 0.

    ``remote_cache: {RemoteFxGraphCache: {hit: 3, miss: 1, put: 1}}``
    """

    form = Form(
        {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": {"$ref": "#/$defs/remote_counts"},
        }
    )
    needs_service = True
    absent = "no statistics of remote caches were read"
    caches: Mapping[str, Mapping[str, Any]]

    @classmethod
    def counts_of(cls, body: Json) -> Iterator[tuple[tuple[str, ...], Any]]:
        """Yield the counts of each cache."""
        for cache in body if isinstance(body, Mapping) else ():
            yield from (((cache, word), count) for word, count in body[cache].items())

    @classmethod
    def check(cls, body: Json) -> None:
        """Refuse unknown caches, and counts that may all be 0."""
        for cache in body:
            if cache not in CACHES:
                message, hint = unknown("remote cache", cache, CACHES)
                raise BadExpectation(message, hint, cache)
        if all(allows_zero(count) for _, count in cls.counts_of(body)):
            raise BadExpectation(
                "every count may be 0: it passes without any request to a cache",
                "expect a hit, a miss or a put",
            )

    def number(self, facts: Reading, leaf: str) -> float | None:
        """Return a count of a cache. One without requests from torch has the counts 0."""
        cache, word = leaf.split()
        return None if facts.remote is None else facts.remote.get(cache, {}).get(word, 0)

    def with_number(self, facts: Reading, leaf: str, number: float) -> Reading:
        """Return the facts with another number for a count of a cache."""
        cache, word = leaf.split()
        remote = facts.remote or {}
        return replace(
            facts, remote={**remote, cache: {**remote.get(cache, {}), word: int(number)}}
        )


@frozen
class Calls(ConditionalOnCode):
    """The entries of a spy since the case began, or since the last clear_counters.

    ``calls: {of: order, where: {same: true}, count: 1}``
    """

    about = About.ANYTHING
    may_be_blessed = True
    of: Name
    """The spy."""
    where: Annotated[Mapping[str, Any], Form({"type": "object", "minProperties": 1})] | None = None
    """Count only entries with these values; {contains: [...]} matches a part of a text or list.

    For example ``{same: true}``.
    """
    count: Count = None
    """The number of entries; at least 1 when absent."""

    def judged(self, facts: Reading) -> list[Verdict]:
        """Judge the number of entries that match ``where``."""
        what = f"calls of {self.of}" + (f" where {text_of(dict(self.where))}" if self.where else "")
        calls = facts.calls.get(self.of)
        if calls is None:
            return [Verdict.error(what, "the case has no such spy")]
        entries = [decode(entry) for entry in calls.entries]
        if self.where and len(entries) < calls.count:
            return [
                Verdict.error(what, f"only {len(entries)} of {calls.count} entries were recorded")
            ]
        number = (
            sum(_matches(entry, self.where) for entry in entries) if self.where else calls.count
        )
        judged = judge_count(or_some(self.count), number, facts)
        shown = "\n".join(text_of(entry) for entry in entries[:_SHOWN])
        return [replace(judged, expected=f"{what}: {judged.expected}", detail=shown)]

    def holds_of_every_compile(self, spies: Mapping[str, Any]) -> bool:
        """Whether any call is enough, of a function that every compile calls and that the spy
        leaves as it is.
        """
        spy = spies.get(self.of, {})
        return (
            self.where is None
            and spy.keys().isdisjoint(("around", "instead", "result"))
            and or_some(self.count) == AT_LEAST_ONE
            and (
                "graph" in spy
                or any(
                    str(path).removeprefix(f"{module}.") in names
                    for path in spy.values()
                    for module, names in trivial_code()["calls"].items()
                )
            )
        )

    def is_reached(self, leaf: str, steps: Sequence[StepFacts], others: Sequence[Self]) -> bool:
        """A step has an entry with the keys of ``where``, or the spec expects another number under
        another condition.
        """
        return isinstance(self.count, list) or any(
            set(self.where or ()) <= set(entry)
            for facts in steps
            for entry in facts.calls[self.of].entries
        )

    def mutants(self, facts: Reading) -> Iterator[Mutant]:
        """More matching entries and fewer; and none, if some are required."""
        calls = facts.calls[self.of]
        where = self.where or {}
        fitting = [entry for entry in calls.entries if _matches(decode(entry), where)]
        others = [entry for entry in calls.entries if entry not in fitting] if self.where else []
        # an entry that matches, where none was recorded
        sample = {
            key: encode(value["contains"] if isinstance(value, Mapping) else value)
            for key, value in where.items()
        }

        def with_entries(entries: Sequence[Mapping[str, Json]]) -> Reading:
            seen = SpyCalls(count=len(others) + len(entries), entries=(*others, *entries))
            return replace(facts, calls={**facts.calls, self.of: seen})

        number = len(fitting) if self.where else calls.count
        yield from count_mutants(
            or_some(self.count),
            number,
            facts,
            lambda count: with_entries(((fitting or [sample]) * int(count))[: int(count)]),
        )
        if self.where and fitting:
            yield Mutant("entries that do not fit", with_entries([{}] * len(fitting)))


_SHOWN = 20
"""The maximum number of entries or operations that a verdict shows."""


def _matches(entry: Facts, where: Mapping[str, Any]) -> bool:
    return all(
        key in entry and _matches_value(entry[key], expected) for key, expected in where.items()
    )


def _matches_value(value: object, expected: object) -> bool:
    if isinstance(expected, Mapping) and set(expected) == {"contains"}:
        parts = (
            expected["contains"]
            if isinstance(expected["contains"], list)
            else [expected["contains"]]
        )
        if isinstance(value, str):
            return all(isinstance(part, str) and part in value for part in parts)
        return isinstance(value, list) and all(
            any(same(item, part) for item in value) for part in parts
        )
    return same(value, expected)


_OPERATION = Form({"type": "string", "minLength": 1})
_OPERATIONS = Form(
    {
        "oneOf": [
            _OPERATION,
            {"type": "array", "items": _OPERATION, "minItems": 1, "uniqueItems": True},
        ]
    }
)


@frozen
class Choices(Conditional):
    """What became of the candidates of autotuning, for each operation that Inductor selected a
    kernel for in the step.

    These are GEMM, convolution and attention of the case's own functions. Every count holds for
    each operation. A backend that is named must have a candidate. Without max_autotune the only
    candidate is ATen's, which is not timed. A graph served from a cache has no selection.

    ``choices: {backend: CK, timed: {min: 1}, failed: 0}``
    ``choices: {backend: TRITON, of: gemm, tuned: 2, won: 1}``
    """

    form = Form({"minProperties": 1})
    backend: Literal[
        "ATEN",
        "TRITON",
        "CPP",
        "CK",
        "CKTILE",
        "CUTLASS",
        "CUTEDSL",
        "NVGEMM",
        "SUBGRAPH",
        "OTHER",
        "",
    ] = ""
    """The Inductor backend whose candidates are counted; all of them when absent. SUBGRAPH is a
    decomposition, OTHER a candidate of a class that torch does not have. For example ``CK``."""
    of: Annotated[tuple[str, ...], _OPERATIONS] = ()
    """The operations, by the name that Inductor gives the selection, or a group: gemm, convolution,
    attention. All when absent. For example ``gemm``."""
    tuned: Count = None
    """How many such operations there were; at least 1 when absent."""
    rendered: Count = None
    """Candidates that Inductor wrote."""
    compiled: Count = None
    """Candidates that were compiled."""
    failed: Count = None
    """Candidates that could not be compiled or timed, and were discarded."""
    refused: Count = None
    """Candidates that were compiled, and that Composable Kernel refused to run for these sizes:
    they are not failed."""
    timed: Count = None
    """Candidates that were timed."""
    won: Count = None
    """1 where the selected candidate is of the backend, else 0."""

    @classmethod
    def read(cls, body: Json) -> "Choices":
        """Read the counts; raise ``BadExpectation`` for a number of winners without a backend:
        there is one in each selection.
        """
        of = body.get("of", [])
        choices = cls(**{**body, "of": tuple([of] if isinstance(of, str) else of)})
        if not choices.backend and choices.won is not None:
            raise BadExpectation(
                "won without a backend: of all candidates one wins",
                "add backend: TRITON, or another",
                "won",
            )
        return choices

    @property
    def _counts(self) -> Mapping[str, Any]:
        """The counts of each operation.

        A backend must have candidates where nothing else asks for one: 0 of 0 failed claims
        nothing.
        """
        counts = {name: getattr(self, name) for name in TALLIED if getattr(self, name) is not None}
        if self.backend and "rendered" not in counts and all(map(allows_zero, counts.values())):
            return {"rendered": AT_LEAST_ONE, **counts}
        return counts

    def judged(self, facts: Reading) -> Iterator[Verdict]:
        """Judge how many operations there were, then each count for each of them.

        The judgement of a count shows the first that fails.
        """
        tunings = list(facts.tunings.of(self.of))
        candidates = f"candidates of {self.backend}" if self.backend else "candidates"
        if facts.tunings.count > len(facts.tunings.found):
            observed = (
                f"{facts.tunings.count} operations were selected for, and only "
                f"{len(facts.tunings.found)} recorded"
            )
            yield Verdict.error(f"every operation's {candidates}", observed)
            return
        detail = "\n".join(map(str, tunings[:_SHOWN]))

        def shown(judgement: Verdict, what: str, observed: str) -> Verdict:
            count = judgement.expected.removeprefix(f"{judgement.leaf} ")
            return replace(judgement, expected=f"{what}: {count}", observed=observed, detail=detail)

        number = judge_count(or_some(self.tuned), len(tunings), facts, leaf="tuned")
        what = f" of {', '.join(self.of)}" if self.of else ""
        yield shown(number, f"operations{what} that inductor selects a kernel for", number.observed)
        for name, count in self._counts.items() if tunings else ():
            numbers = [getattr(tuning.tally(self.backend), name) for tuning in tunings]
            judged = [judge_count(count, number, facts, leaf=name) for number in numbers]
            failed = (at for at, verdict in enumerate(judged) if verdict.status is Status.FAILED)
            first = next(failed, 0)
            tuning, worst = tunings[first], judged[first]
            error = tuning.tally(self.backend).error if worst.status is Status.FAILED else ""
            observed = f"{worst.observed} for {tuning.op}" + (
                f"; first error: {error}" if error else ""
            )
            verb = _VERBS.get(name, name)
            yield shown(worst, f"{candidates} that {verb}, for each operation", observed)

    def mutants(self, facts: Reading) -> Iterator[Mutant]:
        """No operation at all; each count of one operation on its own, with another number."""
        tuned = list(facts.tunings.of(self.of))
        if not parse_count(counts_in(or_some(self.tuned))[0]).holds(0):
            yield Mutant("no operation", replace(facts, tunings=Tunings()), leaf="tuned")
        for name, count in self._counts.items() if tuned else ():
            first = tuned[0]
            number = getattr(first.tally(self.backend), name)

            def changed(
                other: float, first: Tuning = first, name: str = name, number: int = number
            ) -> Reading:
                # without a backend the sum is changed, by the tally of one of them
                backend: str = self.backend or next(iter(first.by_backend), "OTHER")
                tally = first.tally(backend)
                counts: dict[str, Any] = {name: getattr(tally, name) + int(other) - number}
                tuning = replace(
                    first, by_backend={**first.by_backend, backend: replace(tally, **counts)}
                )
                tunings = tuple(
                    tuning if recorded is first else recorded for recorded in facts.tunings.found
                )
                return replace(facts, tunings=replace(facts.tunings, found=tunings))

            yield from count_mutants(count, number, facts, changed, leaf=name, where=first.op)


_VERBS = {"rendered": "were rendered", "timed": "were timed"}
