"""Runs of eager and of its float64 reference for the calibrated judge. They are made after the last step."""

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from runner.vocabulary.expectations import close
from runner.vocabulary.expectations.base import EAGER
from runner.vocabulary.expectations.calibrated_measure import NoReference, nudged, runs_of
from runner.vocabulary.expectations.close_measure import leaves_of
from runner.vocabulary.expectations.close_reference import Answers, Comparison, add_reference
from runner.vocabulary.expectations.stand_ins import Comparer
from runner.vocabulary.steps.gradients import forget_gradients, gradients_of
from runner.worker.case import copies, other_inputs
from runner.worker.case.generators import Generators
from runner.worker.case.hooks import Phases
from runner.worker.case.parts import follow
from runner.worker.case.reference import Reference, ReferenceCall, Unseen
from runner.worker.torch_compat import compiling
from runner.worker.torch_compat.widening import Reported, Widened, changed_values, is_same_function, narrow_dtypes, narrowed, widened

MOST_ELEMENTS = 1 << 24
"""The maximum number of elements of a result that is judged in this way."""


class Calibrations:
    """The deferred runs of a case."""

    def __init__(self, plan: Mapping[str, Any], reference: Reference, unseen: Unseen, phases: Phases) -> None:
        self._plan = plan
        self._reference = reference
        self._unseen = unseen
        self._phases = phases
        self._bytes = 0
        self._deferred: list[Callable[[], None]] = []
        self.comparers: dict[int, Comparer] = {}
        """What compares stand-ins with the reference of a leaf, by the identity of the leaf's facts."""
        wanted = [one["arguments"] for step in plan["steps"] for one in step["measure"] if one["kind"] == "close"]
        if any(close.needs_reference(arguments) for arguments in wanted):
            reference.copied = self._copied

    def _copied(self, called: Sequence[Any]) -> list[Any] | str:
        """Return copies of a target and its arguments before a call, or why there are none."""
        if why := other_inputs.why_observed(self._plan):
            return why
        size = other_inputs.bytes_of(called)
        if size > other_inputs.MOST_BYTES:
            return f"modules and arguments are larger than {other_inputs.MOST_BYTES >> 20} MiB"
        self._bytes += size
        if self._bytes > other_inputs.MOST_BYTES_OF_CASE:
            return f"the copies for earlier steps are larger than {other_inputs.MOST_BYTES_OF_CASE >> 20} MiB"
        try:
            return list(copies.apart(list(called)))
        except Exception as error:  # copying modules and arguments of a spec may raise anything
            return f"the inputs cannot be copied: {type(error).__name__}"

    def defer(self, facts: dict[str, Any], arguments: Mapping[str, Any], value: Callable[[str], Any]) -> None:
        """Schedule the measurements that need a float64 reference; they complete the facts of ``close``."""
        if not close.needs_reference(arguments):
            return
        names = {word: arguments[word] for word in ("of", "to", "no_worse_than") if arguments.get(word)}
        values = {word: copies.frozen(copies.measured(value(name))) for word, name in names.items()}
        part = arguments["to"].partition(".")[2]
        runs = _Runs(self._unseen, self._reference.latest_call, part)
        comparison = Comparison(facts, arguments, values, self.comparers)
        self._deferred.append(functools.partial(add_reference, comparison, functools.partial(runs.answers, values["to"])))

    def add_all(self) -> None:
        """Run them, after the last step."""
        with self._phases("compare"), torch.no_grad():
            while self._deferred:
                self._deferred.pop(0)()


@dataclass(frozen=True)
class _Runs:
    """The repetitions of one reference call."""

    unseen: Unseen
    call: ReferenceCall | None
    part: str

    def answers(self, eager: Any) -> Answers:
        """Return the reference of the case's own inputs and pairs of eager and reference; raise ``NoReference``."""
        if self.call is None:
            raise NoReference("no eager call was made in this step")
        if not isinstance(self.call.inputs, list):
            raise NoReference(self.call.inputs)
        leaves = [leaf for leaf in leaves_of(eager) if isinstance(leaf, torch.Tensor)]
        if any(leaf.numel() > MOST_ELEMENTS for leaf in leaves):
            raise NoReference(f"the result has more than {MOST_ELEMENTS} elements")
        own = self._copy(self.call.inputs)
        again, is_random = self._eager(own)
        if is_random:
            raise NoReference("the function draws random numbers")
        wide = self._wide(self._copy(self.call.inputs))
        self._refuse_other_function(self.call.inputs, wide, has_double=_has_double(leaves))
        pairs = [(again, wide, 0.0)] if not _has_double(leaves) else []
        generator = torch.Generator().manual_seed(0)
        count = runs_of(min((leaf.numel() for leaf in leaves), default=0))
        while len(pairs) < count:
            given = self._copy(self.call.inputs)
            given = narrowed(given) if _has_double(leaves) else given
            if pairs:
                given = changed_values(given, functools.partial(nudged, generator=generator))
            try:
                step = _step(given) if pairs else 0.0
                pairs.append((self._eager(self._copy(given))[0], self._wide(given), step))
            except Exception as error:  # the function may refuse other values, or float32
                if pairs:
                    break
                raise NoReference(f"the function refuses float32: {type(error).__name__}") from error
        return Answers(again=again, reference=wide, pairs=pairs, magnitude=self._magnitude)

    def _refuse_other_function(self, inputs: list[Any], wide: Any, *, has_double: bool) -> None:
        """Raise ``NoReference`` where the function computes something else because it reads that its tensors are float64."""
        dtypes = narrow_dtypes(other_inputs.tensors_of(inputs))
        for narrow in dict.fromkeys([*dtypes, torch.float32] if has_double else dtypes):
            reported = Reported(narrow)
            try:
                other = self._wide(self._copy(inputs), reported)
            except NoReference:  # the function refuses operands that it takes for other ones
                continue
            if reported.was_read and not is_same_function(wide, other, narrow):
                raise NoReference("the function depends on the dtype of its tensors, and is another one in float64")

    def _magnitude(self) -> Any:
        assert self.call is not None
        assert isinstance(self.call.inputs, list)
        return self._wide(changed_values(self._copy(self.call.inputs), lambda tensor: tensor.detach().abs()))

    def _copy(self, called: Sequence[Any]) -> list[Any]:
        return list(copies.apart(list(called)))

    def _eager(self, called: list[Any]) -> tuple[Any, bool]:
        """Return the answer, and whether a generator was used."""
        assert self.call is not None
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
        assert self.call is not None
        self.call.generators.restore()
        with self.unseen(), compiling.reference_stance(), torch.enable_grad():
            forget_gradients(called)
            with self.call.enter(), around or nullcontext():
                result = called[0](*called[1:])
            result = gradients_of(result, called, self.call.differentiate) if self.call.differentiate else result
        return copies.frozen(follow(result, self.part, EAGER))


def _has_double(leaves: Sequence[torch.Tensor]) -> bool:
    return any(leaf.dtype in (torch.float64, torch.complex128) for leaf in leaves)


def _step(called: Sequence[Any]) -> float:
    """Return the coarsest resolution of the floating-point tensors of modules and arguments."""
    tensors = [one for one in other_inputs.tensors_of(called) if one.is_floating_point()]
    return max((torch.finfo(one.dtype).eps for one in tensors), default=0.0)
