"""The statement of a profile: how each outcome of a required case counts, which waivers excuse a
failure, and what comes first.
"""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from tests.fakes import place
from tests.recorded import recorded
from torch_conformance.model.case import Availability
from torch_conformance.model.header import PermittedWaiver, ProfileLevel, ProfileRecord
from torch_conformance.model.outcomes import Outcome
from torch_conformance.model.results import AppliedWaiver, CaseResult, WaiverEffect
from torch_conformance.model.statement import Conformance
from torch_conformance.tools.attest.conformance import Standing, standing, statement_of
from torch_conformance.tools.attest.profiles import prospect_of_cases

TODAY = date(2026, 12, 1)
TORCH = "2.13.0"
WAIVER = AppliedWaiver(
    effect=WaiverEffect.MATCHED,
    cases="area/*",
    position=place(3),
    reason="a known defect",
    issue="JIRA-1",
    until="2027-03-01",
)
PERMITTED = PermittedWaiver(
    cases=WAIVER.cases, issue=WAIVER.issue, until=WAIVER.until, is_shipped=True
)
KEYS = frozenset({(WAIVER.cases, WAIVER.issue, WAIVER.until)})


def result(name: str, outcome: Outcome = Outcome.PASS, **changes: Any) -> CaseResult:
    made = recorded(name, outcome, case_id=name)
    return replace(
        made, **{"phase": "run" if outcome in (Outcome.CRASH, Outcome.TIMEOUT) else "", **changes}
    )


def profile(
    required: Sequence[str] = "ab", *, optional: str = "", p1: Sequence[str] = "", **changes: Any
) -> ProfileRecord:
    limits = {
        name: changes.pop(name, usual)
        for name, usual in (("most_waived", 100), ("most_waived_because", ""))
    }
    levels = [ProfileLevel(name="P0", required=tuple(required), optional=tuple(optional), **limits)]
    levels += [ProfileLevel(name="P1", required=tuple(p1), **limits)] if p1 else []
    made = ProfileRecord(
        name="ours",
        version="1.0",
        file="ours.yaml",
        digest="d" * 64,
        torch=">=2.11,<2.14",
        levels=tuple(levels),
    )
    return replace(made, **changes)


def stated(record: ProfileRecord, *results: CaseResult, **changes: Any) -> Conformance:
    return statement_of(
        record, results, **{"environment": {"torch": TORCH}, "day": TODAY, **changes}
    ).conformance


# -- one case --------------------------------------------------------------------------------------

COUNTS_AS = {
    **dict.fromkeys(Outcome, Standing.FAILED),
    Outcome.PASS: Standing.PASSED,
    **dict.fromkeys(
        (Outcome.ERROR, Outcome.NOT_RUN, Outcome.UNAVAILABLE, Outcome.OFFLINE_PASS),
        Standing.NOT_EXECUTED,
    ),
}
"""Without a permitted waiver."""


@pytest.mark.parametrize("outcome", Outcome)
def test_every_outcome_counts_once_and_only_a_pass_passes(outcome: Outcome) -> None:
    found, reason = standing(result("a", outcome), frozenset())
    assert found is COUNTS_AS[outcome]
    assert bool(reason) == (outcome is not Outcome.PASS)


@pytest.mark.parametrize(
    ("eager", "by_aten", "expected"),
    [
        (4, {}, "p"),
        (0, {}, "p"),
        (-1, {}, "not measure"),
        (4, {"aten.mm": 1}, "aten.mm, which"),
        (4, {"aten.mm": 4}, "aten.mm, which"),
    ],
)
def test_only_what_the_compiler_computes_passes_a_profile_for_any(
    eager: int, by_aten: dict[str, int], expected: str
) -> None:
    case = result("a", eager_operators=eager, by_aten=by_aten)
    found, reason = standing(case, frozenset(), is_measured=True)
    assert (found, standing(case, frozenset())[0]) == (
        Standing.PASSED if expected == "p" else Standing.NOT_EXECUTED,
        Standing.PASSED,
    )
    assert not reason if expected == "p" else expected in reason
    whole = statement_of(
        profile("a", compiler="ours", proof="aten.mm allowed"),
        [case],
        environment={"torch": TORCH},
        day=TODAY,
    )
    assert whole.conformance is (
        Conformance.CONFORMANT if expected == "p" else Conformance.INCOMPLETE
    )
    assert "its entry: aten.mm allowed" in "".join(whole.lines())
    assert sum(whole.computed.values()) == 1


