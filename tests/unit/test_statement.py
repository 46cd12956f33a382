"""The statement of a profile: how each outcome of a required case counts, which waivers excuse a failure, and what comes first."""

import itertools
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from runner.model.case import Availability
from runner.model.header import PermittedWaiver, ProfileLevel, ProfileRecord
from runner.model.outcomes import Outcome
from runner.model.results import AppliedWaiver, CaseResult, WaiverEffect
from runner.tools.vendor.conformance import Conformance, Standing, standing, statement_of
from runner.tools.vendor.profiles import prospect_of_cases
from tests.fakes import place
from tests.recorded import recorded

TODAY = date(2026, 12, 1)
TORCH = "2.13.0"
WAIVER = AppliedWaiver(
    effect=WaiverEffect.MATCHED, cases="area/*", position=place(3), reason="a known defect", issue="JIRA-1", until="2027-03-01"
)
PERMITTED = PermittedWaiver(cases=WAIVER.cases, issue=WAIVER.issue, until=WAIVER.until)
KEYS = frozenset({(WAIVER.cases, WAIVER.issue, WAIVER.until)})


def result(name: str, outcome: Outcome = Outcome.PASS, **changes: Any) -> CaseResult:
    made = recorded(name, outcome, case_id=name)
    return replace(made, **{"phase": "run" if outcome in (Outcome.CRASH, Outcome.TIMEOUT) else "", **changes})


def profile(required: str = "ab", *, optional: str = "", p1: str = "", **changes: Any) -> ProfileRecord:
    levels = [ProfileLevel(name="P0", required=tuple(required), optional=tuple(optional))]
    levels += [ProfileLevel(name="P1", required=tuple(p1))] if p1 else []
    made = ProfileRecord(name="ours", version="1.0", file="ours.yaml", digest="d" * 64, torch=">=2.11,<2.14", levels=tuple(levels))
    return replace(made, **changes)


def stated(record: ProfileRecord, *results: CaseResult, **changes: Any) -> Conformance:
    return statement_of(record, results, **{"torch": TORCH, "day": TODAY, **changes}).conformance


# -- one case ---------------------------------------------------------------------------------------------------------

COUNTS_AS = {
    **dict.fromkeys(Outcome, Standing.FAILED),
    Outcome.PASS: Standing.PASSED,
    **dict.fromkeys((Outcome.ERROR, Outcome.NOT_RUN, Outcome.UNAVAILABLE, Outcome.OFFLINE_PASS), Standing.NOT_EXECUTED),
}
"""Without a permitted waiver."""


@pytest.mark.parametrize("outcome", Outcome)
def test_every_outcome_counts_once_and_only_a_pass_passes(outcome: Outcome) -> None:
    found, reason = standing(result("a", outcome), frozenset())
    assert found is COUNTS_AS[outcome]
    assert bool(reason) == (outcome is not Outcome.PASS)


@pytest.mark.parametrize(
    ("eager", "by_aten", "expected"),
    [(4, {}, "p"), (0, {}, "p"), (-1, {}, "not measure"), (4, {"aten.mm": 1}, "aten.mm, which"), (4, {"aten.mm": 4}, "aten.mm, which")],
)
def test_only_what_the_compiler_computes_passes_a_profile_for_any(eager: int, by_aten: dict[str, int], expected: str) -> None:
    case = result("a", eager_operators=eager, by_aten=by_aten)
    found, reason = standing(case, frozenset(), is_measured=True)
    assert (found, standing(case, frozenset())[0]) == (Standing.PASSED if expected == "p" else Standing.NOT_EXECUTED, Standing.PASSED)
    assert not reason if expected == "p" else expected in reason
    whole = statement_of(profile("a", compiler="ours", proof="aten.mm allowed"), [case], torch=TORCH, day=TODAY)
    assert whole.conformance is (Conformance.CONFORMANT if expected == "p" else Conformance.INCOMPLETE)
    assert "its entry: aten.mm allowed" in "".join(whole.lines())
    assert sum(whole.computed.values()) == 1


