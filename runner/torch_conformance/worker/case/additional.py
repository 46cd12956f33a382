"""The additional calls of a case: one list of entries, made by one driver after the last step, so
that the steps' counters do not see them.

An entry completes facts that a step measured. When it is added, it takes what it needs as of then:
copies of inputs and results, the state of the generators. It may call eager again (in float64, with
other roundings, with other inputs: ``EagerRuns``), or the compiled function (``RepeatableCall``).
``AdditionalCalls.of_measurement`` says which entries a measurement adds.
"""

import copy
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

import torch
from torch.utils import _pytree as pytree

from torch_conformance.model.expectation import Expectation
from torch_conformance.model.results import PROOF
from torch_conformance.optional.tools import hooks
from torch_conformance.vocabulary.expectations import OF_SAMPLES, close
from torch_conformance.vocabulary.expectations.additional_calls import (
    CannotRepeat,
    comparing,
    differing_bits,
)
from torch_conformance.vocabulary.expectations.calibrated import (
    FORMATS,
    NoReference,
    Unrepeatable,
    fine_runs_of,
    nudged,
    runs_of,
)
from torch_conformance.vocabulary.expectations.close import (
    Answers,
    Close,
    Comparison,
    Judge,
    add_reference,
)
from torch_conformance.vocabulary.expectations.comparing import leaves_of
from torch_conformance.vocabulary.expectations.distributions import RUNS
from torch_conformance.vocabulary.expectations.expectation_base import EAGER, OUTPUT
from torch_conformance.vocabulary.expectations.stand_ins import Comparer
from torch_conformance.vocabulary.picture import Leaves, Picture, is_freed
from torch_conformance.vocabulary.steps import MEASURED, SAMPLES
from torch_conformance.vocabulary.steps.call import (
    Differentiate,
    differentiation,
    gradients_of,
)
from torch_conformance.vocabulary.steps.samples import Given, SampleRun, raised
from torch_conformance.vocabulary.worker_session import Again, Context
from torch_conformance.worker.case import copies, soundness
from torch_conformance.worker.case.copies import Called, bytes_of
from torch_conformance.worker.case.effects import MOST, Inexact
from torch_conformance.worker.case.ranks import IN_NEW_PROCESS, RANKS, in_new_process
from torch_conformance.worker.case.scope import Enter, follow
from torch_conformance.worker.case.sides import ReferenceCall, Unseen
from torch_conformance.worker.case.spies import only_records
from torch_conformance.worker.case.state import Generators, is_same, reseed
from torch_conformance.worker.process.channel import Observed, Plan, exception_text
from torch_conformance.worker.torch_compat import compiling, numerics, opinfo, residue
from torch_conformance.worker.torch_compat.device_modules import DeviceApi
from torch_conformance.worker.torch_compat.numerics import AMPLITUDE, RESOLUTION, jittered


class _Kinds(dict[str, type[Expectation]]):
    def __missing__(self, kind: str) -> type[Expectation]:
        return hooks(kind).MEASURED


KINDS: Mapping[str, type[Expectation]] = _Kinds(MEASURED)
"""The classes of all expectations, a table that the seal watches; any other kind is that of the
optional tool of its name."""

MOST_BYTES = 64 << 20
"""The maximum size of modules and arguments of one copy, in bytes."""

MOST_BYTES_OF_CASE = 256 << 20
"""The maximum size of the copies of all steps, in bytes.

They are alive until the case has ended.
"""

MOST_BYTES_REPEATED = 1 << 30
"""The maximum size of modules and arguments of one repeated call, in bytes: two copies of them are
alive until the case has ended.
"""

MOST_BYTES_SHARED = 16 << 20
"""The maximum size of a value that is compared by runs which are made for other values too: the
copies of all runs are alive together.
"""

MOST_JITTERED = 8
"""The maximum number of runs of eager with other roundings."""

MOST_EXACT = 32
"""The same where exact values differ: they end where each element was seen."""

MOST_ELEMENTS = 1 << 24
"""The maximum number of elements of a result that is judged in this way."""

_MOST_COMPILING = 3
"""How often a call of which the operators are recorded is made, where torch compiles in it."""

_WORDS = 500


def _changeable(called: Called) -> list[torch.Tensor]:
    """Return the tensors of a target and its arguments, with those of their objects; raise
    ``TypeError`` for tensors in parts.
    """
    if any(tensor.is_nested for tensor in numerics.tensor_leaves(called)):
        raise TypeError("an input is a nested tensor")
    return copies.changeable_tensors(called)


# -- eager again -----------------------------------------------------------------------------------


_NO_CALL = "no eager call was made in this step"


_Value = TypeVar("_Value")


@dataclass(frozen=True)
class _Failed:
    """Replaces a value that was not computed, because the function raised."""

    error: Exception


def _raising(value: _Value | _Failed) -> _Value:
    """Return a value; raise the error of a ``_Failed``."""
    if isinstance(value, _Failed):
        raise value.error
    return value


class RepeatedEager(NamedTuple):
    """A second eager run with the case's own inputs."""

    values: list[Any]
    formats: list[list[str]]
    """For each value the narrowest formats that the numbers of its leaves were rounded to; none
    where an operator refuses a mode.
    """
    has_drawn: bool
    """Whether the call drew random numbers."""
    draws: list[list[torch.dtype]]
    """The dtypes of the operands of each operator that did."""


class _Kept:
    """Runs of one kind: each is computed at its first use, and cached."""

    def __init__(self, runs: Iterator[Any]) -> None:
        self._runs, self._known = runs, list[Any]()

    def __iter__(self) -> Iterator[Any]:
        """Yield the runs from the first, without an end; raise the exception of a failed run."""
        for index in itertools.count():
            if index == len(self._known):
                try:
                    self._known.append(next(self._runs))
                except Exception as error:  # code of the inputs' classes raises anything
                    self._known.append(_Failed(error))
            yield _raising(self._known[index])


