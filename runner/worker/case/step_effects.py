"""The comparison of side effects in the current step, for the session and for kinds of steps."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch

from runner.vocabulary.steps.session import Side, needed
from runner.worker.case import untouched
from runner.worker.case.calibration import Calibrations
from runner.worker.case.effects import Effects
from runner.worker.case.generators import Generators
from runner.worker.case.modes import Modes
from runner.worker.case.repetitions import with_repetition


def _comparing() -> AbstractContextManager[None]:
    """Return a context in which an exception is an ERROR of the case: it does not come from compiled code."""
    return needed("the comparison of side effects")


class StepEffects:
    """Compares the side effects of a step: ``begin``, the eager side, ``eager_done``, the compiled side, ``finish``."""

    def __init__(
        self, settings: Mapping[str, Any], unseen: Callable[[], Any], phases: Callable[[str], Any], calibrations: Calibrations
    ) -> None:
        self._calibrations = calibrations
        self._settings = settings
        self._unseen = unseen
        self._phases = phases
        self._tolerance: Mapping[str, Any] | None = None
        self._running: Effects | None = None
        self._begun: tuple[Generators, Modes] | None = None
        self.facts: dict[str, Any] | None = None
        """The side effects of the current step; None where they were not compared."""

    def begin_step(self, step: Mapping[str, Any]) -> None:
        """Forget the last step. ``effects`` of the plan's step is the tolerance, None where nothing is compared."""
        self._tolerance = step.get("effects")
        self._running, self.facts = None, None

    def begin(self, compiled: list[Any], eager: list[Any], *, is_package: bool = False) -> None:
        """Record the state of both sides (each the target followed by its arguments) before the step."""
        if self._tolerance is None:
            return
        with self._phases("compare"), _comparing():
            self._running = Effects(self._tolerance, self._settings, is_package)
            self._running.before(compiled, eager)
            self._begun = Generators.now(), Modes()

    def eager_done(self, eager: list[Any], result: Any = None) -> None:
        """Record what the eager side left, and restore generators and modes for the compiled side."""
        if self._running is None or self._begun is None:
            return
        with self._phases("compare"), _comparing():
            self._running.after_eager(eager, result)
            for state in self._begun:
                state.restore()

    def finish(self, compiled: list[Any], eager: Side | None, result: Any = None) -> None:
        """Compare the two sides after the step, where it was begun."""
        if self._running is None or eager is None:
            return
        with self._phases("compare"), self._unseen(), _comparing():
            self.facts = with_repetition(self.facts, self._running.after(compiled, eager.called, result))
            self._calibrations.defer_effects(self.facts, self._running.inexact, parameters=not self._running.is_package)

    def unwanted_write(self, ours: torch.Tensor, theirs: torch.Tensor, before: torch.Tensor) -> dict[str, str] | None:
        """Return how the compiled side changed a tensor that eager did not write, and what was expected; None where it did not."""
        with self._phases("compare"), self._unseen(), _comparing():
            change = untouched.unwanted_write(ours, theirs, before)
        return None if change is None else {"value": change, "reference": untouched.REFERENCE}
