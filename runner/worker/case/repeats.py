"""Additional calls of the compiled function, after the last step: with other inputs, and again."""

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from runner.vocabulary.expectations import close_measure
from runner.vocabulary.expectations.again import CannotRepeat, Poison
from runner.vocabulary.expectations.base import EAGER, OUTPUT
from runner.vocabulary.expectations.measures import REPEATS
from runner.vocabulary.expectations.stand_ins import Comparer
from runner.vocabulary.steps.gradients import Differentiate, differentiation, forget_gradients, gradients_of
from runner.worker.case import calibration, copies
from runner.worker.case.calibration import Calibrate, Calibrations, bytes_of
from runner.worker.case.phases import Phases
from runner.worker.case.scope import Scope, follow
from runner.worker.case.sides import Enter, Reference, ReferenceCall, Unseen
from runner.worker.case.state import Generators
from runner.worker.torch_compat import compiling, repeating


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
        called = calibration.drawn(side.called, self._plan)
        self._drawn_bytes += calibration.bytes_of(called)
        if self._drawn_bytes > calibration.MOST_BYTES_OF_CASE:
            raise LookupError(f"the copies for earlier steps are larger than {calibration.MOST_BYTES_OF_CASE >> 20} MiB")
        return functools.partial(self._repeat, called, call)

    def defer(self, facts: dict[str, Any], arguments: Mapping[str, Any], value: Callable[[str], Any]) -> None:
        """Schedule the measurement of the stand-in "other inputs", which completes the facts of ``close``."""
        if not close_measure.has_other_inputs(arguments):
            return
        reference = value(arguments["to"])
        part = arguments["to"].partition(".")[2]
        try:
            result = self.of_step()
        except Exception as error:  # copying modules and arguments of a spec may raise anything
            close_measure.add_other_inputs(facts, arguments, reference, functools.partial(_raise, error))
        else:
            other = functools.partial(_part_of, result, part)
            self._deferred.append(functools.partial(close_measure.add_other_inputs, facts, arguments, reference, other, self._comparers))

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


MOST_BYTES = 1 << 30
"""The maximum size of modules and arguments of one call, in bytes: two copies of them are alive until the case has ended."""

_WORDS = 500


@dataclass(frozen=True)
class RepeatableCall:
    """A call with the state before it. ``state`` are the parameters and buffers with copies of their values."""

    target: Callable[..., Any]
    called: list[Any]
    """The function that is not compiled, and copies of the arguments. Modules are not copied: a compiled function is bound to them."""
    state: list[tuple[torch.Tensor, torch.Tensor]]
    generators: Generators
    enter: Enter
    unseen: Unseen
    differentiate: Differentiate | None = None
    """Runs backward on the result; None for a step whose result is that of the call."""
    executed: int = 0
    """How many compiled graphs the step's own call ran."""

    def arguments(self) -> list[Any]:
        """Return fresh copies of the arguments."""
        return [_copied(one) for one in self.called[1:]]

    def run(self, arguments: list[Any] | None = None) -> Any:
        """Call the function from the state before the call; return a copy of the result, or of the gradients."""
        given = self.arguments() if arguments is None else arguments
        with torch.no_grad():
            for tensor, value in self.state:
                if not compiling.is_erased(tensor):
                    tensor.copy_(value)
        forget_gradients([self.called[0], *given])
        self.generators.restore()
        with self.enter():
            result = self.target(*given)
        return copies.frozen(gradients_of(result, [self.called[0], *given], self.differentiate) if self.differentiate else result)


class CallAgain:
    """A repeatable call for one expectation. It counts the calls that ran no compiled graph."""

    def __init__(self, call: RepeatableCall, result: Any, reference: Callable[[], Any], calibrate: Calibrate) -> None:
        self._call = call
        self.result = result
        self._reference = reference
        self._calibrate = calibrate
        self.eager_calls = 0

    @property
    def reference(self) -> Any:
        """A copy of eager's result."""
        try:
            return self._reference()
        except LookupError as error:
            raise CannotRepeat(str(error)) from error

    def arguments(self) -> list[Any]:
        """Return fresh copies of the arguments."""
        return self._call.arguments()

    def run(self, arguments: list[Any] | None = None) -> Any:
        """Call the function again."""
        with self._call.unseen() as seen:
            result = self._call.run(arguments)
        executed = sum({**seen.executed_others, **seen.executed}.values())
        self.eager_calls += bool(self._call.executed and not executed)
        return result

    def close(self, arguments: Mapping[str, Any], result: Any) -> dict[str, Any]:
        """Return the facts of ``close`` for a result of the function and eager's."""
        reference = self.reference
        found: dict[str, Any] = close_measure.measure(arguments, {OUTPUT: result, EAGER: reference}.__getitem__)
        for leaf in found["leaves"]:
            leaf.pop("stand_ins", None)
        self._calibrate(found, arguments, result, reference)
        return found

    def poisoned(self) -> contextlib.AbstractContextManager[Poison]:
        """Return the context in which fresh memory is poisoned."""
        return repeating.poisoned()

    def with_candidate(self, number: int) -> contextlib.AbstractContextManager[list[list[str]]]:
        """Return the context in which only one candidate of each autotuning can be chosen."""
        return repeating.only(number)


