"""What the calibrated judge needs beside the step's own call: the float64 reference and further runs of eager."""

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from runner.vocabulary.expectations import close_measure
from runner.vocabulary.expectations.base import EAGER
from runner.vocabulary.expectations.calibrated_measure import NoReference, nudged, runs_of
from runner.vocabulary.expectations.close import Close, Judge
from runner.vocabulary.expectations.close_measure import Answers, Comparison, add_reference, leaves_of
from runner.vocabulary.expectations.stand_ins import Comparer
from runner.vocabulary.steps.gradients import forget_gradients, gradients_of
from runner.vocabulary.steps.samples import Done
from runner.worker.case import copies
from runner.worker.case.copies import changeable
from runner.worker.case.effects import MOST, Inexact
from runner.worker.case.phases import Phases
from runner.worker.case.scope import follow
from runner.worker.case.sides import Reference, ReferenceCall, Unseen
from runner.worker.case.state import Generators
from runner.worker.torch_compat import compiling, for_steps
from runner.worker.torch_compat.numerics import (
    Reported,
    Roundings,
    Widened,
    changed_values,
    is_same_function,
    narrow_dtypes,
    narrowed,
    widened,
)

MOST_BYTES = 64 << 20
"""The maximum size of modules and arguments of one copy, in bytes."""

MOST_BYTES_OF_CASE = 256 << 20
"""The maximum size of the copies of all steps, in bytes. They are alive until the case has ended."""


def drawn(called: Sequence[Any], plan: Mapping[str, Any]) -> list[Any]:
    """Return copies of a target and its arguments, with new random numbers in every floating-point tensor of the arguments.

    The numbers are uniform in the range of those that they replace, so that the function's domain is respected. Raise ``LookupError`` where
    the case could observe the additional call, where the copies are too large, and where no argument is a floating-point tensor.
    """
    body = plan["body"]
    if why := why_observed(plan):
        raise LookupError(why)
    if any(isinstance(entry, Mapping) and entry.get("on_device") for entry in body["inputs"]):
        raise LookupError("the inputs are made on the device")
    if bytes_of(called) > MOST_BYTES:
        raise LookupError(f"modules and arguments are larger than {MOST_BYTES >> 20} MiB")
    if not any(_may_be_drawn(leaf) for leaf in pytree.tree_leaves(list(called[1:]))):
        raise LookupError("no argument is a floating tensor")
    target, *arguments = copies.deep(list(called))
    # another seed than the case's: the same numbers would give the same result
    generator = torch.Generator().manual_seed(plan["seed"] ^ 0x5DEECE66D)
    return [target, *pytree.tree_map(lambda leaf: _redrawn(leaf, generator) if _may_be_drawn(leaf) else leaf, arguments)]


def why_observed(plan: Mapping[str, Any]) -> str:
    """Return why the case could observe an additional call; empty where it could not."""
    if any(plan["body"].get(word) for word in ("spies", "handlers", "dead")) or "log" in _measured_kinds(plan):
        return "the case observes calls (spies, handlers, dead, log): it would observe an additional one"
    return ""


def _measured_kinds(plan: Mapping[str, Any]) -> set[str]:
    return {wanted["kind"] for step in plan["steps"] for wanted in step["measure"]}


