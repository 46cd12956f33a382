"""The calibrated judge of ``close``: the answer's error against a float64 reference, compared with eager's own error. Pure, without torch.

Two rules, and both must hold:

- Each element: ``error <= max(factor * scale, ELEMENT_FLOOR * ulp(reference))``. ``scale`` is the greatest error of eager among elements that
  are alike (the tensor, a slice of it, a block, the elements of one magnitude), the smallest of these figures.
- Each quantile, where there are enough elements: ``quantile <= max(factor * eager's quantile, QUANTILE_FLOOR)``, in ulp.

The worker sends the element that is nearest to its bound (or farthest outside) with the figures of its group, and the quantiles. The bounds are
computed here. ``docs/design/calibrated-judge.md`` has the measurements.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

FACTOR = 2.0
"""The default of ``factor``."""


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


FORMATS: Mapping[str, Format] = {
    "float64": Format(52, -1074, 32.0, 16.0),
    "float32": Format(23, -126, 32.0, 16.0),
    "float16": Format(10, -24, 2.0, 0.5),
    "bfloat16": Format(7, -126, 2.0, 0.5),
    "float8_e4m3fn": Format(3, -9, 1.0, 0.5),
    "float8_e5m2": Format(2, -16, 1.0, 0.5),
}

COMPONENTS = {"complex64": "float32", "complex128": "float64"}

QUANTILES: tuple[tuple[float, int], ...] = ((0.5, 32), (0.9, 160), (0.99, 1600))
"""Each quantile, and the number of elements from which it is judged."""


def format_of(dtype: str) -> Format | None:
    """Return the format of a dtype's numbers; None for dtypes that are exact or unknown."""
    return FORMATS.get(COMPONENTS.get(dtype, dtype))


def ulp(value: float, form: Format) -> float:
    """Return the unit in the last place of a number in a format."""
    if not math.isfinite(value):
        return math.nan
    exponent = math.frexp(value)[1] - 1 if value else -(10**6)
    return math.ldexp(1.0, max(exponent - form.bits, form.least))


@functools.cache
def spread(draws: int, numel: int) -> float:
    """Return how much a maximum of few draws is widened, so that the bound covers ``numel`` elements.

    Errors are taken as normally distributed. The greatest of ``draws`` is at least ``low`` and the greatest of ``numel`` at most ``high`` standard
    deviations, each with a probability of 0.999; the default factor covers a ratio of 2.
    """
    normal = NormalDist()
    low = normal.inv_cdf((1 + 0.001 ** (1 / draws)) / 2)
    high = -normal.inv_cdf(0.001 / numel / 2)
    return max(1.0, high / (FACTOR * low))


def element_bound(worst: Mapping[str, Any], numel: int, form: Format, factor: float) -> float:
    """Return the greatest right error of an element: ``worst`` has its reference, and the number and maximum of eager's errors in its group."""
    scale = float(worst["group_error"]) * spread(int(worst["group_draws"]), numel)
    return max(factor * scale, form.element_floor * ulp(float(worst["reference"]), form))


def quantile_bounds(eager: Sequence[float], form: Format, factor: float) -> list[float]:
    """Return the bounds of the answer's quantiles, in ulp."""
    return [max(factor * float(error), form.quantile_floor) for error in eager]


def quantiles_of(numel: int) -> tuple[float, ...]:
    """Return the quantiles that are judged of so many elements."""
    return tuple(share for share, least in QUANTILES if numel >= least)


def group_draws(sizes: Sequence[int]) -> list[int]:
    """Return the sizes of groups that are large enough to say how large eager's error is."""
    return [size for size in sizes if size >= LEAST_DRAWS]


LEAST_DRAWS = 16
"""A group with fewer errors of eager is not used."""


def problems(facts: Mapping[str, Any], dtype: str, factor: float) -> list[str]:
    """Return what is wrong with an answer by its facts."""
    form = format_of(dtype)
    assert form is not None
    found = []
    if facts["nonfinite"]:
        found.append(f"nonfinite {facts['nonfinite']}")
    worst = facts["worst"]
    if worst is not None:
        bound = element_bound(worst, facts["numel"], form, factor)
        if not worst["error"] <= bound:
            found.append(f"element {worst['error'] / bound:.3g}")
        bounds = quantile_bounds(facts["eager_quantiles"], form, factor)
        for share, error, most in zip(quantiles_of(facts["numel"]), facts["quantiles"], bounds, strict=True):
            if not error <= most:
                found.append(f"q{share} {error / most:.3g}")
    return found
