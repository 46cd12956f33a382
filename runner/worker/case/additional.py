"""The additional calls of a case: eager in float64 and with other inputs, and the compiled function again. Made after the last step."""

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from runner.vocabulary.expectations import close_measure
from runner.vocabulary.expectations.additional_calls import CannotRepeat, Poison
from runner.vocabulary.expectations.close import Close, Judge
from runner.vocabulary.expectations.close_measure import Comparison, add_reference
from runner.vocabulary.expectations.expectation_base import EAGER, OUTPUT
from runner.vocabulary.expectations.measures import REPEATS
from runner.vocabulary.expectations.stand_ins import Comparer
from runner.vocabulary.steps.gradients import Differentiate, differentiation, gradient_leaves, gradients_of
from runner.vocabulary.steps.samples import Done
from runner.worker.case import calibration, copies
from runner.worker.case.calibration import MOST_BYTES, MOST_BYTES_OF_CASE, EagerRuns, bytes_of, why_observed
from runner.worker.case.effects import MOST, Inexact
from runner.worker.case.phases import Phases
from runner.worker.case.sides import Enter, Reference, ReferenceCall, Unseen
from runner.worker.case.state import Generators
from runner.worker.case.step_scope import Scope
from runner.worker.torch_compat import compiling, opinfo, repeating

MOST_BYTES_REPEATED = 1 << 30
"""The maximum size of modules and arguments of one repeated call, in bytes: two copies of them are alive until the case has ended."""

_WORDS = 500


@dataclass
class RepeatableCall:
    """A call of the compiled side with the state before it. An expectation that repeats it gets one of its own."""

    target: Callable[..., Any]
    called: list[Any]
    """The function that is not compiled, and copies of the arguments. Modules are not copied: a compiled function is bound to them."""
    state: list[tuple[torch.Tensor, torch.Tensor]]
    """The parameters and buffers with copies of their values."""
    gradients: list[torch.Tensor | None]
    """Copies of the gradients of parameters and arguments."""
    generators: Generators
    enter: Enter
    eager_runs: EagerRuns
    differentiate: Differentiate | None = None
    """Runs backward on the result; None for a step whose result is that of the call."""
    executed: int = 0
    """How many compiled graphs the step's own call ran."""
    result: Any = None
    """A copy of the step's result."""
    eager_result: Any = None
    """A copy of eager's result, or the ``LookupError`` that says why there is none."""
    eager_calls: int = 0
    """How many of the additional calls ran no compiled graph, though the step's own did."""

    @property
    def reference(self) -> Any:
        """A copy of eager's result."""
        if isinstance(self.eager_result, LookupError):
            raise CannotRepeat(str(self.eager_result)) from self.eager_result
        return self.eager_result

    def arguments(self) -> list[Any]:
        """Return fresh copies of the arguments."""
        return [_copied(argument) for argument in self.called[1:]]

    def run(self, arguments: list[Any] | None = None) -> Any:
        """Call the function from the state before the call; return a copy of the result, or of the gradients."""
        with self.eager_runs.unseen() as seen:
            called = [self.called[0], *(self.arguments() if arguments is None else arguments)]
            with torch.no_grad():
                for tensor, value in self.state:
                    if not compiling.is_erased(tensor):
                        tensor.copy_(value)
            for leaf, gradient in zip(gradient_leaves(called), self.gradients, strict=False):
                leaf.grad = None if gradient is None else gradient.clone()
            self.generators.restore()
            with self.enter():
                result = self.target(*called[1:])
            result = copies.frozen(gradients_of(result, called, self.differentiate) if self.differentiate else result)
        executed = seen.own_calls + seen.captured_others + sum(seen.executed_others.values())
        self.eager_calls += bool(self.executed and not executed)
        return result

    def close(self, arguments: Mapping[str, Any], result: Any) -> dict[str, Any]:
        """Return the facts of ``close`` for a result of the function and eager's."""
        reference = self.reference
        facts: dict[str, Any] = close_measure.measure(arguments, {OUTPUT: result, EAGER: reference}.__getitem__)
        for leaf in facts["leaves"]:
            leaf.pop("stand_ins", None)
        if close_measure.needs_reference(arguments):
            comparison = Comparison(facts, arguments, {"of": result, "to": reference}, {}, with_stand_ins=False)
            with torch.no_grad():
                add_reference(comparison, self.eager_runs.answers)
        return facts

    def poisoned(self) -> contextlib.AbstractContextManager[Poison]:
        """Return the context in which fresh memory is poisoned."""
        return repeating.poisoned()

    def with_candidate(self, number: int) -> contextlib.AbstractContextManager[list[list[str]]]:
        """Return the context in which only one candidate of each autotuning can be chosen."""
        return repeating.only(number)


