"""``calls``: the calls that a spy recorded."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from runner.core.conditions import Surroundings, holds
from runner.core.observation import SpyCalls
from runner.core.protocol import Json, decode, encode
from runner.vocabulary.expectations.base import BadExpectation, Judgement, Mutant, OfStep, StepFacts, text_of
from runner.vocabulary.expectations.counts import COUNT_MUTATIONS, check_count, count_mutants, judge_count
from runner.vocabulary.expectations.equality import same

_AT_LEAST_ONE = {"min": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls(OfStep):
    """``calls: {of: order, where: {same: true}, count: 1}``."""

    kind: ClassVar[str] = "calls"
    mutations: ClassVar[tuple[str, ...]] = (*COUNT_MUTATIONS, "entries that do not fit")
    of: str
    where: Mapping[str, Any] | None = None
    count: Any = None
    when: Mapping[str, Any] | None = None

    @classmethod
    def parse(cls, body: Any) -> "Calls":
        """Read the count; raise ``BadExpectation``."""
        if "count" in body:
            try:
                check_count(body["count"])
            except BadExpectation as error:
                raise BadExpectation(str(error), error.hint, path=("count", *error.path)) from error
        return cls(**body)

    def judge(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge the number of entries that match ``where``."""
        if not holds(self.when, here):
            return [Judgement.not_applicable()]
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
            return _with(facts, self.of, [*others, *entries])

        yield from count_mutants(required, number, here, changed)
        if self.where and fitting:
            yield Mutant(name="entries that do not fit", facts=_with(facts, self.of, [*others, *[{}] * len(fitting)]))


def _with(facts: StepFacts, spy: str, entries: Sequence[Mapping[str, Json]]) -> StepFacts:
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
