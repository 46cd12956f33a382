"""The kinds of steps and the measurements, all imported: before the seal is taken, which then covers them."""

from collections.abc import Mapping

import runner.vocabulary.expectations.measures  # noqa: F401 - imported for its effect
from runner.vocabulary import steps
from runner.vocabulary.steps import StepKind

STEPS: Mapping[str, type[StepKind]] = dict(steps.STEPS)
"""Maps the word of the language to the class of the kind."""