@pytest.mark.parametrize("outcome", [Outcome.CRASH, Outcome.TIMEOUT])
@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        ("", "e"),
        ("import", "e"),
        ("inputs", "e"),
        ("eager", "e"),
        ("trace", "f"),
        ("codegen", "f"),
        ("run", "f"),
        ("compare", "f"),
    ],
)
def test_a_process_that_ends_before_anything_was_compiled_shows_nothing(
    outcome: Outcome, phase: str, expected: str
) -> None:
    assert (
        standing(result("a", outcome, phase=phase), frozenset())[0]
        is {"e": Standing.NOT_EXECUTED, "f": Standing.FAILED}[expected]
    )


# -- waivers ---------------------------------------------------------------------------------------


def waived(*waivers: AppliedWaiver) -> CaseResult:
    return result("a", Outcome.XFAIL, reason="a known defect (JIRA-1)", waivers=waivers)


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
    undated = replace(record, waivers=(replace(PERMITTED, until="never"),))
    assert stated(undated, waived(replace(WAIVER, until="never"))) is Conformance.NOT_CONFORMANT


@pytest.mark.parametrize(
    "effect", [WaiverEffect.MATCHED, WaiverEffect.PASSED, WaiverEffect.PART_PASSED]
)
@pytest.mark.parametrize(
    ("limit", "conformance"), [(50, Conformance.CONFORMANT), (49, Conformance.NOT_CONFORMANT)]
)
def test_a_case_with_a_flaky_waiver_counts_alike_in_each_run(
    effect: WaiverEffect, limit: int, conformance: Conformance
) -> None:
    outcome = Outcome.XFAIL if effect is WaiverEffect.MATCHED else Outcome.PASS
    case = result("a", outcome, waivers=(replace(WAIVER, flaky=True, effect=effect),))
    record = profile(waivers=(PERMITTED,), most_waived=limit)
    found = statement_of(record, [case, result("b")], environment={"torch": TORCH}, day=TODAY)
    assert (found.conformance, found.passed, found.waived, found.flaky) == (conformance, 1, 0, 1)
    assert [(waiver.flaky, waiver.used_by) for waiver in found.waivers] == [(True, ("a",))]
    assert (
        f"  P0: 1 of 2 required cases are waived, 1 of them as flaky; the profile permits {limit} %"
        in found.lines()
    )
    assert found.properties()["statement.flaky"] == "1"
    assert standing(case, frozenset())[0] is COUNTS_AS[outcome]


@pytest.mark.parametrize(
    ("level", "is_shipped"), [("P0", True), ("P0", False), ("P1", True), ("P1", False)]
)
def test_the_first_level_permits_shipped_waivers_alone(level: str, is_shipped: bool) -> None:
    record = profile(
        levels=(ProfileLevel(name=level, required=("a",)),),
        waivers=(replace(PERMITTED, is_shipped=is_shipped),),
    )
    found = statement_of(record, [waived(WAIVER)], environment={"torch": TORCH}, day=TODAY)
    is_waived = is_shipped or level == "P1"
    assert (len(found.failed), found.waived, found.passed) == (not is_waived, is_waived, 0)


@pytest.mark.parametrize(
    ("required", "limit", "is_conformant"),
    [(50, 2, True), (49, 2, False), (49, 2.1, True), (1, 50, False)],
)
def test_more_waived_cases_than_the_profile_permits_are_not_conformant(
    required: int, limit: float, is_conformant: bool
) -> None:
    names = ["a", *map(str, range(1, required))]
    record = profile(
        tuple(names), waivers=(PERMITTED,), most_waived=limit, most_waived_because="Why"
    )
    found = statement_of(
        record, [waived(WAIVER), *map(result, names[1:])], environment={"torch": TORCH}, day=TODAY
    )
    assert found.conformance is (
        Conformance.CONFORMANT if is_conformant else Conformance.NOT_CONFORMANT
    )
    says = f"P0: 1 of {required} required cases are waived; the profile permits {limit} %: Why"
    assert (says in found.remarks, says in found.problems, says in found.why) == (
        is_conformant,
        not is_conformant,
        not is_conformant,
    )
    assert f"  {says}" in found.lines()


def test_each_level_has_the_limit_of_waived_cases_for_itself() -> None:
    record = profile("ab", p1=[str(number) for number in range(98)], waivers=(PERMITTED,))
    levels = (replace(record.levels[0], most_waived=2), record.levels[1])
    results = [waived(WAIVER), *map(result, record.required[1:])]
    for changed, words in (
        (record, "CONFORMANT with 1 waiver"),
        (replace(record, levels=levels), "NOT CONFORMANT"),
    ):
        found = statement_of(changed, results, environment={"torch": TORCH}, day=TODAY)
        assert [found.words, *(level.words for level in found.levels)] == [
            words,
            words,
            "CONFORMANT",
        ]
        assert found.properties()["statement"] == words
        assert [*found.lines()][-1].startswith(f"{words}: 99 passed, 1 waived of 100")


