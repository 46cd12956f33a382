"""The calibrated judge of ``close``: the answer's error against a float64 reference, compared with eager's own error. Pure, without torch.

These rules must hold:

- Each element: its error is at most the greater of its floor and the smaller of two figures: ``FACTOR`` times eager's greatest error in
  the tensor, and ``FACTOR * slack`` times its greatest error among elements that are alike (a slice, neighbours, one magnitude).
  The floor is some ulp of the reference; for wide formats also what a change of the last digits of the inputs does to the element.
- Each quantile, where there are enough elements: at most ``FACTOR`` times eager's, with a floor.
- In bfloat16 and float16 the mean of the signed deviations, over the tensor and over parts of it: the same.

The worker sends the element that is nearest to its bound, or farthest outside, with the figures of its group, and the quantiles. The bounds
are computed here from these figures. ``docs/design/numbers.md`` has the measurements.
"""

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

FACTOR = 2.0
"""How many times eager's error a right answer may have."""


@dataclass(frozen=True, slots=True)
class Format:
    """A floating-point format, and how much of its resolution a right answer may lose."""

    bits: int
    """The bits of the fraction that are stored."""
    least: int
    """The exponent of the smallest unit: of the smallest normal number where devices flush smaller ones to 0, else of a subnormal one."""
    element_floor: float
    """In ulp. An element within this distance of the reference is right, even where eager has no error at all."""
    quantile_floor: float
    """In ulp. A quantile of the errors that is at most this is right."""
    slack: float
    """By how much an element may exceed the errors of eager in its group, besides ``FACTOR``."""
    nudges: float
    """How far an element may be from its reference, in movements of the reference under nudged inputs. 0 for narrow formats: results are
    accumulated in a wider format, so another order of additions, or another exp, does not change them."""
    blind: float
    """In ulp. Where eager's median error is greater, it says little: the answer's median distance from eager or float64 is judged too."""
    bias_floor: float
    """In bounds of the elements. A mean of signed deviations up to this is right; infinite where it is not judged. Wide formats are
    accumulated in themselves: their errors are no independent roundings."""
    reordered: float
    """In ulp of the greatest value. Runs of eager that differ for the same inputs may be this far from the reference: additions in another
    order, as by atomics. What is farther has another reason, and no reference."""


FORMATS: Mapping[str, Format] = {
    "float64": Format(52, -1074, 1024.0, 512.0, 64.0, 64.0, 2.0**40, math.inf, 2.0**14),
    "float32": Format(23, -126, 64.0, 32.0, 8.0, 8.0, 2.0**13, math.inf, 2.0**10),
    "float16": Format(10, -24, 1.5, 0.5, 1.0, 0.0, 16.0, 2.0**-6, 64.0),
    "bfloat16": Format(7, -126, 1.5, 0.5, 1.0, 0.0, 4.0, 2.0**-6, 16.0),
    "float8_e4m3fn": Format(3, -9, 1.0, 0.5, 1.0, 0.0, 2.0, math.inf, 2.0),
    "float8_e5m2": Format(2, -16, 1.0, 0.5, 1.0, 0.0, 2.0, math.inf, 1.0),
}

VERSION = 2
"""Of the facts. Those of version 1, without this number, have no bias; they are judged without it."""

LEAST_OF_SLICE = 8
"""A slice of fewer elements is no group. The errors of one element in several runs have its sensitivity in common, so they may all be
small by chance."""

LEAST_OF_GROUP = 64
"""Fewer elements are no group for a bias."""

COMPONENTS = {"complex64": "float32", "complex128": "float64"}

QUANTILES: tuple[tuple[float, int], ...] = ((0.5, 32), (0.9, 160), (0.99, 1600))
"""Each quantile, and the number of elements from which it is judged."""


def format_of(dtype: str) -> Format | None:
    """Return the format of a dtype's numbers; None for dtypes that are exact or unknown."""
    return FORMATS.get(COMPONENTS.get(dtype, dtype))