@pytest.mark.parametrize("outcome", [Outcome.CRASH, Outcome.TIMEOUT])
@pytest.mark.parametrize(
    ("phase", "expected"),
    [("", "e"), ("import", "e"), ("inputs", "e"), ("eager", "e"), ("trace", "f"), ("codegen", "f"), ("run", "f"), ("compare", "f")],
)
def test_a_process_that_ends_before_anything_was_compiled_shows_nothing(outcome: Outcome, phase: str, expected: str) -> None:
    assert standing(result("a", outcome, phase=phase), frozenset())[0] is {"e": Standing.NOT_EXECUTED, "f": Standing.FAILED}[expected]


# -- waivers ----------------------------------------------------------------------------------------------------------


def waived(*waivers: AppliedWaiver) -> CaseResult:
    return result("a", Outcome.XFAIL, reason="a known defect (JIRA-1)", waivers=waivers)


def test_a_permitted_waiver_excuses_and_is_named() -> None:
    found = statement_of(profile("a", waivers=(PERMITTED,)), [waived(WAIVER)], torch=TORCH, day=TODAY)
    assert found.conformance is Conformance.CONFORMANT
    assert (found.levels[0].passed, found.levels[0].waived, found.executed) == (0, 1, 1)
    (used,) = found.waivers
    assert (used.cases, used.issue, used.until, used.used_by) == ("area/*", "JIRA-1", "2027-03-01", ("a",))


@pytest.mark.parametrize(
    "forged",
    [
        replace(WAIVER, issue="JIRA-2"),
        replace(WAIVER, cases="*"),
        replace(WAIVER, until="2028-03-01"),
        replace(WAIVER, effect=WaiverEffect.EXPIRED),
        replace(WAIVER, effect=WaiverEffect.OTHER_FAILURE),
    ],
)
def test_a_waiver_that_the_profile_does_not_permit_excuses_nothing(forged: AppliedWaiver) -> None:
    assert standing(waived(forged), KEYS)[0] is Standing.FAILED
    assert stated(profile("a", waivers=(PERMITTED,)), waived(forged)) is Conformance.NOT_CONFORMANT


def test_a_permitted_waiver_that_only_stands_beside_the_one_that_matched_excuses_nothing() -> None:
    assert standing(waived(replace(WAIVER, issue="JIRA-2"), WAIVER), KEYS)[0] is Standing.FAILED


def test_a_waiver_holds_on_its_last_day_and_not_after_it() -> None:
    record = profile("a", waivers=(PERMITTED,))
    assert stated(record, waived(WAIVER), day=date(2027, 3, 1)) is Conformance.CONFORMANT
    assert stated(record, waived(WAIVER), day=date(2027, 3, 2)) is Conformance.NOT_CONFORMANT
    assert stated(record, waived(WAIVER), day=date.max) is Conformance.NOT_CONFORMANT


def test_a_permission_with_a_date_that_is_none_permits_nothing() -> None:
    forged = replace(WAIVER, until="never")
    assert stated(profile("a", waivers=(replace(PERMITTED, until="never"),)), waived(forged)) is Conformance.NOT_CONFORMANT


# -- the whole --------------------------------------------------------------------------------------------------------


def test_all_passed_is_conformant_and_the_counts_are_exact() -> None:
    found = statement_of(profile(p1="c"), [result(name) for name in "abc"], torch=TORCH, day=TODAY)
    assert (found.conformance, found.executed, found.required) == (Conformance.CONFORMANT, 3, 3)
    assert [(level.level, level.required, level.executed, level.passed) for level in found.levels] == [("P0", 2, 2, 2), ("P1", 1, 1, 1)]
    assert (found.failed, found.not_executed, found.waivers, found.problems) == ({}, {}, (), ())


@pytest.mark.parametrize(("first", "second"), list(itertools.combinations_with_replacement(Outcome, 2)))
def test_one_failure_makes_it_not_conformant_and_else_one_missing_case_incomplete(first: Outcome, second: Outcome) -> None:
    counts = {COUNTS_AS[first], COUNTS_AS[second]}
    found = stated(profile(), result("a", first), result("b", second))
    if Standing.FAILED in counts:
        assert found is Conformance.NOT_CONFORMANT
    else:
        assert found is (Conformance.INCOMPLETE if Standing.NOT_EXECUTED in counts else Conformance.CONFORMANT)


