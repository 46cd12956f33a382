"""Shared by what is expected of a compile: the name of the facts, directives on a recorded text, events with a reason."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from runner.core.conditions import Surroundings, holds
from runner.core.expectation import Status
from runner.vocabulary.expectations.base import BadExpectation, Judgement, Mutant, Recorded, StepFacts
from runner.vocabulary.expectations.counts import COUNT_MUTATIONS, check_count, count_mutants, judge_count
from runner.vocabulary.expectations.filecheck import FileCheck
from runner.vocabulary.expectations.specific import check_specific
from runner.vocabulary.expectations.texts import TEXT_MUTATIONS, check_text, judge_text, parts_of, text_mutants

COMPILATION = "<compilation>."
"""The beginning of the name of what was recorded of the compiles of a step; no value of a spec can have this name."""

NOT_MEASURED = "nothing was measured"
AT_LEAST_ONE = {"min": 1}


def check_counts(body: Mapping[str, Any], *keys: str) -> None:
    """Check the counts at some keys; raise ``BadExpectation``."""
    for key in keys:
        if key in body:
            try:
                check_count(body[key])
            except BadExpectation as error:
                raise BadExpectation(str(error), error.hint, path=(key, *error.path)) from error


def judge_checks(checks: FileCheck, text: str, here: Surroundings) -> Judgement:
    """Judge directives on a text; the leaf is ``checks``."""
    (judged,) = checks.judge(StepFacts(code=(text,)), here)
    return replace(judged, leaf="checks")


def checks_mutants(checks: FileCheck, text: str, here: Surroundings, changed: Callable[[str], StepFacts]) -> Iterator[Mutant]:
    """Yield the mutants of directives. ``changed`` makes facts with a text."""
    for mutant in checks.mutants(StepFacts(code=(text,)), here):
        facts = None if mutant.facts is None else changed(mutant.facts.code[0])
        yield replace(mutant, facts=facts, leaf="checks")


@dataclass(frozen=True, slots=True, kw_only=True)
class Events(Recorded):
    """What is expected of events of a step that have a reason: ``{count: 1, reason: {contains: TEXT}}``. A kind of them is a subclass."""

    kind: ClassVar[str]
    what: ClassVar[str]
    """The events, in words."""
    mutations: ClassVar[tuple[str, ...]] = (*COUNT_MUTATIONS, *TEXT_MUTATIONS)
    count: Any = None
    reason: Mapping[str, Any] | None = None
    when: Mapping[str, Any] | None = None

    @classmethod
    def parse(cls, body: Any) -> Self:
        """Read count and reason; raise ``BadExpectation``."""
        made = cls(**body)
        made._check()
        return made

    @property
    def _wanted(self) -> tuple[tuple[str, ...], str | None]:
        """The parts and the pattern of a reason."""
        reason = self.reason or {}
        return parts_of(reason.get("contains")), reason.get("matches")

    def _check(self) -> None:
        """Raise ``BadExpectation`` for a wrong count or pattern, and for a reason where none may occur."""
        if self.count is not None:
            check_counts({"count": self.count}, "count")
        if self.reason is not None:
            try:
                check_text(self.reason)
                check_specific(self.reason)
            except BadExpectation as error:
                raise BadExpectation(str(error), error.hint, path=("reason", *error.path)) from error
            if self.count == 0:
                raise BadExpectation(f"a reason of 0 {self.what}", "expect at least 1, or remove the reason", path=("reason",))

    def judge(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge how many there were, then the reason of each."""
        if not holds(self.when, here):
            return [Judgement.not_applicable()]
        if facts.measured is None or not facts.measured["recorded"]:
            why = NOT_MEASURED if facts.measured is None else "the backend of the case compiles nothing"
            return [Judgement.error(why, expected=f"the {self.what} of the step")]
        events = facts.measured["events"]
        required = AT_LEAST_ONE if self.count is None else self.count
        judged = judge_count(required, facts.measured["count"], here, leaf="count", absent="")
        counted = replace(judged, expected=f"{self.what}: {judged.expected.removeprefix('count ')}", detail=_shown(events))
        return [counted] if self.reason is None else [counted, self._judge_reasons(events)]

    def _judge_reasons(self, events: Sequence[Mapping[str, str]]) -> Judgement:
        assert self.reason is not None
        judged = Judgement.failed(expected=f"{self.what} with a reason", observed="there were none", leaf="reason")
        for event in events:
            text = event["reason"]
            judged = judge_text(
                text, parts_of(self.reason.get("contains")), self.reason.get("matches"), what=f"a reason in {event['frame']}"
            )
            judged = replace(judged, leaf="reason")
            if judged.status is not Status.HELD:
                break
        return judged

    def mutants(self, facts: StepFacts, here: Surroundings) -> Iterator[Mutant]:
        """Yield more of them and fewer, and each reason without what is expected of it."""
        if not holds(self.when, here):
            return
        required, events = AT_LEAST_ONE if self.count is None else self.count, facts.measured["events"]
        observed = facts.measured["count"]
        yield from count_mutants(required, observed, here, lambda number: facts.with_measured(count=int(number)), leaf="count")
        for index, event in enumerate(events if self.reason is not None else ()):
            for mutant in text_mutants(event["reason"], *self._wanted, _Changed(facts, index)):
                yield replace(mutant, leaf="reason", where=f"{event['frame']}: {mutant.where}")


@dataclass(frozen=True, slots=True)
class _Changed:
    """Makes facts in which one event has another reason."""

    facts: StepFacts
    index: int

    def __call__(self, text: str) -> StepFacts:
        events = [{**event, "reason": text} if at == self.index else event for at, event in enumerate(self.facts.measured["events"])]
        return self.facts.with_measured(events=events)


def _shown(events: Sequence[Mapping[str, str]]) -> str:
    more = [f"and {len(events) - _MOST} more"] if len(events) > _MOST else []
    return "\n".join([*(f"{event['frame']}: {_cut(event['reason'])}" for event in events[:_MOST]), *more])


def _cut(reason: str) -> str:
    return reason if len(reason) <= _LONGEST else f"{reason[: _LONGEST - 3]}..."


_MOST, _LONGEST = 10, 1_000
"""Events in a detail, and characters of a reason: torch's own reasons end with a link."""