def form_of(dtype: str, facts: Mapping[str, Any]) -> Format | None:
    """Return the format by which an answer of a dtype is judged; raise ``ValueError`` for facts that do not fit.

    A float32 result that eager rounded to bfloat16 last is one of bfloat16. Where wide operators followed, see ``between``.
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
        raise ValueError(f"eager's {eager!r} is no number of {through}")
    return inner


def between(outer: Format, inner: Format, eager_quantiles: Sequence[float], whole_ulp: float) -> Format:
    """Return the format of results of ``outer`` that were rounded to ``inner`` on their way. Eager's errors are in ulp of ``outer``.

    Their errors are independent roundings to ``inner``. A mean of many such numbers has a smaller error than one rounding: so the
    floor is also at most some of eager's errors.
    """
    finer = 2.0 ** (outer.bits - inner.bits)
    typical = (eager_quantiles[-1] if eager_quantiles else 0.0) or whole_ulp
    return Format(
        bits=outer.bits,
        least=outer.least,
        element_floor=max(outer.element_floor, min(inner.element_floor * finer, _TYPICAL * typical)),
        quantile_floor=outer.quantile_floor,
        slack=outer.slack,
        nudges=outer.nudges,
        blind=inner.blind * finer,
        bias_floor=inner.bias_floor,
        reordered=outer.reordered,
    )


_TYPICAL = 8.0
"""The floor of an element that was rounded to a narrower format on its way is at most so many times eager's highest quantile."""


def ulp(value: float, form: Format) -> float:
    """Return the unit in the last place of a number in a format."""
    if not math.isfinite(value):
        return math.nan
    exponent = math.frexp(value)[1] - 1 if value else -(10**6)
    return math.ldexp(1.0, max(exponent - form.bits, form.least))


@functools.cache
def spread(draws: int, numel: int) -> float:
    """Return how much a maximum of few draws is widened, so that the bound covers ``numel`` elements.

    Errors are taken as normally distributed. The greatest of ``draws`` is at least ``low`` and the greatest of ``numel`` at most ``high``
    standard deviations, each with a probability of 0.999; the default factor covers a ratio of 2.
    """
    from statistics import NormalDist  # the commands that need no torch never call this, and start faster without the import

    normal = NormalDist()
    low = normal.inv_cdf((1 + 0.001 ** (1 / draws)) / 2)
    high = -normal.inv_cdf(0.001 / numel / 2)
    return max(1.0, high / (FACTOR * low))


SINGLE = 0.5 + 2.0**-5
"""In ulp. Where no run of eager has a greater error, each of its errors is that of one rounding: a maximum of few is not widened."""


FLUSHED = 4.0
"""In units of the smallest number: the least floor of an element. A device flushes smaller numbers to 0, also within a kernel."""


def floor_of(value: float, form: Format) -> float:
    """Return the least bound of an element with this reference: some ulp of it, and for numbers near 0 a few of the smallest."""
    relative = form.element_floor * ulp(value, replace(form, least=-1074))
    return min(form.element_floor * ulp(value, form), max(relative, FLUSHED * math.ldexp(1.0, form.least)))


def widening(draws: int, numel: int, form: Format, whole_ulp: float) -> float:
    """Return ``spread``, or 1 where eager's errors are single roundings, which have no tails."""
    return 1.0 if form.nudges == 0 and 0 < whole_ulp <= SINGLE else spread(draws, numel)


def bias_bound(facts: Mapping[str, Any], form: Format) -> float:
    """Return the greatest right bias of the groups of one kind, in bounds of their elements.

    A right answer may round once more than eager, which moves an element by one ulp with a probability of at most 1/4 in each direction.
    The standard deviation of the mean is then at most 1/2 ulp, 1/3 of the least bound, over the root of the number of distinct elements:
    equal elements are one rounding. ``high`` is what the greatest of so many means exceeds with a probability of 1e-4.
    """
    from statistics import NormalDist  # as in spread

    groups, distinct = int(facts["groups"]), max(int(facts["distinct"]), 1)
    high = -NormalDist().inv_cdf(0.0001 / groups / 2)
    own = FACTOR * float(facts["eager"]) * spread(groups * int(facts["runs"]), groups)
    return max(form.bias_floor + high / (3 * math.sqrt(distinct)), own)


