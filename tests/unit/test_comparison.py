"""Two runs compared: the table of changes and remarks. No journal is read here."""

from collections.abc import Sequence
from typing import Any

import pytest

from runner.model.matching.patterns import stable_lines
from runner.model.outcomes import Outcome
from runner.model.results import CaseResult
from runner.record.comparison import CaseChange, Change, Comparison
from runner.record.journal import NamedRun
from runner.run.compared_runs import change_of, compare
from tests.recorded import recorded, run_of

P, F, X, U, N = Outcome.PASS, Outcome.FAIL, Outcome.XFAIL, Outcome.UNAVAILABLE, Outcome.NOT_RUN
CHECKED = Outcome.OFFLINE_PASS

TABLE: list[tuple[Outcome | None, Outcome | None, Change]] = [
    (None, P, Change.NEW),
    (None, U, Change.NEW),
    (None, X, Change.NEW),
    (None, F, Change.NEW_FAILURE),
    (None, Outcome.FLAKY, Change.NEW_FAILURE),
    (U, P, Change.NOW_EXECUTED),
    (N, P, Change.NOW_EXECUTED),
    (U, X, Change.NOW_EXECUTED),
    (U, F, Change.NEW_FAILURE),
    (U, U, Change.SAME),
    (U, N, Change.CHANGED),
    (U, CHECKED, Change.CHANGED),
    (P, P, Change.SAME),
    (P, F, Change.BROKEN),
    (P, Outcome.CRASH, Change.BROKEN),
    (P, Outcome.FELL_BACK, Change.BROKEN),
    (P, Outcome.FLAKY, Change.BROKEN),
    (P, Outcome.ERROR, Change.BROKEN),
    (P, Outcome.TIMEOUT, Change.BROKEN),
    (P, Outcome.OFFLINE_FAIL, Change.BROKEN),
    (P, X, Change.WAIVED),
    (P, U, Change.NO_LONGER_EXECUTED),
    (P, N, Change.NO_LONGER_EXECUTED),
    (P, CHECKED, Change.NO_LONGER_EXECUTED),
    (P, Outcome.XPASS, Change.CHANGED),
    (P, None, Change.GONE),
    (X, P, Change.FIXED),
    (X, X, Change.SAME),
    (X, F, Change.BROKEN),
    (X, U, Change.NO_LONGER_EXECUTED),
    (X, Outcome.XPASS, Change.FIXED),
    (F, P, Change.FIXED),
    (F, X, Change.WAIVED),
    (F, F, Change.STILL_FAILING),
    (F, Outcome.CRASH, Change.CHANGED),
    (F, U, Change.NO_LONGER_EXECUTED),
    (F, N, Change.NO_LONGER_EXECUTED),
    (F, CHECKED, Change.NO_LONGER_EXECUTED),
    (F, None, Change.GONE),
    (U, None, Change.GONE),
    (CHECKED, P, Change.NOW_EXECUTED),
    (CHECKED, CHECKED, Change.SAME),
    (CHECKED, Outcome.OFFLINE_FAIL, Change.BROKEN),
    (Outcome.OFFLINE_FAIL, CHECKED, Change.FIXED),
    (CHECKED, U, Change.NO_LONGER_EXECUTED),
    (Outcome.FLAKY, P, Change.FIXED),
]


def side(outcome: Outcome | None, **changes: Any) -> CaseResult | None:
    return None if outcome is None else recorded("one", outcome, **changes)


@pytest.mark.parametrize(("then", "now", "change"), TABLE)
def test_the_table_of_changes(then: Outcome | None, now: Outcome | None, change: Change) -> None:
    assert change_of(side(then), side(now)) is change


@pytest.mark.parametrize("then", [*Outcome, None])
@pytest.mark.parametrize("now", [U, N])
def test_what_is_not_executed_is_never_fixed_nor_passed(then: Outcome | None, now: Outcome) -> None:
    assert change_of(side(then), side(now)) in (Change.NEW, Change.SAME, Change.CHANGED, Change.NO_LONGER_EXECUTED)
    if then is not None and then not in (U, N):
        assert change_of(side(then), side(now)) is Change.NO_LONGER_EXECUTED


def compared(before: Sequence[CaseResult], after: Sequence[CaseResult], **changes: Any) -> Comparison:
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
        ({"observed": "3 of 4096 elements at 0x7f12ab"}, {"observed": "9 of 4096 elements at 0x7f00cd"}, Change.STILL_FAILING),
        ({"expected": "stats.unique_graphs 2"}, {"expected": "stats.unique_graphs 3"}, Change.CHANGED),
        ({"expected": "at most 1.5e-07"}, {"expected": "at most 1.7e-07"}, Change.STILL_FAILING),
    ],
)
def test_a_failure_is_another_one_where_its_claim_is(then: dict[str, str], now: dict[str, str], change: Change) -> None:
    assert change_of(recorded("one", F, **then), recorded("one", F, **now)) is change


# cases


def test_a_changed_spec_is_named_beside_every_change() -> None:
    now = recorded("one", digest="e" * 64)
    found = only(compared([recorded("one", F)], [now], second={"specs": {now.spec: "2" * 64}}))
    assert (found.words, found.remarks) == (("fixed", "spec-changed"), ("the spec changed: specs/area/one.yaml",))
    same_file = only(compared([recorded("one")], [now]))
    assert same_file.words == ("spec-changed",)
    assert "is the same file, and expands to another case" in same_file.remarks[0]


def test_results_in_both_runs_are_counted_without_the_unavailable_ones() -> None:
    assert compared([recorded("one"), recorded("two", U)], [recorded("one", F), recorded("two")]).both == 1
    assert compared([recorded("one", U)], [recorded("one", U)]).both == 0
    assert compared([recorded("one", CHECKED)], [recorded("one", CHECKED)]).both == 1


# runs


def test_machines_versions_and_options_that_differ_are_named() -> None:
    found = compared(
        [recorded("one")],
        [recorded("one")],
        second={"environment": {"torch": "2.14.0", "python": "3.11.7", "cpu": "x86_64", "device": "NVIDIA H200", "gpus": "1"}},
    )
    assert found.differences == ("torch: 2.13.0+cpu, then 2.14.0", "gpus: 0, then 1", "device: none, then NVIDIA H200")
    options = compared([recorded("one")], [recorded("one")], second={"options": {"min-executed": "1", "select": "x*", "jobs": "9"}})
    assert options.differences == ("--select: not given, then x*",)


# texts


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("# kernel path: /tmp/a1/00001/cv/x.py\nx = 1", "# kernel path: /tmp/b2/00002/zz/y.py\nx = 1", True),
        ("p = 0x7f001122", "p = 0x7f99aabb", True),
        ("c = None  # (32,) (1,) 7f79180fc5f0", "c = None  # (32,) (1,) 55d860254550", True),
        ("c = 550000000000", "c = 550000000001", False),
        ("x = 1", "x = 2", False),
        ("a / b", "a / c", False),
        ("x0 = 0x10", "x0 = 0x20", False),
        ("x = 1\n", "x = 1\ny = 2\n", False),
    ],
)
def test_code_is_the_same_but_for_paths_and_addresses(before: str, after: str, expected: bool) -> None:
    assert (stable_lines(before) == stable_lines(after)) is expected
