"""The order of cases of a GPU: by a simulation of a machine whose driver makes one context at a time, with the shipped durations."""

import heapq
import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from runner.plan.durations import seconds_of_tables
from runner.plan.two_ended import SHARE, two_ended

LENGTHS = sorted((value for name, value in seconds_of_tables([Path("specs")]).items() if "[backend=cuda" in name), reverse=True)
"""Seconds of the shipped cases of a GPU, of a recorded run."""


def ordered(lengths: Sequence[float], places: int, share: float) -> list[float]:
    return two_ended(lengths, places, seconds=lambda one: one, on_gpu=lambda _: True, share=share)


def simulated(lengths: Sequence[float], places: int, context: float = 0.25, rest: float = 1.1) -> float:
    """Return the seconds of a run: workers need a context, one after another, and a warm-up; as many as run may wait warm."""
    now = driver = 0.0
    running: list[float] = []
    warming: list[float] = []
    idle = begun = 0
    while begun < len(lengths) or running:
        while begun < len(lengths) and idle and len(running) < places:
            heapq.heappush(running, now + lengths[begun])
            begun, idle = begun + 1, idle - 1
        at_a_time = max(places - len(running), places // 4, 1) - len(warming)
        room = 2 * places - len(running) - idle - len(warming)
        for _ in range(min(at_a_time, room, len(lengths) - begun - idle - len(warming))):
            driver = max(now, driver) + context
            heapq.heappush(warming, driver + rest)
        now = min([*running[:1], *warming[:1]])
        while running and running[0] <= now:
            heapq.heappop(running)
        while warming and warming[0] <= now:
            heapq.heappop(warming)
            idle += 1
    return now


def test_short_cases_beside_long_ones_use_the_time_of_the_driver() -> None:
    times = {share: simulated(ordered(LENGTHS, 16, share), 16) for share in (0.0, 1 / 8, SHARE, 1 / 3, 1 / 2)}
    assert len(LENGTHS) > 300
    assert times[SHARE] < 0.9 * times[0.0]
    assert times[SHARE] < times[1 / 8]
    assert times[SHARE] < 1.05 * min(times.values())


def test_two_gpus_take_no_longer() -> None:
    assert simulated(ordered(LENGTHS, 32, SHARE), 32) < 0.95 * simulated(LENGTHS, 32)


@pytest.mark.parametrize("context", [0.01, 0.1])
def test_a_driver_that_is_not_what_bounds_costs_little(context: float) -> None:
    assert simulated(ordered(LENGTHS, 16, SHARE), 16, context) < 1.05 * simulated(LENGTHS, 16, context)


def test_the_longest_begin_first_and_every_case_once() -> None:
    found = ordered(LENGTHS, 16, SHARE)
    assert found[:12] == LENGTHS[:12]
    assert found[12:16] == LENGTHS[::-1][:4]
    assert sorted(found, reverse=True) == LENGTHS
    assert found == ordered(LENGTHS, 16, SHARE)


def test_a_case_that_is_listed_twice_runs_twice() -> None:
    assert sorted(ordered([9.0, 9.0, 1.0, 1.0, 1.0], 4, SHARE)) == [1.0, 1.0, 1.0, 9.0, 9.0]


@pytest.mark.parametrize(("places", "length"), [(1, 1.0), (3, 1.0), (16, math.inf)])
def test_with_few_places_or_no_known_duration_the_order_stays(places: int, length: float) -> None:
    cases = [(str(number), length) for number in range(20)]
    assert two_ended(cases, places, seconds=lambda case: case[1], on_gpu=lambda _: True) == cases


def test_cases_of_the_cpu_are_taken_from_the_front_alone() -> None:
    cases = [("gpu", 9.0)] * 8 + [("gpu", 1.0)] * 8 + [("cpu", 0.5)] * 8
    found = two_ended(cases, 4, seconds=lambda case: case[1], on_gpu=lambda case: case[0] == "gpu")
    assert found[:4] == [("gpu", 9.0)] * 3 + [("gpu", 1.0)]
    assert [case for case in found if case[0] == "cpu"] == [("cpu", 0.5)] * 8
    assert found[-8:] == [("cpu", 0.5)] * 8