def is_zero(most: float, whole_error: float) -> bool:
    """Whether the right result is 0, as the gradient of a bias before a batch norm is: all digits of eager and of a right answer differ.

    Which elements of eager are exactly 0 is chance, so no group of elements has smaller bounds than others.
    """
    return most * 2.0**10 <= whole_error


def element_bound(facts: Mapping[str, Any], form: Format) -> float:
    """Return the greatest right error of the element ``worst`` of the facts."""
    worst, numel = facts["worst"], int(facts["numel"])
    if int(worst["group_draws"]) < min(LEAST_DRAWS, numel * int(facts["runs"])):
        raise ValueError(f"a group of {worst['group_draws']} errors")
    floor = max(floor_of(float(worst["reference"]), form), form.nudges * float(worst["nudge"]))
    whole_ulp = float(facts.get("whole_ulp", math.inf))
    whole = FACTOR * float(facts["whole_error"]) * widening(numel * int(facts["runs"]), numel, form, whole_ulp)
    whole = max(whole, form.element_floor * ulp(float(facts["most"]), form))
    if is_zero(float(facts["most"]), float(facts["whole_error"])):
        return max(floor, whole)
    group = FACTOR * form.slack * float(worst["group_error"]) * widening(int(worst["group_draws"]), numel, form, whole_ulp)
    return max(floor, min(whole, group))


def quantile_bounds(facts: Mapping[str, Any], form: Format) -> list[float]:
    """Return the bounds of the answer's quantiles, in ulp."""
    pairs = zip(facts["eager_quantiles"], facts["nudge_quantiles"], strict=True)
    floors = [MEDIAN_FLOOR if facts.get("has_fine_runs") else form.quantile_floor, form.quantile_floor, form.quantile_floor]
    return [max(FACTOR * float(error), form.nudges * float(nudge), floor) for (error, nudge), floor in zip(pairs, floors, strict=False)]


MEDIAN_FLOOR = 4.0
"""In ulp. Pointwise operators of devices have errors of up to 2 ulp in most elements: a median of so many is right in wide formats, where
runs with fine roundings say what additions do."""


def quantiles_of(numel: int, *, has_fine_runs: bool = False) -> tuple[float, ...]:
    """Return the quantiles that are judged of so many elements."""
    return tuple(share for share, least in QUANTILES if numel >= (LEAST_OF_SLICE if has_fine_runs and share == QUANTILES[0][0] else least))


LEAST_DRAWS = 16
"""A group with fewer errors of eager is not used."""


def problems(facts: Mapping[str, Any], form: Format, *, is_near: bool = False) -> list[str]:
    """Return what is wrong with an answer by its facts; empty for a right one. Facts of another form raise what reading them raises.

    ``is_near``: the answer is within the tolerance of its dtype from eager. Where most right elements are 0, eager and a right answer may
    differ in all digits.
    """
    numel = int(facts["numel"])
    failures = []
    if facts["nonfinite"]:
        failures.append(f"NaN or an infinity on one side only in {facts['nonfinite']} of {numel} elements")
    if numel == 0:
        return failures
    if kept := facts.get("unwritten"):
        first = f"at {kept['index']}: {kept['value']!r}, before the call {kept['before']!r}"
        failures.append(f"{kept['count']} of {numel} elements changed that eager does not write; {first}")
    worst = facts["worst"]
    bound = element_bound(facts, form)
    if not worst["error"] <= bound:
        failures.append(_outside(facts, worst, bound, form))
    shares = quantiles_of(numel, has_fine_runs=bool(facts.get("has_fine_runs")))
    is_noise = is_zero(float(facts["most"]), float(facts["whole_error"]))
    rows = zip(shares, facts["quantiles"], facts["eager_quantiles"], quantile_bounds(facts, form), strict=True)
    for share, error, own, most in rows:
        if not error <= most and not is_noise:  # an error in units of a reference that is 0 but for rounding says nothing
            failures.append(f"quantile {share:g} of the error is {error:.3g} ulp: the bound is {most:.3g} ulp, eager's {own:.3g}")
    is_blind = facts["eager_quantiles"][0] > form.blind if shares else facts["nearest"] is not None
    if is_blind and not is_near and not is_noise and not facts.get("unexplained"):
        nearest = nearest_bound(float(facts["eager_quantiles"][0]) if shares else math.inf, form, numel)
        if not facts["nearest"] <= nearest:
            failures.append(
                f"the median distance from the nearer of eager and float64 is {facts['nearest']:.3g} ulp: the bound is {nearest:.3g} ulp"
            )
    return failures if is_noise else [*failures, *_biases(facts, form)]


