"""Tensors of numbers for the calibrated judge, in the worker: wide copies, units in the last place, errors, quantiles, histograms."""

import math
from collections.abc import Sequence
from typing import Any

from runner.vocabulary.expectations.calibrated import Format

BINS = range(-4, 33)
"""The exponents of the histogram's bins: errors of at least 2**n ulp and less than 2**(n + 1). The first bin has all smaller ones."""


def wide(tensor: Any) -> Any:
    """Return the numbers of a tensor, flat, in float64 or complex128."""
    import torch

    return tensor.detach().to(torch.complex128 if tensor.is_complex() else torch.float64).reshape(-1)


def units_of(reference: Any, form: Format) -> Any:
    """Return the ulp of each element of a float64 tensor; that of the smallest number where it is not finite."""
    import torch

    size = torch.where(reference.abs().isfinite(), reference.abs(), 0.0)
    exponent = torch.where(size > 0, torch.frexp(size).exponent.to(torch.float64) - 1, -1100.0)
    return torch.exp2((exponent - form.bits).clamp(min=float(form.least)))


def errors_of(answer: Any, reference: Any) -> Any:
    """Return |answer - reference|; 0 where one of them is not finite."""
    import torch

    error = (answer - reference).abs()
    return torch.where(error.isfinite(), error, 0.0)


def has_numbers_of(tensor: Any, name: str) -> bool:
    """Whether every finite element of a tensor is a number of a narrower dtype."""
    import torch

    narrow = tensor.to(getattr(torch, name)).to(tensor.dtype)
    return bool(((narrow == tensor) | ~tensor.isfinite()).all())


def quantiles_in(values: Any, shares: Sequence[float]) -> list[float]:
    """Return quantiles as elements of the sorted values: torch.quantile is limited to 16 million."""
    count = len(values)
    return [float(values.kthvalue(min(math.ceil(share * count), count)).values) for share in shares]


def histogram_of(ulps: Any) -> list[int]:
    """Count errors by their exponents."""
    import torch

    exponents = torch.frexp(ulps).exponent.to(torch.int64) - 1
    bins = (torch.where(ulps > 0, exponents, BINS[0]).clamp(BINS[0], BINS[-1])) - BINS[0]
    return [int(count) for count in torch.bincount(bins, minlength=len(BINS))]
