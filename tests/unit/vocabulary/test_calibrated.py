"""The calibrated judge and the other words of ``close`` on facts alone: each side of each bound,
and what a worker may not make up.
"""

import math
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fakes import case as make_case
from tests.fakes import (
    close_facts,
    close_leaf,
    expected,
    judged,
    observation,
    seen,
    step,
    verdict_of,
)
from torch_conformance.model.expectation import Status
from torch_conformance.report import tolerance_words
from torch_conformance.vocabulary.expectations import calibrated
from torch_conformance.vocabulary.expectations.calibrated import (
    FORMATS,
    bias_bound,
    element_bound,
    ulp,
)
from torch_conformance.vocabulary.expectations.close import Close, Judge

EAGER = {"to": "eager"}
UP = 1 + 1e-9


def facts(numel: int = 256, *, worst: Any = None, **changes: Any) -> dict[str, Any]:
    """Return facts of an answer whose error is eager's, half a unit, in a tensor of values about 1
    in bfloat16.
    """
    element = {
        "index": [3],
        "value": 1.0,
        "eager_value": 1.0,
        "reference_value": 1.0,
        "reference": 1.0,
        "error": 2.0**-8,
    }
    element |= {"group_error": 2.0**-8, "group_draws": numel * 3, "nudge": 0.0, **(worst or {})}
    shares = calibrated.quantiles_of(numel)
    found = {
        "runs": 3,
        "numel": numel,
        "nonfinite": 0,
        "outside": 0,
        "bias": [bias()] if numel >= 64 else [],
        "worst": element,
        "nearest": None,
    }
    found |= {name: [0.5] * len(shares) for name in ("quantiles", "eager_quantiles")} | {
        "nudge_quantiles": [0.0] * len(shares)
    }
    found |= {
        "whole_error": 2.0**-8,
        "most": 1.0,
        "max_error": 2.0**-8,
        "max_ulp": 0.5,
        "eager_max_error": 2.0**-8,
        "eager_max_ulp": 0.5,
    }
    return {**found, **changes}


def leaf(found: dict[str, Any], dtype: str = "bfloat16", **changes: Any) -> dict[str, Any]:
    shape = {
        "shape": [found["numel"]],
        "reference_shape": [found["numel"]],
        "numel": found["numel"],
    }
    changes = (
        {"mismatches": 1, "max_abs": changes["excess"], **changes}
        if changes.get("excess")
        else changes
    )
    return close_leaf(
        dtype=dtype, reference_dtype=dtype, **shape, **{"calibrated": found, **changes}
    )


def one(body: Any, *leaves: Any) -> Any:
    (judgement,) = judged("close", body, measured=close_facts(*leaves))
    return judgement


def test_as_precise_as_eager_passes_and_the_errors_are_told() -> None:
    judgement = one(EAGER, leaf(facts()))
    assert judgement.status is Status.HELD
    assert (
        judgement.observed
        == "1 values by the float64 reference (greatest error 0.5 ulp (0.00391), eager's 0.5 ulp "
        "(0.00391))"
    )


def test_an_element_is_judged_by_its_bound() -> None:
    found = facts()
    bound = element_bound(found, FORMATS["bfloat16"])
    assert bound == pytest.approx(1.5 * 2**-7), (
        "three halves of an ulp: more than twice eager's half"
    )
    for error, status in (
        (bound, Status.HELD),
        (bound * UP, Status.FAILED),
        (math.inf, Status.FAILED),
        (math.nan, Status.FAILED),
    ):
        assert one(EAGER, leaf(facts(worst={"error": error}, outside=1))).status is status


def test_the_bound_is_computed_and_what_the_worker_counts_is_not_believed() -> None:
    assert one(EAGER, leaf(facts(worst={"error": 1.0}, outside=0))).status is Status.FAILED


@pytest.mark.parametrize(
    ("worst", "whole", "bound"),
    [
        ({"group_error": 0.0, "reference": 1.0}, 1.0, 1.5 * 2**-7),
        ({"group_error": 0.0, "reference": 0.0}, 1.0, 1.5 * 2.0**-126),
        ({"group_error": 0.25, "reference": 1.0}, 0.01, 0.02),
        ({"group_error": 0.25, "reference": 1.0}, 1.0, 0.5),
        ({"group_error": 0.25, "reference": 0.0}, 0.0, 1.5 * 2**-7),
    ],
    ids=[
        "floor",
        "floor of zero",
        "the tensor bounds",
        "the group bounds",
        "the floor of the tensor",
    ],
)
def test_the_bound_is_the_smaller_of_tensor_and_group_with_a_floor(
    worst: Any, whole: float, bound: float
) -> None:
    assert element_bound(
        facts(worst=worst, whole_error=whole), FORMATS["bfloat16"]
    ) == pytest.approx(bound)


