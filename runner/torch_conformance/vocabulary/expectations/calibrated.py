"""The calibrated judge of ``close``: the answer's error against a float64 reference, compared with
eager's own error.

These rules must hold:

- Each element: its error is at most the greater of its floor and the smaller of two figures:
  ``FACTOR`` times eager's greatest error in
  the tensor, and ``FACTOR * slack`` times its greatest error among elements that are alike (a
  slice, neighbours, one magnitude).
  The floor is some ulp of the reference; for wide formats also what a change of the last digits of
  the inputs does to the element.
- Each quantile, where there are enough elements: at most ``FACTOR`` times eager's, with a floor.
- In bfloat16 and float16 the mean of the signed deviations, over the tensor and over parts of it:
  the same.

The worker sends the element that is nearest to its bound, or farthest outside, with the figures of
its group, and the quantiles. The bounds are computed here from these figures.
``docs/design/numbers.md`` has the measurements.
"""

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from torch_conformance.model.values import frozen
from torch_conformance.vocabulary.worker_session import Facts, NewFacts
from torch_conformance.vocabulary.worker_torch import Tensor, torch

FACTOR = 2.0
"""How many times eager's error a right answer may have."""


@dataclass(frozen=True, slots=True)
class Format:
    """A floating-point format, and how much of its resolution a right answer may lose."""

    bits: int
    """The bits of the fraction that are stored."""
    least: int
    """The exponent of the smallest unit: of the smallest normal number where devices flush smaller
    ones to 0, else of a subnormal one.
    """
    element_floor: float
    """In ulp.

    An element within this distance of the reference is right, even where eager has no error at all.
    """
    quantile_floor: float
    """In ulp. A quantile of the errors that is at most this is right."""
    slack: float
    """By how much an element may exceed the errors of eager in its group, besides ``FACTOR``."""
    nudges: float
    """How far an element may be from its reference, in movements of the reference under nudged
    inputs. 0 for narrow formats: results are accumulated in a wider format, so another order of
    additions, or another exp, does not change them."""
    blind: float
    """In ulp.

    Where eager's median error is greater, it says little: an answer that is farther from float64
    has a bound for its median distance from the nearer of the two.
    """
    bias_floor: float
    """In bounds of the elements. A mean of signed deviations up to this is right; infinite where it
    is not judged. Wide formats are accumulated in themselves: their errors are not independent
    roundings."""
    reordered: float
    """In ulp of the greatest value. Runs of eager that differ for the same inputs may be this far
    from the reference: additions in another order, as by atomics. What is farther has another
    reason, and no reference."""


FORMATS: Mapping[str, Format] = {
    "float64": Format(52, -1074, 1024.0, 512.0, 64.0, 64.0, 2.0**40, math.inf, 2.0**14),
    "float32": Format(23, -126, 64.0, 32.0, 8.0, 8.0, 2.0**13, math.inf, 2.0**10),
    "float16": Format(10, -24, 1.5, 0.5, 1.0, 0.0, 16.0, 2.0**-6, 64.0),
    "bfloat16": Format(7, -126, 1.5, 0.5, 1.0, 0.0, 4.0, 2.0**-6, 16.0),
    "tf32": Format(10, -126, 1.5, 0.5, 1.0, 0.0, 16.0, 2.0**-6, 64.0),
}
"""By dtype; ``tf32`` is that of operands of float32, and of no result."""

LEAST_OF_SLICE = 8
"""A slice of fewer elements is not a group. The errors of one element in several runs have its
sensitivity in common, so they may all be small by chance."""

LEAST_OF_GROUP = 64
"""Fewer elements are not a group for a bias."""

COMPONENTS = {"complex64": "float32", "complex128": "float64"}

QUANTILES: tuple[tuple[float, int], ...] = ((0.5, 32), (0.9, 160), (0.99, 1600))
"""Each quantile, and the number of elements from which it is judged."""


def format_of(dtype: str) -> Format | None:
    """Return the format of the numbers of ``dtype``, a name as ``bfloat16``; that of its parts for
    a complex one. None for dtypes that are exact or unknown.
    """
    return FORMATS.get(COMPONENTS.get(dtype, dtype))


def form_of(dtype: str, facts: Facts) -> Format | None:
    """Return the format by which an answer of a dtype is judged; raise ``ValueError`` for facts
    that do not fit.

    A float32 result that eager rounded to bfloat16 last is one of bfloat16. Where wide operators
    followed, see ``between``.
    """
    outer, through = format_of(dtype), facts.get("through")
    if outer is None or through is None:
        return outer
    inner = FORMATS[through]
    if inner.bits >= outer.bits:
        raise ValueError(f"{through} is not narrower than {dtype}")
    if not facts["is_rounded"]:
        return between(outer, inner, facts["eager_quantiles"], float(facts["whole_ulp"]))
    eager = facts["worst"]["eager_value"] if facts["worst"] is not None else 0.0
    if math.isfinite(eager) and math.fmod(eager, ulp(eager, inner)):
        raise ValueError(f"eager's {eager!r} is not a number of {through}")
    return inner


def between(
    outer: Format, inner: Format, eager_quantiles: Sequence[float], whole_ulp: float
) -> Format:
    """Return the format of results of ``outer`` that were rounded to ``inner`` on their way.

    Eager's errors are in ulp of ``outer``.

    Their errors are independent roundings to ``inner``. A mean of many such numbers has a smaller
    error than one rounding: so the floor is also at most some of eager's errors.
    """
    finer = 2.0 ** (outer.bits - inner.bits)
    typical = (eager_quantiles[-1] if eager_quantiles else 0.0) or whole_ulp
    floor = max(outer.element_floor, min(inner.element_floor * finer, _TYPICAL * typical))
    return replace(
        outer, element_floor=floor, blind=inner.blind * finer, bias_floor=inner.bias_floor
    )


_TYPICAL = 8.0
"""The floor of an element that was rounded to a narrower format on its way is at most so many times
eager's highest quantile.
"""


def ulp(value: float, form: Format) -> float:
    """Return the unit in the last place of ``value`` in a format: the distance of neighbours in its
    binade, and of subnormal numbers for smaller ones; NaN for an infinity and NaN.
    """
    if not math.isfinite(value):
        return math.nan
    exponent = math.frexp(value)[1] - 1 if value else -(10**6)
    return math.ldexp(1.0, max(exponent - form.bits, form.least))


@functools.cache
def spread(draws: int, numel: int) -> float:
    """Return how much a maximum of few draws is widened, so that the bound covers ``numel``
    elements.

    Errors are taken as normally distributed. The greatest of ``draws`` is at least ``low`` and the
    greatest of ``numel`` at most ``high`` standard deviations, each with a probability of 0.999;
    the default factor covers a ratio of 2.
    """
    from statistics import (
        NormalDist,
    )  # the commands that need no torch never call this, and start faster without the import

    normal = NormalDist()
    low = normal.inv_cdf((1 + 0.001 ** (1 / draws)) / 2)
    high = -normal.inv_cdf(0.001 / numel / 2)
    return max(1.0, high / (FACTOR * low))


SINGLE = 0.5 + 2.0**-5
"""In ulp.

Where no run of eager has a greater error, each of its errors is that of one rounding: a maximum of
few is not widened.
"""


FLUSHED = 4.0
"""In units of the smallest number: the least floor of an element.

A device flushes smaller numbers to 0, also within a kernel.
"""


