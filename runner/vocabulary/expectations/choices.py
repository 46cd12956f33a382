"""``choices``: what became of the candidates of autotuning, for each operation that inductor selected a kernel for."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from runner.model.case_facts import TALLIED, Tuning, Tunings
from runner.model.conditions import Surroundings
from runner.model.expectation import Judgement, Mutant, Status, StepFacts
from runner.vocabulary.expectations.compilation import check_counts
from runner.vocabulary.expectations.expectation_base import (
    AT_LEAST_ONE,
    COUNT_MUTATIONS,
    BadExpectation,
    Conditional,
    count_mutants,
    judge_count,
    parse_count,
)

_SHOWN = 20
"""The maximum number of operations that a verdict shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices(Conditional):
    """``choices: {backend: CK, of: gemm, tuned: 2, timed: {min: 1}, failed: 0, won: 1}``; each count holds for each operation."""

    kind: ClassVar[str] = "choices"
    mutations: ClassVar[tuple[str, ...]] = ("no operation", *COUNT_MUTATIONS)
    backend: str = ""
    of: tuple[str, ...] = ()
    tuned: Any = None
    rendered: Any = None
    compiled: Any = None
    failed: Any = None
    timed: Any = None
    won: Any = None

    @classmethod
    def parse(cls, body: Any) -> "Choices":
        """Read the counts; raise ``BadExpectation``, also for a number of winners without a backend: there is one in each selection."""
        check_counts(body, "tuned", *TALLIED)
        of = body.get("of", [])
        choices = cls(**{**body, "of": tuple([of] if isinstance(of, str) else of)})
        if not choices.backend and choices.won is not None:
            raise BadExpectation("won without a backend: of all candidates one wins", "add backend: TRITON, or another", path=("won",))
        return choices

    @property
    def _counts(self) -> Mapping[str, Any]:
        """The counts of each operation. A backend must have candidates where nothing else asks for one: 0 of 0 failed is no claim."""
        counts = {name: getattr(self, name) for name in TALLIED if getattr(self, name) is not None}
        if self.backend and "rendered" not in counts and all(_allows_none(count) for count in counts.values()):
            return {"rendered": AT_LEAST_ONE, **counts}
        return counts

    def judged(self, facts: StepFacts, surroundings: Surroundings) -> list[Judgement]:
        """Judge how many operations there were, then each count for each of them. The judgement of a count shows the first that fails."""
        tunings = list(facts.tunings.of(self.of))
        candidates = f"candidates of {self.backend}" if self.backend else "candidates"
        if facts.tunings.count > len(facts.tunings.found):
            observed = f"{facts.tunings.count} operations were selected for, and only {len(facts.tunings.found)} recorded"
            return [Judgement.error(observed, expected=f"every operation's {candidates}")]
        detail = "\n".join(map(str, tunings[:_SHOWN]))
        required = AT_LEAST_ONE if self.tuned is None else self.tuned
        number = judge_count(required, len(tunings), surroundings, leaf="tuned", absent="")
        what = f" of {', '.join(self.of)}" if self.of else ""
        number = replace(number, expected=f"operations{what} that inductor selects a kernel for: {_plain(number, 'tuned')}", detail=detail)
        judgements = [number]
        for name, count in self._counts.items() if tunings else ():
            judged = [
                (tuning, judge_count(count, getattr(tuning.tally(self.backend), name), surroundings, leaf=name, absent=""))
                for tuning in tunings
            ]
            tuning, worst = next(((tuning, result) for tuning, result in judged if result.status is Status.FAILED), judged[0])
            expected = f"{candidates} that {_VERBS[name]}, for each operation: {_plain(worst, name)}"
            error = tuning.tally(self.backend).error
            observed = f"{worst.observed} for {tuning.op}" + (f"; first error: {error}" if error and worst.status is Status.FAILED else "")
            judgements.append(replace(worst, expected=expected, observed=observed, detail=detail))
        return judgements

    def mutants(self, facts: StepFacts, surroundings: Surroundings) -> Iterator[Mutant]:
        """No operation at all; each count of one operation on its own, with another number."""
        tuned = list(facts.tunings.of(self.of))
        if self.tuned is None or not parse_count(self.tuned[0]["value"] if isinstance(self.tuned, list) else self.tuned).holds(0):
            yield Mutant(name="no operation", facts=replace(facts, tunings=Tunings()), leaf="tuned")
        for name, count in self._counts.items() if tuned else ():
            first = tuned[0]
            number = getattr(first.tally(self.backend), name)

            def changed(other: float, first: Tuning = first, name: str = name, number: int = number) -> StepFacts:
                # without a backend the sum is changed, by the tally of one of them
                backend = self.backend or next(iter(first.by_backend), "OTHER")
                known = first.tally(backend)
                counts: dict[str, Any] = {name: getattr(known, name) + int(other) - number}
                tally = replace(known, **counts)
                tuning = replace(first, by_backend={**first.by_backend, backend: tally})
                tunings = tuple(tuning if recorded is first else recorded for recorded in facts.tunings.found)
                return replace(facts, tunings=replace(facts.tunings, found=tunings))

            yield from count_mutants(count, number, surroundings, changed, leaf=name, where=first.op)


_VERBS = {"rendered": "were rendered", "compiled": "compiled", "failed": "failed", "timed": "were timed", "won": "won"}


def _plain(judgement: Judgement, leaf: str) -> str:
    return judgement.expected.removeprefix(f"{leaf} ")


def _allows_none(count: Any) -> bool:
    values = [entry["value"] for entry in count] if isinstance(count, list) else [count]
    return any(parse_count(value).holds(0) for value in values)
