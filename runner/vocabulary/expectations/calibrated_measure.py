"""The measurements of the calibrated judge, in the worker: errors against the float64 reference, and eager's own error by group."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from runner.core.protocol import Json
from runner.vocabulary.expectations.calibrated import (
    FACTOR,
    FORMATS,
    LEAST_OF_SLICE,
    VERSION,
    Format,
    between,
    format_of,
    quantiles_of,
    ulp,
    widening,
)
from runner.vocabulary.expectations.calibrated_bias import Own, bias_of, deviations, eager_bias
from runner.vocabulary.expectations.calibrated_groups import Sample, drawn, grouped
from runner.vocabulary.expectations.calibrated_tensors import BINS, errors_of, has_numbers_of, histogram_of, quantiles_in, units_of, wide


class NoReference(Exception):
    """No float64 reference; the message has the reason."""


@dataclass(frozen=True, slots=True)
class Passed:
    """The narrower format that a result of a wide one was rounded to on its way."""

    name: str
    is_last: bool
    """Whether all of eager's results are numbers of that format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Eager's error for each element of a leaf. The tensors are flat; those of numbers are float64, or complex128."""

    dtype: str
    form: Format
    through: Passed | None
    reference: Any
    """That of float64, but eager's number where that one is finite by its rounding alone."""
    precise: Any
    """That of float64."""
    eager: Any
    units: Any
    """The ulp of each element."""
    group_error: Any
    """For each element, eager's greatest error in the group that gives the smallest bound."""
    group_draws: Any
    nudge: Any
    """For each element, how far the reference moves when the last digits of the inputs change."""
    bounds: Any
    """For each element its bound, in parts: the floor, and what is multiplied by ``factor``."""
    whole_error: float
    whole_ulp: float
    most: float
    runs: int
    bias: Own | None
    """Eager's greatest bias, for each way to group the elements; None for wide formats."""
    eager_quantiles: list[float]
    nudge_quantiles: list[float]


def runs_of(numel: int) -> int:
    """Return how many runs of eager are measured: more where there are few elements, because a few errors may all be small by chance."""
    return min(12, max(3, math.ceil(1024 / max(numel, 1))))


def nudged(tensor: Any, generator: Any, least: float = 0.0) -> Any:
    """Return a floating-point tensor with every value nearer to 0 by up to eight units of its resolution: eager rounds it differently.

    Signs, zeros, infinities and NaN remain. Values stay in a domain such as [0, 1] or [-1, 1]. ``least``: the resolution of a narrower
    format that eager rounds values to on their way; else every run would round them in the same way.
    """
    import torch

    eps = max(torch.finfo(tensor.dtype).eps, least)
    less = torch.rand(tensor.shape, generator=generator, dtype=torch.float64) * (8 * eps)
    return (tensor.detach().to(torch.float64) * (1 - less.to(tensor.device))).to(tensor.dtype)


def is_reordered(answers: Sequence[Any], reference: Any) -> bool:
    """Whether answers to the same inputs are so near to the reference that another order of additions explains how they differ.

    Atomic additions have no fixed order. A function with a state of its own, or with numbers from elsewhere, is farther away.
    """
    import torch

    form = format_of(str(answers[0].dtype).removeprefix("torch."))
    right = wide(reference)
    most = float(torch.where(right.abs().isfinite(), right.abs(), 0.0).max()) if right.numel() else 0.0
    return form is not None and all(bool((errors_of(wide(one), right) <= form.reordered * ulp(most, form)).all()) for one in answers)