def test_a_wide_format_has_room_for_another_order_of_additions() -> None:
    found = facts(worst={"group_error": 0.0, "nudge": 0.125})
    assert element_bound(found, FORMATS["float32"]) == 1.0
    assert element_bound(found, FORMATS["bfloat16"]) == pytest.approx(1.5 * 2**-7)


@pytest.mark.parametrize(
    ("value", "dtype", "unit"),
    [
        (1.0, "float32", 2**-23),
        (-1.99, "float32", 2**-23),
        (2.0, "bfloat16", 2**-6),
        (0.0, "float16", 2**-24),
        (1e-300, "float32", 0.0),
    ],
)
def test_units_in_the_last_place(value: float, dtype: str, unit: float) -> None:
    assert ulp(value, FORMATS[dtype]) == max(unit, 2.0 ** FORMATS[dtype].least)


def test_a_quantile_fails_where_no_element_does() -> None:
    assert one(EAGER, leaf(facts(quantiles=[1.0, 1.0]))).status is Status.HELD
    judgement = one(EAGER, leaf(facts(quantiles=[1.01, 1.0])))
    assert judgement.status is Status.FAILED
    assert (
        judgement.observed
        == "quantile 0.5 of the error is 1.01 ulp: the bound is 1 ulp, eager's 0.5"
    )
    assert (
        one(EAGER, leaf(facts(quantiles=[0.5, 0.5], eager_quantiles=[0.0, 0.0]))).status
        is Status.HELD
    ), "the floor"


def test_few_elements_have_no_quantiles() -> None:
    assert calibrated.quantiles_of(31) == ()
    assert calibrated.quantiles_of(10**4) == (0.5, 0.9, 0.99)
    assert one(EAGER, leaf(facts(numel=8))).status is Status.HELD


def test_where_eager_says_little_the_answer_is_near_eager_or_float64() -> None:
    blind = {"eager_quantiles": [40.0, 90.0], "quantiles": [40.0, 90.0]}
    assert one(EAGER, leaf(facts(**blind, nearest=2.0))).status is Status.HELD
    assert "median distance" in one(EAGER, leaf(facts(**blind, nearest=2.1), excess=1.0)).observed
    assert one(EAGER, leaf(facts(**blind, nearest=None), excess=1.0)).status is Status.ERROR
    assert one(EAGER, leaf(facts(**blind, nearest=2.1), excess=0.0)).status is Status.HELD, (
        "rounding of a right result of 0"
    )


def test_so_much_as_autocast_rounds_is_right_in_a_wide_format() -> None:
    own = 2.0**15
    blind = {"eager_quantiles": [own, own], "quantiles": [own, own], "whole_error": 0.1}
    assert (
        one(EAGER, leaf(facts(**blind, nearest=own), "float32", excess=1.0)).status is Status.HELD
    )
    assert (
        "median distance"
        in one(EAGER, leaf(facts(**blind, nearest=2.1 * own), "float32", excess=1.0)).observed
    )
    blind = {"eager_quantiles": [2.0**22] * 2, "quantiles": [2.0**22] * 2, "whole_error": 1.0}
    assert (
        "median distance"
        in one(EAGER, leaf(facts(**blind, nearest=0.02 * 2.0**23), "float32", excess=1.0)).observed
    ), "x 1.02"


def test_few_elements_are_near_eager_or_float64_too() -> None:
    few = {"numel": 8, "whole_error": 1.0}
    assert (
        one(EAGER, leaf(facts(**few, nearest=2.0**16), "float32", excess=1.0)).status is Status.HELD
    )
    assert (
        "median distance"
        in one(EAGER, leaf(facts(**few, nearest=2.0**18), "float32", excess=1.0)).observed
    )


@pytest.mark.parametrize(
    ("numel", "nearest", "is_right"),
    [(1, 2.4, True), (7, 2.4, True), (1, 2.55, False), (8, 2.4, False)],
)
def test_a_few_elements_may_have_been_rounded_twice_before_the_last_rounding(
    numel: int, nearest: float, is_right: bool
) -> None:
    few = facts(
        numel=numel, whole_error=0.1, nearest=nearest, worst={"error": 0.02, "group_error": 0.1}
    )
    assert (one(EAGER, leaf(few, excess=1.0)).status is Status.HELD) == is_right
    half = facts(
        numel=numel, whole_error=0.1, nearest=8.0, worst={"error": 0.02, "group_error": 0.1}
    )
    assert one(EAGER, leaf(half, "float16", excess=1.0)).status is Status.HELD


