"""The measurements of the calibrated judge, in the worker: errors against the float64 reference, and eager's own error by group."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from runner.core.protocol import Json
from runner.vocabulary.expectations.calibrated import FACTOR, LEAST_DRAWS, VERSION, Format, format_of, quantiles_of, ulp, widening
from runner.vocabulary.expectations.calibrated_bias import Own, bias_of, deviations, eager_bias
from runner.vocabulary.expectations.calibrated_tensors import BINS, errors_of, histogram_of, quantiles_in, units_of, wide

BLOCK = 64
"""The number of neighbours in memory order whose errors are taken together."""

NEIGHBOURS = 16
"""The number of neighbours in memory order whose movement is compared."""


class NoReference(Exception):
    """No float64 reference; the message has the reason."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of eager: its answer, and the float64 reference for the same inputs. Both are tensors of one shape."""

    answer: Any
    reference: Any
    step: float = 0.0
    """The resolution of the inputs that were nudged; 0 for the case's own inputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Eager's error for each element of a leaf. The tensors are flat; those of numbers are float64, or complex128."""

    dtype: str
    form: Format
    reference: Any
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


def nudged(tensor: Any, generator: Any) -> Any:
    """Return a floating-point tensor with every value nearer to 0 by up to eight units of its resolution: eager rounds it differently.

    Signs, zeros, infinities and NaN remain. Values stay in a domain such as [0, 1] or [-1, 1].
    """
    import torch

    eps = torch.finfo(tensor.dtype).eps
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


def scale_of(samples: Sequence[Sample], answer: Any, reference: Any) -> Scale:
    """Return eager's error by its samples; ``answer`` and ``reference`` are those of the case's own inputs. Raise ``NoReference``.

    The first sample is of those inputs, the others are of nudged ones. The samples of float64 are runs of float32, whose errors are scaled.
    """
    import torch

    dtype = str(answer.dtype).removeprefix("torch.")
    form = format_of(dtype)
    if form is None:
        raise NoReference(f"values of dtype {dtype} are exact")
    right, eager = wide(reference), wide(answer)
    _refuse_other_range(eager, right, answer.dtype)
    errors, moved = _drawn(samples, answer.dtype)
    units = units_of(right, form)
    whole_ulp = _whole_ulp([*samples, Sample(answer, reference)], form)
    # the runs in place of a float64 one are of float32; eager's own error counts too, where a part of it computes in a narrower dtype
    own = errors_of(eager, right)
    most = torch.maximum(torch.stack(errors).amax(0), own)
    numel = most.numel()
    group_error, draws, group_bound = _grouped(most, right.abs(), tuple(answer.shape), len(samples), form, whole_ulp)
    scale = Scale(
        dtype=dtype,
        form=form,
        reference=right,
        eager=eager,
        units=units,
        group_error=group_error,
        group_draws=draws,
        nudge=moved,
        bounds=(torch.maximum(form.element_floor * units, form.nudges * moved), group_bound * form.slack),
        whole_error=float(most.max()) if numel else 0.0,
        whole_ulp=whole_ulp,
        bias=None,
        most=float(torch.where(right.abs().isfinite(), right.abs(), 0.0).max()) if numel else 0.0,
        runs=len(samples),
        eager_quantiles=_quantiles(errors, own, units),
        nudge_quantiles=quantiles_in(moved / units, quantiles_of(numel)),
    )
    return scale if math.isinf(form.bias_floor) else replace(scale, bias=_bias([*samples, Sample(answer, reference)], scale))


def _quantiles(errors: Sequence[Any], own: Any, units: Any) -> list[float]:
    """Return the quantiles of the errors of all samples, or of eager's own error where that is greater; in units."""
    import torch

    shares = quantiles_of(own.numel())
    return list(map(max, quantiles_in(torch.cat([error / units for error in errors]), shares), quantiles_in(own / units, shares)))


def _whole_ulp(samples: Sequence[Sample], form: Format) -> float:
    """Return the greatest error of all runs of eager, in ulp; 0 for wide formats, where it is not used."""
    if form.nudges or not samples[0].answer.numel():
        return 0.0
    pairs = [(wide(one.answer), wide(one.reference)) for one in samples]
    return max(float((errors_of(answer, right) / units_of(right, form)).max()) for answer, right in pairs)


def _bias(samples: Sequence[Sample], scale: Scale) -> Own:
    bounds = bounds_of(scale, FACTOR)
    found = [deviations(wide(one.answer), wide(one.reference), bounds, samples[0].answer.dtype) for one in samples]
    return Own(eager_bias(tuple(samples[0].answer.shape), found), len(samples))