def floor_of(value: float, form: Format) -> float:
    """Return the least bound of an element with this reference: some ulp of it, and for numbers
    near 0 a few of the smallest.
    """
    relative = form.element_floor * ulp(value, replace(form, least=-1074))
    return min(
        form.element_floor * ulp(value, form), max(relative, FLUSHED * math.ldexp(1.0, form.least))
    )


def widening(draws: int, numel: int, form: Format, whole_ulp: float) -> float:
    """Return ``spread``, or 1 where eager's errors are single roundings, which have no tails."""
    return 1.0 if form.nudges == 0 and 0 < whole_ulp <= SINGLE else spread(draws, numel)


def bias_bound(facts: Facts, form: Format) -> float:
    """Return the greatest right bias of the groups of one kind, in bounds of their elements.

    A right answer may round once more than eager, which moves an element by one ulp with a
    probability of at most 1/4 in each direction. The standard deviation of the mean is then at most
    1/2 ulp, 1/3 of the least bound, over the root of the number of distinct elements: equal
    elements are one rounding. ``high`` is what the greatest of so many means exceeds with a
    probability of 1e-4.
    """
    from statistics import NormalDist  # as in spread

    groups, distinct = int(facts["groups"]), max(int(facts["distinct"]), 1)
    high = -NormalDist().inv_cdf(0.0001 / groups / 2)
    own = FACTOR * float(facts["eager"]) * spread(groups * int(facts["runs"]), groups)
    return max(form.bias_floor + high / (3 * math.sqrt(distinct)), own)


def is_zero(most: float, whole_error: float) -> bool:
    """Whether the right result is 0, as the gradient of a bias before a batch norm is: all digits
    of eager and of a right answer differ.

    Which elements of eager are exactly 0 is chance, so no group of elements has smaller bounds than
    others.
    """
    return most * 2.0**10 <= whole_error


def _is_noise(facts: Facts) -> bool:
    return is_zero(float(facts["most"]), float(facts["whole_error"]))


def whole_bound(facts: Facts, form: Format) -> float:
    """Return the bound of every element by eager's greatest error in the tensor, in the units of
    the values.
    """
    numel, whole_ulp = int(facts["numel"]), float(facts.get("whole_ulp", math.inf))
    widened = widening(numel * int(facts["runs"]), numel, form, whole_ulp)
    least = form.element_floor * ulp(float(facts["most"]), form)
    return max(FACTOR * float(facts["whole_error"]) * widened, least)


def element_bound(facts: Facts, form: Format) -> float:
    """Return the greatest right error of the element ``worst`` of the facts, in the units of the
    values; raise ``ValueError`` where its group has fewer errors of eager than a group.
    """
    worst, numel = facts["worst"], int(facts["numel"])
    draws = int(worst["group_draws"])
    if draws < min(LEAST_DRAWS, numel * int(facts["runs"])):
        raise ValueError(f"a group of {draws} errors")
    movement = max(form.nudges * float(worst["nudge"]), float(worst.get("moved", 0.0)))
    floor = max(floor_of(float(worst["reference"]), form), movement)
    whole = whole_bound(facts, form)
    if _is_noise(facts):
        return max(floor, whole)
    widened = widening(draws, numel, form, float(facts.get("whole_ulp", math.inf)))
    return max(floor, min(whole, FACTOR * form.slack * float(worst["group_error"]) * widened))


MEDIAN_FLOOR = 4.0
"""In ulp. Pointwise operators of devices have errors of up to 2 ulp in most elements: a median of
so many is right in wide formats, where runs with fine roundings say what additions do."""


def median_bound(median: Facts) -> float:
    """Return the greatest right median of a group of errors, in ulp; of fewer elements than a group
    has, the median is nearly the greatest error.
    """
    floor = MEDIAN_FLOOR if median["numel"] >= LEAST_OF_SLICE else 2 * MEDIAN_FLOOR
    return max(floor, FACTOR * float(median["eager"]), MEDIAN * float(median["fine"]))