@dataclass
class EagerCall:
    """A reference call, which is repeated for all values that are compared with eager: after the
    call, after its backward, and after each step of an optimizer.

    Counters, spies and hooks do not record these runs. Each run returns a list: a copy of each
    compared value, or ``_Failed``.
    """

    unseen: Unseen
    reference: ReferenceCall
    compared: list[tuple[int, Callable[[Any, Called], Any]]] = field(default_factory=list)
    """For each value the stage after which it is read, and what reads it from the result of that
    stage and the inputs.
    """
    kept: dict[Any, Any] = field(default_factory=dict, init=False)
    """The runs, by their kind; ``replace`` does not copy them."""
    products: str = ""
    """The format that the compiler computes products of float32 in, as its entry declares."""
    draws_own: bool = False
    """Whether the compiler draws random numbers of its own, as its entry declares."""
    has_rounded: bool = False
    """Whether a run computed a product in that format."""

    def own_inputs(self) -> Called:
        """Return a copy of the inputs; raise ``NoReference``."""
        if isinstance(self.reference.inputs, str):
            raise NoReference(self.reference.inputs)
        return list(copies.independent(self.reference.inputs))

    def opaque(self) -> str:
        """Return a description of the objects in reach of the call that cannot be restored."""
        of_inputs = Picture(left_out=(type,)).add("argument", self.reference.inputs).opaque
        shared = self.reference.shared
        opaque = {**({} if shared is None else shared.opaque), **of_inputs}
        return ", ".join(f"{path} ({kind})" for path, kind in list(opaque.items())[:3])

    def run(
        self,
        called: Called,
        context: Context | None = None,
        roundings: torch.Generator | None = None,
        seed: int | None = None,
    ) -> list[Any]:
        """Repeat the call with these inputs from the same state of the generators.

        With ``roundings`` operands of products are rounded up or down at random; with a ``seed``
        generators begin there.
        """
        shared = self.reference.shared
        state = shared.recapture() if shared is not None else None
        values: list[Any] = [None] * len(self.compared)
        try:
            if shared is not None:
                shared.restore()
            self.reference.generators.restore()
            if seed is not None:
                reseed(seed)
            mode = numerics.InFormat(self.products, roundings) if self.products else None
            with ExitStack() as within:
                for outer in (self.unseen(), compiling.reference_stance(), torch.enable_grad()):
                    within.enter_context(outer)
                within.enter_context(mode or nullcontext())
                stages, failed = self.reference.stages(called, context or nullcontext()), None
                for stage in range(max(stage for stage, _ in self.compared) + 1):
                    try:
                        result = None if failed else next(stages)
                    except Exception as error:  # a spec's function raises anything
                        failed = _Failed(error)
                    for index, (after, read) in enumerate(self.compared):
                        if after == stage:
                            values[index] = failed or _read(read, result, called)
            self.has_rounded |= mode is not None and mode.has_rounded
        finally:
            if state is not None:
                state.restore()
        return values

    def repeated(self) -> RepeatedEager:
        """Return the values of a second eager run with the case's own inputs; it runs once."""
        if "repeated" not in self.kept:
            mode = numerics.Roundings()
            with mode:
                values = self.run(self.own_inputs())
            formats = [
                [] if isinstance(value, _Failed) else list(map(mode.narrowest, leaves_of(value)))
                for value in values
            ]
            if any(isinstance(value, _Failed) for value in values):
                # operators of higher order refuse a mode, with exceptions of no common class
                # what the function itself raises, this call raises again
                other_values = self.run(self.own_inputs())
                values = [
                    other if isinstance(value, _Failed) else value
                    for value, other in zip(values, other_values, strict=True)
                ]
            has_drawn = Generators.now().differs_from(self.reference.generators)
            self.kept["repeated"] = RepeatedEager(values, formats, has_drawn, mode.draws)
        repeated: RepeatedEager = self.kept["repeated"]
        return repeated

    def wide(
        self, narrow: torch.dtype, *, keeps_casts: bool, called: Called | None = None
    ) -> tuple[list[Any], numerics.Reported]:
        """Return the values in float64, and a report on the function; without ``called`` for its
        own inputs, cached.

        ``narrow`` is the dtype that the function reads from float64 tensors; with ``keeps_casts``
        explicit casts of the function round in float64 too.
        """
        if called is None:
            if (key := ("wide", narrow, keeps_casts)) not in self.kept:
                copies_of_inputs = self.own_inputs()
                self.kept[key] = self.wide(narrow, keeps_casts=keeps_casts, called=copies_of_inputs)
            values_and_mode: tuple[list[Any], numerics.Reported] = self.kept[key]
            return values_and_mode
        mode = numerics.Widened(self.repeated().draws)
        report = numerics.Reported(mode, narrow, keeps_casts=keeps_casts)
        try:
            with mode:
                numerics.to_dtypes(_changeable(called), numerics.WIDER)
                values = self.run(called, report)
        except Exception as error:  # a tensor subclass raises anything at a cast
            values = [_Failed(error)] * len(self.compared)
        values = [
            _Failed(_refused_float64(value.error)) if isinstance(value, _Failed) else value
            for value in values
        ]
        if mode.problem:
            values = [_Failed(NoReference(mode.problem))] * len(values)
        return values, report

    def pairs(
        self, narrow: torch.dtype, keeps_casts: bool, least: float, has_double: bool
    ) -> _Kept:
        """Return triples: eager's values, the values in float64, and the resolution (eps) of their
        inputs; 0.0 for the first, whose inputs are not changed. The others have nudged inputs.

        ``least`` is the eps of a format that eager rounds intermediate values to. If a result is of
        float64 (``has_double``), inputs are converted to float32.
        """

        def generate() -> Iterator[tuple[list[Any], list[Any], float]]:
            generator = torch.Generator().manual_seed(0)
            if not has_double:
                yield self.repeated().values, self.wide(narrow, keeps_casts=keeps_casts)[0], 0.0
            for number in itertools.count(0 if has_double else 1):
                inputs = self.own_inputs()
                if has_double:
                    numerics.to_dtypes(_changeable(inputs), numerics.NARROWER)
                if number:
                    nudge = functools.partial(nudged, generator=generator, least=least)
                    numerics.change(_changeable(inputs), nudge)
                resolutions = [
                    torch.finfo(tensor.dtype).eps
                    for tensor in copies.tensors_of(inputs)
                    if tensor.is_floating_point()
                ]
                answers = self.run(copies.independent(inputs))
                right, _ = self.wide(narrow, keeps_casts=keeps_casts, called=inputs)
                yield answers, right, max(least, *resolutions, 0.0) if number else 0.0

        key = ("pairs", narrow, keeps_casts, least, has_double)
        runs: _Kept = self.kept.setdefault(key, _Kept(generate()))
        return runs

    def jittered(self, amplitude: float, *, keeps_casts: bool, **modes: bool) -> _Kept:
        """Return eager's values with each operator and, without ``keeps_exact``, the inputs
        jittered by up to ``amplitude`` ulp.
        """

        def generate() -> Iterator[list[Any]]:
            generator = torch.Generator().manual_seed(1)
            change = functools.partial(
                jittered, generator=generator, least=RESOLUTION, times=amplitude
            )
            while True:
                called = self.own_inputs()
                with suppress(TypeError):  # tensors of other kinds: only operators round
                    if not modes.get("keeps_exact"):
                        numerics.change(_changeable(called), change)
                with numerics.Jittered(generator, amplitude, **modes) as mode:
                    report = numerics.Reported(mode, torch.float64, keeps_casts=keeps_casts)
                    values = self.run(called, report, generator)
                yield values

        key = ("jittered", amplitude, keeps_casts, *modes)
        runs: _Kept = self.kept.setdefault(key, _Kept(generate()))
        return runs


