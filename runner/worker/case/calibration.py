"""How eager is called again: with other inputs, in float64, and with inputs that are changed a little."""

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from runner.vocabulary.expectations.calibrated_measure import NoReference, fine_runs_of, nudged, runs_of
from runner.vocabulary.expectations.close_measure import Answers, leaves_of
from runner.vocabulary.expectations.expectation_base import EAGER
from runner.vocabulary.steps.gradients import gradients_of
from runner.worker.case import copies
from runner.worker.case.sides import ReferenceCall, Unseen
from runner.worker.case.state import Generators
from runner.worker.case.step_scope import follow
from runner.worker.torch_compat import compiling
from runner.worker.torch_compat.numerics import (
    AMPLITUDE,
    RESOLUTION,
    Jittered,
    Reported,
    Roundings,
    Widened,
    change,
    is_same_function,
    jittered,
    narrow_dtypes,
    to_float32,
    to_float64,
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
    if why := why_observed(plan):
        raise LookupError(why)
    if any(isinstance(entry, Mapping) and entry.get("on_device") for entry in plan["body"]["inputs"]):
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
    reads_log = any(request["kind"] == "log" for step in plan["steps"] for request in step["measure"])
    if reads_log or any(plan["body"].get(word) for word in ("spies", "handlers", "dead")):
        return "the case observes calls (spies, handlers, dead, log): it would observe an additional one"
    return ""


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
    redrawn = torch.empty_like(tensor, requires_grad=False)
    if 0 not in tensor.stride():
        redrawn = torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    return redrawn.copy_(fresh).requires_grad_(tensor.requires_grad)


MOST_JITTERED = 8
"""The maximum number of runs of eager with other roundings."""

MOST_ELEMENTS = 1 << 24
"""The maximum number of elements of a result that is judged in this way."""


def result_of(call: ReferenceCall, called: list[Any], around: AbstractContextManager[Any]) -> Any:
    """Make the reference call of a step again, with its backward and the optimizer's steps; ``around`` is entered for the call alone."""
    with call.enter(), around:
        result = called[0](*called[1:])
    if call.differentiate:
        result = gradients_of(result, called, call.differentiate)
    for step in call.then:
        result = step(called)
    return result


@dataclass
class EagerRuns:
    """The runs of eager that the calibrated judge needs. Counters, spies and hooks do not record them."""

    unseen: Unseen
    inputs: list[Any] | str
    """Modules and arguments as they were before the call, or why there are no copies of them."""
    generators: Generators
    """The generators before the call."""
    call: Callable[[list[Any], AbstractContextManager[Any]], Any]
    """Receives copies of the inputs and a context, in which it makes the call (not the backward); returns what is compared."""
    is_apart: bool = False
    """Whether the two sides may have begun the call with other numbers: then the compiled answer has more errors than those of the call."""
    _known: list[Answers | NoReference] = field(default_factory=list)

    @classmethod
    def of(
        cls, unseen: Unseen, call: ReferenceCall | None, part: str = "", changed: Callable[[list[Any]], Any] | None = None
    ) -> "EagerRuns":
        """Return the runs of the reference call of a step; what is compared is a part of its result, or what ``changed`` finds after it."""
        if call is None:
            return cls(unseen, "no eager call was made in this step", Generators.now(), lambda called, around: None)

        def again(called: list[Any], around: AbstractContextManager[Any]) -> Any:
            result = result_of(call, called, around)
            return follow(result, part, EAGER) if changed is None else changed(called)

        return cls(unseen, call.inputs, call.generators, again, call.is_apart)

    def answers(self, eager: Any) -> Answers:
        """Return the reference of the case's own inputs and pairs of eager and reference; raise ``NoReference``. They are made once."""
        if not self._known:
            try:
                self._known.append(self._made(eager))
            except NoReference as why:
                self._known.append(why)
        if isinstance(self._known[0], NoReference):
            raise self._known[0]
        return self._known[0]

    def _made(self, eager: Any) -> Answers:
        inputs = self.inputs
        if isinstance(inputs, str):
            raise NoReference(inputs)
        leaves = [leaf for leaf in leaves_of(eager) if isinstance(leaf, torch.Tensor)]
        if any(leaf.numel() > MOST_ELEMENTS for leaf in leaves):
            raise NoReference(f"the result has more than {MOST_ELEMENTS} elements")
        inexact = [leaf for leaf in leaves if leaf.is_floating_point() or leaf.is_complex()]
        if not inexact and not any(isinstance(leaf, float) for leaf in leaves_of(eager)):
            dtypes = dict.fromkeys(str(leaf.dtype).removeprefix("torch.") for leaf in leaves)
            raise NoReference(f"values of dtype {', '.join(dtypes)} are exact" if dtypes else "no value is a tensor")

        # eager's answer, and the narrowest format that the values of each leaf were rounded to
        mode = Roundings()
        try:
            with mode:
                again = self.run(copied(inputs))
        except Exception:  # operators of higher order refuse a mode, with exceptions of no common class
            # what the function itself raises, this call raises again
            again, through = self.run(copied(inputs)), []
        else:
            through = [mode.narrowest(leaf) for leaf in leaves_of(again)]
        if Generators.now().differs_from(self.generators):
            raise NoReference("the function draws random numbers")

        # a function that reads that its tensors are float64 may compute something else
        wide = self._wide(copied(inputs))
        has_double = any(leaf.dtype in (torch.float64, torch.complex128) for leaf in leaves)
        dtypes_of_inputs = narrow_dtypes(tensors_of(inputs))
        is_hidden = "" not in through  # or every result was rounded to a narrower format
        for narrow in dict.fromkeys([*dtypes_of_inputs, torch.float32] if has_double else dtypes_of_inputs):
            reported = Reported(narrow)
            try:
                other = self._wide(copied(inputs), reported)
            except NoReference:  # the function refuses operands that it takes for other ones
                continue
            is_hidden |= reported.is_left
            if not reported.was_read:
                break
            if not is_same_function(wide, other, narrow):
                raise NoReference("the function depends on the dtype of its tensors, and is another one in float64")

        # of a float64 result the first pair is of the same inputs in float32; all others are of nudged inputs
        pairs = [] if has_double else [(again, wide, 0.0)]
        least = 0.0 if has_double else max((torch.finfo(getattr(torch, name)).eps for name in through if name), default=0.0)
        smallest = min(
            (leaf.numel() for leaf in inexact if leaf.numel()), default=1 << 20 if inexact else 1
        )  # an empty tensor needs no runs
        generator = torch.Generator().manual_seed(0)
        while len(pairs) < runs_of(smallest):
            nudged_inputs = copied(inputs)
            if has_double:
                to_float32(_changeable(nudged_inputs))
            if pairs:
                change(_changeable(nudged_inputs), functools.partial(nudged, generator=generator, least=least))
            resolutions = [torch.finfo(tensor.dtype).eps for tensor in tensors_of(nudged_inputs) if tensor.is_floating_point()]
            try:
                pairs.append((self.run(copied(nudged_inputs)), self._wide(nudged_inputs), max(least, *resolutions, 0.0) if pairs else 0.0))
            except Exception as error:  # the function may refuse other values, or float32
                if pairs:
                    break
                raise NoReference(f"the function refuses float32: {type(error).__name__}") from error
        # a step that rounding turns around, as Adam's for a gradient that is 0 but for rounding, moves no farther for larger roundings
        amplitude = 1.0 if any(through) or any(torch.finfo(leaf.dtype).eps > RESOLUTION for leaf in inexact) else AMPLITUDE
        answers = self._jittered(inputs, runs_of(smallest) - 1, amplitude)
        fine = functools.cache(functools.partial(self._jittered, inputs, fine_runs_of(smallest), 1.0, is_fine=True))
        otherwise = functools.partial(self._otherwise, inputs)
        return Answers(again, wide, pairs, through, answers, amplitude, None if self.is_apart or is_hidden else fine, otherwise)

    def _otherwise(self, inputs: list[Any], way: str) -> Any:
        """Return eager's answer in the same dtypes "on the CPU" or "without TF32"; what the function raises there, it raises."""
        called = copied(inputs)
        if way == "without TF32":
            switches = (torch.backends.cudnn, torch.backends.cuda.matmul)
            allowed = [switch.allow_tf32 for switch in switches]
            try:
                for switch in switches:
                    switch.allow_tf32 = False
                return self.run(called)
            finally:
                for switch, before in zip(switches, allowed, strict=True):
                    switch.allow_tf32 = before
        for tensor in _changeable(called):
            tensor.data = tensor.data.cpu()
        return self.run(called)

    def _jittered(self, inputs: list[Any], runs: int, amplitude: float, *, is_fine: bool = False) -> list[Any]:
        """Return answers of eager with other roundings of its inputs and of each operator; none where an operator refuses the mode."""
        generator = torch.Generator().manual_seed(1)
        answers: list[Any] = []
        for _ in range(min(runs, MOST_JITTERED)):
            called = copied(inputs)
            change(_changeable(called), functools.partial(jittered, generator=generator, least=RESOLUTION, times=amplitude))
            try:
                with Jittered(generator, amplitude, is_fine=is_fine):
                    answers.append(self.run(called))
            except Exception:  # operators of higher order refuse a mode; the function may refuse other numbers
                break
        return answers

    def _wide(self, called: list[Any], around: AbstractContextManager[Any] | None = None) -> Any:
        """Return the answer in float64; ``around`` is entered for the call of the function alone."""
        mode = Widened()
        try:
            with mode:
                to_float64(_changeable(called))
                result = self.run(called, around)
        except Exception as error:  # an operator may refuse float64 with any exception
            text = str(error).splitlines()[0] if str(error) else ""
            raise NoReference(f"the function refuses float64: {type(error).__name__}: {text}"[:200]) from error
        if mode.problem:
            raise NoReference(mode.problem)
        return result

    def run(self, called: list[Any], around: AbstractContextManager[Any] | None = None) -> Any:
        """Make the call with these inputs from the same state of the generators; return a copy of what is compared."""
        self.generators.restore()
        with self.unseen(), compiling.reference_stance(), torch.enable_grad():
            return copies.frozen(self.call(called, around or nullcontext()))


def _changeable(called: Sequence[Any]) -> list[torch.Tensor]:
    """Return the tensors of a target and its arguments, with those of their objects; raise ``TypeError`` for tensors in parts."""
    if any(isinstance(leaf, torch.Tensor) and leaf.is_nested for leaf in pytree.tree_leaves(list(called))):
        raise TypeError("an input is a nested tensor")
    return [leaf for leaf in copies.changeable(called, parameters=True).values() if isinstance(leaf, torch.Tensor)]


def copied(inputs: Sequence[Any]) -> list[Any]:
    """Return deep copies of modules and arguments."""
    return list(copies.apart(list(inputs)))