class Repeats:
    """The additional calls of a case."""

    def __init__(self, plan: Mapping[str, Any], scope: Scope, unseen: Unseen, phases: Phases, calibrations: Calibrations) -> None:
        self._calibrations = calibrations
        self._is_used = any(wanted["kind"] in REPEATS for step in plan["steps"] for wanted in step["measure"])
        self._scope = scope
        self._unseen = unseen
        self._phases = phases
        self._latest: RepeatableCall | str = "the step has no call that can be repeated"
        self._deferred: list[Callable[[], None]] = []

    def record(self, target: Callable[..., Any], called: list[Any], enter: Enter, *, is_package: bool) -> None:
        """Store the state before a call, where an expectation of the case repeats calls."""
        if not self._is_used:
            return
        if is_package:
            self._latest = "the call cannot be repeated: a package would be built again"
            return
        try:
            self._latest = _recorded(target, called, enter, self._unseen)
        except Exception as error:  # copying arguments of a spec may raise anything
            self._latest = f"the call cannot be repeated: {error}"[:_WORDS]

    def defer(self, wanted: Mapping[str, Any], step: Mapping[str, Any], executed: int, value: Callable[[str], Any]) -> dict[str, Any]:
        """Schedule the additional calls of an expectation; return its facts, which ``run_all`` completes."""
        facts: dict[str, Any] = {}
        call = self._latest
        backward = step["arguments"] if step["kind"] == "backward" else None
        if not isinstance(call, RepeatableCall):
            facts["why_not"] = call
        elif backward is not None and backward.get("of") is not None:
            facts["why_not"] = "a backward with 'of' cannot be repeated: only that of the last call"
        else:
            differentiate = None if backward is None else differentiation(backward.get("loss"), backward.get("gradient"), self._scope)
            repeated = replace(call, differentiate=differentiate, executed=executed)
            again = CallAgain(repeated, copies.frozen(value("output")), _lookup(value, "eager"), self._calibrations.of_step())
            self._deferred.append(functools.partial(_complete, facts, wanted, again))
        return facts

    def run_all(self) -> None:
        """Make the additional calls, after the last step."""
        with self._phases("compare"), torch.enable_grad():
            for complete in self._deferred:
                complete()


def _lookup(value: Callable[[str], Any], name: str) -> Callable[[], Any]:
    """Return the value now, or raise its error later."""
    try:
        found = value(name)
    except LookupError as error:
        return functools.partial(_raise, error)
    return lambda: found


def _complete(facts: dict[str, Any], wanted: Mapping[str, Any], again: CallAgain) -> None:
    try:
        facts.update(REPEATS[wanted["kind"]](wanted["arguments"], again))
        facts.update(done=True, eager_calls=again.eager_calls)
    except CannotRepeat as error:
        facts["why_not"] = str(error)
    except Exception as error:  # torch may raise anything in an additional call
        facts["raised"] = f"{type(error).__name__}: {error}"[:_WORDS]


def _recorded(target: Callable[..., Any], called: list[Any], enter: Enter, unseen: Unseen) -> RepeatableCall:
    if (size := bytes_of(called)) > MOST_BYTES:
        raise CannotRepeat(f"modules and arguments have {size >> 20} MiB, and at most {MOST_BYTES >> 20} are copied")
    state = [(tensor, tensor.detach().clone()) for tensor in _state(called) if not compiling.is_erased(tensor)]
    return RepeatableCall(target, [called[0], *map(_copied, called[1:])], state, Generators.now(), enter, unseen)


def _state(called: list[Any]) -> Iterator[torch.Tensor]:
    owner = getattr(called[0], "__self__", called[0])
    for leaf in [owner, *pytree.tree_leaves(called[1:])]:
        if isinstance(leaf, torch.nn.Module):
            yield from (*leaf.parameters(), *leaf.buffers())


def _copied(value: Any) -> Any:
    """Return a copy of an argument; modules in it stay the same."""
    memo = {id(leaf): leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.nn.Module)}
    return copy.deepcopy(value, memo)