def _refuse_unrepeatable(repeated: object, eager: object, opaque: str) -> None:
    """Raise ``Unrepeatable`` if a second run of eager gives other exact values: not rounding
    explains this, but an object that cannot be restored.
    """
    ours, theirs = leaves_of(repeated), leaves_of(eager)
    if len(ours) != len(theirs) or not all(map(is_same, ours, theirs)):
        raise Unrepeatable(
            f"a second run of eager gives another answer: {opaque} cannot be set back"
        )


def _read(read: Callable[[Any, Called], Any], result: object, called: Called) -> object:
    try:
        return copies.frozen(read(result, called))
    except Exception as error:  # attributes and items of a result are code of the spec's classes
        return _Failed(error)


def _refused_float64(error: Exception) -> NoReference:
    text = str(error).splitlines()[0] if str(error) else ""
    return NoReference(f"the function refuses float64: {type(error).__name__}: {text}"[:200])


@dataclass(frozen=True)
class _SampleCall(ReferenceCall):
    """The call of a sample of an operator."""

    sample_run: SampleRun = field(kw_only=True)

    def stages(self, called: Called, context: Context) -> Iterator[Any]:
        """Repeat the call."""
        yield self.sample_run.recompute(called, context)


@dataclass
class EagerRuns:
    """The runs of eager that the calibrated judge needs for one compared value of a call."""

    call: EagerCall | str
    """Or why there is none."""
    index: int = 0
    """Of the value, among those that are compared."""
    _known: list[Answers | NoReference] = field(default_factory=list)

    def with_arguments(self, arguments: list[Any]) -> "EagerRuns":
        """Return the runs for other arguments, of which no copy is made."""
        call = self.call
        if isinstance(call, str) or isinstance(call.reference.inputs, str):
            return self
        reference = replace(call.reference, inputs=[call.reference.inputs[0], *arguments])
        return EagerRuns(replace(call, reference=reference, compared=[call.compared[self.index]]))

    def answers(self, eager: object) -> Answers:
        """Return the reference of the case's own inputs and pairs of eager and reference; raise
        ``NoReference``.

        They are made once.
        """
        if not self._known:
            try:
                self._known.append(self._compute_answers(eager))
            except NoReference as why:
                self._known.append(why)
        if isinstance(self._known[0], NoReference):
            raise self._known[0]
        return self._known[0]

    def _own(self, values: list[Any]) -> object:
        """Return the compared value of a run; raise the exception that the function raised."""
        return _raising(values[self.index])

    def _compute_answers(self, eager: object) -> Answers:
        """Run eager as often as the judge needs; raise ``NoReference`` if there is no reference to
        compare with.
        """
        call = self.call
        if isinstance(call, str):
            raise NoReference(call)
        leaves = [leaf for leaf in leaves_of(eager) if isinstance(leaf, torch.Tensor)]
        if any(leaf.numel() > MOST_ELEMENTS for leaf in leaves):
            raise NoReference(f"the result has more than {MOST_ELEMENTS} elements")
        inexact = [leaf for leaf in leaves if numerics.is_inexact(leaf)]
        has_double = any(leaf.dtype in (torch.float64, torch.complex128) for leaf in leaves)
        if has_double and call.products:  # it is judged by runs in float32
            call = replace(call, products="")
        has_floats = any(isinstance(leaf, float) for leaf in leaves_of(eager))
        values, formats, drew, _ = call.repeated()
        repeated, through, opaque = self._own(values), formats[self.index], call.opaque()
        if call.products == numerics.TF32 and call.has_rounded:
            through = [call.products] * len(leaves_of(repeated))
        if not (inexact or has_floats) and opaque:
            _refuse_unrepeatable(repeated, eager, opaque)
        # an empty tensor needs no runs
        smallest = min(
            (leaf.numel() for leaf in inexact if leaf.numel()), default=1 if has_floats else 1 << 20
        )
        is_hidden = "" not in through  # or every result was rounded to a narrower format
        wide, pairs, keeps_casts = repeated, list[tuple[Any, Any, float]](), False
        # float32, which judges float64, draws other numbers
        is_other = drew and (has_double or not through)
        why_not = "the function draws random numbers" if is_other else ""
        try:
            if not why_not:
                narrow, keeps_casts, is_left = self._reference(
                    call, repeated, has_double=has_double
                )
                wide = self._own(call.wide(narrow, keeps_casts=keeps_casts)[0])
                is_hidden |= is_left
                names = [name for name in through if name and not has_double]
                eps = [2.0 ** -FORMATS[name].bits for name in names]
                runs = call.pairs(narrow, keeps_casts, max(eps, default=0.0), has_double)
                pairs = self._pairs(itertools.islice(runs, runs_of(smallest)))
        except NoReference as error:  # jittered runs of eager judge
            wide, why_not = repeated, str(error)
        # a step that rounding turns around, as Adam's for a gradient that is 0 but for rounding,
        # changes no more for larger roundings
        amplitude = (
            1.0
            if any(through) or any(torch.finfo(leaf.dtype).eps > RESOLUTION for leaf in inexact)
            else AMPLITUDE
        )

        with_jitter = functools.partial(self._jittered, call, keeps_casts=keeps_casts)
        answers = list(with_jitter(min(runs_of(smallest) - 1, MOST_JITTERED), amplitude))
        if why_not and not answers:
            raise NoReference(why_not)
        fine = functools.cache(
            lambda: list(with_jitter(min(fine_runs_of(smallest), MOST_JITTERED), is_fine=True))
        )
        return Answers(
            repeated,
            wide,
            pairs,
            through,
            answers,
            amplitude,
            None if call.reference.is_apart or is_hidden else fine,
            functools.partial(with_jitter, MOST_EXACT, is_fine=True, keeps_exact=True),
            functools.partial(self._in_other_way, call),
            opaque,
            why_not,
            functools.partial(self._drawn, call) if drew and call.draws_own else None,
            call.products if call.has_rounded else "",
        )

    def _jittered(
        self, call: EagerCall, runs: int, amplitude: float = 1.0, **modes: bool
    ) -> Iterator[object]:
        """Yield jittered answers; none if an operator raises in the mode, or the function for other
        numbers.
        """
        jittered = iter(call.jittered(amplitude, **modes))
        for _ in range(runs):
            try:
                answer = self._own(next(jittered))
            except Exception:  # a spec's function raises anything for jittered numbers
                return
            yield answer

    def _reference(
        self, call: EagerCall, repeated: object, *, has_double: bool
    ) -> tuple[torch.dtype, bool, bool]:
        """Return the dtype that the function reads from float64 tensors, whether its casts round
        there too, and whether it computes with numpy.
        """
        narrow = torch.float64
        if not has_double:
            narrow = numerics.narrow_dtype(copies.tensors_of(call.reference.inputs))
        try:
            values, report = call.wide(narrow, keeps_casts=False)
            wide = self._own(values)
        except NoReference:  # the function refuses operands that it takes for other ones
            narrow = torch.float64
            values, report = call.wide(narrow, keeps_casts=False)
            wide = self._own(values)
        keeps_casts = False
        if report.casts:
            with_casts = self._own(call.wide(narrow, keeps_casts=True)[0])
            keeps_casts = any(
                map(numerics.is_what_casts_lose, *map(leaves_of, (repeated, wide, with_casts)))
            )
        return narrow, keeps_casts, report.is_left

    def _pairs(self, runs: Iterator[Any]) -> list[tuple[Any, Any, float]]:
        """Return the pairs of this value, up to the first for which the function raises."""
        pairs: list[tuple[Any, Any, float]] = []
        try:
            for answers, right, step in runs:
                pairs.append((self._own(answers), self._own(right), step))
        except Exception as error:  # the function may refuse other values, or float32
            if not pairs:
                raise NoReference(
                    f"the function refuses float32: {type(error).__name__}"
                ) from error
        return pairs

    def _in_other_way(self, call: EagerCall, way: str) -> object:
        """Return eager's answer in the same dtypes, computed on the CPU or without TF32; raise the
        exceptions of the function.
        """
        called = call.own_inputs()
        if way == "without TF32":
            with ExitStack() as undo:
                for switch in (torch.backends.cudnn, torch.backends.cuda.matmul):
                    undo.callback(setattr, switch, "allow_tf32", switch.allow_tf32)
                    switch.allow_tf32 = False
                return self._own(call.run(called))
        for tensor in _changeable(called):
            tensor.data = tensor.data.cpu()
        return self._own(call.run(called))

    def _drawn(self, call: EagerCall) -> list[Any]:
        """Return answers of eager with other random numbers."""
        seeds = range(1, 1 + RUNS)
        return [self._own(call.run(call.own_inputs(), seed=seed)) for seed in seeds]


