"""The table of the kinds of steps; ARCHITECTURE.md says what a new one touches."""

from collections.abc import Mapping
from typing import Any

from torch_conformance.model.case import Case, Step
from torch_conformance.model.conditions import Surroundings
from torch_conformance.vocabulary.expectations.expectation_base import EAGER
from torch_conformance.vocabulary.on_demand import OnDemand
from torch_conformance.vocabulary.steps.step_base import NotCarriedOut as NotCarriedOut
from torch_conformance.vocabulary.steps.step_base import StepKind as StepKind
from torch_conformance.vocabulary.steps.step_base import Traits

_CLASSES: Mapping[str, str] = {
    "call": "call:Call",
    "aot": "call:Aot",
    "backward": "call:Backward",
    "optimizer": "call:Optimizer",
    "reset": "actions:Reset",
    "clear_counters": "actions:ClearCounters",
    "delete_modules": "actions:DeleteModules",
    "fresh_cache": "actions:FreshCache",
    "api": "actions:Api",
    "spawn": "actions:Spawn",
    "script": "actions:Script",
    "bench": "bench:Bench",
    "samples": "samples:Samples",
    "triton": "triton:Triton",
}
"""The module and the class of each kind, by the word of the language."""

STEPS: Mapping[str, type[StepKind]] = OnDemand(
    {word: f"{__name__}.{place}" for word, place in _CLASSES.items()}
)
"""Maps the word of the language to the class of the kind."""

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
    # the class is looked up by its word
    return step.kind == SAMPLES and getattr(parsed(step), "most") is not None  # noqa: B009


def python_of(step: Step) -> Mapping[str, Any] | None:
    """Return the Python block of a step; None where it has none."""
    return step.arguments.get(traits_of(step).python)


def expects_raise(step: Step, surroundings: Surroundings) -> bool:
    """Whether the spec expects an exception in this step."""
    raises = (expected.check for expected in step.expectations if expected.kind == "raises")
    return step.runs(surroundings) and any(check.applies(surroundings) for check in raises)


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