def _biases(facts: Mapping[str, Any], form: Format) -> Iterator[str]:
    """Yield the groups whose elements deviate in one direction."""
    if math.isinf(form.bias_floor) or facts.get("version", 1) < VERSION:
        return
    if not facts["bias"] and int(facts["numel"]) >= LEAST_OF_GROUP:
        raise ValueError("no bias was measured")
    for bias in facts["bias"]:
        bound = bias_bound(bias, form)
        if not abs(bias["mean"]) <= bound:
            where = bias["group"] if bias["groups"] == 1 else f"{bias['group']}, {bias['index']} of {bias['groups']}"
            text = f"the bound is {bound:.3g}, eager's {bias['eager']:.3g}, in bounds of an element"
            yield f"bias of {bias['mean']:.3g} of the {bias['of']}s ({where}): {text}"


def nearest_bound(own: float, form: Format, numel: int) -> float:
    """Return the bound of the median distance from the nearer of eager and float64, in ulp, where eager's median error says little.

    A result in float32 that autocast computed in bfloat16 has the error of bfloat16: so much is right in wide formats, up to 2**-6.
    The median of a few elements is nearly the greatest of them: half a unit of the last rounding, and one of each of two factors that a
    graph gets or saves in the narrow format. A factor of 1.02 is at least 2.56 units of bfloat16.
    """
    least = form.blind / 2 if numel >= LEAST_OF_SLICE else max(form.blind / 2, 2.5)
    return max(least, min(FACTOR * own, 2.0 ** (form.bits - 6))) if form.nudges else least


def _outside(facts: Mapping[str, Any], worst: Mapping[str, Any], bound: float, form: Format) -> str:
    error, unit = float(worst["error"]), ulp(float(worst["reference"]), form)
    own = float(facts["whole_error"])
    runs = f" in {facts['runs']} runs" if own > facts.get("eager_max_error", own) else ""
    times = f"{error / own:.3g} times eager's greatest error{runs}" if own > 0 else "eager has no error"
    pair = f"{worst['value']!r}, eager {worst['eager_value']!r}, float64 {worst['reference_value']!r}"
    return f"error of {error / unit:.3g} ulp ({times}), {error / bound:.3g} times the bound; at {worst['index']}: {pair}"


def summary(facts: Mapping[str, Any]) -> str:
    """Return the errors on one line."""
    if not facts["numel"]:
        return "no elements"
    if any(isinstance(facts["worst"][name], float) and not math.isfinite(facts["worst"][name]) for name in ("value", "reference_value")):
        return "no element is finite on both sides"  # the worst of those that are, where there is one
    if facts["nonfinite"] and not facts["max_error"]:
        return "the elements that are finite on both sides have no error"
    outside = f"{facts['outside']} of {facts['numel']} elements outside; " if facts["outside"] else ""
    own = f"eager's {facts['eager_max_ulp']:.3g} ulp ({facts['eager_max_error']:.3g})"
    of = " of the finite elements" if facts["nonfinite"] else ""
    return f"{outside}greatest error{of} {facts['max_ulp']:.3g} ulp ({facts['max_error']:.3g}), {own}"