def test_where_the_right_result_is_0_no_digit_of_eager_is_asked_for() -> None:
    noise = {
        "eager_quantiles": [2.0**40] * 2,
        "quantiles": [2.0**40] * 2,
        "whole_error": 1e-4,
        "nearest": 2.0**39,
    }
    zero = leaf(
        facts(**noise, most=1e-14, worst={"reference": 1e-14, "error": 1e-4, "group_error": 1e-4}),
        "float32",
        excess=1.0,
    )
    assert one(EAGER, zero).status is Status.HELD
    mostly_zero = {**noise, "eager_quantiles": [2.0**30] * 2}
    few_digits = {"reference": 1e-14, "error": 1e-4, "group_error": 1e-4}
    assert (
        one(
            EAGER, leaf(facts(**mostly_zero, most=1e-14, worst=few_digits), "float32", excess=1.0)
        ).status
        is Status.HELD
    )
    assert (
        one(
            EAGER, leaf(facts(**mostly_zero, most=1e-4, worst=few_digits), "float32", excess=1.0)
        ).status
        is Status.FAILED
    )
    worst = {"reference": 1e-14, "error": 1e-2, "group_error": 1e-4}
    assert (
        one(
            EAGER, leaf(facts(**noise, most=1e-14, worst=worst, outside=1), "float32", excess=1.0)
        ).status
        is Status.FAILED
    )


def judged_by_case(body: Any, *leaves: Any) -> Any:
    case = make_case(step(expected("close", body)))
    outcome = verdict_of(case, observation(seen(measured={"0": close_facts(*leaves)})))
    return next(
        (verdict for verdict in outcome.verdicts if verdict.kind == "close"), outcome.verdicts[0]
    )


