"""The order of cases that need a new worker for a GPU each: most places take the longest case that is left, some take the shortest.

The driver makes the contexts of workers one after another, on the whole machine, also while long cases run. With the longest cases first in
all places, nothing needs a context for minutes; then many short cases wait for theirs. Pure.
"""

import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

SHARE = 0.25
"""The share of the places that take the shortest cases. In a simulation with recorded durations, 1/4 and 1/3 gave the shortest runs on 16
places, within 3 % of each other; 1/8 and 1/2 took 10 to 20 % longer, none 18 to 26 %."""

LEAST_PLACES = 4
"""With fewer places than this, none is given to short cases."""

_CONTEXT = 0.25
"""Seconds in which the driver makes a context and no other one: measured on machines with one H200 and with two."""

_Case = TypeVar("_Case")


def two_ended(
    cases: Sequence[_Case], places: int, *, seconds: Callable[[_Case], float], on_gpu: Callable[[_Case], bool], share: float = SHARE
) -> list[_Case]:
    """Return cases that are sorted longest first in the order in which they begin; ``seconds`` is infinite where it is not known."""
    of_gpu = [number for number, case in enumerate(cases) if on_gpu(case)]
    lengths = list(map(seconds, cases))
    known = [lengths[number] for number in of_gpu if math.isfinite(lengths[number])]
    of_short = round(places * share) if places >= LEAST_PLACES else 0
    if not of_short or not known:
        return list(cases)
    guessed = sum(known) / len(known)
    found: dict[int, None] = {}
    ends = _Ends(range(len(cases)), found), _Ends(reversed(of_gpu), found)
    free = [(0.0, place) for place in range(places)]
    driver = 0.0
    while len(found) < len(cases):
        now, place = heapq.heappop(free)
        # the places with the highest numbers take the shortest cases; when none is left, they do as the others
        number = ends[1].take() if place >= places - of_short else None
        number = ends[0].take() if number is None else number
        assert number is not None
        if on_gpu(cases[number]):
            now = driver = max(now, driver) + _CONTEXT
        length = lengths[number]
        heapq.heappush(free, (now + (length if math.isfinite(length) else guessed), place))
    return [cases[number] for number in found]


class _Ends:
    """One end of the list: what was taken from the other end is passed over."""

    def __init__(self, numbers: Iterable[int], taken: dict[int, None]) -> None:
        self._left = iter(numbers)
        self._taken = taken

    def take(self) -> int | None:
        """Take the next case; None where none is left."""
        number = next((one for one in self._left if one not in self._taken), None)
        if number is not None:
            self._taken[number] = None
        return number
