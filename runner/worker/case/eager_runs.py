"""Runs of eager and of its float64 reference: the same call, with the same and with nudged inputs, in its dtypes and in float64."""

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch

from runner.vocabulary.expectations.base import EAGER
from runner.vocabulary.expectations.calibrated_measure import NoReference, nudged, runs_of
from runner.vocabulary.expectations.close_measure import Answers, leaves_of
from runner.vocabulary.steps.gradients import forget_gradients, gradients_of
from runner.worker.case import copies, other_inputs
from runner.worker.case.changeable import changeable
from runner.worker.case.generators import Generators
from runner.worker.case.parts import follow
from runner.worker.case.reference import ReferenceCall, Unseen
from runner.worker.torch_compat import compiling
from runner.worker.torch_compat.roundings import Roundings
from runner.worker.torch_compat.widening import Reported, Widened, changed_values, is_same_function, narrow_dtypes, narrowed, widened

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
        has_double = _has_double(leaves)
        self._refuse_other_function(inputs, wide, has_double=has_double)
        pairs = [] if has_double else [(again, wide, 0.0)]
        least = 0.0 if has_double else max((torch.finfo(getattr(torch, name)).eps for name in through if name), default=0.0)
        self._add_pairs(pairs, inputs, runs_of(_smallest(leaves)), least, has_double=has_double)
        return Answers(again, wide, pairs, functools.partial(self._magnitude, inputs), through)

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
        dtypes = narrow_dtypes(other_inputs.tensors_of(inputs))
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

    def _magnitude(self, inputs: list[Any]) -> Any:
        return self._wide(changed_values(_copy(inputs), lambda tensor: tensor.detach().abs()))

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


def _has_double(leaves: Sequence[torch.Tensor]) -> bool:
    return any(leaf.dtype in (torch.float64, torch.complex128) for leaf in leaves)


def _step(called: Sequence[Any]) -> float:
    """Return the coarsest resolution of the floating-point tensors of modules and arguments."""
    tensors = [one for one in other_inputs.tensors_of(called) if one.is_floating_point()]
    return max((torch.finfo(one.dtype).eps for one in tensors), default=0.0)
