"""``candidates``: each candidate of autotuning, also one that loses, computes what eager computes."""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from runner.core.conditions import Surroundings, holds
from runner.core.protocol import Json
from runner.vocabulary.expectations.again import Again, comparing, tensors_of, trouble
from runner.vocabulary.expectations.base import EAGER, OUTPUT, BadExpectation, Judgement, Mutant, StepFacts
from runner.vocabulary.expectations.close import Close

_SHOWN = 5
"""The maximum number of candidates that a verdict names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """``candidates: {at_most: 4, min: 2, atol: 1e-2, rtol: 1e-2}``."""

    kind: ClassVar[str] = "candidates"
    mutations: ClassVar[tuple[str, ...]] = ("another answer", "no candidate ran")
    at_most: int = 16
    min: int = 2
    atol: float | None = None
    rtol: float | None = None
    when: Mapping[str, Any] | None = None

    @classmethod
    def parse(cls, body: Any) -> "Candidates":
        """Read the arguments; raise ``BadExpectation`` for tolerances that ``close`` rejects, and for a minimum above the maximum."""
        found = cls(**body)
        Close.parse({word: body[word] for word in ("atol", "rtol") if word in body})
        if found.min > found.at_most:
            raise BadExpectation(f"min is {found.min}, and at most {found.at_most} are tried", "raise at_most", path=("min",))
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """The step's result and its reference."""
        return (OUTPUT, EAGER)

    @property
    def _close(self) -> Close:
        return Close(atol=self.atol, rtol=self.rtol)

    def measurement(self) -> Mapping[str, Json] | None:
        """The worker compiles the function for each candidate, and measures as ``close`` does."""
        return {"at_most": self.at_most, "close": self._close.measurement()}

    def judge(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge the answer of each candidate by the rule of ``close``. The judgement shows the first that fails."""
        if not holds(self.when, here):
            return [Judgement.not_applicable()]
        expected = f"each candidate of autotuning close to {EAGER}"
        if (problem := trouble(facts, expected)) is not None:
            return [problem]
        tried = facts.measured["tried"]
        ran = [one for one in tried if "raised" not in one]
        for one in ran:
            (judgement,) = self._close.judge(replace(facts, measured=one["measured"]), here)
            if judgement.status.value != "held":
                observed = f"candidate {_name(one)}: {judgement.observed}"
                return [dataclasses.replace(judgement, expected=f"{expected}: {judgement.expected}", observed=observed)]
        observed = _summary(facts.measured["seen"], tried, self.at_most)
        if len(ran) < self.min:
            return [Judgement.failed(expected=f"at least {self.min} candidates that run", observed=observed)]
        return [Judgement.passed(expected=expected, observed=observed)]

    def mutants(self, facts: StepFacts, here: Surroundings) -> Iterator[Mutant]:
        """A wrong answer of the last candidate; candidates that could not run."""
        tried = facts.measured["tried"]
        last = max(number for number, one in enumerate(tried) if "raised" not in one)
        wrong = {**tried[last], "measured": _wrong(tried[last]["measured"])}
        yield Mutant(name="another answer", facts=facts.with_measured(tried=[*tried[:last], wrong, *tried[last + 1 :]]))
        yield Mutant(name="no candidate ran", facts=facts.with_measured(tried=[{**one, "raised": "an exception"} for one in tried]))


def _wrong(measured: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**measured, "structure": f"{measured['structure']} of another answer"}


def _name(one: Mapping[str, Any]) -> str:
    return " and ".join(one["chosen"]) or "(none)"


def _summary(seen: int, tried: list[Any], at_most: int) -> str:
    """Describe how many candidates there were, which were tried, and which could not run."""
    if not seen:
        return "autotuning had no candidates"
    ran = [_name(one) for one in tried if "raised" not in one]
    failed = [f"{_name(one)} ({one['raised']})" for one in tried if "raised" in one]
    bound = f", at most {at_most} are tried" if seen > len(tried) else ""
    text = f"{len(ran)} of {seen} candidates ran{bound}: {_shown(ran)}"
    return f"{text}; {len(failed)} could not run: {_shown(failed)}" if failed else text


def _shown(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more if names else "none"


def repeat(arguments: Mapping[str, Any], again: Again) -> Json:
    """Compile and call the function once for each candidate, and compare the result with eager's."""
    tried = [_tried(arguments, again, 0)]
    seen = tried[0].pop("seen")
    if not seen:
        return {"seen": 0, "tried": [], "tensors": tensors_of(again.result)}
    for number in _spread(seen, arguments["at_most"])[1:]:
        one = _tried(arguments, again, number)
        one.pop("seen")
        tried.append(one)
    return {"seen": seen, "tried": tried, "tensors": tensors_of(again.result)}


def _spread(count: int, most: int) -> list[int]:
    """Return at most ``most`` numbers below ``count``, evenly spread, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return sorted({math.floor(index * (count - 1) / max(most - 1, 1)) for index in range(most)})


def _tried(arguments: Mapping[str, Any], again: Again, number: int) -> dict[str, Any]:
    result, raised = None, ""
    with again.with_candidate(number) as sites:
        try:
            result = again.run()
        except Exception as error:  # torch may raise anything while it compiles a candidate, and autotuning drops the candidate then
            raised = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"[:200]
    found: dict[str, Any] = {"number": number, "chosen": [names[0] for names in sites], "seen": max(map(len, sites), default=0)}
    if raised:
        return {**found, "raised": raised}
    if not sites:
        return found
    with comparing():
        return {**found, "measured": again.close(arguments["close"], result)}
