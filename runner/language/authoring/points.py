"""A test that does different things for different values of a parameter, or in the rounds of a loop: one reading for each."""

import itertools
import math
from collections.abc import Callable, Mapping

_MOST = 16
"""The greatest number of specs that one test becomes."""

_MOST_TRIED = 6
"""The greatest number of axes that are tried."""

IsWhole = Callable[[Mapping[str, int]], bool]
"""Whether the reading of a test with some axes pinned is whole."""


def axes_to_pin(axes: Mapping[str, list[str]], is_whole: IsWhole) -> list[str]:
    """Return the fewest axes with which every reading is whole; none where pinning does not help."""
    chosen = [name for name in axes if len(axes[name]) <= _MOST][:_MOST_TRIED]
    singles = [[name] for name in chosen]
    pairs = [list(pair) for pair in itertools.combinations(chosen, 2)]
    for names in [*singles, *pairs, *([chosen] if len(chosen) > 2 else [])]:
        if math.prod(len(axes[name]) for name in names) <= _MOST and is_whole(dict.fromkeys(names, 0)):
            return names
    return []


def points(axes: Mapping[str, list[str]], names: list[str]) -> list[dict[str, int]]:
    """Return each combination of the values of some axes."""
    ranges = [range(len(axes[name])) for name in names]
    return [dict(zip(names, choice, strict=True)) for choice in itertools.product(*ranges)]


def suffix(axes: Mapping[str, list[str]], point: Mapping[str, int]) -> str:
    """Return the words of a point for the name of a file."""
    return "-".join(axes[name][index] for name, index in point.items())