def test_a_waived_level_names_the_torch_that_needs_no_waiver() -> None:
    record = profile("a", waivers=(PERMITTED,), without_waivers="2.13")
    found = statement_of(record, [waived(WAIVER)], environment={"torch": TORCH}, day=TODAY)
    assert "(minors of torch that need no waiver: 2.13)" in "".join(found.remarks)


@pytest.mark.parametrize(("limit", "is_conformant"), [(100, True), (50, True), (49, False)])
def test_cases_whose_answer_aten_computed_are_counted_and_may_be_bounded(
    limit: float, is_conformant: bool
) -> None:
    results = [result("a", by_aten={"aten.mm": 1}), result("b")]
    found = statement_of(
        profile(most_by_aten=limit), results, environment={"torch": TORCH}, day=TODAY
    )
    says = "ATen computed the whole answer of 1 of 2 required cases"
    if limit < 100:
        says += f"; the profile permits {limit} %"
    assert (found.by_aten, found.words) == (
        1,
        "CONFORMANT" if is_conformant else "NOT CONFORMANT",
    )
    assert says in (found.remarks if is_conformant else found.problems)


# -- conditions on the machine ---------------------------------------------------------------------

AMD = {
    "torch": TORCH,
    "python": "3.12.1",
    "hip": "7.0",
    "gpus": "1",
    "arch": "gfx942:sramecc+:xnack-",
}


@pytest.mark.parametrize(
    ("when", "machines", "why"),
    [
        ({"arch": "gfx942"}, [AMD], ""),
        ({"arch": ["gfx950", "gfx942"], "vendor": "amd"}, [AMD], ""),
        (
            {"arch": "gfx950"},
            [AMD],
            "required for arch gfx950, and the machine has gfx942:sramecc+:xnack-",
        ),
        ({"arch": "gfx950"}, [AMD, {**AMD, "arch": "gfx950"}], ""),  # two nodes
        (
            {"arch": ["sm_90", "gfx950"]},
            [{"torch": TORCH, "gpus": "0"}],
            "required for arch sm_90 or gfx950, and the machine has no GPU",
        ),
        ({"vendor": "nvidia"}, [AMD], "required for vendor nvidia, and the machine has amd"),
        ({"torch": "<2.13"}, [AMD], "required for torch <2.13, and the machine has 2.13.0"),
        ({"python": ">3.12.1"}, [AMD], "required for python >3.12.1, and the machine has 3.12.1"),
        ({"python": ">=3.12"}, [AMD], ""),
        # what is not recorded makes no case less required
        ({"arch": "gfx950"}, [{"torch": TORCH, "gpus": "1"}], ""),
        ({"arch": "gfx950"}, [{"torch": TORCH}], ""),
        ({"vendor": "nvidia", "python": ">=9"}, [{"gpus": "0"}], ""),
    ],
)
def test_a_case_is_not_required_where_its_condition_fails_by_recorded_facts(
    when: dict[str, Any], machines: list[dict[str, str]], why: str
) -> None:
    record = profile(conditions={"b": when})
    results = [
        result("a", node={"name": "n", **machines[-1]}) if machines[1:] else result("a"),
        result("b", Outcome.UNAVAILABLE),
    ]
    found = statement_of(record, results, environment=machines[0], day=TODAY)
    assert (found.levels[0].not_required, found.required) == (
        {"b": why} if why else {},
        1 if why else 2,
    )
    assert found.remarks == ((f"1 more cases are {why}",) if why else ())
    assert ("  not required here:" in found.lines(), "b" in found.not_executed) == (
        bool(why),
        not why,
    )
    assert stated(record, *results[1:], environment=machines[0]) is Conformance.INCOMPLETE


# -- the whole -------------------------------------------------------------------------------------


def test_all_passed_is_conformant_and_the_counts_are_exact() -> None:
    found = statement_of(
        profile(p1="c"), [result(name) for name in "abc"], environment={"torch": TORCH}, day=TODAY
    )
    assert (found.conformance, found.executed, found.required) == (Conformance.CONFORMANT, 3, 3)
    assert [
        (level.level, level.required, level.executed, level.passed) for level in found.levels
    ] == [("P0", 2, 2, 2), ("P1", 1, 1, 1)]
    assert (found.failed, found.not_executed, found.waivers, found.problems) == ({}, {}, (), ())