def bytes_of(called: Sequence[Any]) -> int:
    """Return the size of the tensors of modules and arguments."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors_of(called))


def tensors_of(called: Sequence[Any]) -> list[torch.Tensor]:
    """Return the tensors of modules and arguments."""
    leaves = pytree.tree_leaves(list(called))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    for module in leaves:
        if isinstance(module, torch.nn.Module):
            tensors.extend([*module.parameters(), *module.buffers()])
    return tensors


def _may_be_drawn(leaf: Any) -> bool:
    plain = type(leaf) in (torch.Tensor, torch.nn.Parameter) and leaf.layout is torch.strided and not leaf.is_nested
    return plain and leaf.is_floating_point() and leaf.numel() > 0


def _redrawn(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    numbers = tensor.detach().to("cpu", torch.float64)
    numbers = numbers[numbers.isfinite()]
    low, high = (float(numbers.min()), float(numbers.max())) if numbers.numel() else (0.0, 1.0)
    if low == high:
        high = low + 1
    fresh = torch.rand(tensor.shape, generator=generator, dtype=torch.float64) * (high - low) + low
    made = torch.empty_like(tensor, requires_grad=False)
    if 0 not in tensor.stride():
        made = torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    return made.copy_(fresh).requires_grad_(tensor.requires_grad)


MOST_ELEMENTS = 1 << 24
"""The maximum number of elements of a result that is judged in this way."""

Run = Callable[[list[Any], AbstractContextManager[Any]], Any]
"""Receives copies of the inputs and a context, in which it makes the call (not the backward); returns what is compared."""


@dataclass(frozen=True)
class Repeatable:
    """What eager computed, so that it can be computed again from the same or from other inputs."""

    inputs: list[Any] | str
    """Modules and arguments as they were before the call, or why there are no copies of them."""
    generators: Generators
    """The generators before the call."""
    run: Run


def of_call(call: ReferenceCall | None, part: str) -> Repeatable:
    """Return the reference call of a step, with its backward where it had one; ``part`` is the part of the result that is compared."""
    if call is None:
        return Repeatable("no eager call was made in this step", Generators.now(), lambda called, around: None)
    return Repeatable(call.inputs, call.generators, functools.partial(_called, call, part))


def _called(call: ReferenceCall, part: str, called: list[Any], around: AbstractContextManager[Any]) -> Any:
    return follow(_result(call, called, around), part, EAGER)


def _result(call: ReferenceCall, called: list[Any], around: AbstractContextManager[Any]) -> Any:
    forget_gradients(called)
    with call.enter(), around:
        result = called[0](*called[1:])
    result = gradients_of(result, called, call.differentiate) if call.differentiate else result
    for step in call.then:
        result = step(called)
    return result


def of_state(call: ReferenceCall | None, paths: Sequence[str], *, parameters: bool) -> Repeatable:
    """Return the same call; what is compared are values that it changed, by their paths, in place of its result."""

    def changed(called: list[Any], around: AbstractContextManager[Any]) -> list[Any]:
        assert call is not None
        _result(call, called, around)
        found = changeable(called, parameters=parameters)
        return [found[path] for path in paths]

    return replace(of_call(call, ""), run=changed)


@dataclass(frozen=True)
class EagerRuns:
    """The runs of eager that the calibrated judge needs. Counters, spies and hooks do not record them."""

    unseen: Unseen
    call: Repeatable

    def answers(self, eager: Any) -> Answers:
        """Return the reference of the case's own inputs and pairs of eager and reference; raise ``NoReference``."""
        inputs = self.call.inputs
        if isinstance(inputs, str):
            raise NoReference(inputs)
        leaves = [leaf for leaf in leaves_of(eager) if isinstance(leaf, torch.Tensor)]
        if any(leaf.numel() > MOST_ELEMENTS for leaf in leaves):
            raise NoReference(f"the result has more than {MOST_ELEMENTS} elements")
        if not any(leaf.is_floating_point() or leaf.is_complex() for leaf in leaves):
            raise NoReference(_why_exact(leaves))
        again, through, is_random = self._observed(inputs)
        if is_random:
            raise NoReference("the function draws random numbers")
        wide = self._wide(_copy(inputs))
        has_double = any(leaf.dtype in (torch.float64, torch.complex128) for leaf in leaves)
        self._refuse_other_function(inputs, wide, has_double=has_double)
        pairs = [] if has_double else [(again, wide, 0.0)]
        least = 0.0 if has_double else max((torch.finfo(getattr(torch, name)).eps for name in through if name), default=0.0)
        self._add_pairs(pairs, inputs, runs_of(_smallest(leaves)), least, has_double=has_double)
        return Answers(again, wide, pairs, through)

    def _observed(self, inputs: list[Any]) -> tuple[Any, list[str], bool]:
        """Return eager's answer, the narrowest format that the values of each leaf were rounded to, and whether a generator was used."""
        mode = Roundings()
        try:
            with mode:
                found, is_random = self._eager(_copy(inputs))
        except Exception:  # operators of higher order refuse a mode, with exceptions of no common class
            # what the function itself raises, this call raises again
            found, is_random = self._eager(_copy(inputs))
            return found, [], is_random
        return found, [mode.narrowest(leaf) for leaf in leaves_of(found)], is_random

    def _add_pairs(self, pairs: list[tuple[Any, Any, float]], inputs: list[Any], count: int, least: float, *, has_double: bool) -> None:
        """Add runs until there are so many: of a float64 result the first of the same inputs in float32, the others of nudged ones.

        ``least`` is the resolution of the narrowest format that eager rounds values to.
        """
        generator = torch.Generator().manual_seed(0)
        while len(pairs) < count:
            given = _copy(inputs)
            given = narrowed(given) if has_double else given
            if pairs:
                given = changed_values(given, functools.partial(nudged, generator=generator, least=least))
            try:
                step = max(_step(given), least) if pairs else 0.0
                pairs.append((self._eager(_copy(given))[0], self._wide(given), step))
            except Exception as error:  # the function may refuse other values, or float32
                if pairs:
                    break
                raise NoReference(f"the function refuses float32: {type(error).__name__}") from error

    def _refuse_other_function(self, inputs: list[Any], wide: Any, *, has_double: bool) -> None:
        """Raise ``NoReference`` where the function computes something else because it reads that its tensors are float64."""
        dtypes = narrow_dtypes(tensors_of(inputs))
        for narrow in dict.fromkeys([*dtypes, torch.float32] if has_double else dtypes):
            reported = Reported(narrow)
            try:
                other = self._wide(_copy(inputs), reported)
            except NoReference:  # the function refuses operands that it takes for other ones
                continue
            if not reported.was_read:
                return
            if not is_same_function(wide, other, narrow):
                raise NoReference("the function depends on the dtype of its tensors, and is another one in float64")

    def _eager(self, called: list[Any]) -> tuple[Any, bool]:
        """Return the answer, and whether a generator was used."""
        found = self._run(called)
        return found, Generators.now().differs_from(self.call.generators)

    def _wide(self, called: list[Any], around: AbstractContextManager[Any] | None = None) -> Any:
        """Return the answer in float64; ``around`` is entered for the call of the function alone."""
        mode = Widened()
        try:
            with mode:
                found = self._run(widened(called), around)
        except Exception as error:  # an operator may refuse float64 with any exception
            text = str(error).splitlines()[0] if str(error) else ""
            raise NoReference(f"the function refuses float64: {type(error).__name__}: {text}"[:200]) from error
        if mode.problem:
            raise NoReference(mode.problem)
        return found

    def _run(self, called: list[Any], around: AbstractContextManager[Any] | None = None) -> Any:
        self.call.generators.restore()
        with self.unseen(), compiling.reference_stance(), torch.enable_grad():
            return copies.frozen(self.call.run(called, around or nullcontext()))