def scale_of(samples: Sequence[Sample], answer: Any, reference: Any, through: str = "") -> Scale:
    """Return eager's error by its samples; ``answer`` and ``reference`` are those of the case's own inputs. Raise ``NoReference``.

    The first sample is of those inputs, the others are of nudged ones. The samples of float64 are runs of float32, whose errors are scaled.
    ``through`` is the narrowest format that eager rounded the values to on their way.
    """
    import torch

    dtype, form = _format_of(answer)
    precise, eager = wide(reference), wide(answer)
    right = _reference_of(eager, precise, answer.dtype)
    errors, moved = drawn(samples, answer.dtype)
    runs = [*samples, Sample(answer, right.reshape(answer.shape))]
    # the runs in place of a float64 one are of float32; eager's own error counts too, where a part of it computes in a narrower dtype
    own = errors_of(eager, right)
    most = torch.maximum(torch.stack(errors).amax(0), own)
    passed = _passed(runs, form, through)
    form, units, whole_ulp, eager_quantiles = _judged_by(form, passed, runs, errors, own)
    group_error, draws, group_bound = grouped(most, right.abs(), tuple(answer.shape), len(samples), form, whole_ulp)
    scale = Scale(
        dtype=dtype,
        form=form,
        through=passed,
        reference=right,
        precise=precise,
        eager=eager,
        units=units,
        group_error=group_error,
        group_draws=draws,
        nudge=moved,
        bounds=(torch.maximum(form.element_floor * units, form.nudges * moved), group_bound * form.slack),
        whole_error=_greatest(most),
        whole_ulp=whole_ulp,
        bias=None,
        most=_greatest(torch.where(right.abs().isfinite(), right.abs(), 0.0)),
        runs=len(samples),
        eager_quantiles=eager_quantiles,
        nudge_quantiles=quantiles_in(moved / units, quantiles_of(most.numel())),
    )
    return scale if math.isinf(form.bias_floor) else replace(scale, bias=_bias(runs, scale))


def _quantiles(errors: Sequence[Any], own: Any, units: Any) -> list[float]:
    """Return the quantiles of the errors of all samples, or of eager's own error where that is greater; in units."""
    import torch

    shares = quantiles_of(own.numel())
    return list(map(max, quantiles_in(torch.cat([error / units for error in errors]), shares), quantiles_in(own / units, shares)))


def _whole_ulp(samples: Sequence[Sample], form: Format) -> float:
    """Return the greatest error of all runs of eager, in ulp."""
    if not samples[0].answer.numel():
        return 0.0
    pairs = [(wide(one.answer), wide(one.reference)) for one in samples]
    return max(float((errors_of(answer, right) / units_of(right, form)).max()) for answer, right in pairs)


def _passed(samples: Sequence[Sample], form: Format, through: str) -> Passed | None:
    """Return the narrower format if eager's errors show it. For a float64 result the runs of eager are in float32: there is none."""
    if not through or form is FORMATS["float64"] or FORMATS[through].bits >= form.bits or _whole_ulp(samples, form) <= form.quantile_floor:
        return None
    return Passed(through, all(has_numbers_of(one.answer, through) for one in samples))


def _format_of(answer: Any) -> tuple[str, Format]:
    dtype = str(answer.dtype).removeprefix("torch.")
    form = format_of(dtype)
    if form is None:
        raise NoReference(f"values of dtype {dtype} are exact")
    return dtype, form


def _judged_by(
    form: Format, passed: Passed | None, runs: Sequence[Sample], errors: Sequence[Any], own: Any
) -> tuple[Format, Any, float, list[float]]:
    """Return the format by which the answer is judged, its units, and eager's greatest error and quantiles in them."""
    form = FORMATS[passed.name] if passed is not None and passed.is_last else form
    units = units_of(wide(runs[-1].reference), form)
    whole_ulp = _whole_ulp(runs, form) if form.nudges == 0 or passed is not None else 0.0
    quantiles = _quantiles(errors, own, units)
    if passed is not None and not passed.is_last:
        form = between(form, FORMATS[passed.name], quantiles, whole_ulp)
    return form, units, whole_ulp, quantiles


def _greatest(values: Any) -> float:
    return float(values.max()) if values.numel() else 0.0


def _last_dtype(scale: Scale) -> Any:
    """Return the dtype that eager rounded the result to last."""
    import torch

    return getattr(torch, scale.through.name if scale.through is not None and scale.through.is_last else scale.dtype)