# -- the compiled function again -------------------------------------------------------------------


@dataclass
class RepeatableCall(Again):
    """A call of the compiled side with the state before it.

    Each expectation that repeats it gets another one.
    """

    target: compiling.Function
    called: Called
    """The function that is not compiled, and copies of the arguments.

    Modules are not copied: a compiled function is bound to them.
    """
    state: Picture
    """What the function has and the globals, kept as they were."""
    generators: Generators
    enter: Enter
    unseen: Unseen
    device_api: DeviceApi
    eager_runs: EagerRuns = field(default_factory=lambda: EagerRuns(_NO_CALL))
    differentiate: Differentiate | None = None
    """Runs backward on the result; None for a step whose result is that of the call."""
    executed: int = 0
    """How many compiled graphs the step's own call ran."""
    result: Any = None
    """A copy of the step's result."""
    eager_result: Any = None
    """A copy of eager's result, or the ``LookupError`` that says why there is none."""
    comparisons: Mapping[str, Plan] = field(default_factory=dict)
    """The comparisons of the step's result with eager's that judge a call whose operators are
    recorded, by their index.
    """
    eager_calls: int = 0
    """How many of the additional calls ran no compiled graph, though the step's own did."""
    options: Plan = field(default_factory=dict)
    """The options that the case gives to ``torch.compile``."""
    named: Callable[[str], Any] = dict[str, Any]().__getitem__
    """Returns a named value of the case."""
    elsewhere: Callable[..., Observed] = dict
    """Returns what the measurement of the call, with further arguments, is in a new Python that
    did not compile.
    """

    @property
    def reference(self) -> object:
        """A copy of eager's result."""
        if isinstance(self.eager_result, LookupError):
            raise CannotRepeat(str(self.eager_result)) from self.eager_result
        return self.eager_result

    def arguments(self) -> list[Any]:
        """Return fresh copies of the arguments."""
        return list(map(_copied, self.called[1:]))

    def operators(self) -> Observed:
        """Return the operators that ATen runs and that compute something, in eager and in one more
        call of the compiled function.

        What the step compares with eager is compared in it too.
        """

        def call(
            arguments: list[Any], make_context: MakeContext, of: RepeatableCall = self
        ) -> object:
            return of.run(arguments, make_context())

        in_eager = functools.partial(call, of=replace(self, target=self.called[0], executed=0))
        make_arguments, expected, result, records = with_other_numbers(
            self.arguments, in_eager, call, of_backward=self.differentiate is not None
        )
        if isinstance(result, Exception):
            raise result
        # operators of higher order refuse a mode, with exceptions of no common class
        with suppress(Exception), compiling.reference_stance():
            lines = residue.Lines()
            in_eager(make_arguments(), lambda: lines)
            records[0].places = lines.of
        facts_of_answer = {}
        if self.comparisons and differing_bits(result, expected):
            runs = self.eager_runs.with_arguments(make_arguments())
            compared = replace(self, eager_runs=runs, eager_result=expected)
            with comparing():
                facts_of_answer = {
                    index: compared.close(arguments, result)
                    for index, arguments in self.comparisons.items()
                }
        return {**residue.facts([records]), "again": facts_of_answer, "tensors": 1}

    def varied(self, arguments: Plan) -> Observed:
        """Return the results of the trials of facts, each made in a fork."""
        return soundness.tried(self, arguments)

    def run(self, arguments: list[Any] | None = None, context: Context | None = None) -> object:
        """Call the function from the state before it; return a copy of the result, or of the
        gradients.

        ``context`` is entered for that.
        """
        with self.unseen() as witnessed:
            called = [self.called[0], *(self.arguments() if arguments is None else arguments)]
            self.state.restore()
            self.generators.restore()
            context = context or nullcontext()
            with self.enter(), nullcontext() if self.differentiate else context:
                result = copies.invoke(self.target, called)
            with context if self.differentiate else nullcontext():
                result = copies.frozen(
                    gradients_of(result, called, self.differentiate)
                    if self.differentiate
                    else result
                )
        executed = (
            witnessed.own_calls
            + witnessed.captured_others
            + sum(witnessed.executed_others.values())
        )
        self.eager_calls += bool(self.executed and not executed)
        return result

    def peak_memory(self, *, eager: bool = False) -> int:
        """Return the peak memory, in bytes, of one more call; a call before it compiles."""
        if self.differentiate:
            raise CannotRepeat("the memory of a backward is not measured: only that of a call")
        call = replace(self, target=self.called[0], executed=0) if eager else self
        peak: list[int] = []
        with compiling.reference_stance() if eager else nullcontext():
            call.run()
            call.run(context=self.device_api.peak_memory(peak))
        return peak[0]

    def close(self, arguments: Plan, result: object) -> Observed:
        """Return the facts of ``close`` for a result of the function and eager's."""
        reference = self.reference
        facts: Observed = close.measure(
            arguments, {OUTPUT: result, EAGER: reference}.__getitem__, with_stand_ins=False
        )
        if close.needs_reference(arguments):
            comparison = Comparison(
                facts, arguments, {"of": result, "to": reference}, {}, with_stand_ins=False
            )
            with torch.no_grad():
                add_reference(comparison, self.eager_runs.answers)
        return facts

    poisoned = staticmethod(compiling.poisoned)
    """Returns the context in which fresh memory is poisoned."""
    with_candidate = staticmethod(compiling.only_candidate)
    """Returns the context in which only one candidate of each autotuning can be chosen."""


