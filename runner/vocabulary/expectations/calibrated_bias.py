"""The bias of an answer, in the worker: the mean of its signed deviations over groups of elements, and eager's own.

One element's rounding says little; many roundings have the mean 0. A factor of 1.001, a lost term of a long sum or a tile that was not
written moves many elements in one direction. ``calibrated.bias_bound`` has the bound.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runner.core.protocol import Json
from runner.vocabulary.expectations.calibrated import LEAST_OF_GROUP, Format, bias_bound

TILE = 16
"""The length of a tile's sides, in the last two dimensions: kernels write multiples of it."""

NEIGHBOURS = 64
"""The number of elements that follow each other in memory and are taken together."""

_TRIED = 16
"""Of each kind, how many groups with the greatest means are compared with their bounds."""


@dataclass(frozen=True, slots=True)
class Groups:
    """One way to group the elements of a tensor."""

    kind: str
    rows: Any
    """Indexes of elements, a row for each group; None for the whole tensor."""
    count: int

    def of(self, values: Any) -> Any:
        """Return the values of each group as a row."""
        return values.reshape(1, -1) if self.rows is None else values[self.rows]


def groups_of(shape: Sequence[int], device: Any) -> Iterator[Groups]:
    """Yield the ways to group the elements of a tensor: whole, the slices of each dimension, tiles, neighbours in memory."""
    import torch

    numel = math.prod(shape)
    if numel < LEAST_OF_GROUP:
        return
    yield Groups("tensor", None, 1)
    places = torch.arange(numel, device=device)
    shaped = places.reshape(tuple(shape))
    for dimension, length in enumerate(shape):
        if length > 1 and numel // length >= LEAST_OF_GROUP:
            yield Groups(f"slice of dimension {dimension}", shaped.movedim(dimension, 0).reshape(length, -1), length)
    if len(shape) > 1 and min(shape[-2:]) >= 2 * TILE:
        rows, columns = shape[-2] // TILE, shape[-1] // TILE
        inner = shaped.reshape(-1, *shape[-2:])[:, : rows * TILE, : columns * TILE].reshape(-1, rows, TILE, columns, TILE)
        tiles = inner.transpose(2, 3).reshape(-1, TILE * TILE)
        yield Groups("tile", tiles, len(tiles))
    if numel >= 2 * NEIGHBOURS:
        count = numel // NEIGHBOURS
        yield Groups("neighbours", places[: count * NEIGHBOURS].reshape(count, NEIGHBOURS), count)


def deviations(answer: Any, reference: Any, bounds: Any, dtype: Any) -> Any:
    """Return answer - reference as the dtype rounds it, in multiples of each element's bound; 0 where one of them is not finite.

    Against the rounded reference a right answer deviates in few elements, so that its mean is 0 more exactly than that of its errors.
    """
    import torch

    found = (answer - reference.to(dtype).to(reference.dtype)) / bounds
    return torch.where(found.isfinite(), found, 0.0)


def eager_bias(shape: Sequence[int], deviating: Sequence[Any]) -> list[float]:
    """Return for each way to group the greatest bias of eager's runs; ``deviating`` are their deviations."""
    if not deviating:
        return []
    return [max(float(groups.of(one).mean(1).abs().max()) for one in deviating) for groups in groups_of(shape, deviating[0].device)]


def bias_of(
    shape: Sequence[int], deviating: Any, reference: Any, own: Sequence[float], runs: int, form: Format, factor: float
) -> list[Mapping[str, Json]]:
    """Return for each way to group the group that is nearest to its bound, or farthest outside; ``own`` is eager's bias."""
    found: list[Mapping[str, Json]] = []
    for groups, eager in zip(groups_of(shape, deviating.device), own, strict=True):
        means = groups.of(deviating).mean(1)
        tried = means.abs().topk(min(_TRIED, len(means))).indices
        facts: list[dict[str, Any]] = [
            {
                "group": groups.kind,
                "index": int(place),
                "groups": groups.count,
                "distinct": int(_members(groups, int(place), reference).abs().unique().numel()),
                "mean": float(means[place]),
                "eager": eager,
                "runs": runs,
            }
            for place in tried
        ]
        found.append(max(facts, key=lambda one: abs(one["mean"]) / bias_bound(one, form, factor)))
    return found


def _members(groups: Groups, place: int, values: Any) -> Any:
    return values if groups.rows is None else values[groups.rows[place]]
