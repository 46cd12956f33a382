"""``close`` judged on facts alone: each side of each bound, and what a worker may not leave out or make up."""

import math
from typing import Any

import pytest

from runner.model.expectation import Status
from runner.vocabulary.expectations.close import Close, contradiction
from runner.vocabulary.expectations.comparing import DEFAULTS, default_tolerance
from runner.vocabulary.expectations.expectation_base import BadExpectation
from tests.fakes import ELSEWHERE, close_facts, close_leaf, expected, judged, observation, seen, step, verdict_of
from tests.fakes import case as make_case

EAGER = {"to": "eager"}


def one(body: Any, facts: Any) -> Any:
    """Judge and return the only judgement."""
    (judgement,) = judged("close", body, measured=facts)
    return judgement


def test_equal_values_hold():
    judgement = one(EAGER, close_facts(close_leaf(), close_leaf()))
    assert judgement.status is Status.HELD
    assert judgement.observed == "2 values within tolerance (no float64 reference: none here)"


@pytest.mark.parametrize(
    ("excess", "status"),
    [
        (0.0, Status.HELD),
        (1e-5, Status.HELD),
        (math.nextafter(1e-5, 0), Status.HELD),
        (math.nextafter(1e-5, 1), Status.FAILED),
        (math.inf, Status.FAILED),
        (math.nan, Status.FAILED),
    ],
)
def test_the_default_tolerance_is_a_closed_bound(excess, status):
    assert one(EAGER, close_facts(close_leaf(excess=excess, mismatches=1))).status is status


@pytest.mark.parametrize(
    ("excess", "status"), [(0.25, Status.HELD), (math.nextafter(0.25, 1), Status.FAILED), (math.nextafter(0.25, 0), Status.HELD)]
)
def test_the_stated_tolerance_is_a_closed_bound(excess, status):
    leaf = close_leaf(atol=0.25, rtol=0.5, excess=excess)
    assert one({"to": "eager", "atol": 0.25, "rtol": 0.5}, close_facts(leaf)).status is status


@pytest.mark.parametrize("fact", ["nan_mismatches", "inf_mismatches"])
def test_nan_and_infinity_on_one_side_fail_however_wide_the_tolerance(fact):
    body = {"to": "eager", "atol": 1e300, "rtol": 0.0}
    leaf = close_leaf(atol=1e300, rtol=0.0)
    assert one(body, close_facts(leaf)).status is Status.HELD
    judgement = one(body, close_facts({**leaf, fact: 1}))
    assert judgement.status is Status.FAILED
    assert "on one side only in 1 of 3 elements" in judgement.observed


@pytest.mark.parametrize(
    ("fact", "value", "reference"),
    [
        ("shape", [3, 1], [3]),
        ("dtype", "float32", "float64"),
        ("device", "cpu", "cuda"),
        ("type", "tensor", "NoneType"),
        ("type", "int", "float"),
    ],
)
def test_another_shape_dtype_device_or_type_fails(fact, value, reference):
    judgement = one(EAGER, close_facts(close_leaf(**{fact: value, f"reference_{fact}": reference})))
    assert judgement.status is Status.FAILED
    assert str(reference) in judgement.expected
    assert judgement.observed == str(value)


def test_another_structure_fails_before_anything_else():
    judgement = one(EAGER, close_facts(structure="[*, *]", reference_structure="(*, *)"))
    assert (judgement.status, judgement.observed) == (Status.FAILED, "[*, *]")
    assert "(*, *)" in judgement.expected


@pytest.mark.parametrize(("equal", "status"), [(True, Status.HELD), (False, Status.FAILED), (1, Status.FAILED), ("no", Status.FAILED)])
def test_a_value_that_is_no_tensor_is_exact(equal, status):
    leaf = {"path": "[1]", "equal": equal, "value": "3", "reference_value": "4"}
    for fact, value in {"type": "int", "shape": None, "dtype": None, "device": None}.items():
        leaf.update({fact: value, f"reference_{fact}": value})
    judgement = one(EAGER, close_facts(leaf))
    assert judgement.status is status
    if status is Status.FAILED:
        assert (judgement.expected, judgement.observed) == ("output[1] is 4", "3")


def test_nothing_measured_and_nothing_to_compare_are_errors():
    assert one(EAGER, None).status is Status.ERROR
    assert one(EAGER, close_facts()).status is Status.ERROR


@pytest.mark.parametrize(("rtol", "atol"), [(0.5, 1e-5), (1.3e-6, 0.5), (0.0, 0.0)])
def test_a_worker_that_measured_with_another_tolerance_claims_nothing(rtol, atol):
    judgement = one(EAGER, close_facts(close_leaf(rtol=rtol, atol=atol)))
    assert judgement.status is Status.ERROR
    assert "measured with" in judgement.observed


