"""Reference results for other inputs, which ``close`` must reject. They are computed after the last step."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch

from runner.vocabulary.expectations import close
from runner.vocabulary.expectations.base import EAGER
from runner.vocabulary.expectations.stand_ins import Comparer
from runner.vocabulary.steps.gradients import forget_gradients, gradients_of
from runner.worker.case import other_inputs
from runner.worker.case.parts import follow
from runner.worker.case.phases import Phases
from runner.worker.case.reference import Reference, ReferenceCall, Unseen
from runner.worker.torch_compat import compiling


class OtherAnswers:
    """The deferred calls of a case."""

    def __init__(
        self, plan: Mapping[str, Any], reference: Reference, unseen: Unseen, phases: Phases, comparers: Mapping[int, Comparer] | None = None
    ) -> None:
        self._plan = plan
        self._reference = reference
        self._unseen = unseen
        self._phases = phases
        self._comparers = {} if comparers is None else comparers
        self._drawn_bytes = 0
        self._deferred: list[Callable[[], None]] = []

    def of_step(self) -> Callable[[], Any]:
        """Return a function that computes this step's reference result for other inputs; raise ``LookupError`` where that is not possible.

        The copies are made now. The call is made after the last step, because code of the case may count its calls.
        """
        side, call = self._reference.side, self._reference.latest_call
        if side is None or call is None or not self._reference.is_there:
            raise LookupError("no eager reference was run in this step")
        if call.then:
            raise LookupError("the result is that of an optimizer's step")
        called = other_inputs.drawn(side.called, self._plan)
        self._drawn_bytes += other_inputs.bytes_of(called)
        if self._drawn_bytes > other_inputs.MOST_BYTES_OF_CASE:
            raise LookupError(f"the copies for earlier steps are larger than {other_inputs.MOST_BYTES_OF_CASE >> 20} MiB")
        return functools.partial(self._repeat, called, call)

    def defer(self, facts: dict[str, Any], arguments: Mapping[str, Any], value: Callable[[str], Any]) -> None:
        """Schedule the measurement of the stand-in "other inputs", which completes the facts of ``close``."""
        if not close.has_other_inputs(arguments):
            return
        reference = value(arguments["to"])
        part = arguments["to"].partition(".")[2]
        try:
            result = self.of_step()
        except Exception as error:  # copying modules and arguments of a spec may raise anything
            close.add_other_inputs(facts, arguments, reference, functools.partial(_raise, error))
        else:
            other = functools.partial(_part_of, result, part)
            self._deferred.append(functools.partial(close.add_other_inputs, facts, arguments, reference, other, self._comparers))

    def add_all(self) -> None:
        """Call the functions with other inputs, after the last step."""
        with self._phases("compare"), torch.no_grad():
            for add in self._deferred:
                add()

    def _repeat(self, called: list[Any], call: ReferenceCall) -> Any:
        """Repeat a reference call with other inputs; return its result or its gradients."""
        # the generators' state is that of the reference call, so that only the inputs differ
        call.generators.restore()
        with self._unseen(), compiling.reference_stance(), torch.enable_grad():
            forget_gradients(called)
            with call.enter():
                result = called[0](*called[1:])
            return gradients_of(result, called, call.differentiate) if call.differentiate else result


def _raise(error: Exception) -> None:
    raise error


def _part_of(result: Callable[[], Any], part: str) -> Any:
    return follow(result(), part, EAGER)
