"""Side effects of a step: what the compiled side left beside its result is compared with what eager left.

Compared are arguments, parameters, buffers, attributes of modules and of objects, ``.grad``, version counters, the generators of random
numbers, which results share memory with the arguments, and which require a gradient. A spec has no key for it. Every ``call``, ``aot``,
``backward`` and ``optimizer`` step with an eager reference is judged, except with ``side_effects: false``. The tolerance is that of the
step's ``close: {to: eager}``, else that of another step's, else the dtype's. Gradients that ``close`` judges are left to it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from runner.core.case import Step
from runner.core.conditions import Surroundings, holds, without_code
from runner.core.expectation import Judgement
from runner.core.observation import Effects, Generator
from runner.core.protocol import Json
from runner.vocabulary.expectations.base import EAGER, OUTPUT
from runner.vocabulary.expectations.close import Close, told
from runner.vocabulary.steps import parsed

KIND = "side-effects"
"""The kind of its verdicts."""

_EXPECTED = "arguments, parameters, buffers, gradients, generators and modes as eager leaves them"


@dataclass(frozen=True, slots=True, kw_only=True)
class SideEffects:
    """The comparison of one step with its tolerance; None for the dtype's default."""

    rtol: float | None = None
    atol: float | None = None
    equal_nan: bool = True
    gradients: bool = True
    """False where ``close`` judges the gradients of the step, by another rule than a tolerance perhaps."""

    def measurement(self) -> Mapping[str, Json]:
        """The worker measures with the tolerance of the judgement."""
        return {"rtol": self.rtol, "atol": self.atol, "equal_nan": self.equal_nan, "gradients": self.gradients}

    def judge(self, facts: Effects | None) -> Judgement:
        """Judge what the worker sent: each value that differs at all, by the rule of ``close``; then each generator."""
        if facts is None:
            return Judgement.error("nothing was measured", expected=_EXPECTED)
        rule = Close(of="", rtol=self.rtol, atol=self.atol, equal_nan=self.equal_nan)
        problems = [problem for leaf in facts.leaves if (problem := rule.problem_of_leaf(leaf)) is not None]
        problems += _generator_problems(facts.generators)
        problems += [
            Judgement.failed(expected=f"{one.name} is {one.eager}, as eager leaves it", observed=one.compiled) for one in facts.modes
        ]
        if problems:
            return problems[0]
        apart = f"; {len(facts.apart)} differed before the call" if facts.apart else ""
        inexact = [leaf for leaf in facts.leaves if leaf["type"] == "tensor"]
        differing = f"; not equal: {told(inexact)}" if inexact else ""
        return Judgement.passed(expected=_EXPECTED, observed=f"{facts.compared} values compared{differing}{apart}")


def _generator_problems(generators: Sequence[Generator]) -> Iterator[Judgement]:
    """Yield a judgement for each generator in a wrong state.

    Inductor draws random numbers otherwise than eager, unless ``fallback_random`` is set; but a generator that eager does not use must not
    change. The opposite is allowed without ``fallback_random``: torch then removes random operators whose result is unused.
    """
    for one in generators:
        where = f"RNG state of {one.name}"
        if one.exact and not one.same:
            theirs, ours = (("advanced" if advanced else "unchanged") for advanced in (one.eager_advanced, one.compiled_advanced))
            yield Judgement.failed(
                expected=f"{where} as eager leaves it ({theirs})", observed=ours if ours != theirs else "advanced to another state"
            )
        elif one.compiled_advanced and not one.eager_advanced:
            yield Judgement.failed(expected=f"{where} unchanged, as eager leaves it", observed="advanced")


def of_step(step: Step, steps: Sequence[Step], here: Surroundings) -> SideEffects | None:
    """Return what is judged of a step of a case with an eager reference; None where nothing is."""
    if not parsed(step).compares_effects or not _has_reference(step, steps):
        return None
    gradients = not (parsed(step).traits.gives_gradients and _judges_the_result(step, here))
    for one in (step, *steps):
        for expected in one.expectations:
            check = expected.check
            if isinstance(check, Close) and check.to.partition(".")[0] == EAGER and holds(without_code(check.when), here):
                return SideEffects(rtol=check.rtol, atol=check.atol, equal_nan=check.equal_nan, gradients=gradients)
    return SideEffects(gradients=gradients)


def _judges_the_result(step: Step, here: Surroundings) -> bool:
    """Whether a ``close`` of the step judges its whole result, here and whatever code is generated."""
    checks = [expected.check for expected in step.expectations]
    return any(
        isinstance(one, Close)
        and (one.of, one.to) == (OUTPUT, EAGER)
        and without_code(one.when) == (one.when or {})
        and holds(one.when, here)
        for one in checks
    )


def _has_reference(step: Step, steps: Iterable[Step]) -> bool:
    above = []
    for one in steps:
        if one is step:
            break
        above.append(parsed(one))
    return parsed(step).why_no_reference(above) is None