def _refuse_other_range(eager: Any, right: Any, dtype: Any) -> None:
    """Raise ``NoReference`` where eager is finite and float64 is not, or is beyond the range of the dtype."""
    import torch

    if bool((eager.isfinite() & ~right.isfinite()).any()):
        raise NoReference("the float64 reference is not finite where eager is")
    limits = torch.finfo(dtype)
    # a reference a few units beyond the greatest number is one that eager's rounding kept below the overflow
    if bool((eager.isfinite() & (right.abs() / limits.max > 1 + 4 * limits.eps)).any()):
        # nan_to_num and functions like it give the greatest number of their dtype: in float64 they are other functions
        name = str(dtype).removeprefix("torch.")
        raise NoReference(f"the float64 reference is beyond the range of {name} where eager is finite")


def _drawn(samples: Sequence[Sample], dtype: Any) -> tuple[list[Any], Any]:
    """Return the errors of each run, and how far the reference moved at most."""
    import torch

    errors, moved = [], None
    first = wide(samples[0].reference)
    for sample in samples:
        answer, right = wide(sample.answer), wide(sample.reference)
        shrink = torch.finfo(dtype).eps / torch.finfo(sample.answer.dtype).eps
        error = errors_of(answer, right)
        if shrink < 1:
            # the narrower range of the format is not an error of eager
            error = torch.where(answer.abs() < torch.finfo(sample.answer.dtype).tiny, 0.0, error)
        errors.append(error * shrink)
        # a nudge of the inputs moves the reference by as many units of a finer format
        distance = errors_of(right, first) * min(1.0, torch.finfo(dtype).eps / sample.step if sample.step else 1.0)
        moved = distance if moved is None else torch.maximum(moved, distance)
    return errors, torch.maximum(moved, _medians(moved))


def _medians(values: Any) -> Any:
    """Return for each value the median of its neighbours: a sum may move little by chance where its neighbours move."""
    import torch

    count = len(values)
    if count < NEIGHBOURS:
        return values
    rest = -count % NEIGHBOURS
    padded = torch.cat([values, values[count - rest :]]) if rest else values
    return padded.reshape(-1, NEIGHBOURS).median(-1).values.repeat_interleave(NEIGHBOURS)[:count]


def _grouped(most: Any, size: Any, shape: tuple[int, ...], runs: int, form: Format, whole_ulp: float) -> tuple[Any, Any, Any]:
    """Return for each element the error, the number of draws and the widened error of the group with the smallest bound."""
    import torch

    numel = most.numel()
    best = torch.full_like(most, math.inf)
    found = most.new_zeros(numel), torch.zeros(numel, dtype=torch.int64, device=most.device)
    for error, draws in _groups(most, size, shape, runs):
        bound = error * draws_factor(draws, numel, form, whole_ulp)
        better = bound < best
        best = torch.where(better, bound, best)
        found = torch.where(better, error, found[0]), torch.where(better, draws, found[1])
    return *found, best


def draws_factor(draws: Any, numel: int, form: Format, whole_ulp: float) -> Any:
    """Return ``widening`` of each element."""
    import torch

    values, places = draws.unique(return_inverse=True)
    return torch.tensor([widening(int(value), numel, form, whole_ulp) for value in values], dtype=torch.float64, device=draws.device)[
        places
    ]


def _groups(most: Any, size: Any, shape: tuple[int, ...], runs: int) -> Iterator[tuple[Any, Any]]:
    """Yield for each way of grouping the error of each element's group, and how many draws it is of."""
    import torch

    numel = most.numel()
    if numel == 0:
        return
    yield most.amax().expand(numel), torch.full_like(most, max(numel * runs, 1), dtype=torch.int64)
    shaped = most.reshape(shape)
    for dimension, length in enumerate(shape):
        others = [other for other in range(len(shape)) if other != dimension]
        draws = numel // length * runs
        if length > 1 and draws >= LEAST_DRAWS:
            error = shaped.amax(others, keepdim=True).expand(shape) if others else shaped
            yield error.reshape(-1), torch.full_like(most, draws, dtype=torch.int64)
    if numel > BLOCK:
        yield _in_runs(most, torch.arange(numel, device=most.device), runs)
        yield _in_runs(most, size.argsort(), runs)


def _in_runs(most: Any, order: Any, runs: int) -> tuple[Any, Any]:
    """Return the errors of groups of ``BLOCK`` elements that follow each other in an order; the last group has the remaining ones."""
    import torch

    numel = most.numel()
    group = (torch.arange(numel, device=most.device) // BLOCK).clamp(max=numel // BLOCK - 1)
    maxima = most.new_zeros(numel // BLOCK).scatter_reduce(0, group, most[order], "amax")
    counts = torch.bincount(group) * runs
    error, draws = torch.empty_like(most), torch.empty_like(group)
    error[order], draws[order] = maxima[group], counts[group]
    return error, draws


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


def _bias_facts(answer: Any, actual: Any, scale: Scale, factor: float) -> list[dict[str, Json]]:
    if scale.bias is None:
        return []
    deviating = deviations(answer, scale.reference, bounds_of(scale, FACTOR), actual.dtype)
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

    rounded = scale.reference.to(getattr(torch, scale.dtype)).to(scale.reference.dtype)
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
