"""The table of the kinds of steps. A new kind needs a module here, an entry below, a schema entry and a test."""

from collections.abc import Mapping

from runner.core.case import Step
from runner.vocabulary.steps.actions import COMPILED, Api, ClearCounters, DeleteModules, FreshCache, Reset, Script, Spawn
from runner.vocabulary.steps.base import Around, BackendOfSpec, Callee, DataPath, ExpectedOfStep, Inputs, StepKind, Traits
from runner.vocabulary.steps.bench import Bench
from runner.vocabulary.steps.call import ONLY, Aot, Call
from runner.vocabulary.steps.gradients import Backward, Optimizer
from runner.vocabulary.steps.samples import Samples
from runner.vocabulary.steps.triton import Triton

STEPS: Mapping[str, type[StepKind]] = {
    "call": Call,
    "aot": Aot,
    "backward": Backward,
    "optimizer": Optimizer,
    "reset": Reset,
    "clear_counters": ClearCounters,
    "delete_modules": DeleteModules,
    "fresh_cache": FreshCache,
    "api": Api,
    "spawn": Spawn,
    "script": Script,
    "bench": Bench,
    "samples": Samples,
    "triton": Triton,
}
"""Maps the word of the language to the class of the kind."""

SAMPLES = Samples.kind
"""The step of a spec with a ``source``. No spec writes it."""

TRITON = Triton.kind
"""The step of a spec with ``triton``, which is a key of the spec."""

SHORT_FORM = Call.kind
"""The step of a spec that has ``expect`` and no ``steps``."""


def traits_of(step: Step) -> Traits:
    """Return the traits of a step's kind."""
    return STEPS[step.kind].traits


def parsed(step: Step) -> StepKind:
    """Return the arguments of a step of a case."""
    return STEPS[step.kind].parse(step.arguments)


def is_partial(step: Step) -> bool:
    """Whether a step runs only some samples of its operator: its pass then does not show that a waived failure is gone."""
    found = parsed(step)
    return isinstance(found, Samples) and found.most is not None


__all__ = [
    "COMPILED",
    "ONLY",
    "SAMPLES",
    "SHORT_FORM",
    "STEPS",
    "TRITON",
    "Around",
    "BackendOfSpec",
    "Callee",
    "DataPath",
    "ExpectedOfStep",
    "Inputs",
    "StepKind",
    "Traits",
    "is_partial",
    "parsed",
    "traits_of",
]