def pooled(leaves: Iterable[Facts]) -> Iterator[Facts]:
    """Yield the median of the elements of all leaves that are too small for a group, by their
    bounds; nothing where there is none.
    """
    small = [facts.get("medians", []) for facts in leaves if facts.get("numel", 8) < LEAST_OF_SLICE]
    few = [{**element, "numel": sum(map(len, small))} for part in small for element in part]
    few.sort(key=lambda element: element["error"] / median_bound(element))
    yield from [
        {**element, "group": f"{len(few)} elements of small values"}
        for element in few[len(few) // 2 :][:1]
    ]


def median_problem(median: Facts) -> str:
    """Return what is wrong with a median; empty for a right one."""
    bound = median_bound(median)
    return (
        ""
        if median["error"] <= bound
        else f"the median error of {median['group']} is {median['error']:.3g} ulp: the bound is "
        f"{bound:.3g} ulp, eager's {median['eager']:.3g}"
    )


def quantiles_of(numel: int) -> tuple[float, ...]:
    """Return the quantiles that are judged of so many elements."""
    return tuple(share for share, least in QUANTILES if numel >= least)


LEAST_DRAWS = 16
"""A group with fewer errors of eager is not used."""


def problems(facts: Facts, form: Format, *, is_near: bool = False) -> list[str]:
    """Return what is wrong with an answer by its facts; empty for a right one.

    Facts of another form raise what reading them raises.

    ``is_near``: the answer is within the tolerance of its dtype from eager. Where most right
    elements are 0, eager and a right answer may differ in all digits.
    """
    if not facts["numel"]:
        return list(_of_nonfinite(facts, form))
    rules = _OF_EVERY_RESULT if _is_noise(facts) else (*_OF_EVERY_RESULT, *_OF_DIGITS)
    return [
        text
        for rule in rules
        if not (is_near and rule is _of_little_said)
        for text in rule(facts, form)
    ]


def _of_nonfinite(facts: Facts, form: Format) -> Iterator[str]:
    if count := facts["nonfinite"]:
        yield f"NaN or an infinity on one side only in {count} of {facts['numel']} elements"


def _of_unwritten(facts: Facts, form: Format) -> Iterator[str]:
    if kept := facts.get("unwritten"):
        first = f"at {kept['index']}: {kept['value']!r}, before the call {kept['before']!r}"
        changed = f"{kept['count']} of {facts['numel']} elements changed"
        yield f"{changed} that eager does not write; {first}"


def _of_elements(facts: Facts, form: Format) -> Iterator[str]:
    worst, bound = facts["worst"], element_bound(facts, form)
    if worst["error"] <= bound:
        return
    error, own = float(facts["max_error"]), float(facts["whole_error"])
    runs = f" in {facts['runs']} runs" if own > facts.get("eager_max_error", own) else ""
    times = (
        f"{error / own:.3g} times eager's greatest error{runs}" if own > 0 else "eager has no error"
    )
    pair = f"got {worst['value']!r}, eager {worst['eager_value']!r}"
    if "no_float64" not in facts:
        pair += f", float64 {worst['reference_value']!r}"
    yield (
        f"{facts['outside']} of {facts['numel']} elements wrong; at {worst['index']}: {pair}; "
        f"greatest error of {facts['max_ulp']:.3g} ulp ({times}), "
        f"{worst['error'] / bound:.3g} times the bound"
    )


def _of_negative_zeros(facts: Facts, form: Format) -> Iterator[str]:
    count, numel = facts.get("negative_zeros", 0), int(facts["numel"])
    if count > most_by_chance(numel):
        yield f"0 where eager and float64 have -0 in {count} of {numel} elements"


def _of_medians(facts: Facts, form: Format) -> Iterator[str]:
    if facts["numel"] >= LEAST_OF_SLICE:
        yield from filter(None, map(median_problem, facts.get("medians", ())))


def _of_quantiles(facts: Facts, form: Format) -> Iterator[str]:
    columns = [facts[name] for name in ("quantiles", "eager_quantiles", "nudge_quantiles")]
    for share, error, own, nudge in zip(quantiles_of(int(facts["numel"])), *columns, strict=True):
        most = max(FACTOR * float(own), form.nudges * float(nudge), form.quantile_floor)
        if not error <= most:
            yield (
                f"quantile {share:g} of the error is {error:.3g} ulp: the bound is {most:.3g} "
                f"ulp, eager's {own:.3g}"
            )


def _of_little_said(facts: Facts, form: Format) -> Iterator[str]:
    """Judge where eager's error says little: by the distance from the nearer of eager and
    float64.
    """
    ours, eagers = facts["quantiles"], facts["eager_quantiles"]
    if not ours and facts["nearest"] is not None:
        ours, eagers = [facts.get("median_ulp", math.inf)], [facts.get("eager_median", math.inf)]
    # an answer that is no farther than half of eager's error needs no other reference
    is_far = any(FACTOR * error >= own for error, own in zip(ours, eagers, strict=True))
    if eagers[:1] > [form.blind] and is_far and not facts.get("unexplained"):
        nearest = nearest_bound(float(eagers[0]), form, int(facts["numel"]))
        if not facts["nearest"] <= nearest:
            yield (
                "the median distance from the nearer of eager and float64 is "
                f"{facts['nearest']:.3g} ulp: the bound is {nearest:.3g} ulp"
            )


def _of_biases(facts: Facts, form: Format) -> Iterator[str]:
    """Judge the mean deviation of each group; raise ``ValueError`` where none was measured."""
    if math.isinf(form.bias_floor):
        return
    if not facts["bias"] and facts["numel"] >= LEAST_OF_GROUP:
        raise ValueError("no bias was measured")
    for bias in facts["bias"]:
        bound = bias_bound(bias, form)
        if not abs(bias["mean"]) <= bound:  # the elements of a group deviate in one direction
            where = (
                bias["group"]
                if bias["groups"] == 1
                else f"{bias['group']}, {bias['index']} of {bias['groups']}"
            )
            text = f"the bound is {bound:.3g}, eager's {bias['eager']:.3g}, in bounds of an element"
            yield f"bias of {bias['mean']:.3g} of the {bias['of']}s ({where}): {text}"


Rule = Callable[[Facts, Format], Iterator[str]]

_OF_EVERY_RESULT: Sequence[Rule] = (_of_nonfinite, _of_unwritten, _of_elements, _of_negative_zeros)
"""What is judged of every answer: each yields what is wrong."""

_OF_DIGITS: Sequence[Rule] = (_of_medians, _of_quantiles, _of_little_said, _of_biases)
"""What is judged too, except where the right result is 0 but for rounding: an error in units of
such a reference says nothing.
"""


def nearest_bound(own: float, form: Format, numel: int) -> float:
    """Return the bound of the median distance from the nearer of eager and float64, in ulp, where
    eager's median error says little.

    A result in float32 that autocast computed in bfloat16 has the error of bfloat16: so much is
    right in wide formats, up to 2**-6. The median of a few elements is nearly the greatest of them:
    half a unit of the last rounding, and one of each of two factors that a graph gets or saves in
    the narrow format. A factor of 1.02 is at least 2.56 units of bfloat16.
    """
    least = form.blind / 2 if numel >= LEAST_OF_SLICE else max(form.blind / 2, 2.5)
    return max(least, min(FACTOR * own, 2.0 ** (form.bits - 6))) if form.nudges else least


def summary(facts: Facts) -> str:
    """Return the errors on one line."""
    if not facts["numel"]:
        return "no elements"
    if any(
        isinstance(facts["worst"][name], float) and not math.isfinite(facts["worst"][name])
        for name in ("value", "reference_value")
    ):
        return (
            "no element is finite on both sides"  # the worst of those that are, where there is one
        )
    if facts["nonfinite"] and not facts["max_error"]:
        return "the elements that are finite on both sides have no error"
    own = f"eager's {facts['eager_max_ulp']:.3g} ulp ({facts['eager_max_error']:.3g})"
    of = " of the finite elements" if facts["nonfinite"] else ""
    return f"greatest error{of} {facts['max_ulp']:.3g} ulp ({facts['max_error']:.3g}), {own}"


# -- what is measured, in the worker ---------------------------------------------------------------

BINS = range(-4, 33)
"""The exponents of the histogram's bins: errors of at least 2**n ulp and less than 2**(n + 1).

The first bin has all smaller ones.
"""

BLOCK = 64
"""The number of neighbours in memory order whose errors are taken together."""

NEIGHBOURS = 16
"""The number of neighbours in memory order whose movement is compared."""

TILE = 16
"""The length of a tile's sides, in the last two dimensions: kernels write multiples of it."""

LEAST_NEIGHBOURS = 64
"""The number of elements that follow each other in memory and are taken together."""

EXPLAINED = 16.0
"""How many times its movement with other roundings eager's error may be, so that rounding explains
it.
"""

LIKELY = 4.0
"""In narrow formats, how many times its movement eager's error for nudged inputs counts at most."""

ROUNDINGS = 128.0
"""In wide formats, how many times farther than eager with one other rounding of each operator an
element of a right answer may be: a kernel rounds each of its additions."""

TYPICAL = 32.0
"""The same for a quantile of the elements."""

MEDIAN = 3.0
"""In wide formats, how many times farther than eager with fine roundings the median of a right
answer may be.
"""

COMPUTED = 32.0
"""In ulp.

Where eager changes no element by more, its changes are rounding: so far may a right answer be from
those that it left.
"""

COHERENT = 8.0
"""How many times farther a result may be that is 0 but for rounding: the errors of what is summed
may have one sign.
"""

_TRIED = 8
"""Of each kind, how many groups with the greatest means are compared with their bounds."""

_MOST_COMPARED = 1 << 16
"""How many numbers of a group are compared to count different ones, evenly spread: fewer distinct
ones only widen the bound.
"""


class NoReference(Exception):
    """No float64 reference; the message has the reason."""


class Unrepeatable(NoReference):
    """A second run of eager from the same state gives another answer: a state that cannot be set
    back decides it.
    """


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of eager: its answer, and the float64 reference for the same inputs.

    Both are tensors of one shape.
    """

    answer: Tensor
    reference: Tensor
    step: float = 0.0
    """The resolution of the inputs that were nudged; 0 for the case's own inputs."""


@frozen
class Scale:
    """Eager's error for each element of a leaf.

    The tensors are flat and of float64; a complex number has two elements, its parts.
    """

    dtype: str
    form: Format
    figures: Facts
    """What the facts of every answer have: number of elements and of runs, eager's greatest error
    and quantiles, ``through`` and ``is_rounded`` for a result that was rounded to a narrower format
    on its way, and ``unexplained``: where eager itself is the reference, in how many elements
    float64 is farther from it than rounding explains.
    """
    reference: Tensor
    """That of float64, but eager's number where that one is finite only by its rounding."""
    precise: Tensor
    """That of float64."""
    eager: Tensor
    units: Tensor
    """The ulp of each element."""
    group_error: Tensor
    """For each element, eager's greatest error in the group that gives the smallest bound."""
    group_draws: Tensor
    nudge: Tensor
    """For each element, how far the reference moves when the last digits of the inputs change."""
    by_rounding: Tensor
    """For each element, how far other roundings of one unit move it."""
    bounds: Tensor
    """For each element, as ``element_bound`` computes it of one."""
    bias: Mapping[str, Sequence[float]] | None
    """Eager's greatest bias in any run, for each kind of deviation and each way to group the
    elements; None for wide formats.
    """
    errors: Sequence[Tensor]
    """Eager's error in each run, in ulp."""
    fine: Sequence[Tensor] | None
    """How far eager moves in each run with fine roundings, in ulp; None where there are none."""
    sizes: Tensor
    """The magnitudes that the ulp is of."""
    negative_zeros: Tensor
    """Where eager, float64, and eager with other roundings all have -0."""
    why_not: str = ""
    """Why there is no float64 reference, and eager itself is the reference."""


# -- numbers of tensors ----------------------------------------------------------------------------


def in_parts(tensor: Tensor) -> Tensor:
    """Return a complex ``tensor`` as one of real and imaginary parts: shape [...] becomes
    [..., 2]. Any other tensor remains.
    """
    return torch.view_as_real(tensor.detach().resolve_conj()) if tensor.is_complex() else tensor


def wide(tensor: Tensor) -> Tensor:
    """Return the numbers of ``tensor`` without gradients, of shape [numel], in float64 or
    complex128, on its own device.
    """
    return (
        tensor.detach().to(torch.complex128 if tensor.is_complex() else torch.float64).reshape(-1)
    )


def flat(tensor: Tensor) -> Tensor:
    """Return the numbers of ``tensor`` in float64, of shape [numel]; of shape [2 * numel] for a
    complex one, whose parts alternate.
    """
    return wide(in_parts(tensor))


_OF_WHOLE = 8.0
"""A smaller part of a complex number is judged as if it were this part of its absolute value: it
may be the rounding of the other part.
"""


def sizes_of(right: Tensor, *, is_complex: bool) -> Tensor:
    """Return the magnitudes of ``right``, of shape [n] in float64, by whose ulp errors are
    measured. Where ``is_complex``, its parts alternate, and a small part counts as 1/8 of the
    absolute value.
    """
    if not is_complex:
        return right.abs()
    whole = torch.linalg.vector_norm(right.reshape(-1, 2), dim=1).repeat_interleave(2)
    return torch.maximum(right.abs(), whole / _OF_WHOLE)


def units_of(reference: Tensor, form: Format) -> Tensor:
    """Return the ulp in ``form`` of each element of ``reference``, in float64 and of its shape;
    that of the smallest number where it is not finite.
    """
    size = torch.where(reference.abs().isfinite(), reference.abs(), 0.0)
    exponent = torch.where(size > 0, torch.frexp(size).exponent.to(torch.float64) - 1, -1100.0)
    return torch.exp2((exponent - form.bits).clamp(min=float(form.least)))


def errors_of(answer: Tensor, reference: Tensor) -> Tensor:
    """Return |``answer`` - ``reference``| of two tensors of one shape and dtype, in the units of
    the values, not in ulp; 0 where one of them is not finite.
    """
    error = (answer - reference).abs()
    return torch.where(error.isfinite(), error, 0.0)


def quantiles_in(values: Tensor, shares: Sequence[float]) -> list[float]:
    """Return for each of ``shares``, between 0 and 1, the element with the rank ceil(share * n) of
    the sorted ``values`` of shape [n]: torch.quantile is limited to 16 million elements.
    """
    count = len(values)
    return [float(values.kthvalue(min(math.ceil(share * count), count)).values) for share in shares]


def _greatest(values: Tensor) -> float:
    """Return the greatest of values that are finite numbers; 0 for none."""
    return float(values.max()) if values.numel() else 0.0


def _finite_sizes(numbers: Tensor) -> Tensor:
    return torch.where(numbers.abs().isfinite(), numbers.abs(), 0.0)


# -- runs of eager ---------------------------------------------------------------------------------


def runs_of(numel: int) -> int:
    """Return how many runs of eager are measured: more where there are few elements, because a few
    errors may all be small by chance.
    """
    return min(12, max(3, math.ceil(1024 / max(numel, 1))))


def fine_runs_of(numel: int) -> int:
    """Return how many runs with fine roundings are measured: a few errors may be small by
    chance.
    """
    return max(3, math.ceil(256 / max(numel, 32)))


def nudged(tensor: Tensor, generator: object, least: float = 0.0) -> Tensor:
    """Return a floating-point tensor with every value nearer to 0 by up to eight units of its
    resolution: eager rounds it differently.

    Signs, zeros, infinities and NaN remain. Values stay in a domain such as [0, 1] or [-1, 1].
    ``least``: the resolution of a narrower format that eager rounds values to on their way; else
    every run would round them in the same way.
    """
    if tensor.is_complex():
        return torch.view_as_complex(
            nudged(
                torch.view_as_real(tensor.detach().resolve_conj()).contiguous(), generator, least
            )
        )
    eps: float = max(torch.finfo(tensor.dtype).eps, least)
    if eps > 2.0**-7:
        return tensor.detach()  # nearly every change of a float8 number is another function
    less = torch.rand(tensor.shape, generator=generator, dtype=torch.float64) * (8 * eps)
    return (tensor.detach().to(torch.float64) * (1 - less.to(tensor.device))).to(tensor.dtype)


def is_reordered(answers: Sequence[Tensor], reference: Tensor) -> bool:
    """Whether answers to the same inputs are so near to the reference, of float64, that another
    order of additions explains how they differ: no error exceeds ``Format.reordered`` ulp of the
    greatest element. False for a dtype without a ``Format``.

    Atomic additions have no fixed order. A function with a state of its own, or with numbers from
    elsewhere, is farther away.
    """
    form = format_of(str(answers[0].dtype).removeprefix("torch."))
    right = flat(reference)
    most = _greatest(_finite_sizes(right))
    return form is not None and all(
        bool((errors_of(flat(answer), right) <= form.reordered * ulp(most, form)).all())
        for answer in answers
    )


def _drawn(samples: Sequence[Sample], dtype: "torch.dtype") -> tuple[list[Tensor], Tensor]:
    """Return the errors of each run, and how far the reference moved at most."""
    errors: list[Tensor] = []
    first = flat(samples[0].reference)
    movement = torch.zeros_like(first.abs())
    for sample in samples:
        answer, right = flat(sample.answer), flat(sample.reference)
        shrink = torch.finfo(dtype).eps / torch.finfo(sample.answer.dtype).eps
        error = errors_of(answer, right)
        if shrink < 1:
            # the narrower range of the format is not an error of eager
            error = torch.where(answer.abs() < torch.finfo(sample.answer.dtype).tiny, 0.0, error)
        errors.append(error * shrink)
        # a nudge of the inputs moves the reference by as many units of a finer format
        distance = errors_of(right, first) * min(
            1.0, torch.finfo(dtype).eps / sample.step if sample.step else 1.0
        )
        movement = torch.maximum(movement, distance)
    return errors, movement


def _by_neighbours(movement: Tensor, draws: int = 1) -> Tensor:
    """Return movements that are at least the median of their neighbours: a sum may move little by
    chance where its neighbours move.

    One that moves less in all of ``draws`` runs than chance explains has another sensitivity, as a
    small number among large ones.
    """
    count, rest = len(movement), -len(movement) % NEIGHBOURS
    if not count:
        return movement
    padded = (
        torch.cat([movement, movement[count - rest :]])
        if rest and count >= NEIGHBOURS
        else movement
    )
    rows = padded.reshape(-1, NEIGHBOURS if count >= NEIGHBOURS else count)
    median = rows.median(-1).values.repeat_interleave(rows.shape[1])[:count]
    most = torch.where(movement > 0, by_chance(draws, count) * movement, math.inf)
    return torch.maximum(movement, median.minimum(most))


@functools.cache
def by_chance(draws: int, numel: int) -> float:
    """Return how many times farther than its greatest movement in some runs an element may move:
    in none of ``numel`` elements is that movement smaller by chance, with a probability of 0.999.

    Movements are taken as normally distributed, as in ``spread``, and at most two standard
    deviations.
    """
    if draws < 2:
        return math.inf
    from statistics import NormalDist  # as in spread

    return 2 / NormalDist().inv_cdf((1 + (0.001 / numel) ** (1 / draws)) / 2)


def _in_block(values: Tensor) -> Tensor:
    """Return for each value the greatest of its ``BLOCK`` neighbours."""
    block = (torch.arange(len(values), device=values.device) // BLOCK).clamp(
        max=max(len(values) // BLOCK - 1, 0)
    )
    return values.new_zeros(len(values)).scatter_reduce(0, block, values, "amax")[block]


def _unexplained(own: Tensor, eager: Tensor, right: Tensor, movement: Tensor, form: Format) -> int:
    """Return in how many elements eager's error is greater than rounding explains; 0 for a few,
    where results may flip, as of a comparison.

    Explained is ``EXPLAINED`` times the movement of eager with other roundings, and additions in
    another order, among 64 neighbours.
    """
    if not len(own):
        return 0
    likely = (
        movement.amax()
        if is_zero(_greatest(_finite_sizes(right)), _greatest(own))
        else _in_block(movement)
    )
    explained = EXPLAINED * likely + form.reordered * units_of(
        _in_block(_finite_sizes(eager)), form
    )
    count = int((own > explained).sum())
    return count if count > most_by_chance(len(own)) else 0


def unexplained_in(
    answer: Tensor, reference: Tensor, jittered: Sequence[Tensor], amplitude: float = 1.0
) -> int:
    """Return in how many elements an answer is farther from the reference than rounding explains.

    Each may be on another device than the other runs.
    """
    ours, right = flat(answer).cpu(), flat(reference).cpu()
    runs = [flat(other).cpu() for other in jittered]
    movement = torch.stack([errors_of(other, runs[0]) for other in runs]).amax(0) / amplitude
    form = format_of(str(answer.dtype).removeprefix("torch."))
    return (
        len(ours)
        if form is None
        else _unexplained(errors_of(ours, right), ours, right, movement, form)
    )


def most_by_chance(numel: int) -> int:
    """Return in how many elements the reference may be another number than eager's by rounding, as
    where a comparison flips.
    """
    return max(numel // 128, int(numel >= LEAST_OF_SLICE))


def _grouped(
    most: Tensor, sizes: Tensor, shape: tuple[int, ...], runs: int, form: Format, whole_ulp: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return for each element the error, the number of draws and the widened error of the group
    with the smallest bound: the tensor, slices, neighbours in memory or in size.
    """
    numel = most.numel()
    best, best_error, best_draws = torch.full_like(most, math.inf), most, most.to(torch.int64)
    places = torch.arange(numel, device=most.device)
    ways = [places.reshape(1, -1)] if numel else []
    ways += [
        rows_of(places)
        for kind, _, rows_of in _ways_to_group(shape, LEAST_OF_SLICE)
        if kind != "tile"
    ]
    # elements of about the same magnitude; the greatest that are left have the tensor's
    count = BLOCK if numel > BLOCK else max(LEAST_OF_SLICE, math.ceil(LEAST_DRAWS / max(runs, 1)))
    if numel > count:
        ways.append(sizes.argsort()[: numel - numel % count].reshape(-1, count))
    for rows in ways:
        error, draws = torch.full_like(most, math.inf), rows.shape[1] * runs
        error[rows] = most[rows].amax(1, keepdim=True).expand_as(rows)
        bound = error * widening(draws, numel, form, whole_ulp)
        better = bound < best
        best, best_error = torch.where(better, bound, best), torch.where(better, error, best_error)
        best_draws = torch.where(better, draws, best_draws)
    return best_error, best_draws, best


# -- biases ----------------------------------------------------------------------------------------


def _ways_to_group(
    shape: tuple[int, ...], least: int = LEAST_OF_GROUP
) -> Iterator[tuple[str, int, Callable[[Tensor], Tensor]]]:
    """Yield the ways to group the elements of a tensor: the tensor itself, the slices of each
    dimension, tiles, neighbours in memory.

    Each has a name, the number of groups, and what returns the values of each group as a row; what
    that receives is flat. Fewer than ``least`` elements are not a group.
    """
    numel = math.prod(shape)
    if numel < least:
        return
    yield "tensor", 1, lambda values: values.reshape(1, -1)
    for dimension, length in enumerate(shape):
        if length > 1 and numel // length >= least:

            def slices(values: Tensor, dimension: int = dimension, length: int = length) -> Tensor:
                """Return flat values as a row for each index of the dimension."""
                return values.reshape(shape).movedim(dimension, 0).reshape(length, -1)

            yield f"slice of dimension {dimension}", length, slices
    if len(shape) > 1 and min(shape[-2:]) >= 2 * TILE:
        rows, columns = shape[-2] // TILE, shape[-1] // TILE

        def tiles(values: Tensor) -> Tensor:
            """Return flat values as a row for each square of ``TILE`` rows and columns; the rest at
            the edges is left out.
            """
            inner = values.reshape(-1, *shape[-2:])[:, : rows * TILE, : columns * TILE].reshape(
                -1, rows, TILE, columns, TILE
            )
            return inner.transpose(2, 3).reshape(-1, TILE * TILE)

        yield "tile", numel // (shape[-2] * shape[-1]) * rows * columns, tiles
    if numel >= 2 * LEAST_NEIGHBOURS:
        count = numel // LEAST_NEIGHBOURS
        yield (
            "neighbours",
            count,
            lambda values: values[: count * LEAST_NEIGHBOURS].reshape(count, LEAST_NEIGHBOURS),
        )


def _deviations(answer: Tensor, reference: Tensor, scale: Scale) -> dict[str, Tensor]:
    """Return answer - reference as eager's last dtype rounds it, in multiples of each element's
    bound; 0 where one of them is not finite.

    ``value`` has them with their signs, which a defect of some places shows; in ``size`` they are
    positive away from 0, which a factor shows. Against the rounded reference a right answer
    deviates in few elements: its mean is nearer to 0 than that of its errors.
    """
    is_rounded = scale.figures.get("is_rounded")
    dtype = getattr(torch, scale.figures["through"] if is_rounded else scale.dtype)
    deviating = (answer - reference.to(dtype).to(reference.dtype)) / scale.bounds
    deviating = torch.where(deviating.isfinite(), deviating, 0.0)
    return {"value": deviating, "size": deviating * reference.sign()}


def _bias_facts(answer: Tensor, shape: tuple[int, ...], scale: Scale) -> list[NewFacts]:
    """Return for each way to group the group that is nearest to its bound, or farthest outside; for
    values and for sizes.
    """
    if scale.bias is None:
        return []
    biases: list[NewFacts] = []
    deviating = _deviations(answer, scale.reference, scale)
    for number, (kind, count, rows_of) in enumerate(_ways_to_group(shape)):
        for of, values in deviating.items():
            means, inside = rows_of(values).mean(1), rows_of(scale.reference)
            common = {
                "of": of,
                "group": kind,
                "groups": count,
                "eager": scale.bias[of][number],
                "runs": scale.figures["runs"] + 1,
            }
            facts: list[NewFacts] = []
            for place in means.abs().topk(min(_TRIED, len(means))).indices.tolist():
                row = inside[place]
                distinct = int(row[:: math.ceil(len(row) / _MOST_COMPARED)].abs().unique().numel())
                facts.append(
                    {**common, "index": place, "distinct": distinct, "mean": float(means[place])}
                )
            biases.append(
                max(facts, key=lambda bias: abs(bias["mean"]) / bias_bound(bias, scale.form))
            )
    return biases


# -- medians ---------------------------------------------------------------------------------------


def is_suspect(actual: Tensor, scale: Scale) -> bool:
    """Whether more runs of eager decide on an answer: an element is outside of its bound, or most
    elements of a group are far from eager or float64.
    """
    answer, shape = flat(actual).to(scale.reference.device), tuple(in_parts(actual).shape)
    return bool((errors_of(answer, scale.reference) > scale.bounds).any()) or any(
        median_problem(median)
        for other in (scale.reference, scale.eager)
        for median in _medians(errors_of(answer, other) / scale.units, shape, scale)
        if scale.fine is not None
    )


def _medians(ulps: Tensor, shape: tuple[int, ...], scale: Scale) -> Iterator[NewFacts]:
    """Yield for each way to group the elements the median error of the group that is nearest to its
    bound, or farthest outside; of few elements that of each.

    Of eager and of fine roundings the greatest median of any run counts. Errors of neighbours may
    be one error, as in a cumulative sum, and small by chance: fine roundings count twice for a
    group, and move none by less than the tensor. What is 0 on all sides has no error: it is no
    element of a group.
    """
    whole = 0.0
    if not len(ulps):
        return
    is_counted = (scale.precise != 0) | (scale.eager != 0) | (ulps > 0)
    is_small = len(ulps) < LEAST_OF_SLICE
    ways: Iterable[tuple[str, int, Callable[[Tensor], Tensor]]] = (
        [("element", len(ulps), lambda values: values.reshape(-1, 1))]
        if is_small
        else _ways_to_group(shape, LEAST_OF_SLICE)
    )
    sides = {"error": [ulps], "eager": scale.errors, "fine": scale.fine or [torch.zeros_like(ulps)]}
    for kind, count, rows_of in ways:
        counted = rows_of(is_counted)
        is_group = counted.sum(1) >= (1 if is_small else LEAST_OF_SLICE)
        columns = {
            name: torch.stack(
                [torch.where(counted, rows_of(run), math.nan).nanmedian(1).values for run in runs]
            )
            .amax(0)
            .where(is_group, 0.0)
            for name, runs in sides.items()
        }
        columns["fine"] = (columns["fine"] * (2 if whole else 1)).clamp(min=whole)
        whole = whole or float(columns["fine"][0]) * (not is_small)
        bounds = torch.maximum(FACTOR * columns["eager"], MEDIAN * columns["fine"])
        worst = int((columns["error"] / bounds.clamp(min=MEDIAN_FLOOR)).argmax())
        for place in range(count) if is_small else [worst]:
            figures = {name: float(column[place]) for name, column in columns.items()}
            yield {"group": f"{kind}, {place} of {count}", "numel": len(ulps) // count, **figures}


# -- eager's error, and an answer's ----------------------------------------------------------------


def scale_of(
    samples: Sequence[Sample],
    answer: Tensor,
    reference: Tensor,
    through: str = "",
    jittered: Sequence[Tensor] = (),
    amplitude: float = 1.0,
    fine: Sequence[Tensor] | None = None,
) -> Scale:
    """Return eager's error by its samples; ``answer`` and ``reference`` are those of the case's own
    inputs.

    Raise ``NoReference``.

    ``jittered`` are answers of eager to these inputs with other roundings, each of up to
    ``amplitude`` units, or fine ones: None where none can be made, empty where none is made yet.

    The first sample is of those inputs, the others are of nudged ones; without any, eager is the
    reference. The samples of float64 are
    runs of float32, whose errors are scaled. ``through`` is the narrowest format that eager rounded
    the values to on their way.
    """
    is_complex, answer = answer.is_complex(), in_parts(answer)
    samples = [
        Sample(in_parts(sample.answer), in_parts(sample.reference), sample.step)
        for sample in samples
    ]
    dtype = str(answer.dtype).removeprefix("torch.")
    form = format_of(dtype)
    if form is None:
        raise NoReference(f"values of dtype {dtype} are exact")
    eager, limits = flat(answer), torch.finfo(answer.dtype)
    precise = flat(reference)
    right, numel = _where_finite(precise, eager, dtype), precise.numel()
    fine = None if through or not form.nudges else fine
    own, by_rounding = errors_of(eager, right), torch.zeros_like(eager.abs())
    if jittered:
        by_rounding = (
            torch.stack([errors_of(flat(other), eager) for other in jittered]).amax(0) / amplitude
        )
    if samples:
        errors, movement = _drawn(samples, answer.dtype)
    unexplained = 0 if samples else max(numel, 1)
    if samples and jittered:
        unexplained = _unexplained(torch.maximum(own, errors[0]), eager, right, by_rounding, form)
    if unexplained:
        # the reference is another function, or of another state: eager's distance from it is no
        # error of rounding
        right = precise = eager
        own = torch.zeros_like(own)
        samples = [Sample(other, answer) for other in jittered]
        errors, movement = _drawn(samples, answer.dtype)
        errors = [error / amplitude for error in errors]
    elif jittered and numel and (through or not form.nudges):
        # other inputs may choose another branch by rounding, as of a maximum: of these it says
        # nothing
        narrow = FORMATS[through] if through else form
        likely = _in_block(torch.maximum(own, LIKELY * by_rounding)) + units_of(right, narrow)
        errors = [torch.minimum(error, likely) for error in errors]
    if jittered and form is FORMATS["float64"] and _is_all_rounding(right, by_rounding):
        # eager is no more precise than a run of float64: all of its digits are rounding
        right = precise = torch.zeros_like(right)
        own = errors_of(eager, right)
    if jittered and numel:
        # a nudged label or mask makes another function of it: where a nudge moves farther than
        # rounding can, it says nothing of rounding
        movement = torch.minimum(movement, EXPLAINED * _in_block(by_rounding))
    finer = (
        limits.eps * 2.0 ** FORMATS[through].bits if through else 1.0
    )  # as if all had been roundings to this format
    by_rounding_of_wide = by_rounding * (finer / form.nudges if form.nudges else 0.0)
    finely = [errors_of(flat(other), eager) for other in fine or ()]
    farthest = ROUNDINGS * by_rounding_of_wide
    if fine is not None:  # where nothing adds, a kernel has fewer roundings
        once = torch.stack([*(part / form.nudges for part in finely), by_rounding_of_wide])
        farthest = farthest.minimum(TYPICAL * once.amax(0))
    typical, movement = (
        _by_neighbours(torch.maximum(movement, distance), len(jittered))
        for distance in (TYPICAL * by_rounding_of_wide, farthest)
    )
    runs = [*samples, Sample(answer, right.reshape(answer.shape))]
    # the runs in place of a float64 one are of float32; eager's own error counts too, where a part
    # of it computes in a narrower dtype
    most = torch.maximum(torch.stack(errors).amax(0), own)
    if numel and is_zero(_greatest(_finite_sizes(right)), _greatest(most)):
        movement = COHERENT * movement.amax().expand(numel)

    through, is_rounded = _rounded_to(through, form, runs)
    if is_rounded:
        form = FORMATS[through]
    elif through:  # roundings move by half a unit: these are more draws of eager's error
        most = torch.maximum(most, by_rounding / 2)
    sizes = sizes_of(right, is_complex=is_complex)
    units = units_of(sizes, form)
    whole_ulp = _greatest_ulp(runs, form) if form.nudges == 0 or through else 0.0
    shares = quantiles_of(numel)
    # of the errors of all samples, or of eager's own error where that is greater
    of_samples = quantiles_in(torch.cat([error / units for error in errors]), shares)
    eager_quantiles = list(map(max, of_samples, quantiles_in(own / units, shares)))
    if through and not is_rounded:
        form = between(form, FORMATS[through], eager_quantiles, whole_ulp)
    group_error, draws, group_bound = _grouped(
        most, sizes, tuple(answer.shape), len(samples), form, whole_ulp
    )
    # as ``floor_of`` computes it of one
    floors = form.element_floor * units_of(sizes, replace(form, least=-1074))
    floors = floors.clamp(min=FLUSHED * math.ldexp(1.0, form.least)).minimum(
        form.element_floor * units
    )
    # of narrow formats one other rounding of each operator: ties decide where the gradient of a
    # maximum goes
    floors = torch.maximum(floors, form.nudges * movement if form.nudges else by_rounding)
    figures: NewFacts = {
        "numel": numel,
        "runs": len(samples),
        "whole_error": _greatest(most),
        "whole_ulp": whole_ulp,
        "most": _greatest(_finite_sizes(right)),
        "eager_quantiles": eager_quantiles,
        "nudge_quantiles": quantiles_in(typical / units, shares),
        **({"through": through, "is_rounded": is_rounded} if through else {}),
        **({"unexplained": unexplained} if unexplained else {}),
    }
    scale = Scale(
        dtype=dtype,
        form=form,
        figures=figures,
        reference=right,
        precise=precise,
        eager=eager,
        units=units,
        group_error=group_error,
        group_draws=draws,
        nudge=movement,
        by_rounding=by_rounding,
        bounds=_bounds(floors, form.slack * group_bound, figures, form),
        bias=None,
        errors=[error / units for error in (*errors, own)],
        fine=None if fine is None else [_by_neighbours(part) / units for part in finely],
        sizes=sizes,
        negative_zeros=torch.stack(
            [
                (numbers == 0) & numbers.signbit()
                for numbers in (eager, precise, *map(flat, jittered))
            ]
        ).all(0),
    )
    if math.isinf(form.bias_floor):
        return scale
    deviating = [_deviations(flat(run.answer), flat(run.reference), scale) for run in runs]
    ways = [rows_of for _, _, rows_of in _ways_to_group(tuple(answer.shape))]
    bias = {
        of: [
            max(float(rows_of(run[of]).mean(1).abs().max()) for run in deviating)
            for rows_of in ways
        ]
        for of in ("value", "size")
    }
    return replace(scale, bias=bias)


def _bounds(floors: Tensor, group: Tensor, figures: Facts, form: Format) -> Tensor:
    """Return the bound of each element by its floor and the widened error of its group."""
    if not figures["numel"]:
        return floors
    whole = whole_bound(figures, form)
    if _is_noise(figures):
        return floors.clamp(min=whole)
    return torch.maximum(floors, (FACTOR * group).clamp(max=whole))


def _is_all_rounding(right: Tensor, by_rounding: Tensor) -> bool:
    is_whole = bool(right.abs().isfinite().all())
    return is_whole and _greatest(right.abs()) <= EXPLAINED * _greatest(by_rounding)


def _where_finite(precise: Tensor, eager: Tensor, dtype: str) -> Tensor:
    """Return the reference of float64, but eager's number where that one is finite only by its
    rounding; raise ``NoReference`` where they are different functions.
    """
    limits = torch.finfo(getattr(torch, dtype))
    # a reference a few units beyond the greatest number is one that eager's rounding kept below the
    # overflow
    is_beyond = precise.abs() / limits.max > 1 + 4 * limits.eps
    if bool((eager.isfinite() & precise.isfinite() & is_beyond).any()):
        # nan_to_num and functions like it give the greatest number of their dtype: in float64 they
        # are other functions
        raise NoReference(
            f"the float64 reference is beyond the range of {dtype} where eager is finite"
        )
    # A power of a negative number is NaN unless the exponent is whole. In bfloat16 an exponent of
    # -7.03 becomes whole when 1 is subtracted, for its gradient. A kernel that computes in float32
    # has NaN as float64 has.
    is_by_rounding = eager.isfinite() & ~precise.isfinite()
    count, numel = int(is_by_rounding.sum()), is_by_rounding.numel()
    if count > most_by_chance(numel):
        raise NoReference(
            f"the float64 reference is not finite in {count} of {numel} elements where eager is"
        )
    return torch.where(is_by_rounding, eager, precise)


def _greatest_ulp(runs: Sequence[Sample], form: Format) -> float:
    """Return the greatest error of all runs of eager, in ulp."""
    pairs = [(flat(run.answer), flat(run.reference)) for run in runs]
    return max(_greatest(errors_of(ours, right) / units_of(right, form)) for ours, right in pairs)


def _rounded_to(through: str, form: Format, runs: Sequence[Sample]) -> tuple[str, bool]:
    """Return the format ``through`` where eager's errors show it, else an empty text; and whether
    all of eager's results are numbers of it: it was rounded to last.
    """
    # for a float64 result the runs of eager are in float32: there is none
    if (
        not through
        or form is FORMATS["float64"]
        or FORMATS[through].bits >= form.bits
        or _greatest_ulp(runs, form) <= form.quantile_floor
    ):
        return "", False
    narrow = getattr(torch, through, None)  # none for tf32

    def is_narrow(answer: Tensor) -> bool:
        numbers = answer.to(narrow).to(answer.dtype)
        return bool(((numbers == answer) | ~answer.isfinite()).all())

    return through, narrow is not None and all(is_narrow(run.answer) for run in runs)


def compare(
    actual: Tensor, scale: Scale, *, equal_nan: bool = True, histogram: bool = True
) -> NewFacts:
    """Return the facts of ``actual``, of the shape of eager's answer: nonfinite mismatches, the
    element nearest to its bound, quantiles in ulp, and with ``histogram`` one of the errors. With
    ``equal_nan``, NaN equals NaN.
    """
    right, eager = scale.reference, scale.eager
    answer, shape = flat(actual).to(right.device), tuple(in_parts(actual).shape)
    numel = answer.numel()
    judged = answer.isfinite() & right.isfinite()
    # the elements that are not finite where neither eager nor the reference has the same
    nonfinite = ~judged
    for other in (eager, scale.precise.to(getattr(torch, scale.dtype)).to(scale.precise.dtype)):
        same = answer == other
        nonfinite &= ~(same | (answer.isnan() & other.isnan()) if equal_nan else same)
    facts: NewFacts = {**scale.figures, "nonfinite": int(nonfinite.sum())}
    if numel == 0:
        return {**facts, "outside": 0, "worst": None, "quantiles": []}
    errors = torch.where(judged, errors_of(answer, right), 0.0)
    ratio = torch.where(judged, errors / scale.bounds, -1.0)
    ulps = errors / scale.units
    place = int(ratio.argmax())
    facts["outside"] = int((ratio > 1).sum())
    facts["worst"] = {
        "index": [int(index) for index in torch.unravel_index(torch.tensor(place), shape)],
        "value": float(answer[place]),
        "eager_value": float(eager[place]),
        "reference_value": float(right[place]),
        # where no element is finite in both, the first is here: it has no error, and its NaN or
        # infinity is counted as nonfinite
        "reference": float(scale.sizes[place]) if bool(right[place].isfinite()) else 0.0,
        "error": float(errors[place]),
        "group_error": float(scale.group_error[place]),
        "group_draws": int(scale.group_draws[place]),
        "nudge": float(scale.nudge[place]),
        "moved": 0.0 if scale.form.nudges else float(scale.by_rounding[place]),
    }
    # a kernel that adds to 0 has no -0: the other way around the sign says nothing
    if lost := int((scale.negative_zeros & (answer == 0) & ~answer.signbit()).sum()):
        facts["negative_zeros"] = lost
    eager_errors = errors_of(eager, right)
    eager_ulps = eager_errors / scale.units
    # without fine runs no median is far: those of few elements count with others of the call
    has_medians = scale.fine or (scale.fine is not None and numel < LEAST_OF_SLICE)
    facts.update(
        bias=_bias_facts(answer, shape, scale),
        max_error=float(errors.max()),
        max_ulp=float(ulps.max()),
        medians=list(_medians(ulps, shape, scale)) if has_medians else [],
        quantiles=quantiles_in(ulps, quantiles_of(numel)),
        eager_max_error=float(eager_errors.max()),
        eager_max_ulp=float(eager_ulps.max()),
        nearest=None,
    )
    own = quantiles_in(eager_ulps, (0.5,))[0]
    if max([own, *scale.figures["eager_quantiles"][:1]]) > scale.form.blind:
        apart = torch.where(judged, errors_of(answer, eager), 0.0) / scale.units
        medians = [quantiles_in(part, (0.5,))[0] for part in (apart.minimum(ulps), ulps)]
        facts.update(nearest=medians[0], median_ulp=medians[1], eager_median=own)
    if histogram:  # errors by their exponents
        facts["histogram"] = {"first": BINS[0]}
        for side, of_side in (("compiled", ulps), ("eager", eager_ulps)):
            exponents = torch.where(
                of_side > 0, torch.frexp(of_side).exponent.to(torch.int64) - 1, BINS[0]
            )
            counts = torch.bincount(
                exponents.clamp(BINS[0], BINS[-1]) - BINS[0], minlength=len(BINS)
            )
            facts["histogram"][side] = [int(count) for count in counts]
    return facts


def changed_elements(
    actual: Tensor, scale: Scale, unwritten: Tensor, before: Tensor | None = None
) -> NewFacts | None:
    """Return the elements that eager does not write and that differ in an answer: their number, and
    the first; None without any.

    ``unwritten`` is a mask of the elements in which eager's number is that of before. Eager may
    have computed the same number: it did where float64 has another. Where float64 has the same too,
    as of ``0.9 * x + 0.1 * x``, a right answer is at most 2 ulp from it, or ``COMPUTED``. A few
    such elements are chance. A result in float64 has no more precise reference, and is not
    measured.
    """
    form = format_of(scale.dtype)
    if form is None or actual.dtype in (torch.float64, torch.complex128) or not actual.numel():
        return None
    parts = in_parts(actual)
    answer = flat(actual).to(scale.eager.device)
    mask = unwritten.reshape(-1).to(scale.eager.device)
    mask = mask.repeat_interleave(parts.numel() // mask.numel())
    units = units_of(scale.eager, form)
    is_step_of_rounding = (
        form.nudges
        and before is not None
        and bool((errors_of(scale.eager, flat(before)) <= COMPUTED * units).all())
    )
    is_near = (answer - scale.eager).abs() <= (COMPUTED if is_step_of_rounding else 2) * units
    changed = (answer != scale.eager) & ~is_near
    changed |= (answer == 0) & (scale.eager == 0) & (answer.signbit() != scale.eager.signbit())
    mask &= scale.precise.signbit() == scale.eager.signbit()
    changed &= mask & (scale.precise == scale.eager)
    if (
        int((mask & (scale.precise == scale.eager)).sum()) <= most_by_chance(len(mask))
        or not changed.any()
    ):
        return None
    place = int(changed.nonzero()[0])
    index = [int(part) for part in torch.unravel_index(torch.tensor(place), parts.shape)]
    return {
        "count": int(changed.sum()),
        "index": index,
        "value": float(answer[place]),
        "before": float(scale.eager[place]),
    }


LEAST_CHANGE = 4.0
"""From how many ulp of its values on a change is judged, in the root mean square."""

MOST_OTHER = 0.5
"""Which share of eager's change the distance of the two sides may have."""

MOST_NOISE = 1 / 16
"""Which share of eager's change its distance from float64 may have: of a greater one another right
answer may differ by as much.
"""


def other_change(
    ours: Tensor,
    theirs: Tensor,
    before: Tensor,
    precise: Tensor | None = None,
    movement: Tensor | None = None,
) -> NewFacts | None:
    """Return how the compiled side changed a tensor, or 64 neighbours of it, otherwise than eager;
    None where it did not.

    ``precise`` is the float64 reference; without it only values that the compiled side left as they
    were are another change. ``movement`` is that of a result without a more precise reference: what
    exceeds the roundings of the values themselves is noise. All figures are root mean squares:
    ``eager`` and ``compiled`` are the changes, ``apart`` is the distance of the sides.
    """
    form = format_of(str(theirs.dtype).removeprefix("torch."))
    if (
        form is None
        or ours.dtype != theirs.dtype
        or ours.shape != theirs.shape
        or not theirs.numel()
    ):
        return None
    old, eager, compiled = flat(before), flat(theirs), flat(ours)
    parts = {
        "eager": eager - old,
        "compiled": compiled - old,
        "apart": compiled - eager,
        "units": units_of(torch.maximum(old.abs(), eager.abs()), form),
    }
    if precise is not None:
        parts["noise"] = eager - flat(precise)
        if movement is not None:
            parts["noise"] = torch.maximum(
                parts["noise"].abs(), (movement - LEAST_CHANGE * parts["units"]).clamp(min=0.0)
            )
    count = eager.numel() // LEAST_NEIGHBOURS
    worst: NewFacts | None = None
    for rows in ((1, -1), (count, LEAST_NEIGHBOURS))[: 2 if count > 1 else 1]:
        sizes = {
            name: torch.where(part.isfinite(), part.abs(), 0.0)[
                : None if rows[0] == 1 else count * LEAST_NEIGHBOURS
            ]
            .reshape(rows)
            .square()
            .mean(1)
            .sqrt()
            for name, part in parts.items()
        }
        is_other = (sizes["eager"] > LEAST_CHANGE * sizes["units"]) & (
            sizes["apart"] > MOST_OTHER * sizes["eager"]
        )
        is_other &= (
            sizes["compiled"] == 0
            if precise is None
            else sizes["noise"] <= MOST_NOISE * sizes["eager"]
        )
        if is_other.any() and worst is None:
            place = int(torch.where(is_other, sizes["apart"] / sizes["eager"], 0.0).argmax())
            worst = {name: float(size[place]) for name, size in sizes.items()}
            worst["elements"] = (
                None
                if rows[0] == 1
                else [place * LEAST_NEIGHBOURS, (place + 1) * LEAST_NEIGHBOURS - 1]
            )
    return worst
