"""Side effects of a step: what the compiled side left besides its result is compared with what
eager left.

Compared are arguments, parameters, buffers, attributes of modules and of objects, ``.grad``,
version counters, the generators of random numbers, which results share memory with the arguments,
and which require a gradient. A spec has no key for it. Every ``call``, ``aot``, ``backward`` and
``optimizer`` step with an eager reference is judged, except with ``side_effects: false``. The
tolerance is that of the step's ``close: {to: eager}``, else that of another step's, else the
dtype's. Gradients that ``close`` judges are left to it.
"""

import itertools
from collections.abc import Sequence
from dataclasses import asdict, replace

from torch_conformance.model.case import Step
from torch_conformance.model.case_facts import Effects
from torch_conformance.model.conditions import Surroundings, holds, without_code
from torch_conformance.model.expectation import OF_GENERATOR, Verdict
from torch_conformance.model.values import frozen
from torch_conformance.vocabulary.expectations.calibrated import (
    LEAST_CHANGE,
    MOST_NOISE,
    MOST_OTHER,
)
from torch_conformance.vocabulary.expectations.close import Close, is_eager, ways_judged
from torch_conformance.vocabulary.expectations.expectation_base import EAGER, OUTPUT
from torch_conformance.vocabulary.steps import parsed
from torch_conformance.vocabulary.worker_session import Facts

KIND = "side-effects"
"""The kind of its verdicts."""

_EXPECTED = "arguments, parameters, buffers, gradients, generators and modes as eager leaves them"


@frozen
class SideEffects:
    """The comparison of one step with its tolerance; None for the dtype's default."""

    rtol: float | None = None
    atol: float | None = None
    equal_nan: bool = True
    gradients: bool = True
    """False where ``close`` judges the gradients of the step, by another rule than a tolerance
    perhaps.
    """

    def measurement(self) -> Facts:
        """The worker measures with the tolerance of the judgement."""
        return asdict(self)

    def judge(self, facts: Effects | None) -> Verdict:
        """Judge what the worker sent: each value that differs at all, by the rule of ``close``;
        then each generator.
        """
        if facts is None:
            return Verdict.error(_EXPECTED, "nothing was measured")
        rule = Close(of="", rtol=self.rtol, atol=self.atol, equal_nan=self.equal_nan)
        first = rule.first_problem(facts.leaves)
        change = next(filter(None, map(_other_change, facts.leaves)), None)
        if first and change:
            first = replace(first, detail=f"{first.detail}\n{change.expected}: {change.observed}")
        problems = list(filter(None, [first or change]))
        # Inductor draws random numbers otherwise than eager, unless ``fallback_random`` is set; but
        # a generator that eager does not use must not change. The opposite is allowed without
        # ``fallback_random``: torch then removes random operators whose result is unused.
        for state in facts.generators:
            where = f"{OF_GENERATOR} {state.name}"
            if state.same and state.eager_advanced != state.compiled_advanced:
                return Verdict.error(
                    _EXPECTED, f"one {where} after both, and only one of them advanced it"
                )
            if state.exact and not state.same:
                theirs, ours = (
                    ("advanced" if advanced else "unchanged")
                    for advanced in (state.eager_advanced, state.compiled_advanced)
                )
                observed = ours if ours != theirs else "advanced to another state"
                problems.append(Verdict.failed(f"{where} as eager leaves it ({theirs})", observed))
            elif state.compiled_advanced and not state.eager_advanced:
                problems.append(
                    Verdict.failed(f"{where} unchanged, as eager leaves it", "advanced")
                )
        problems += [
            Verdict.failed(f"{mode.name} is {mode.eager}, as eager leaves it", mode.compiled)
            for mode in facts.modes
        ]
        if problems:
            return problems[0]
        apart = f"; {len(facts.apart)} differed before the call" if facts.apart else ""
        inexact = [leaf for leaf in facts.leaves if leaf["type"] == "tensor"]
        differing = f"; not equal: {ways_judged(inexact)}" if inexact else ""
        return Verdict.passed(_EXPECTED, f"{facts.compared} values compared{differing}{apart}")


def _other_change(leaf: Facts) -> Verdict | None:
    """Return the judgement of a value that eager changed and that the compiled side left as it was,
    or changed otherwise.
    """
    change = leaf.get("change")
    if change is None:
        return None
    is_noise = (
        change["eager"] <= LEAST_CHANGE * change["units"]
        or change.get("noise", 0.0) > MOST_NOISE * change["eager"]
    )
    if (
        is_noise
        or change["apart"] <= MOST_OTHER * change["eager"]
        or ("noise" not in change and change["compiled"])
    ):
        return None
    elements = change["elements"]
    where = (
        leaf["path"]
        if elements is None
        else f"{leaf['path']}, elements {elements[0]} to {elements[1]} in memory order,"
    )
    ours = (
        f"changed by {change['compiled']:.3g}, {change['apart']:.3g} from eager's values"
        if change["compiled"]
        else "unchanged"
    )
    return Verdict.failed(f"{where} changed by {change['eager']:.3g}, as by eager", ours)


def of_step(step: Step, steps: Sequence[Step], surroundings: Surroundings) -> SideEffects | None:
    """Return what is judged of a step of a case with an eager reference; None where nothing is."""
    above = [parsed(other) for other in itertools.takewhile(lambda other: other is not step, steps)]
    if not parsed(step).compares_effects or parsed(step).why_no_reference(above) is not None:
        return None
    # whether a close of the step judges its whole result, here and whatever code is generated
    judges_the_result = any(
        isinstance(check := expected.check, Close)
        and (check.of, check.to) == (OUTPUT, EAGER)
        and without_code(check.when) == (check.when or {})
        and holds(check.when, surroundings)
        for expected in step.expectations
    )
    gradients = not (parsed(step).traits.gives_gradients and judges_the_result)
    for expected in (expected for other in (step, *steps) for expected in other.expectations):
        check = expected.check
        if (
            isinstance(check, Close)
            and is_eager(check.to)
            and holds(without_code(check.when), surroundings)
        ):
            return SideEffects(
                rtol=check.rtol, atol=check.atol, equal_nan=check.equal_nan, gradients=gradients
            )
    return SideEffects(gradients=gradients)
