"""The table of the kinds of steps; ARCHITECTURE.md says what a new one touches."""

from collections.abc import Mapping
from typing import Any

from torch_conformance.model.case import Case, Step
from torch_conformance.model.conditions import Surroundings
from torch_conformance.model.expectation import Expectation
from torch_conformance.vocabulary.expectations import EXPECTATIONS, OF_SAMPLES
from torch_conformance.vocabulary.expectations.expectation_base import EAGER
from torch_conformance.vocabulary.steps.actions import (
    Api,
    ClearCounters,
    DeleteModules,
    FreshCache,
    Reset,
    Script,
    Spawn,
)
from torch_conformance.vocabulary.steps.bench import Bench
from torch_conformance.vocabulary.steps.call import Aot, Backward, Call, Optimizer
from torch_conformance.vocabulary.steps.samples import EachSample, Samples
from torch_conformance.vocabulary.steps.step_base import NotCarriedOut as NotCarriedOut
from torch_conformance.vocabulary.steps.step_base import StepKind as StepKind
from torch_conformance.vocabulary.steps.step_base import Traits
from torch_conformance.vocabulary.steps.triton import Triton

_CLASSES: tuple[type[StepKind], ...] = (
    Call,
    Aot,
    Backward,
    Optimizer,
    Reset,
    ClearCounters,
    DeleteModules,
    FreshCache,
    Api,
    Spawn,
    Script,
    Bench,
    Samples,
    Triton,
)

STEPS: Mapping[str, type[StepKind]] = {step.kind: step for step in _CLASSES}
"""The class of each kind, by the word of the language."""

MEASURED: Mapping[str, type[Expectation]] = {**EXPECTATIONS, OF_SAMPLES: EachSample}
"""All that a worker measures: the expectations of specs, and that of samples."""

SAMPLES = "samples"
"""The step of a spec with a ``source``. No spec writes it."""

TRITON = "triton"
"""The step of a spec with ``triton``, which is a key of the spec."""

SHORT_FORM = "call"
"""The step of a spec that has ``expect`` and no ``steps``."""


def traits_of(step: Step) -> Traits:
    """Return the traits of a step's kind."""
    return STEPS[step.kind].traits


def parsed(step: Step) -> StepKind:
    """Return the arguments of a step of a case."""
    return STEPS[step.kind].parse(step.arguments)


def is_partial(step: Step) -> bool:
    """Whether a step runs only some samples of its operator: its pass then does not show that a
    waived failure is gone.
    """
    arguments = parsed(step)
    return isinstance(arguments, Samples) and arguments.most is not None


def python_of(step: Step) -> Mapping[str, Any] | None:
    """Return the Python block of a step; None where it has none."""
    return step.arguments.get(traits_of(step).python)


def expects_raise(step: Step, surroundings: Surroundings) -> bool:
    """Whether the spec expects an exception in this step."""
    return step.runs(surroundings) and any(
        expected.check.expects_exception and expected.check.applies(surroundings)
        for expected in step.expectations
    )


def needs_eager(case: Case) -> bool:
    """Whether a step refers to the eager reference, or a part of it."""
    names = [name for step in case.steps for name in parsed(step).names]
    names += [
        name
        for step in case.steps
        for expected in step.expectations
        for name in expected.check.names
    ]
    return any(name.partition(".")[0] == EAGER for name in names)


def calls_compiler(step: Step) -> bool:
    """Whether what a step calls must have been compiled: then the proof of a compiler other than
    inductor looks at the call.
    """
    return traits_of(step).is_proof and (parsed(step).runs_graphs or step.kind == SAMPLES)