@pytest.mark.parametrize(
    ("first", "second"), list(itertools.combinations_with_replacement(Outcome, 2))
)
def test_one_failure_makes_it_not_conformant_and_else_one_missing_case_incomplete(
    first: Outcome, second: Outcome
) -> None:
    counts = {COUNTS_AS[first], COUNTS_AS[second]}
    found = stated(profile(), result("a", first), result("b", second))
    if Standing.FAILED in counts:
        assert found is Conformance.NOT_CONFORMANT
    else:
        assert found is (
            Conformance.INCOMPLETE if Standing.NOT_EXECUTED in counts else Conformance.CONFORMANT
        )


@pytest.mark.parametrize("lost", ["a", "b", "c"])
def test_one_case_without_a_result_makes_it_incomplete_in_any_level(lost: str) -> None:
    found = statement_of(
        profile(p1="c"),
        [result(name) for name in "abc" if name != lost],
        environment={"torch": TORCH},
        day=TODAY,
    )
    assert (found.conformance, found.executed) == (Conformance.INCOMPLETE, 2)
    assert found.not_executed == {lost: "lost: it has no result"}


@pytest.mark.parametrize("outcome", Outcome)
def test_an_optional_case_is_counted_and_changes_nothing(outcome: Outcome) -> None:
    found = statement_of(
        profile("a", optional="z"),
        [result("a"), result("z", outcome)],
        environment={"torch": TORCH},
        day=TODAY,
    )
    assert (found.conformance, found.levels[0].optional) == (
        Conformance.CONFORMANT,
        {outcome.label: 1},
    )
    assert bool(found.optional_failures) == (outcome.is_failure and outcome is not Outcome.NOT_RUN)
    assert found.remark == found.optional_failures
    assert (found.optional_failures in found.lines()) is bool(found.optional_failures)


def test_a_profile_that_requires_nothing_is_never_conformant() -> None:
    assert stated(profile("", optional="z"), result("z")) is Conformance.INCOMPLETE
    assert stated(profile("", levels=())) is Conformance.INCOMPLETE


@pytest.mark.parametrize("torch", ["2.10.9", "2.14.0", ""])
def test_another_torch_than_the_profile_is_for_is_incomplete(torch: str) -> None:
    found = statement_of(profile("a"), [result("a")], environment={"torch": torch}, day=TODAY)
    assert found.conformance is Conformance.INCOMPLETE
    assert len(found.problems) == 1
    assert (
        stated(profile("a"), result("a", Outcome.FAIL), environment={"torch": torch})
        is Conformance.NOT_CONFORMANT
    )


def test_a_node_with_a_torch_that_the_profile_is_not_for_is_incomplete() -> None:
    nodes = [
        {"name": name, "torch": torch} for name, torch in (("one", "2.13.0+cpu"), ("two", "2.14.0"))
    ]
    results = [result(name, node=node) for name, node in zip("ab", nodes, strict=True)]
    found = statement_of(profile("ab"), results, environment={"torch": TORCH}, day=TODAY)
    assert found.conformance is Conformance.INCOMPLETE
    assert found.problems == ("torch 2.14.0 is not in >=2.11,<2.14, for which the profile is",)
    assert (
        stated(profile("ab"), results[0], replace(results[1], node=nodes[0]))
        is Conformance.CONFORMANT
    )


def test_an_offline_failure_is_a_failure_and_not_an_execution() -> None:
    found = statement_of(
        profile("a"), [result("a", Outcome.OFFLINE_FAIL)], environment={"torch": TORCH}, day=TODAY
    )
    assert (found.conformance, found.executed) == (Conformance.NOT_CONFORMANT, 0)


# -- before a run ----------------------------------------------------------------------------------

YES, NO, UNKNOWN = (
    (Availability.YES, ""),
    (Availability.NO, "no GPU"),
    (Availability.UNKNOWN, "perhaps"),
)


@pytest.mark.parametrize(
    ("available", "complete"),
    [
        ({"a": YES, "b": YES}, True),
        ({"a": YES, "b": NO}, False),
        ({"a": YES, "b": UNKNOWN}, None),
        ({"a": NO, "b": UNKNOWN}, False),
    ],
)
def test_whether_a_machine_could_execute_a_profile(
    available: dict[str, tuple[Availability, str]], complete: bool | None
) -> None:
    prospect = prospect_of_cases(available.values())
    assert (prospect.can_be_complete, prospect.required) == (complete, 2)
    assert (
        prospect.possible + sum(prospect.uncertain.values()) + sum(prospect.missing.values()) == 2
    )
    assert replace(prospect, problem="another torch").can_be_complete is False