def test_a_worker_that_did_not_use_the_stated_tolerance_claims_nothing():
    assert one({"to": "eager", "atol": 1.0, "rtol": 1.0}, close_facts(close_leaf())).status is Status.ERROR


@pytest.mark.parametrize(("shape", "numel"), [([3], 0), ([3], 2), ([3], 4), ([], 0), ([0], 3), ([2, 2], 3)])
def test_as_many_elements_as_the_shape_has_must_have_been_measured(shape, numel):
    leaf = close_leaf(shape=shape, reference_shape=shape, numel=numel)
    assert one(EAGER, close_facts(leaf)).status is Status.ERROR


@pytest.mark.parametrize("shape", [[0], [2, 0, 3]])
def test_an_empty_tensor_is_close_to_an_empty_one(shape):
    leaf = close_leaf(shape=shape, reference_shape=shape, numel=0, worst_index=[], worst_value=None, worst_reference=None)
    assert one(EAGER, close_facts(leaf)).status is Status.HELD


@pytest.mark.parametrize("dtype", [*DEFAULTS, "int64", "bool", "uint8", "float8_e4m3fn", "float8_e5m2"])
def test_each_dtype_has_its_tolerance(dtype):
    rtol, atol = default_tolerance(dtype)
    leaf = close_leaf(dtype=dtype, reference_dtype=dtype, rtol=rtol, atol=atol)
    assert one(EAGER, close_facts({**leaf, "excess": atol})).status is Status.HELD
    assert one(EAGER, close_facts({**leaf, "excess": math.nextafter(atol, 1)})).status is Status.FAILED


def test_default_tolerances_are_the_documented_ones():
    assert default_tolerance("float32") == (1.3e-6, 1e-5)
    assert default_tolerance("bfloat16") == (1.6e-2, 1e-5)
    assert default_tolerance("float16") == (1e-3, 1e-5)
    assert default_tolerance("float64") == default_tolerance("complex128") == (1e-7, 1e-7)
    assert default_tolerance("int32") == (0.0, 0.0)
    assert default_tolerance("float64", "bfloat16") == (1.6e-2, 1e-5)


def test_where_its_condition_does_not_hold_it_claims_nothing():
    assert one({"to": "eager", "when": ELSEWHERE}, None).status is Status.NOT_APPLICABLE


@pytest.mark.parametrize("word", ["atol", "rtol"])
@pytest.mark.parametrize("value", [math.inf, math.nan, -1e-9])
def test_a_tolerance_that_nothing_could_exceed_or_meet_is_refused(word, value):
    with pytest.raises(BadExpectation) as caught:
        Close.parse({"to": "eager", "atol": 0, "rtol": 0, word: value})
    assert caught.value.path == (word,)


@pytest.mark.parametrize("body", [{"of": "first", "to": "first"}, {"to": "output"}])
def test_a_value_is_not_compared_with_itself(body):
    with pytest.raises(BadExpectation, match="compared with itself"):
        Close.parse(body)


BROKEN = [
    7,
    "text",
    [],
    {},
    {"structure": "*", "reference_structure": "*"},
    close_facts(7),
    close_facts([]),
    close_facts({}),
    close_facts(close_leaf(excess="0")),
    close_facts(close_leaf(excess=None)),
    close_facts(close_leaf(atol="1e-5")),
    close_facts(close_leaf(atol=10**400)),
    close_facts({key: value for key, value in close_leaf().items() if key != "excess"}),
    close_facts({key: value for key, value in close_leaf().items() if key != "rtol"}),
    close_facts(close_leaf(shape=None, reference_shape=None)),
    {**close_facts(), "leaves": "abc"},
    {**close_facts(), "leaves": {"$float": "no number"}},
    {**close_facts(), "leaves": {"$bytes": 5}},
]


@pytest.mark.parametrize("measured", BROKEN, ids=range(len(BROKEN)))
def test_a_measurement_of_another_form_is_an_error_and_no_traceback(measured):
    case = make_case(step(expected("close", EAGER)))
    outcome = verdict_of(case, observation(seen(measured={"0": measured})))
    assert [verdict.status for verdict in outcome.verdicts if verdict.kind == "close"] == [Status.ERROR]
    assert outcome.outcome.label == "ERROR"


@pytest.mark.parametrize(
    "changes",
    [
        {"mismatches": 1, "max_abs": 1.0},
        {"excess": 1.0, "max_abs": 1.0},
        {"excess": 1.0, "mismatches": 1, "max_abs": 0.5},
        {"bits": {"differing": 0}, "max_abs": 1.0},
        {"bits": {"differing": 4}, "max_abs": 1.0},
        {"sides": {"NaN": [1, 0, 1]}},
        {"size": 0.0},
    ],
)
def test_facts_of_a_value_that_contradict_each_other(changes):
    assert not contradiction({**close_leaf(), "size": 1.0, "bits": {"differing": 0}})
    assert "contradict each other" in contradiction(close_leaf(**changes))