class AdditionalCalls:
    """Schedules the additional calls of a case. They complete the facts that the steps measured."""

    def __init__(self, plan: Mapping[str, Any], scope: Scope, reference: Reference, unseen: Unseen, phases: Phases) -> None:
        self._plan = plan
        self._scope = scope
        self._reference = reference
        self._unseen = unseen
        self._phases = phases
        self._bytes = 0
        self._drawn_bytes = 0
        self._known_call: object = None
        self._references: list[Callable[[], None]] = []
        """Calls of eager for the reference in float64."""
        self._calls: list[Callable[[], None]] = []
        """All other calls."""
        self._latest: RepeatableCall | str = "the step has no call that can be repeated"
        self._comparers: dict[int, Comparer] = {}
        """What compares stand-ins with the reference of a leaf, by the identity of the leaf's facts."""
        measures = [request for step in plan["steps"] for request in step["measure"]]
        self._repeats = any(request["kind"] in REPEATS for request in measures)
        arguments = [request["arguments"] for request in measures if request["kind"] in ("close", "candidates")]
        calibrates = any(step["effects"]["rtol"] is None for step in plan["steps"] if step.get("effects") is not None)
        if any(close_measure.needs_reference(body.get("close", body)) for body in arguments) or calibrates:
            reference.copied = self._copied

    def run(self, *, references_only: bool = False) -> None:
        """Make the calls, the references first."""
        with self._phases("compare"), torch.no_grad():
            for calls in (self._references, [] if references_only else self._calls):
                while calls:
                    calls.pop(0)()

    # -- references in float64 --------------------------------------------------------------------------------------

    def _copied(self, called: Sequence[Any]) -> list[Any] | str:
        """Return copies of a target and its arguments before a call, or why there are none."""
        if why := why_observed(self._plan):
            return why
        size = bytes_of(called)
        if size > MOST_BYTES:
            return f"modules and arguments are larger than {MOST_BYTES >> 20} MiB"
        if self._bytes + size > MOST_BYTES_OF_CASE:
            return f"the copies for earlier steps are larger than {MOST_BYTES_OF_CASE >> 20} MiB"
        try:
            return calibration.copied(called)
        except Exception as error:  # copying modules and arguments of a spec may raise anything
            return f"the inputs cannot be copied: {type(error).__name__}"

    def _latest_reference(self) -> ReferenceCall | None:
        """Return the reference call of the step, whose copies are alive until the case has ended."""
        call = self._reference.latest_call
        if call is not None and call.inputs is not self._known_call:
            self._known_call = call.inputs
            self._bytes += bytes_of(call.inputs) if isinstance(call.inputs, list) else 0
        return call

    def calibrate(
        self, facts: dict[str, Any], arguments: Mapping[str, Any], value: Callable[[str], Any], *, with_stand_ins: bool = True
    ) -> None:
        """Schedule the measurements that need a float64 reference; they complete the facts of ``close``."""
        if not close_measure.needs_reference(arguments):
            return
        values = {word: copies.frozen(copies.measured(value(arguments[word]))) for word in ("of", "to")}
        call = self._latest_reference()
        if not with_stand_ins:  # a repetition, of which there may be many
            self._bytes += bytes_of(list(values.values()))
        runs = EagerRuns.of(self._unseen, call, arguments["to"].partition(".")[2])
        comparison = Comparison(facts, arguments, values, self._comparers, with_stand_ins=with_stand_ins)
        self._references.append(functools.partial(add_reference, comparison, runs.answers))

    def calibrate_effects(self, facts: dict[str, Any], inexact: Sequence[Inexact], *, equal_nan: bool, parameters: bool) -> None:
        """Schedule the same for values that a call left beside its result; ``facts`` are those of the step's effects."""
        if inexact:
            call = self._latest_reference()
            values = {"of": [leaf.ours for leaf in inexact], "to": [leaf.theirs for leaf in inexact]}
            self._bytes += 2 * bytes_of(values["of"])

            def changed(called: list[Any]) -> list[Any]:
                leaves = copies.changeable(called, parameters=parameters)
                return [leaves[leaf.path] for leaf in inexact]

            arguments = {"judge": Judge.CALIBRATED.value, "equal_nan": equal_nan}
            own_facts = {"leaves": [leaf.facts for leaf in inexact]}
            unwritten, before = [leaf.unwritten for leaf in inexact], [leaf.before for leaf in inexact]
            comparison = Comparison(own_facts, arguments, values, {}, with_stand_ins=False, unwritten=unwritten, before=before)
            runs = EagerRuns.of(self._unseen, call, changed=changed)
            self._references.append(functools.partial(add_reference, comparison, runs.answers))

        def keep_worst() -> None:
            check = Close()  # where there are too many, those that the judge refuses stand first
            facts["leaves"] = sorted(facts["leaves"], key=lambda leaf: "change" not in leaf and check.problem(leaf) is None)[:MOST]

        self._references.append(keep_worst)

    def calibrate_samples(self, facts: Mapping[str, Any], arguments: Mapping[str, Any], samples: Sequence[Done]) -> None:
        """Schedule the same for each sample of an operator: they complete its entry in the facts."""
        if not close_measure.needs_reference(arguments):
            return
        for entry, done in zip(facts["samples"], samples, strict=True):
            if entry["value"] is None:
                continue
            why_not = why_observed(self._plan)
            if not why_not and bytes_of(done.inputs) > MOST_BYTES:
                why_not = f"the arguments are larger than {MOST_BYTES >> 20} MiB"
            done.reseed()
            runs = EagerRuns(self._unseen, why_not or done.inputs, Generators.now(), done.again)
            has_stand_ins = any("stand_ins" in leaf for leaf in entry["value"]["leaves"])
            comparison = Comparison(entry["value"], arguments, {"of": done.compiled, "to": done.eager}, {}, with_stand_ins=has_stand_ins)

            def add(comparison: Comparison = comparison, runs: EagerRuns = runs, done: Done = done) -> None:
                opinfo.announce_sample(done.index, f"again, in eager and in float64: {done.text}")
                add_reference(comparison, runs.answers)

            self._references.append(add)

    # -- other inputs -----------------------------------------------------------------------------------------------

    def with_other_inputs(self, part: str = "") -> Callable[[], Any]:
        """Return a function that computes a part of this step's reference result for other inputs; raise ``LookupError`` if impossible.

        The copies are made now. The call is made after the last step, because code of the case may count its calls.
        """
        side, call = self._reference.side, self._reference.latest_call
        if side is None or call is None or not self._reference.is_there:
            raise LookupError("no eager reference was run in this step")
        if call.then:
            raise LookupError("the result is that of an optimizer's step")
        called = calibration.drawn(side.called, self._plan)
        self._drawn_bytes += bytes_of(called)
        if self._drawn_bytes > MOST_BYTES_OF_CASE:
            raise LookupError(f"the copies for earlier steps are larger than {MOST_BYTES_OF_CASE >> 20} MiB")
        return functools.partial(EagerRuns.of(self._unseen, call, part).run, called)

    def compare_other_inputs(self, facts: dict[str, Any], arguments: Mapping[str, Any], value: Callable[[str], Any]) -> None:
        """Schedule the measurement of the stand-in "other inputs", which completes the facts of ``close``."""
        if not close_measure.has_other_inputs(arguments):
            return
        reference = value(arguments["to"])
        try:
            result = self.with_other_inputs(arguments["to"].partition(".")[2])
        except Exception as error:  # copying modules and arguments of a spec may raise anything
            close_measure.add_other_inputs(facts, arguments, reference, functools.partial(_raise, error))
        else:
            self._calls.append(functools.partial(close_measure.add_other_inputs, facts, arguments, reference, result, self._comparers))

    # -- the compiled function again --------------------------------------------------------------------------------

    def record(self, target: Callable[..., Any], called: list[Any], enter: Enter, *, is_package: bool) -> None:
        """Store the state before a call, where an expectation of the case repeats calls."""
        if not self._repeats:
            return
        if is_package:
            self._latest = "the call cannot be repeated: a package would be built again"
            return
        try:
            if (size := bytes_of(called)) > MOST_BYTES_REPEATED:
                most = MOST_BYTES_REPEATED >> 20
                self._latest = f"the call cannot be repeated: modules and arguments have {size >> 20} MiB, and at most {most} are copied"
                return
            state = [(tensor, tensor.detach().clone()) for tensor in _state(called) if not compiling.is_erased(tensor)]
            copied = [called[0], *map(_copied, called[1:])]
            gradients = [None if leaf.grad is None else leaf.grad.clone() for leaf in gradient_leaves(called)]
            runs = EagerRuns.of(self._unseen, None)
            self._latest = RepeatableCall(target, copied, state, gradients, Generators.now(), enter, runs)
        except Exception as error:  # copying arguments of a spec may raise anything
            self._latest = f"the call cannot be repeated: {error}"[:_WORDS]

    def repeat(self, request: Mapping[str, Any], step: Mapping[str, Any], executed: int, value: Callable[[str], Any]) -> dict[str, Any]:
        """Schedule the additional calls of an expectation; return its facts, which these calls complete."""
        backward = step["arguments"] if step["kind"] == "backward" else None
        if not isinstance(self._latest, RepeatableCall):
            return {"why_not": self._latest}
        if backward is not None and backward.get("of") is not None:
            return {"why_not": "a backward with 'of' cannot be repeated: only that of the last call"}
        try:
            eager_result = value(EAGER)
        except LookupError as error:
            eager_result = error
        again = replace(
            self._latest,
            differentiate=None if backward is None else differentiation(backward.get("loss"), backward.get("gradient"), self._scope),
            executed=executed,
            result=copies.frozen(value(OUTPUT)),
            eager_result=eager_result,
            eager_runs=EagerRuns.of(self._unseen, self._latest_reference()),
        )
        facts: dict[str, Any] = {}

        @torch.enable_grad()  # type: ignore[untyped-decorator]  # mypy does not follow torch
        def complete() -> None:
            try:
                facts.update(REPEATS[request["kind"]](request["arguments"], again))
                facts.update(done=True, eager_calls=again.eager_calls)
            except CannotRepeat as error:
                facts["why_not"] = str(error)
            except Exception as error:  # torch may raise anything in an additional call
                facts["raised"] = f"{type(error).__name__}: {error}"[:_WORDS]

        self._calls.append(complete)
        return facts


def _raise(error: Exception) -> None:
    raise error


def _state(called: list[Any]) -> Iterator[torch.Tensor]:
    owner = getattr(called[0], "__self__", called[0])
    for leaf in [owner, *pytree.tree_leaves(called[1:])]:
        if isinstance(leaf, torch.nn.Module):
            yield from (*leaf.parameters(), *leaf.buffers())


def _copied(value: Any) -> Any:
    """Return a copy of an argument; modules in it stay the same."""
    memo = {id(leaf): leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.nn.Module)}
    return copy.deepcopy(value, memo)