def _bias(samples: Sequence[Sample], scale: Scale) -> Own:
    bounds = bounds_of(scale, FACTOR)
    found = [deviations(wide(one.answer), wide(one.reference), bounds, _last_dtype(scale)) for one in samples]
    return Own(eager_bias(tuple(samples[0].answer.shape), found), len(samples))


def _reference_of(eager: Any, precise: Any, dtype: Any) -> Any:
    """Return what float64 has, or eager's number where that is finite by its rounding alone; raise ``NoReference``."""
    import torch

    _refuse_other_range(eager, precise, dtype)
    return torch.where(_is_finite_by_rounding(eager, precise), eager, precise)


def _is_finite_by_rounding(eager: Any, right: Any) -> Any:
    """Return which few elements are finite in eager and not in float64; raise ``NoReference`` where there are many.

    A power of a negative number is NaN unless the exponent is whole. In bfloat16 an exponent of -7.03 becomes whole when 1 is subtracted,
    for its gradient. A kernel that computes in float32 has NaN as float64 has.
    """
    found = eager.isfinite() & ~right.isfinite()
    count, numel = int(found.sum()), found.numel()
    if count > max(numel // 128, int(numel >= LEAST_OF_SLICE)):
        raise NoReference(f"the float64 reference is not finite in {count} of {numel} elements where eager is")
    return found


def _refuse_other_range(eager: Any, right: Any, dtype: Any) -> None:
    """Raise ``NoReference`` where eager is finite and float64 has a number beyond the range of the dtype."""
    import torch

    limits = torch.finfo(dtype)
    # a reference a few units beyond the greatest number is one that eager's rounding kept below the overflow
    if bool((eager.isfinite() & right.isfinite() & (right.abs() / limits.max > 1 + 4 * limits.eps)).any()):
        # nan_to_num and functions like it give the greatest number of their dtype: in float64 they are other functions
        name = str(dtype).removeprefix("torch.")
        raise NoReference(f"the float64 reference is beyond the range of {name} where eager is finite")


def compare(actual: Any, scale: Scale, factor: float, *, equal_nan: bool = True, histogram: bool = True) -> dict[str, Json]:
    """Return the facts of an answer: nonfinite mismatches, the element nearest to its bound, quantiles, and a histogram."""
    import torch

    answer = wide(actual).to(scale.reference.device)
    right = scale.reference
    numel = answer.numel()
    nonfinite = _nonfinite(answer, scale, equal_nan)
    facts: dict[str, Any] = {"version": VERSION, "factor": factor, "runs": scale.runs, "numel": numel, "nonfinite": nonfinite}
    if numel == 0:
        return {**facts, "outside": 0, "worst": None, "quantiles": [], "eager_quantiles": []}
    if scale.through is not None:
        facts.update(through=scale.through.name, is_rounded=scale.through.is_last)
    judged = answer.isfinite() & right.isfinite()
    errors = torch.where(judged, errors_of(answer, right), 0.0)
    ratio = torch.where(judged, errors / bounds_of(scale, factor), -1.0)
    ulps = errors / scale.units
    facts.update(outside=int((ratio > 1).sum()), worst=_worst(int(ratio.argmax()), actual.shape, answer, errors, scale))
    facts.update(whole_error=scale.whole_error, whole_ulp=scale.whole_ulp, most=scale.most)
    facts.update(bias=_bias_facts(answer, actual, scale, factor))
    facts.update(max_error=float(errors.max()), max_ulp=float(ulps.max()))
    facts.update(quantiles=quantiles_in(ulps, quantiles_of(numel)), eager_quantiles=scale.eager_quantiles)
    facts.update(nudge_quantiles=scale.nudge_quantiles)
    eager_errors = errors_of(scale.eager, right)
    eager_ulps = eager_errors / scale.units
    facts.update(eager_max_error=float(eager_errors.max()), eager_max_ulp=float(eager_ulps.max()), nearest=None)
    if quantiles_in(eager_ulps, (0.5,))[0] > scale.form.blind or (facts["quantiles"] and facts["eager_quantiles"][0] > scale.form.blind):
        apart = torch.minimum(torch.where(judged, errors_of(answer, scale.eager), 0.0) / scale.units, ulps)
        facts["nearest"] = quantiles_in(apart, (0.5,))[0]
    if histogram:
        facts["histogram"] = {"first": BINS[0], "compiled": histogram_of(ulps), "eager": histogram_of(eager_ulps)}
    return facts


def changed_elements(actual: Any, scale: Scale, unwritten: Any) -> dict[str, Json] | None:
    """Return the elements that eager does not write and that differ in an answer: their number, and the first; None without any.

    ``unwritten`` is a mask of the elements in which eager's number is that of before. Eager may have computed the same number: it did where
    float64 has another. Where float64 has the same too, as of ``0.9 * x + 0.1 * x``, a right answer is at most 2 ulp from it. A result in
    float64 has no more precise reference, and is not measured.
    """
    import torch

    form = format_of(scale.dtype)
    if form is None or actual.dtype in (torch.float64, torch.complex128) or not actual.numel():
        return None
    answer, mask = wide(actual).to(scale.eager.device), unwritten.reshape(-1).to(scale.eager.device)
    is_near = (answer - scale.eager).abs() <= 2 * units_of(scale.eager, form)
    changed = mask & (scale.precise == scale.eager) & (answer != scale.eager) & ~is_near
    if not changed.any():
        return None
    place = int(changed.nonzero()[0])
    index = [int(one) for one in torch.unravel_index(torch.tensor(place), actual.shape)]
    return {"count": int(changed.sum()), "index": index, "value": _plain(answer[place]), "before": _plain(scale.eager[place])}


def _bias_facts(answer: Any, actual: Any, scale: Scale, factor: float) -> list[dict[str, Json]]:
    if scale.bias is None:
        return []
    deviating = deviations(answer, scale.reference, bounds_of(scale, FACTOR), _last_dtype(scale))
    return bias_of(tuple(actual.shape), deviating, scale.reference, scale.bias, scale.form, factor)


def bounds_of(scale: Scale, factor: float) -> Any:
    """Return the bound of each element, as ``calibrated.element_bound`` computes it of one."""
    import torch

    numel = scale.reference.numel()
    floor, group = scale.bounds
    if numel == 0:
        return floor
    whole = factor * scale.whole_error * widening(numel * scale.runs, numel, scale.form, scale.whole_ulp)
    whole = max(whole, scale.form.element_floor * ulp(scale.most, scale.form))
    return torch.maximum(floor, (factor * group).clamp(max=whole))


def _nonfinite(answer: Any, scale: Scale, equal_nan: bool) -> int:
    """Count the elements that are not finite where neither eager nor the reference has the same."""
    import torch

    def same(other: Any) -> Any:
        equal = answer == other
        return equal | (answer.isnan() & other.isnan()) if equal_nan else equal

    rounded = scale.precise.to(getattr(torch, scale.dtype)).to(scale.precise.dtype)
    judged = answer.isfinite() & scale.reference.isfinite()
    return int((~judged & ~same(scale.eager) & ~same(rounded)).sum())


def _worst(place: int, shape: Any, answer: Any, errors: Any, scale: Scale) -> Mapping[str, Json]:
    import torch

    return {
        "index": [int(index) for index in torch.unravel_index(torch.tensor(place), shape)],
        "value": _plain(answer[place]),
        "eager_value": _plain(scale.eager[place]),
        "reference_value": _plain(scale.reference[place]),
        # where no element is finite in both, the first stands here: it has no error, and its NaN or infinity is counted as nonfinite
        "reference": float(scale.reference[place].abs()) if bool(scale.reference[place].isfinite()) else 0.0,
        "error": float(errors[place]),
        "group_error": float(scale.group_error[place]),
        "group_draws": int(scale.group_draws[place]),
        "nudge": float(scale.nudge[place]),
    }


def _plain(element: Any) -> float | str:
    return str(element.item()) if element.is_complex() else float(element)