def _copy(inputs: Sequence[Any]) -> list[Any]:
    return list(copies.apart(list(inputs)))


def _why_exact(leaves: Sequence[torch.Tensor]) -> str:
    dtypes = dict.fromkeys(str(leaf.dtype).removeprefix("torch.") for leaf in leaves)
    return f"values of dtype {', '.join(dtypes)} are exact" if dtypes else "no value is a tensor"


def _smallest(leaves: Sequence[torch.Tensor]) -> int:
    """Return the number of elements of the smallest tensor that is judged; an empty one needs no runs."""
    return min((leaf.numel() for leaf in leaves if leaf.numel() and (leaf.is_floating_point() or leaf.is_complex())), default=1 << 20)


def _step(called: Sequence[Any]) -> float:
    """Return the coarsest resolution of the floating-point tensors of modules and arguments."""
    tensors = [one for one in tensors_of(called) if one.is_floating_point()]
    return max((torch.finfo(one.dtype).eps for one in tensors), default=0.0)


Calibrate = Callable[[dict[str, Any], Mapping[str, Any], Any, Any], None]
"""Completes the facts of ``close`` for an answer and eager's; the arguments are those of ``close``."""


class Calibrations:
    """The deferred runs of a case."""

    def __init__(self, plan: Mapping[str, Any], reference: Reference, unseen: Unseen, phases: Phases) -> None:
        self._plan = plan
        self._reference = reference
        self._unseen = unseen
        self._phases = phases
        self._bytes = 0
        self._known_call: object = None
        self._deferred: list[Callable[[], None]] = []
        self.comparers: dict[int, Comparer] = {}
        """What compares stand-ins with the reference of a leaf, by the identity of the leaf's facts."""
        wanted = [one["arguments"] for step in plan["steps"] for one in step["measure"] if one["kind"] in ("close", "candidates")]
        effects = [step["effects"] for step in plan["steps"] if step.get("effects") is not None]
        if any(close_measure.needs_reference(one.get("close", one)) for one in wanted) or any(one["rtol"] is None for one in effects):
            reference.copied = self._copied

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
            return list(copies.apart(list(called)))
        except Exception as error:  # copying modules and arguments of a spec may raise anything
            return f"the inputs cannot be copied: {type(error).__name__}"

    def _latest(self) -> ReferenceCall | None:
        """Return the reference call of the step, whose copies are alive until the case has ended."""
        call = self._reference.latest_call
        if call is not None and call.inputs is not self._known_call:
            self._known_call = call.inputs
            self._bytes += bytes_of(call.inputs) if isinstance(call.inputs, list) else 0
        return call

    def defer(
        self, facts: dict[str, Any], arguments: Mapping[str, Any], value: Callable[[str], Any], *, with_stand_ins: bool = True
    ) -> None:
        """Schedule the measurements that need a float64 reference; they complete the facts of ``close``."""
        if not close_measure.needs_reference(arguments):
            return
        values = {word: copies.frozen(copies.measured(value(arguments[word]))) for word in ("of", "to")}
        call = self._latest()
        if not with_stand_ins:  # a repetition, of which there may be many
            self._bytes += bytes_of(list(values.values()))
        runs = EagerRuns(self._unseen, of_call(call, arguments["to"].partition(".")[2]))
        comparison = Comparison(facts, arguments, values, self.comparers, with_stand_ins=with_stand_ins)
        self._deferred.append(functools.partial(add_reference, comparison, functools.partial(runs.answers, values["to"])))

    def defer_effects(self, facts: dict[str, Any], inexact: Sequence[Inexact], *, parameters: bool) -> None:
        """Schedule the same for values that a call left beside its result; ``facts`` are those of the step's effects."""
        if inexact:
            call = self._latest()
            self._bytes += 2 * bytes_of([one.ours for one in inexact])
            arguments = {"judge": Judge.CALIBRATED.value, "equal_nan": inexact[0].equal_nan}
            values = {"of": [one.ours for one in inexact], "to": [one.theirs for one in inexact]}
            leaves, unwritten = [one.facts for one in inexact], [one.unwritten for one in inexact]
            comparison = Comparison({"leaves": leaves}, arguments, values, {}, with_stand_ins=False, unwritten=unwritten)
            runs = EagerRuns(self._unseen, of_state(call, [one.path for one in inexact], parameters=parameters))
            self._deferred.append(functools.partial(add_reference, comparison, functools.partial(runs.answers, values["to"])))
        self._deferred.append(functools.partial(_keep_worst, facts))

    def of_step(self) -> Calibrate:
        """Return what completes the facts of further answers of this step's call, after the last step. Eager is run for the first."""
        runs = EagerRuns(self._unseen, of_call(self._latest(), ""))
        known: list[Answers | NoReference] = []

        def answers(eager: Any) -> Answers:
            if not known:
                try:
                    known.append(runs.answers(eager))
                except NoReference as why:
                    known.append(why)
            if isinstance(known[0], NoReference):
                raise known[0]
            return known[0]

        def complete(facts: dict[str, Any], arguments: Mapping[str, Any], answer: Any, eager: Any) -> None:
            if close_measure.needs_reference(arguments):
                comparison = Comparison(facts, arguments, {"of": answer, "to": eager}, {}, with_stand_ins=False)
                with torch.no_grad():
                    add_reference(comparison, functools.partial(answers, eager))

        return complete

    def defer_samples(self, facts: Mapping[str, Any], arguments: Mapping[str, Any], samples: Sequence[Done]) -> None:
        """Schedule the same for each sample of an operator: they complete its entry in the facts."""
        if not close_measure.needs_reference(arguments):
            return
        why = why_observed(self._plan)
        for entry, done in zip(facts["samples"], samples, strict=True):
            if entry["value"] is None:
                continue
            is_large = bytes_of(done.inputs) > MOST_BYTES
            why_not = why or (f"the arguments are larger than {MOST_BYTES >> 20} MiB" if is_large else "")
            call = Repeatable(why_not or done.inputs, self._generators(done), done.again)
            has_stand_ins = any("stand_ins" in leaf for leaf in entry["value"]["leaves"])
            comparison = Comparison(entry["value"], arguments, {"of": done.compiled, "to": done.eager}, {}, with_stand_ins=has_stand_ins)
            self._deferred.append(functools.partial(self._add_sample, comparison, EagerRuns(self._unseen, call), done))

    def _generators(self, done: Done) -> Generators:
        """Return the generators as they are before the call of a sample."""
        done.caller.reseed()
        return Generators.now()

    def _add_sample(self, comparison: Comparison, runs: EagerRuns, done: Done) -> None:
        for_steps.announce_sample(done.index, f"again, in eager and in float64: {done.text}")
        add_reference(comparison, functools.partial(runs.answers, done.eager))

    def add_all(self) -> None:
        """Run them, after the last step."""
        with self._phases("compare"), torch.no_grad():
            while self._deferred:
                self._deferred.pop(0)()


def _keep_worst(facts: dict[str, Any]) -> None:
    """Keep the values that differ most, where there are too many: those that the judge refuses stand first."""
    check = Close()
    refused = [check.problem(leaf) is not None for leaf in facts["leaves"]]
    ordered = sorted(range(len(refused)), key=lambda index: not refused[index])
    facts["leaves"] = [facts["leaves"][index] for index in ordered[:MOST]]
