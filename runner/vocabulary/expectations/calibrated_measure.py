"""The measurements of the calibrated judge, in the worker: errors against the float64 reference, and eager's own error by group."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runner.core.protocol import Json
from runner.vocabulary.expectations.calibrated import LEAST_DRAWS, Format, format_of, quantiles_of, spread

BLOCK = 64
"""The number of neighbours in memory order whose errors are taken together."""

BINS = range(-4, 33)
"""The exponents of the histogram's bins: errors of at least 2**n ulp and less than 2**(n + 1). The first bin has all smaller ones."""


class NoReference(Exception):
    """No float64 reference; the message has the reason."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of eager: its answer, and the float64 reference for the same inputs. Both are tensors of one shape."""

    answer: Any
    reference: Any
    shrink: float = 1.0
    """By how much the error of a run of lower precision is scaled."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Eager's error for each element of a leaf."""

    dtype: str
    form: Format
    reference: Any
    """float64 (or complex128), flat."""
    eager: Any
    """Eager's answer in the same form."""
    units: Any
    """The ulp of each element."""
    group_error: Any
    """For each element, eager's greatest error in the group that gives the smallest bound."""
    group_draws: Any
    errors: Any
    """Eager's errors in ulp, all runs."""
    runs: int


def runs_of(numel: int) -> int:
    """Return how many runs of eager are measured: two, and more where there are few elements, because a few errors may all be small by chance."""
    return min(8, max(2, math.ceil(1024 / max(numel, 1))))


def nudged(tensor: Any, generator: Any) -> Any:
    """Return a floating-point tensor with every value nearer to 0 by up to eight units of its resolution: eager rounds it differently.

    Signs, zeros, infinities and NaN remain. Values stay in a domain such as [0, 1] or [-1, 1].
    """
    import torch

    eps = torch.finfo(tensor.dtype).eps
    less = torch.rand(tensor.shape, generator=generator, dtype=torch.float64) * (8 * eps)
    return (tensor.detach().to(torch.float64) * (1 - less.to(tensor.device))).to(tensor.dtype)


def _wide(tensor: Any) -> Any:
    import torch

    return tensor.detach().to(torch.complex128 if tensor.is_complex() else torch.float64).reshape(-1)


def units_of(reference: Any, form: Format) -> Any:
    """Return the ulp of each element of a float64 tensor; that of the smallest number where it is not finite."""
    import torch

    size = torch.where(reference.abs().isfinite(), reference.abs(), 0.0)
    exponent = torch.where(size > 0, torch.frexp(size).exponent.to(torch.float64) - 1, -1100.0)
    return torch.exp2((exponent - form.bits).clamp(min=float(form.least)))


def _errors(answer: Any, reference: Any) -> Any:
    """Return |answer - reference|; 0 where one of them is not finite."""
    import torch

    error = (answer - reference).abs()
    return torch.where(error.isfinite(), error, 0.0)


def scale_of(samples: Sequence[Sample], answer: Any, reference: Any) -> Scale:
    """Return eager's error by its samples; ``answer`` and ``reference`` are those of the case's own inputs. Raise ``NoReference``."""
    dtype = str(answer.dtype).removeprefix("torch.")
    form = format_of(dtype)
    if form is None:
        raise NoReference(f"values of dtype {dtype} are exact")
    right, eager = _wide(reference), _wide(answer)
    if bool((eager.isfinite() & ~right.isfinite()).any()):
        raise NoReference("the float64 reference is not finite where eager is")
    drawn = [(_wide(sample.answer), _wide(sample.reference), sample.shrink) for sample in samples]
    errors = [_errors(one, exact) * shrink for one, exact, shrink in drawn]
    units = units_of(right, form)
    ulps = [error / units_of(exact, form) for error, (_, exact, _) in zip(errors, drawn, strict=True)]
    import torch

    most = torch.stack(errors).amax(0)
    group_error, draws = _grouped(most, right.abs(), tuple(answer.shape), len(samples))
    return Scale(dtype, form, right, eager, units, group_error, draws, torch.cat(ulps), len(samples))


def _grouped(most: Any, size: Any, shape: tuple[int, ...], runs: int) -> tuple[Any, Any]:
    """Return for each element the error and the number of draws of the group with the smallest bound."""
    import torch

    numel = most.numel()
    best = torch.full_like(most, math.inf)
    found = most.new_zeros(numel), torch.zeros(numel, dtype=torch.int64, device=most.device)
    for error, draws in _groups(most, size, shape, runs):
        bound = error * draws_factor(draws, numel)
        better = bound < best
        best = torch.where(better, bound, best)
        found = torch.where(better, error, found[0]), torch.where(better, draws, found[1])
    return found


def draws_factor(draws: Any, numel: int) -> Any:
    """Return ``spread`` of each element."""
    import torch

    values, places = draws.unique(return_inverse=True)
    return torch.tensor([spread(int(value), numel) for value in values], dtype=torch.float64, device=draws.device)[places]


def _groups(most: Any, size: Any, shape: tuple[int, ...], runs: int) -> Iterator[tuple[Any, Any]]:
    """Yield for each way of grouping the error of each element's group, and how many draws it is of."""
    import torch

    numel = most.numel()
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

    answer = _wide(actual).to(scale.reference.device)
    right = scale.reference
    numel = answer.numel()
    facts: dict[str, Any] = {"factor": factor, "runs": scale.runs, "numel": numel, "nonfinite": _nonfinite(answer, scale, equal_nan)}
    if numel == 0:
        return {**facts, "outside": 0, "worst": None, "quantiles": [], "eager_quantiles": []}
    judged = answer.isfinite() & right.isfinite()
    errors = torch.where(judged, _errors(answer, right), 0.0)
    bounds = torch.maximum(factor * scale.group_error * draws_factor(scale.group_draws, numel), scale.form.element_floor * scale.units)
    ratio = errors / bounds
    ulps = errors / scale.units
    facts.update(outside=int((ratio > 1).sum()), worst=_worst(int(ratio.argmax()), actual.shape, answer, errors, scale))
    shares = quantiles_of(numel)
    facts.update(quantiles=_quantiles(ulps, shares), eager_quantiles=_quantiles(scale.errors, shares))
    facts.update(max_ulp=float(ulps.max()), eager_max_ulp=float(scale.errors.max()))
    facts.update(max_error=float(errors.max()), eager_max_error=float(_errors(scale.eager, right).max()))
    if histogram:
        facts["histogram"] = {"first": BINS[0], "compiled": _histogram(ulps), "eager": _histogram(_errors(scale.eager, right) / scale.units)}
    return facts


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
        "reference": float(scale.reference[place].abs()),
        "error": float(errors[place]),
        "group_error": float(scale.group_error[place]),
        "group_draws": int(scale.group_draws[place]),
    }


def _plain(element: Any) -> float | str:
    return str(element.item()) if element.is_complex() else float(element)


def _quantiles(values: Any, shares: Sequence[float]) -> list[float]:
    """Return quantiles as elements of the sorted values: torch.quantile is limited to 16 million."""
    ordered = values.sort().values
    return [float(ordered[min(math.ceil(share * len(ordered)), len(ordered)) - 1]) for share in shares]


def _histogram(ulps: Any) -> list[int]:
    import torch

    exponents = torch.frexp(ulps).exponent.to(torch.int64) - 1
    bins = (torch.where(ulps > 0, exponents, BINS[0]).clamp(BINS[0], BINS[-1])) - BINS[0]
    return [int(count) for count in torch.bincount(bins, minlength=len(BINS))]