MakeContext = Callable[[], Context]
"""Returns the context that a call is made in."""


def with_other_numbers(
    make_arguments: Callable[[], Any],
    call_eager: Callable[[Any, MakeContext], Any],
    call: Callable[[Any, MakeContext], Any],
    *,
    of_backward: bool = False,
) -> tuple[Callable[[], Any], Any, Any, tuple[residue.Record, residue.Record]]:
    """Call eager and the compiled function with other numbers than those of ``make_arguments``,
    which returns fresh copies of the arguments; raise ``CannotRepeat``.

    Return a function that makes the arguments with these numbers, the result of eager, the result
    or the exception of the compiled function, and the operators of both. Before the compiled call,
    the same function is called with the original arguments in the same memory: a compiler may have
    cached its answers by their values or by their addresses. If torch compiles during the call, the
    call is repeated with numbers that are different once more.
    """
    for times in range(1, _MOST_COMPILING + 1):
        make_others, expected, of_eager = _of_eager(
            make_arguments, call_eager, times, of_backward=of_backward
        )
        arguments, of_call = make_arguments(), residue.Record()
        make_context = functools.partial(residue.recorded, of_call, of_backward=of_backward)
        try:
            call(arguments, nullcontext)
            result = call(_in_memory_of(arguments, make_others()), make_context)
        except CannotRepeat:
            raise
        except Exception as error:  # a vendor's compiler may raise anything, which is judged
            result = error
        if isinstance(result, Exception) or not of_call.compiles:
            break
    return make_others, expected, result, (of_eager, of_call)


def _of_eager(
    make_arguments: Callable[[], Any],
    call_eager: Callable[[Any, MakeContext], Any],
    times: int,
    *,
    of_backward: bool,
) -> tuple[Callable[[], Any], Any, residue.Record]:
    """Call eager with the first arguments that it accepts: all numbers changed, only floating-point
    ones, or none.
    """
    refused = None
    for chosen in (torch.is_tensor, torch.is_floating_point, lambda tensor: False):
        make_others = functools.partial(_changed, make_arguments, chosen, times)
        record = residue.Record()
        try:
            with compiling.reference_stance():
                make_context = functools.partial(residue.recorded, record, of_backward=of_backward)
                return make_others, call_eager(make_others(), make_context), record
        except CannotRepeat:
            raise
        except Exception as error:  # code of a spec may refuse other numbers with any exception
            refused = error
    raise CannotRepeat(f"eager raised {type(refused).__name__}: {refused}"[:_WORDS])


def _changed(
    make_arguments: Callable[[], list[Any]], chosen: Callable[[torch.Tensor], bool], times: int
) -> list[Any]:
    """Return arguments with other numbers in the chosen tensors, which almost every function
    accepts.

    Floating-point numbers are halved. Whole numbers and booleans are reflected between the least
    and the greatest along the longest dimension, so that indices stay unique, sorted and in the
    same range; numbers that this does not change are shifted by a place, or halved.
    """
    values = make_arguments()
    for leaf in pytree.tree_leaves(values) * times:
        if not (copies.is_plain_strided(leaf) and leaf.numel() and chosen(leaf)):
            continue
        # what is expanded has each number once; a number has a dimension too
        at = (None, *(slice(None if step else 1) for step in leaf.stride()))
        numbers = leaf.detach()[at]
        if leaf.element_size() == 1:  # the bits of float8, which cannot be multiplied
            numbers = numbers.view(torch.uint8)
        dim = max(range(numbers.ndim), key=numbers.shape.__getitem__)
        if numerics.is_inexact(numbers):
            changed = [numbers * 0.5, numbers + 0.25]
        else:
            ends = numbers.amin(dim, keepdim=True) + numbers.amax(dim, keepdim=True)
            changed = [(ends - numbers).flip(dim), numbers.roll(1, dim), numbers // 2]
        numbers.copy_(next((other for other in changed if not other.equal(numbers)), numbers))
    return values


def _in_memory_of(earlier: list[Any], arguments: list[Any]) -> list[Any]:
    """Return the new arguments, with their numbers copied into the memory of an earlier call's."""
    for before, leaf in zip(*map(pytree.tree_leaves, (earlier, arguments)), strict=False):
        if copies.is_plain_strided(before) and copies.is_plain_strided(leaf):
            memory, new = before.untyped_storage(), leaf.untyped_storage()
            if memory.nbytes() == new.nbytes():
                memory.copy_(new)
                leaf.data = leaf.data.set_(memory, leaf.storage_offset(), leaf.shape, leaf.stride())
    return arguments


def _copied(value: _Value) -> _Value:
    """Return a copy of an argument; modules in it stay the same."""
    memo = {
        id(leaf): leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.nn.Module)
    }
    return copy.deepcopy(value, memo)


# -- the list --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """One entry of the list."""

    complete: Callable[[], None]
    """Makes the calls, and completes the facts that it was made for."""
    calls_only_eager: bool = True
    """Such entries come first, and are made too where a step has ended the case."""
    is_last: bool = False
    """It sets nothing back."""


