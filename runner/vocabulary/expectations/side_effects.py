"""Side effects of a call: arguments, parameters and buffers after the call are compared with those of eager.

A spec has no key for it. Every ``call`` and ``aot`` step of a case with an eager reference is judged, except with ``side_effects: false``.
The tolerance is that of the step's ``close: {to: eager}``, else that of another step's, else the dtype's.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from runner.core.case import Step
from runner.core.conditions import Surroundings, holds, without_code
from runner.core.observation import Effects
from runner.core.protocol import Json
from runner.vocabulary.expectations.base import EAGER, Judgement
from runner.vocabulary.expectations.close import Close
from runner.vocabulary.steps import parsed

KIND = "side-effects"
"""The kind of its verdicts."""

_EXPECTED = "arguments, parameters and buffers as eager leaves them"


@dataclass(frozen=True, slots=True, kw_only=True)
class SideEffects:
    """The comparison of one step with its tolerance; None for the dtype's default."""

    rtol: float | None = None
    atol: float | None = None
    equal_nan: bool = True

    def measurement(self) -> Mapping[str, Json]:
        """The worker measures with the tolerance of the judgement."""
        return {"rtol": self.rtol, "atol": self.atol, "equal_nan": self.equal_nan}

    def judge(self, facts: Effects | None) -> Judgement:
        """Judge what the worker sent: each value that differs at all, by the rule of ``close``."""
        if facts is None:
            return Judgement.error("nothing was measured", expected=_EXPECTED)
        rule = Close(of="", rtol=self.rtol, atol=self.atol, equal_nan=self.equal_nan)
        problems = [problem for leaf in facts.leaves if (problem := rule.problem(leaf)) is not None]
        if problems:
            return problems[0]
        apart = f"; {len(facts.apart)} differed before the call" if facts.apart else ""
        return Judgement.passed(expected=_EXPECTED, observed=f"{facts.compared} values within tolerance{apart}")


def of_step(step: Step, steps: Iterable[Step], here: Surroundings) -> SideEffects | None:
    """Return what is judged of a step of a case with an eager reference; None where nothing is."""
    if not parsed(step).compares_effects:
        return None
    for one in (step, *steps):
        for expected in one.expectations:
            check = expected.check
            if isinstance(check, Close) and check.to.partition(".")[0] == EAGER and holds(without_code(check.when), here):
                return SideEffects(rtol=check.rtol, atol=check.atol, equal_nan=check.equal_nan)
    return SideEffects()