@pytest.mark.parametrize("lost", ["a", "b", "c"])
def test_one_case_without_a_result_makes_it_incomplete_in_any_level(lost: str) -> None:
    found = statement_of(profile(p1="c"), [result(name) for name in "abc" if name != lost], torch=TORCH, day=TODAY)
    assert (found.conformance, found.executed) == (Conformance.INCOMPLETE, 2)
    assert found.not_executed == {lost: "lost: it has no result"}


@pytest.mark.parametrize("outcome", Outcome)
def test_an_optional_case_is_counted_and_changes_nothing(outcome: Outcome) -> None:
    found = statement_of(profile("a", optional="z"), [result("a"), result("z", outcome)], torch=TORCH, day=TODAY)
    assert (found.conformance, found.levels[0].optional) == (Conformance.CONFORMANT, {outcome.label: 1})
    assert bool(found.optional_failures) == (outcome.is_failure and outcome is not Outcome.NOT_RUN)
    assert found.remark == found.optional_failures
    assert (found.optional_failures in found.lines()) is bool(found.optional_failures)


def test_a_profile_that_requires_nothing_is_never_conformant() -> None:
    assert stated(profile("", optional="z"), result("z")) is Conformance.INCOMPLETE
    assert stated(profile("", levels=())) is Conformance.INCOMPLETE


@pytest.mark.parametrize("torch", ["2.10.9", "2.14.0", ""])
def test_another_torch_than_the_profile_is_for_is_incomplete(torch: str) -> None:
    found = statement_of(profile("a"), [result("a")], torch=torch, day=TODAY)
    assert found.conformance is Conformance.INCOMPLETE
    assert len(found.problems) == 1
    assert stated(profile("a"), result("a", Outcome.FAIL), torch=torch) is Conformance.NOT_CONFORMANT


def test_a_node_with_a_torch_that_the_profile_is_not_for_is_incomplete() -> None:
    nodes = [{"name": name, "torch": torch} for name, torch in (("one", "2.13.0+cpu"), ("two", "2.14.0"))]
    results = [result(name, node=node) for name, node in zip("ab", nodes, strict=True)]
    found = statement_of(profile("ab"), results, torch=TORCH, day=TODAY)
    assert found.conformance is Conformance.INCOMPLETE
    assert found.problems == ("torch 2.14.0 is not in >=2.11,<2.14, for which the profile is",)
    assert stated(profile("ab"), results[0], replace(results[1], node=nodes[0])) is Conformance.CONFORMANT


def test_an_offline_failure_is_a_failure_and_not_an_execution() -> None:
    found = statement_of(profile("a"), [result("a", Outcome.OFFLINE_FAIL)], torch=TORCH, day=TODAY)
    assert (found.conformance, found.executed) == (Conformance.NOT_CONFORMANT, 0)


# -- before a run -----------------------------------------------------------------------------------------------------

YES, NO, UNKNOWN = (Availability.YES, ""), (Availability.NO, "no GPU"), (Availability.UNKNOWN, "perhaps")


@pytest.mark.parametrize(
    ("available", "complete"),
    [
        ({"a": YES, "b": YES}, True),
        ({"a": YES, "b": NO}, False),
        ({"a": YES, "b": UNKNOWN}, None),
        ({"a": NO, "b": UNKNOWN}, False),
    ],
)
def test_whether_a_machine_could_execute_a_profile(available: dict[str, tuple[Availability, str]], complete: bool | None) -> None:
    prospect = prospect_of_cases(available.values())
    assert (prospect.can_be_complete, prospect.required) == (complete, 2)
    assert prospect.possible + sum(prospect.uncertain.values()) + sum(prospect.missing.values()) == 2
    assert prospect_of_cases(available.values(), "a torch that the profile is not for").can_be_complete is False