@pytest.fixture(autouse=True)
def _by_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judge as a run does: what facts of another form raise is an error."""
    monkeypatch.setitem(globals(), "one", judged_by_case)


@pytest.mark.parametrize(
    "changes",
    [
        {"numel": 255},
        {"worst": None},
        {"quantiles": []},
        {"eager_quantiles": [0.5]},
        {"nonfinite": "0"},
        {"whole_error": "0"},
        {"runs": 0},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_facts_that_do_not_fit_claim_nothing(changes: Any) -> None:
    found = {**facts(), **changes}
    assert (
        one(
            EAGER,
            leaf({**found, "numel": 256})
            if "numel" not in changes
            else leaf(facts(), calibrated=found),
        ).status
        is Status.ERROR
    )


def test_a_group_of_one_error_bounds_nothing() -> None:
    assert one(EAGER, leaf(facts(worst={"group_draws": 1, "error": 0.1}))).status is Status.ERROR


def test_a_leaf_without_these_facts_claims_nothing() -> None:
    found = leaf(facts())
    del found["calibrated"]
    assert one(EAGER, found).status is Status.ERROR


def test_without_a_reference_the_tolerance_judges_and_says_why() -> None:
    why = {"why_not": "the function draws random numbers"}
    judgement = one(EAGER, close_leaf(calibrated=why))
    assert (
        judgement.observed
        == "1 values within tolerance (no float64 reference: the function draws random numbers)"
    )
    assert (
        one(EAGER, close_leaf(calibrated=why, excess=2e-5, max_abs=2e-5, mismatches=1)).status
        is Status.FAILED
    )


def test_nonfinite_numbers() -> None:
    assert (
        "NaN or an infinity on one side only in 2 of 256"
        in one(EAGER, leaf(facts(nonfinite=2))).observed
    )
    assert one(EAGER, leaf(facts(), inf_mismatches=1)).status is Status.HELD, (
        "it has what float64 has"
    )


# -- the words -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "judge"),
    [
        ({"to": "eager"}, Judge.CALIBRATED),
        ({"to": "eager.0"}, Judge.CALIBRATED),
        ({"to": "first"}, Judge.TOLERANCE),
        ({"to": "eager", "atol": 0, "rtol": 0}, Judge.TOLERANCE),
        ({"to": "first", "exact": True}, Judge.EXACT),
    ],
)
def test_the_words_choose_the_judge(body: Any, judge: Judge) -> None:
    check = Close.parse(body)
    assert check.judge_kind is judge
    assert check.measurement().get("judge", "tolerance") == judge.value


def bias(**changes: Any) -> dict[str, Any]:
    """Return the facts of a whole tensor of 256 elements without a bias."""
    return {
        "of": "size",
        "group": "tensor",
        "index": 0,
        "groups": 1,
        "distinct": 256,
        "mean": 0.0,
        "eager": 0.0,
        "runs": 4,
        **changes,
    }


@pytest.mark.parametrize("sign", [1, -1])
def test_a_bias_is_judged_by_its_bound(sign: int) -> None:
    bound = bias_bound(bias(), FORMATS["bfloat16"])
    assert bound == pytest.approx(2**-6 + 3.89 / 3 / 16, rel=1e-3), (
        "a floor, and the mean of 256 roundings"
    )
    for mean, status in (
        (bound, Status.HELD),
        (bound * UP, Status.FAILED),
        (math.nan, Status.FAILED),
        (math.inf, Status.FAILED),
    ):
        assert one(EAGER, leaf(facts(bias=[bias(), bias(mean=sign * mean)]))).status is status
    text = one(
        EAGER,
        leaf(
            facts(
                bias=[bias(of="value", group="tile", groups=70, index=3, mean=sign * 0.5)],
            )
        ),
    ).observed
    assert (
        text
        == f"bias of {sign * 0.5:g} of the values (tile, 3 of 70): the bound is 0.116, eager's "
        "0, in bounds of an element"
    )


@pytest.mark.parametrize(
    ("changes", "least", "most"),
    [
        ({"distinct": 1}, 1.3, 1.4),
        ({"distinct": 10**6}, 2**-6, 0.02),
        ({"groups": 10**5, "distinct": 64}, 0.25, 0.3),
        ({"eager": 0.1}, 0.8, 2.0),
        ({"eager": 0.1, "groups": 1000}, 0.199, 0.21),
    ],
    ids=[
        "equal elements are one rounding",
        "many",
        "the greatest of many means",
        "few runs are widened",
        "many groups are not",
    ],
)
def test_the_bound_of_a_bias_depends_on_how_many_roundings_it_is_of(
    changes: Any, least: float, most: float
) -> None:
    assert least < bias_bound(bias(**changes), FORMATS["float16"]) <= most


def test_a_bias_is_judged_of_narrow_formats_alone() -> None:
    found = facts(bias=[bias(mean=0.9)])
    assert one(EAGER, leaf(found)).status is Status.FAILED
    assert one(EAGER, leaf(found, "float32")).status is Status.HELD


def test_facts_of_many_elements_without_a_bias_are_an_error() -> None:
    assert one(EAGER, leaf(facts(bias=[]))).status is Status.ERROR
    assert one(EAGER, leaf(facts(numel=63, bias=[]))).status is Status.HELD


def test_errors_of_single_roundings_are_not_widened() -> None:
    found = facts(numel=1, worst={"group_error": 2.0**-8, "group_draws": 12}, runs=12)
    widened = element_bound(found, FORMATS["bfloat16"])
    assert (
        widened
        > element_bound({**found, "whole_ulp": 0.5}, FORMATS["bfloat16"])
        == pytest.approx(1.5 * 2**-7)
    )
    for whole_ulp in (0.0, 0.6):
        assert element_bound({**found, "whole_ulp": whole_ulp}, FORMATS["bfloat16"]) == widened
    assert element_bound({**found, "whole_ulp": 0.5}, FORMATS["float32"]) == element_bound(
        found, FORMATS["float32"]
    )


def test_a_report_counts_the_cases_that_a_tolerance_judged() -> None:
    told = (
        "3 values within tolerance (no float64 reference: too large; values of int8 are exact)",
        "1 values by the float64 reference (greatest error 1 ulp), 2 values within tolerance",
        "6 values compared; not equal: 1 values within tolerance (no float64 reference: too large)",
        "1 values by the float64 reference (greatest error 1 ulp)",
    )
    results: Any = [SimpleNamespace(verdicts=[SimpleNamespace(observed=text)] * 2) for text in told]
    words = tolerance_words(results)
    assert words == "cases with values that a tolerance judged: 2 too large; 1 the spec has one"
    assert tolerance_words(results[3:]) == ""


@pytest.mark.parametrize("reasons", ["b; a; c", "c; b; a"])
def test_reasons_of_equal_counts_have_one_order(reasons: str) -> None:
    """``verify`` makes the report again, in another process."""
    text = f"3 values within tolerance (no float64 reference: {reasons})"
    results: Any = [SimpleNamespace(verdicts=[SimpleNamespace(observed=text)])]
    assert tolerance_words(results).endswith(": 1 a; 1 b; 1 c")