class AdditionalCalls:
    """The list of the additional calls of a case, and their driver."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._plan: Plan = session.plan
        self._entries: list[Entry] = []
        self._bytes = self._drawn_bytes = 0
        self._known: EagerCall | None = None
        self._latest: RepeatableCall | str = "the step has no call that can be repeated"
        self._comparers: dict[int, Comparer] = {}
        """What compares stand-ins with the reference of a leaf, by the identity of the leaf's
        facts.
        """
        measures = [request for step in self._plan["steps"] for request in step["measure"]]
        self._repeats = any(KINDS[request["kind"]].calls_again for request in measures)
        self.records_operators = any(
            KINDS[request["kind"]].records_operators for request in measures
        )
        """Whether a step asks which operators ATen ran; of samples they are recorded as each ends.
        """
        self._why_no_operators = ""
        declared = self._plan.get("declared", {})
        self._declared: Plan = {
            "products": declared.get("precision", {}).get("float32", ""),
            "draws_own": declared.get("random", False),
        }
        """What the entry of the backend declares, as fields of ``EagerCall``."""
        arguments = [
            request["arguments"]
            for request in measures
            if request["kind"] in ("close", "candidates")
        ]
        calibrates = any(
            step["effects"]["rtol"] is None
            for step in self._plan["steps"]
            if step.get("effects") is not None
        )
        if any(close.needs_reference(body.get("close", body)) for body in arguments) or calibrates:
            session.reference.copied = self._copied
        observes = any(map(self._plan["body"].get, ("handlers", "dead"))) or not all(
            map(only_records, self._plan["body"]["spies"].values())
        )
        self._why_observed = (
            "an additional call of a rank would need the other ranks"
            if RANKS in self._plan
            else "the case observes calls (spies that change them, handlers, dead): it would "
            "observe an additional one"
            if observes
            else ""
        )
        """Why no additional call is made; empty where there may be some."""

    def run(self, *, references_only: bool = False) -> None:
        """Make the calls: those that call only eager first; with ``references_only`` only these."""
        entries = sorted(
            self._entries, key=lambda entry: (entry.is_last, not entry.calls_only_eager)
        )
        self._entries = []
        with self._session.phases("compare"), torch.no_grad():
            for entry in entries:
                if entry.calls_only_eager or not references_only:
                    entry.complete()

    def of_measurement(self, request: Plan, facts: Observed) -> None:
        """Add the entries that complete the facts of a measurement."""
        value, arguments = self._session.names.value, request["arguments"]
        if request["kind"] == "close":
            self.calibrate(facts, arguments)
            if close.has_other_inputs(arguments):
                self._compare_other_inputs(facts, arguments, value(arguments["to"]))
        elif request["kind"] == OF_SAMPLES and close.needs_reference(arguments):
            self._calibrate_samples(facts, arguments, value("output"))

    # -- references in float64 ---------------------------------------------------------------------

    def _why_no_copies(self, called: Called) -> str:
        if not self._why_observed and bytes_of(called) > MOST_BYTES:
            return f"modules and arguments are larger than {MOST_BYTES >> 20} MiB"
        return self._why_observed

    def _copied(self, called: Called) -> Called | str:
        """Return copies of a target and its arguments before a call, or why there are none."""
        if why_not := self._why_no_copies(called):
            return why_not
        if self._bytes + bytes_of(called) > MOST_BYTES_OF_CASE:
            return f"the copies for earlier steps are larger than {MOST_BYTES_OF_CASE >> 20} MiB"
        try:
            return list(copies.independent(list(called)))
        except Exception as error:  # copying modules and arguments of a spec may raise anything
            return f"the inputs cannot be copied: {type(error).__name__}"

    def _eager_runs(
        self, size: int, part: str = "", changed: Callable[[Called], Any] | None = None
    ) -> EagerRuns:
        """Return the runs of the step's reference call; what is compared, of ``size`` bytes, is a
        part of its result, or what ``changed`` finds after it.

        The copies of the call are alive until the case has ended.
        """
        call = self._session.reference.latest_call
        if call is None:
            return EagerRuns(_NO_CALL)
        compared = _stage(call), functools.partial(_compared, part, changed)
        earlier, eager_call = self._known, EagerCall(self._session.unseen, call, **self._declared)
        if earlier is None or call.inputs is not earlier.reference.inputs:
            self._bytes += bytes_of(call.inputs) if isinstance(call.inputs, list) else 0
        if size > MOST_BYTES_SHARED:
            return EagerRuns(replace(eager_call, compared=[compared]))
        if earlier is not None and _goes_on(earlier.reference, call):
            earlier.reference, eager_call = call, earlier
        eager_call.compared.append(compared)
        self._known = eager_call
        return EagerRuns(eager_call, len(eager_call.compared) - 1)

    def calibrate(self, facts: Observed, arguments: Plan, *, with_stand_ins: bool = True) -> None:
        """Add the measurements that need a float64 reference; they complete the facts of
        ``close``.
        """
        if not close.needs_reference(arguments):
            return
        values = {
            word: copies.frozen(copies.measured(self._session.names.value(arguments[word])))
            for word in ("of", "to")
        }
        runs = self._eager_runs(bytes_of([values["to"]]), arguments["to"].partition(".")[2])
        if not with_stand_ins:  # a repetition, of which there may be many
            self._bytes += bytes_of(list(values.values()))
        comparison = Comparison(
            facts, arguments, values, self._comparers, with_stand_ins=with_stand_ins
        )
        self._entries.append(Entry(functools.partial(add_reference, comparison, runs.answers)))

    def calibrate_effects(
        self,
        facts: Observed,
        inexact: Sequence[Inexact],
        *,
        equal_nan: bool,
        leaves: Callable[[Called], Leaves],
    ) -> None:
        """Add the same for values that a call changed in addition to its result; ``facts`` are
        those of the step's effects.
        """

        def changed(called: Called) -> list[Any]:
            current = leaves(called)
            return [current[leaf.path] for leaf in inexact]

        def keep_worst() -> None:
            """Keep the ``MOST`` values, those that the judge refuses first."""
            check = Close()  # where there are too many, those that the judge refuses come first
            facts["leaves"] = sorted(
                facts["leaves"],
                key=lambda leaf: (
                    "change" not in leaf
                    and check.problem({"calibrated": {"why_not": ""}, **leaf}) is None
                ),
            )[:MOST]

        if inexact:
            ours = [leaf.ours for leaf in inexact]
            size = bytes_of(ours)
            runs = self._eager_runs(size, changed=changed)
            self._bytes += 2 * size
            comparison = Comparison(
                {"leaves": [leaf.facts for leaf in inexact]},
                {"judge": Judge.CALIBRATED.value, "equal_nan": equal_nan},
                {"of": ours, "to": [leaf.theirs for leaf in inexact]},
                {},
                with_stand_ins=False,
                unwritten=[leaf.unwritten for leaf in inexact],
                before=[leaf.before for leaf in inexact],
            )
            self._entries.append(Entry(functools.partial(add_reference, comparison, runs.answers)))
        self._entries.append(Entry(keep_worst))

    def _calibrate_samples(
        self, facts: Observed, arguments: Plan, samples: Sequence[SampleRun]
    ) -> None:
        """Add the same for each sample of an operator: they complete its entry in the facts."""

        def complete(comparison: Comparison, runs: EagerRuns, sample: SampleRun) -> None:
            opinfo.announce_sample(sample.index, f"again, in eager and in float64: {sample.text}")
            add_reference(comparison, runs.answers)

        for entry, sample_run in zip(facts["samples"], samples, strict=True):
            if entry["value"] is None:
                continue
            why_not = self._why_no_copies(sample_run.inputs)
            sample_run.reseed()
            eager_call = EagerCall(
                self._session.unseen,
                _SampleCall(
                    Generators.now(),
                    nullcontext,
                    why_not or sample_run.inputs,
                    sample_run=sample_run,
                ),
                **self._declared,
                compared=[(0, functools.partial(_compared, "", None))],
            )
            runs = EagerRuns(eager_call)
            has_stand_ins = any("stand_ins" in leaf for leaf in entry["value"]["leaves"])
            comparison = Comparison(
                entry["value"],
                arguments,
                {"of": sample_run.compiled, "to": sample_run.eager},
                {},
                with_stand_ins=has_stand_ins,
            )
            self._entries.append(Entry(functools.partial(complete, comparison, runs, sample_run)))

    # -- other inputs ------------------------------------------------------------------------------

    def _compare_other_inputs(self, facts: Observed, arguments: Plan, reference: object) -> None:
        """Add the measurement of the stand-in "other inputs", which completes the facts of
        ``close``.

        The copies are made now. The call is made after the last step, because code of the case may
        count its calls.
        """
        try:
            result = self._with_other_inputs(arguments["to"].partition(".")[2])
        except Exception as error:  # copying modules and arguments of a spec may raise anything
            close.add_other_inputs(facts, arguments, reference, functools.partial(_raise, error))
        else:
            add = functools.partial(
                close.add_other_inputs, facts, arguments, reference, result, self._comparers
            )
            self._entries.append(Entry(add, calls_only_eager=False))

    def _with_other_inputs(self, part: str) -> Callable[[], Any]:
        """Return a function that computes a part of this step's reference result for other inputs;
        raise ``LookupError`` if impossible.
        """
        side, call = self._session.reference.side, self._session.reference.latest_call
        if side is None or call is None or not self._session.reference.is_there:
            raise LookupError("no eager reference was run in this step")
        if call.then:
            raise LookupError(close.OF_OPTIMIZER)
        # the call may have freed or changed its arguments
        called = self._drawn(call.inputs if isinstance(call.inputs, list) else side.called)
        self._drawn_bytes += bytes_of(called)
        if self._drawn_bytes > MOST_BYTES_OF_CASE:
            raise LookupError(
                f"the copies for earlier steps are larger than {MOST_BYTES_OF_CASE >> 20} MiB"
            )
        compared = _stage(call), functools.partial(_compared, part, None)
        eager_call = EagerCall(self._session.unseen, call, compared=[compared])
        return lambda: _raising(eager_call.run(called)[0])

    def _drawn(self, called: Called) -> Called:
        """Return copies of a target and its arguments, with new random numbers in every
        floating-point tensor of the arguments.

        The numbers are uniform in the range of those that they replace, so that the function's
        domain is respected. Raise ``LookupError`` where the case could observe the additional call,
        where the copies are too large, and where no argument is a floating-point tensor.
        """
        if (
            any(
                isinstance(entry, Mapping) and entry.get("on_device")
                for entry in self._plan["body"]["inputs"]
            )
            and not self._why_observed
        ):
            raise LookupError("the inputs are made on the device")
        if why_not := self._why_no_copies(called):
            raise LookupError(why_not)
        if any(map(is_freed, copies.tensors_of(list(called[1:])))):
            raise LookupError("an argument is freed")
        if not any(map(_may_be_drawn, pytree.tree_leaves(list(called[1:])))):
            raise LookupError("no argument is a floating tensor")
        target, *arguments = copies.deep(list(called))
        # another seed than the case's: the same numbers would give the same result
        generator = torch.Generator().manual_seed(self._plan["seed"] ^ 0x5DEECE66D)
        return [
            target,
            *pytree.tree_map(
                lambda leaf: _redrawn(leaf, generator) if _may_be_drawn(leaf) else leaf, arguments
            ),
        ]

    def operators_of_sample(
        self, sample: SampleRun, compiled: compiling.Function, make_arguments: Callable[[], Given]
    ) -> SampleRun | None:
        """Record the operators that ATen runs in a sample, in eager and in one more call, as
        ``RepeatableCall.operators`` does.

        Return that call, where its answer has other bits than eager's. Without a profiler no claim
        of operators holds for the step.
        """
        # a compiler may give the result of each call the same memory
        sample.compiled = copies.frozen(sample.compiled)
        repeated = replace(sample, text=f"again, with other numbers: {sample.text}")

        def call(
            arguments: Given, make_context: MakeContext, function: compiling.Function = compiled
        ) -> object:
            with self._session.unseen():
                return repeated.call(function, arguments, make_context)

        try:
            make_others, repeated.eager, result, sample.operators = with_other_numbers(
                make_arguments, functools.partial(call, function=sample.operator), call
            )
            sample.operators[0].places = lambda operator: f"sample {sample.index}: {sample.text}"
            if isinstance(result, Exception):
                repeated.compiled, repeated.raised = {}, raised(result)
            else:
                repeated.compiled = copies.frozen(result)
            repeated.inputs = [None, *make_others(), repeated.fixed]
            return (
                repeated
                if repeated.raised or differing_bits(repeated.compiled, repeated.eager)
                else None
            )
        except CannotRepeat as error:
            self._why_no_operators = str(error)
            return None

    # -- the compiled function again ---------------------------------------------------------------

    def record(
        self, target: compiling.Function, called: Called, enter: Enter, *, is_package: bool
    ) -> None:
        """Store the state before a call, where an expectation of the case repeats calls."""
        if not self._repeats:
            return
        try:
            self._refuse_repetition(called, is_package=is_package)
            owner = getattr(called[0], "__self__", called[0])
            state = self._session.shared_state()
            if not compiling.is_set("freezing"):  # a frozen function has lost its parameters
                state.add("function", owner)
                for leaf in pytree.tree_leaves(called[1:]):
                    if isinstance(leaf, torch.nn.Module):
                        state.add("argument", leaf)
            self._latest = RepeatableCall(
                target,
                [called[0], *map(_copied, called[1:])],
                state,
                Generators.now(),
                enter,
                self._session.unseen,
                self._session.device_api,
            )
        except Exception as error:  # copying arguments of a spec may raise anything
            self._latest = f"the call cannot be repeated: {error}"[:_WORDS]

    def _refuse_repetition(self, called: Called, *, is_package: bool) -> None:
        """Raise ``CannotRepeat`` for a call that is never repeated."""
        if RANKS in self._plan:
            raise CannotRepeat(self._why_observed)
        if is_package:
            raise CannotRepeat("a package would be built again")
        if (size := bytes_of(called)) > MOST_BYTES_REPEATED:
            raise CannotRepeat(
                f"modules and arguments have {size >> 20} MiB, and at most "
                f"{MOST_BYTES_REPEATED >> 20} are copied"
            )

    def origins(
        self, target: compiling.Function, called: Called, enter: Enter
    ) -> dict[str, list[str]]:
        """Add the calls that show which operators the answer comes from, in eager, and outside of
        compiled graphs; return these facts, which stay empty where that is not known.

        No state is restored, and nothing is measured after them.
        """
        facts: dict[str, list[str]] = {}

        def traced(function: compiling.Function) -> tuple[list[str], int]:
            with (
                self._session.unseen() as witnessed,
                enter(),
                residue.Origins() as witnessed.origins,
            ):
                answer = copies.invoke(function, called)
            return witnessed.origins.of(answer, copies.tensors_of(called)), witnessed.own_calls

        @torch.enable_grad()  # type: ignore[untyped-decorator]  # mypy does not follow torch
        def complete() -> None:
            if any(map(is_freed, copies.tensors_of(called[1:]))):
                return  # the step's own call freed it
            # the call may raise anything where it was made before
            with suppress(Exception):
                with self._session.unseen() as witnessed, enter():
                    copies.invoke(
                        target, called
                    )  # what the case changed since may have to be compiled
                outside, graphs = traced(target)
                with compiling.reference_stance():
                    eager, _ = traced(called[0])
                if graphs == witnessed.own_calls > 0:
                    facts.update(eager=eager, outside=outside)

        if not self._why_observed:
            self._entries.append(Entry(complete, calls_only_eager=False, is_last=True))
        return facts

    def repeat(
        self,
        request: Plan,
        step: Plan,
        executed: int,
        value: Callable[[str], Any],
    ) -> Observed:
        """Add the calls of an expectation that repeats the step's call; return its facts, which
        these calls complete.
        """
        backward = step["arguments"] if step["kind"] == "backward" else None
        if step["kind"] == SAMPLES and KINDS[request["kind"]].records_operators:
            if self._why_no_operators:
                return {"why_not": self._why_no_operators}
            measured = residue.facts(
                sample.operators for sample in value(OUTPUT) if sample.operators
            )
            return {**measured, "tensors": 1, "done": True, "eager_calls": 0}
        if not isinstance(self._latest, RepeatableCall):
            return {"why_not": self._latest}
        if backward is not None and backward.get("of") is not None:
            return {
                "why_not": "a backward with 'of' cannot be repeated: only that of the last call"
            }
        try:
            eager_result = value(EAGER)
        except LookupError as error:
            eager_result = error
        scope = self._session.scope
        whole = {
            str(other["index"]): arguments
            for other in step["measure"]
            if other["kind"] == "close"
            and ((arguments := other["arguments"])["of"], arguments["to"]) == (OUTPUT, EAGER)
        }
        call_of_request = replace(
            self._latest,
            differentiate=None
            if backward is None
            else differentiation(backward.get("loss"), backward.get("gradient"), scope.named),
            comparisons=whole
            if request["index"] == PROOF or not KINDS[request["kind"]].records_operators
            else {},
            executed=executed,
            options=self._plan["body"]["compile"],
            named=scope.named,
            elsewhere=functools.partial(self._elsewhere, request, step),
            result=copies.frozen(value(OUTPUT)),
            eager_result=eager_result,
            eager_runs=self._eager_runs(bytes_of([eager_result])),
        )
        facts: Observed = {}

        @torch.enable_grad()  # type: ignore[untyped-decorator]  # mypy does not follow torch
        def complete() -> None:
            try:
                facts.update(KINDS[request["kind"]].measure(request["arguments"], call_of_request))
                facts.update(done=True, eager_calls=call_of_request.eager_calls)
            except CannotRepeat as error:
                facts["why_not"] = str(error)
            except Exception as error:  # torch may raise anything in an additional call
                facts["raised"] = exception_text(error)[:_WORDS]

        self._entries.append(Entry(complete, calls_only_eager=False))
        return facts

    def _elsewhere(self, request: Plan, step: Plan, **more: object) -> Observed:
        """Return what a measurement finds in a new process, which carries out the steps up to this
        one; raise ``CannotRepeat``.
        """
        steps = list(itertools.takewhile(lambda other: other is not step, self._plan["steps"]))
        steps.append(step)
        while steps[-1]["kind"] != "call":  # a backward is repeated with its call
            steps.pop()
        repeated = {**request, "index": 0, "arguments": {**request["arguments"], **more}}
        steps[-1] = {**steps[-1], "measure": [repeated], "effects": None, "repeat": 1}
        plan = {**self._plan, IN_NEW_PROCESS: True, "needs_eager": False, "steps": steps}
        observed = in_new_process(plan, len(steps) - 1)
        if (error := observed["error"] or observed["steps"][-1]["raised"]) is not None:
            raise CannotRepeat(f"a new process raised {error['type']}: {error['message']}")
        facts: Observed = observed["steps"][-1]["measured"]["0"]
        if why := facts.get("why_not") or facts.get("raised"):
            raise CannotRepeat(why)
        rows: Observed = facts["found"]
        return rows


def _stage(call: ReferenceCall) -> int:
    """Return how many stages follow the call itself: its backward, and steps of an optimizer."""
    return bool(call.differentiate) + len(call.then)


def _goes_on(before: ReferenceCall, call: ReferenceCall) -> bool:
    """Whether a reference call continues an earlier one with a backward or steps of an
    optimizer.
    """
    return call.inputs is before.inputs and (
        (before.differentiate is None and not before.then)
        or (
            call.differentiate is before.differentiate
            and call.then[: len(before.then)] == before.then
        )
    )


def _compared(
    part: str, changed: Callable[[Called], Any] | None, result: object, called: Called
) -> object:
    return follow(result, part, EAGER) if changed is None else changed(called)


def _raise(error: Exception) -> None:
    raise error


def _may_be_drawn(leaf: object) -> bool:
    return copies.is_plain_strided(leaf) and leaf.is_floating_point() and leaf.numel() > 0


def _redrawn(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return a tensor of the same form with fresh numbers, uniform in the range of the old ones."""
    numbers = tensor.detach().to("cpu", torch.float64)
    numbers = numbers[numbers.isfinite()]
    low, high = (float(numbers.min()), float(numbers.max())) if numbers.numel() else (0.0, 1.0)
    if high - low <= 2.0**-10 * max(abs(low), abs(high)):
        high = low + 1  # nearly equal numbers give nearly equal results
    fresh = torch.rand(tensor.shape, generator=generator, dtype=torch.float64) * (high - low) + low
    redrawn = torch.empty_like(tensor, requires_grad=False)
    if 0 not in tensor.stride():
        redrawn = torch.empty_strided(
            tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device=tensor.device
        )
    return redrawn.copy_(fresh).requires_grad_(tensor.requires_grad)
