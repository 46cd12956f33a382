"""Specs that cannot fail prove nothing: with a fault planted in the workers' torch the cases that
its row names turn red, and no others.

The catalogue is ``tools/faults``; nothing of torch on the disk is changed. All trials of the
selected tests are made in one run. The faults of ``IN_CI`` are planted by every run of the
tests, the others by ``pytest -m nightly``.
"""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tools.faults.catalogue import AREAS, CATALOGUE, IN_CI
from tools.running import RED, Ended, Trial, cases_of, matching, run_trials

pytestmark = pytest.mark.torch

Table = Mapping[Trial, Ended]
FAULTS = {fault.name: fault for fault in CATALOGUE}


@pytest.fixture(scope="module")
def cases() -> dict[str, Path]:
    return cases_of()


NIGHTLY = pytest.mark.nightly(reason="its area has other faults that every run of the tests plants")
ROWS = [pytest.param(name, marks=() if name in IN_CI else NIGHTLY) for name in FAULTS]


@pytest.fixture(scope="module")
def table(
    request: pytest.FixtureRequest, cases: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Table:
    """Return what became of every trial that a row of the selected tests asks for."""
    mine = (
        item
        for item in request.session.items
        if item.path == request.path and "table" in getattr(item, "fixturenames", ())
    )
    selected = {item.callspec.params["name"] for item in mine}
    globs = [
        (name, glob)
        for name in FAULTS
        if name in selected
        for glob in (*FAULTS[name].seen_by, FAULTS[name].spares)
    ]
    trials = [Trial(name, case_id) for name, glob in globs for case_id in matching(glob, cases)]
    found = run_trials(trials, cases, tmp_path_factory.mktemp("faults"))
    return {ended.trial: ended for ended in found}


def described(ended: Ended) -> str:
    result = ended.result
    return (
        f"{result.case_id}: {result.outcome.label}, {ended.bites} executions: "
        f"{result.reason}\n{result.stderr[-2000:]}"
    )


def test_the_catalogue_is_as_large_as_promised_and_each_row_has_both_sides():
    assert len(FAULTS) >= 20
    assert all(
        fault.seen_by and fault.spares and fault.spares not in fault.seen_by
        for fault in FAULTS.values()
    )


def test_every_area_has_a_fault_that_every_run_plants():
    for area, faults in AREAS.items():
        assert {fault.name for fault in faults} & {*IN_CI}, area
    assert {*IN_CI} <= {*FAULTS}
    assert len(set(IN_CI)) == len(IN_CI) >= 9


@pytest.mark.parametrize("name", ROWS)
def test_every_case_of_the_row_is_red_because_the_fault_was_executed(name, table, cases):
    for case_id in [found for glob in FAULTS[name].seen_by for found in matching(glob, cases)]:
        ended = table[Trial(name, case_id)]
        # a case that crashed or was an error has seen nothing
        assert ended.result.outcome in RED, described(ended)
        assert ended.bites, described(ended)


@pytest.mark.parametrize("name", ROWS)
def test_a_case_beside_it_stays_green(name, table, cases):
    for case_id in matching(FAULTS[name].spares, cases):
        assert table[Trial(name, case_id)].is_green, described(table[Trial(name, case_id)])
