"""Two runs compared: the table of changes and remarks. No journal is read here."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.recorded import recorded, run_of
from torch_conformance.matching.patterns import stable_lines
from torch_conformance.model.outcomes import Outcome
from torch_conformance.model.results import CaseResult
from torch_conformance.record.journal import NamedRun
from torch_conformance.run.compared_runs import (
    CaseChange,
    Change,
    Comparison,
    change_of,
    compare,
)

P, F, X, U, N = Outcome.PASS, Outcome.FAIL, Outcome.XFAIL, Outcome.UNAVAILABLE, Outcome.NOT_RUN
CHECKED = Outcome.OFFLINE_PASS
FLAKY, OFFLINE_FAIL = Outcome.FLAKY, Outcome.OFFLINE_FAIL

TABLE: Mapping[Change, list[tuple[Outcome | None, Outcome | None]]] = {
    Change.NEW: [(None, P), (None, U), (None, X)],
    Change.NEW_FAILURE: [(None, F), (None, FLAKY), (U, F)],
    Change.NOW_EXECUTED: [(U, P), (N, P), (U, X), (CHECKED, P)],
    Change.SAME: [(U, U), (P, P), (X, X), (CHECKED, CHECKED)],
    Change.CHANGED: [(U, N), (U, CHECKED), (P, Outcome.XPASS), (F, Outcome.CRASH)],
    Change.BROKEN: [
        *(
            (P, Outcome[name])
            for name in "FAIL CRASH FELL_BACK FLAKY ERROR TIMEOUT OFFLINE_FAIL".split()
        ),
        (X, F),
        (CHECKED, OFFLINE_FAIL),
    ],
    Change.WAIVED: [(P, X), (F, X)],
    Change.NO_LONGER_EXECUTED: [
        (P, U),
        (P, N),
        (P, CHECKED),
        (X, U),
        (F, U),
        (F, N),
        (F, CHECKED),
        (CHECKED, U),
    ],
    Change.GONE: [(P, None), (F, None), (U, None)],
    Change.FIXED: [(X, P), (X, Outcome.XPASS), (F, P), (OFFLINE_FAIL, CHECKED), (FLAKY, P)],
    Change.STILL_FAILING: [(F, F)],
}
"""The outcomes of the first and the second run, by what became of the case."""


def side(outcome: Outcome | None, **changes: Any) -> CaseResult | None:
    return None if outcome is None else recorded("one", outcome, **changes)


@pytest.mark.parametrize(
    ("then", "now", "change"),
    [(*pair, change) for change, pairs in TABLE.items() for pair in pairs],
)
def test_the_table_of_changes(then: Outcome | None, now: Outcome | None, change: Change) -> None:
    assert change_of(side(then), side(now)) is change


@pytest.mark.parametrize("then", [*Outcome, None])
@pytest.mark.parametrize("now", [U, N])
def test_what_is_not_executed_is_never_fixed_nor_passed(then: Outcome | None, now: Outcome) -> None:
    assert change_of(side(then), side(now)) in (
        Change.NEW,
        Change.SAME,
        Change.CHANGED,
        Change.NO_LONGER_EXECUTED,
    )
    if then is not None and then not in (U, N):
        assert change_of(side(then), side(now)) is Change.NO_LONGER_EXECUTED


def compared(
    before: Sequence[CaseResult], after: Sequence[CaseResult], **changes: Any
) -> Comparison:
    first = run_of(*before, **changes.pop("first", {}))
    second = run_of(*after, run_id="run-2", **changes.pop("second", {}))
    sides = [NamedRun(name, run) for name, run in (("a", first), ("b", second))]
    return compare(*sides)


def only(found: Comparison) -> CaseChange:
    (change,) = found.changes
    return change


# failures


@pytest.mark.parametrize(
    ("then", "now", "change"),
    [
        (
            {"observed": "3 of 4096 elements at 0x7f12ab"},
            {"observed": "9 of 4096 elements at 0x7f00cd"},
            Change.STILL_FAILING,
        ),
        (
            {"expected": "stats.unique_graphs 2"},
            {"expected": "stats.unique_graphs 3"},
            Change.CHANGED,
        ),
        ({"expected": "at most 1.5e-07"}, {"expected": "at most 1.7e-07"}, Change.STILL_FAILING),
    ],
)
def test_a_failure_is_another_one_where_its_claim_is(
    then: dict[str, str], now: dict[str, str], change: Change
) -> None:
    assert change_of(recorded("one", F, **then), recorded("one", F, **now)) is change


# cases


def test_a_changed_spec_is_named_beside_every_change() -> None:
    now = recorded("one", digest="e" * 64)
    found = only(compared([recorded("one", F)], [now], second={"specs": {now.spec: "2" * 64}}))
    assert (found.words, found.remarks) == (
        ("fixed", "spec-changed"),
        ("the spec changed: specs/area/one.yaml",),
    )
    same_file = only(compared([recorded("one")], [now]))
    assert same_file.words == ("spec-changed",)
    assert "is the same file, and expands to another case" in same_file.remarks[0]


def test_results_in_both_runs_are_counted_without_the_unavailable_ones() -> None:
    assert (
        compared([recorded("one"), recorded("two", U)], [recorded("one", F), recorded("two")]).both
        == 1
    )
    assert compared([recorded("one", U)], [recorded("one", U)]).both == 0
    assert compared([recorded("one", CHECKED)], [recorded("one", CHECKED)]).both == 1


# runs


def test_machines_versions_and_options_that_differ_are_named() -> None:
    found = compared(
        [recorded("one")],
        [recorded("one")],
        second={
            "environment": {
                "torch": "2.14.0",
                "python": "3.11.7",
                "cpu": "x86_64",
                "device": "NVIDIA H200",
                "gpus": "1",
            }
        },
    )
    assert found.differences == (
        "torch: 2.13.0+cpu, then 2.14.0",
        "gpus: 0, then 1",
        "device: none, then NVIDIA H200",
    )
    options = compared(
        [recorded("one")],
        [recorded("one")],
        second={"options": {"min-executed": "1", "select": "x*", "jobs": "9"}},
    )
    assert options.differences == ("--select: not given, then x*",)


# texts


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (
            "# kernel path: /tmp/a1/00001/cv/x.py\nx = 1",
            "# kernel path: /tmp/b2/00002/zz/y.py\nx = 1",
            True,
        ),
        ("p = 0x7f001122", "p = 0x7f99aabb", True),
        ("c = None  # (32,) (1,) 7f79180fc5f0", "c = None  # (32,) (1,) 55d860254550", True),
        ("c = 550000000000", "c = 550000000001", False),
        ("x = 1", "x = 2", False),
        ("a / b", "a / c", False),
        ("x0 = 0x10", "x0 = 0x20", False),
        ("x = 1\n", "x = 1\ny = 2\n", False),
    ],
)
def test_code_is_the_same_but_for_paths_and_addresses(
    before: str, after: str, expected: bool
) -> None:
    assert (stable_lines(before) == stable_lines(after)) is expected
