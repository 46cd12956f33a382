"""Eager's errors by its runs, in the worker: of each run, and the greatest of the elements that are alike."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from runner.vocabulary.expectations.calibrated import LEAST_DRAWS, LEAST_OF_SLICE, Format, widening
from runner.vocabulary.expectations.calibrated_tensors import errors_of, wide

BLOCK = 64
"""The number of neighbours in memory order whose errors are taken together."""

NEIGHBOURS = 16
"""The number of neighbours in memory order whose movement is compared."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of eager: its answer, and the float64 reference for the same inputs. Both are tensors of one shape."""

    answer: Any
    reference: Any
    step: float = 0.0
    """The resolution of the inputs that were nudged; 0 for the case's own inputs."""


def drawn(samples: Sequence[Sample], dtype: Any) -> tuple[list[Any], Any]:
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


def grouped(most: Any, size: Any, shape: tuple[int, ...], runs: int, form: Format, whole_ulp: float) -> tuple[Any, Any, Any]:
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
        if length > 1 and numel // length >= LEAST_OF_SLICE and draws >= LEAST_DRAWS:
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
