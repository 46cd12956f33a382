"""The bias of an answer, in the worker: the mean of its signed deviations over groups of elements, and eager's own.

One element's rounding says little; many roundings have the mean 0. A factor of 1.001, a lost term of a long sum or a tile that was not
written moves many elements in one direction. ``calibrated.bias_bound`` has the bound.
"""

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runner.core.protocol import Json
from runner.vocabulary.expectations.calibrated import LEAST_OF_GROUP, Format, bias_bound

TILE = 16
"""The length of a tile's sides, in the last two dimensions: kernels write multiples of it."""

NEIGHBOURS = 64
"""The number of elements that follow each other in memory and are taken together."""

_TRIED = 8
"""Of each kind, how many groups with the greatest means are compared with their bounds."""


_MOST_COMPARED = 1 << 16
"""How many numbers of a group are compared to count different ones, evenly spread: fewer distinct ones only widen the bound."""


@dataclass(frozen=True, slots=True)
class Own:
    """Eager's greatest bias, and of how many runs."""

    bias: Mapping[str, Sequence[float]]
    runs: int


@dataclass(frozen=True, slots=True)
class Groups:
    """One way to group the elements of a tensor."""

    kind: str
    count: int
    of: Callable[[Any], Any]
    """Returns the values of each group as a row; what it receives is flat."""


def groups_of(shape: Sequence[int]) -> Iterator[Groups]:
    """Yield the ways to group the elements of a tensor: the tensor itself, the slices of each dimension, tiles, neighbours in memory."""
    numel = math.prod(shape)
    if numel < LEAST_OF_GROUP:
        return
    yield Groups("tensor", 1, lambda values: values.reshape(1, -1))
    for dimension, length in enumerate(shape):
        if length > 1 and numel // length >= LEAST_OF_GROUP:
            yield Groups(f"slice of dimension {dimension}", length, functools.partial(_slices, tuple(shape), dimension))
    if len(shape) > 1 and min(shape[-2:]) >= 2 * TILE:
        count = numel // (shape[-2] * shape[-1]) * (shape[-2] // TILE) * (shape[-1] // TILE)
        yield Groups("tile", count, functools.partial(_tiles, tuple(shape)))
    if numel >= 2 * NEIGHBOURS:
        count = numel // NEIGHBOURS
        yield Groups("neighbours", count, lambda values: values[: count * NEIGHBOURS].reshape(count, NEIGHBOURS))


def _slices(shape: tuple[int, ...], dimension: int, values: Any) -> Any:
    return values.reshape(shape).movedim(dimension, 0).reshape(shape[dimension], -1)


def _tiles(shape: tuple[int, ...], values: Any) -> Any:
    rows, columns = shape[-2] // TILE, shape[-1] // TILE
    inner = values.reshape(-1, *shape[-2:])[:, : rows * TILE, : columns * TILE].reshape(-1, rows, TILE, columns, TILE)
    return inner.transpose(2, 3).reshape(-1, TILE * TILE)


def deviations(answer: Any, reference: Any, bounds: Any, dtype: Any) -> dict[str, Any]:
    """Return answer - reference as the dtype rounds it, in multiples of each element's bound; 0 where one of them is not finite.

    ``value`` has them with their signs, which a defect of some places shows; in ``size`` they are positive away from 0, which a factor
    shows. Against the rounded reference a right answer deviates in few elements: its mean is nearer to 0 than that of its errors.
    """
    import torch

    found = (answer - reference.to(dtype).to(reference.dtype)) / bounds
    found = torch.where(found.isfinite(), found, 0.0)
    return {"value": found, "size": found * reference.sign()}


def eager_bias(shape: Sequence[int], runs: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Return for each kind of deviation, and each way to group, the greatest bias of eager's runs."""
    found: dict[str, list[float]] = {"value": [], "size": []}
    for groups in groups_of(shape):
        for of, own in found.items():
            own.append(max(float(groups.of(one[of]).mean(1).abs().max()) for one in runs))
    return found


def bias_of(
    shape: Sequence[int], deviating: Mapping[str, Any], reference: Any, own: Own, form: Format, factor: float
) -> list[dict[str, Json]]:
    """Return for each way to group the group that is nearest to its bound, or farthest outside; for values and for sizes."""
    found: list[dict[str, Any]] = []
    for number, groups in enumerate(groups_of(shape)):
        for of, values in deviating.items():
            means, inside = groups.of(values).mean(1), groups.of(reference)
            common = {"of": of, "group": groups.kind, "groups": groups.count, "eager": own.bias[of][number], "runs": own.runs}
            facts: list[dict[str, Any]] = []
            for place in means.abs().topk(min(_TRIED, len(means))).indices.tolist():
                distinct = _distinct(inside[place])
                facts.append({**common, "index": place, "distinct": distinct, "mean": float(means[place])})
            found.append(max(facts, key=lambda one: abs(one["mean"]) / bias_bound(one, form, factor)))
    return found


def _distinct(values: Any) -> int:
    return int(values[:: math.ceil(len(values) / _MOST_COMPARED)].abs().unique().numel())
