"""The functions that the core calls for specs with ``targets``: check the spec, judge that the code
is of the target.

A case is compiled for its target and not executed; its result has the level of the evidence.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from torch_conformance.judge.evidence import CarriedOut
from torch_conformance.model.case import Case, Expected
from torch_conformance.model.expectation import Status, Verdict
from torch_conformance.model.results import PROOF, Judged
from torch_conformance.model.targets import ISA, TARGETS, WRAPPER, Level, evidence_of
from torch_conformance.tools.offline import generated_kernels, problems_of_texts
from torch_conformance.tools.offline.target_checks import target_problems
from torch_conformance.vocabulary.backend import Backend
from torch_conformance.vocabulary.expectations.compiled_kernels import kernels_of
from torch_conformance.vocabulary.expectations.counters import Choices
from torch_conformance.vocabulary.steps import parsed
from torch_conformance.vocabulary.steps.triton import Triton

__all__ = ["proof", "target_problems", "with_level"]


def proof(case: Case, backend: Backend, steps: Sequence[CarriedOut]) -> Verdict:
    """Judge that every text names the target and has the kernel.

    An ERROR where it does not: then the case claims nothing.
    """
    target = TARGETS[case.target]
    expected = f"code of each kernel for {target.name}"
    for step in steps:
        for problem in () if step.facts.raised is not None else _problems(case, step):
            return Verdict(
                kind=PROOF,
                status=Status.ERROR,
                position=backend.position,
                expected=expected,
                observed=problem,
            )
    return Verdict(
        kind=PROOF,
        status=Status.HELD,
        position=backend.position,
        expected=expected,
        observed="shown",
    )


def _problems(case: Case, known: CarriedOut) -> Iterator[str]:
    """Yield why the texts of a step are not those of its kernels: of a kernel of the spec, or of
    each kernel in generated code.
    """
    target, code, step = TARGETS[case.target], known.facts.code, parsed(known.step)
    if isinstance(step, Triton):
        yield from problems_of_texts(target, [step.kernel_name], code)
        return
    kernels = generated_kernels(code[-1]) if code else []
    if not kernels:
        yield (
            "Inductor generated no kernel of Triton: what is left are calls of ATen, which are "
            "not compiled"
        )
        return
    yield from problems_of_texts(target, kernels, code)
    there = set(kernels_of(code[target.stages.index(target.isa)], target.isa))
    yield from (f"the wrapper defines no kernel '{name}'" for name in sorted(there - set(kernels)))


def with_level(case: Case, passed: Judged) -> Judged:
    """Return an OFFLINE_PASS with its level of evidence, the highest of its expectations, and with
    its reason.
    """
    proven = [
        expected for step in case.steps for expected in step.expectations if _held(expected, passed)
    ]
    level = max(map(_level, proven), key=lambda level: level.value)
    reason = f"compiled for {case.target} and not executed; evidence {evidence_of(level.value)}"
    return replace(passed, level=level.value, reason=reason)


def _level(expected: Expected) -> Level:
    """Return the level of evidence that an expectation needs."""
    check, stage = expected.check, getattr(expected.check, "stage", None)
    # candidates that are only counted are text
    if stage == WRAPPER or (
        isinstance(check, Choices) and check.compiled is None and check.failed is None
    ):
        return Level.RENDERED
    return Level.INSTRUCTIONS if stage in ISA.values() else Level.COMPILED


def _held(expected: Expected, result: Judged) -> bool:
    """Whether an expectation held in a result."""
    places = {expected.position, *expected.leaves.values()}
    return any(
        judged.kind == expected.kind and judged.position in places and judged.status is Status.HELD
        for judged in result.verdicts
    )


if TYPE_CHECKING:
    from torch_conformance.judge.judge import Offline
    from torch_conformance.language.check.spec import TargetChecks
    from torch_conformance.tools.offline import hooks

    _CHECKED: tuple[Offline, TargetChecks] = hooks, hooks
