"""``equals``, ``differs`` and ``strides`` judged on facts alone."""

import math
from typing import Any

import pytest

from runner.model.expectation import Status
from runner.vocabulary.expectations import EXPECTATIONS
from runner.vocabulary.expectations.expectation_base import BadExpectation
from runner.vocabulary.expectations.values import same
from tests.fakes import ELSEWHERE, expected, judged, observation, seen, step, verdict_of
from tests.fakes import case as make_case

NAN = math.nan

SAME = [
    (1, 1),
    (1, 1.0),
    ("a", "a"),
    (None, None),
    (True, True),
    (NAN, NAN),
    (math.inf, math.inf),
    ([], []),
    ([1, [2.5, NAN]], [1, [2.5, NAN]]),
    ({"a": [1], "b": None}, {"b": None, "a": [1]}),
    ({"a": NAN}, {"a": NAN}),
    (2**62 + 1, 2**62 + 1),
]
DIFFERENT = [
    (1, 2),
    (True, 1),
    (1, True),
    (False, 0),
    (0, None),
    ("1", 1),
    (NAN, 0.0),
    (math.inf, -math.inf),
    ([1], [1, 2]),
    ([1, 2], [1]),
    ([1], 1),
    ([], {}),
    ([True], [1]),
    ({"a": 1}, {"a": 2}),
    ({"a": 1}, {"a": True}),
    ({"a": 1}, {"b": 1}),
    ({"a": 1}, {"a": 1, "b": 1}),
    ({}, None),
    (2**62 + 1, 2**62),
]


@pytest.mark.parametrize(("value", "wanted"), SAME, ids=range(len(SAME)))
def test_what_is_the_same_equals_and_does_not_differ(value: Any, wanted: Any):
    facts = {"measured": {"x": {"value": value}}}
    assert judged("equals", {"x": wanted}, **facts)[0].status is Status.HELD
    assert judged("differs", {"x": wanted}, **facts)[0].status is Status.FAILED
    assert same(wanted, value)


@pytest.mark.parametrize(("value", "wanted"), DIFFERENT, ids=range(len(DIFFERENT)))
def test_what_is_not_the_same_differs(value: Any, wanted: Any):
    facts = {"measured": {"x": {"value": value}}}
    assert judged("equals", {"x": wanted}, **facts)[0].status is Status.FAILED
    assert judged("differs", {"x": wanted}, **facts)[0].status is Status.HELD
    assert not same(wanted, value)


@pytest.mark.parametrize(
    ("kind", "equal", "status"),
    [("equals", True, Status.HELD), ("equals", False, Status.FAILED), ("differs", True, Status.FAILED), ("differs", False, Status.HELD)],
)
def test_two_named_values(kind: str, equal: bool, status: Status):
    fact = {"comparable": True, "equal": equal, "why": "" if equal else "leaf 0: 2 of 3 elements"}
    (judgement,) = judged(kind, {"first": {"ref": "second"}}, measured={"first": fact})
    assert judgement.status is status
    assert "the value of second" in judgement.expected
    assert judgement.observed == ("equal" if equal else "different: leaf 0: 2 of 3 elements")


@pytest.mark.parametrize("kind", ["equals", "differs"])
@pytest.mark.parametrize("lie", [1, 0, "yes", None, [True]])
def test_an_answer_that_is_neither_true_nor_false_holds_nothing(kind: str, lie: Any):
    fact = {"comparable": True, "equal": lie, "why": ""}
    assert judged(kind, {"first": {"ref": "second"}}, measured={"first": fact})[0].status is not Status.HELD


@pytest.mark.parametrize("kind", ["equals", "differs"])
def test_what_cannot_be_compared_or_was_not_measured_is_an_error(kind: str):
    fact = {"comparable": False, "equal": False, "why": "both are empty"}
    assert judged(kind, {"first": {"ref": "second"}}, measured={"first": fact})[0].status is Status.ERROR
    assert judged(kind, {"first": 1})[0].status is Status.ERROR
    assert judged(kind, {"first": 1}, measured={"second": {"value": 1}})[0].status is Status.ERROR


def test_each_pair_is_judged_by_itself():
    judgements = judged("equals", {"a": 1, "b": 2, "c": 3}, measured={"a": {"value": 1}, "b": {"value": 3}})
    assert [(judgement.leaf, judgement.status) for judgement in judgements] == [
        ("a", Status.HELD),
        ("b", Status.FAILED),
        ("c", Status.ERROR),
    ]


@pytest.mark.parametrize("kind", ["equals", "differs"])
def test_a_value_is_not_compared_with_itself(kind: str):
    with pytest.raises(BadExpectation, match="compared with itself") as caught:
        EXPECTATIONS[kind].parse({"x": {"ref": "x"}})
    assert caught.value.path == ("x",)


BROKEN = [
    7,
    "x",
    [],
    ["x"],
    {"x": 7},
    {"x": None},
    {"x": {}},
    {"x": []},
    {"x": "value"},
    {"x": {"value": {"$float": []}}},
    {"x": {"value": {"$bytes": "!"}}},
]


@pytest.mark.parametrize("kind", ["equals", "differs"])
@pytest.mark.parametrize("measured", BROKEN, ids=range(len(BROKEN)))
@pytest.mark.parametrize("other", [5, {"ref": "y"}])
def test_a_measurement_of_another_form_is_an_error_and_no_traceback(kind: str, measured: Any, other: Any):
    case = make_case(step(expected(kind, {"x": other})))
    outcome = verdict_of(case, observation(seen(measured={"0": measured})))
    assert outcome.outcome.label == "ERROR", outcome


# -- strides --------------------------------------------------------------------------------------------------------


def tensor(*strides: int, shape: list[int] | None = None, formats: tuple[str, ...] = ("contiguous_format",)) -> dict[str, Any]:
    return {"shape": shape or [2] * len(strides), "strides": list(strides), "formats": list(formats)}


def strided(body: Any, *tensors: Any) -> Any:
    (judgement,) = judged("strides", body, measured={"tensors": list(tensors)})
    return judgement


@pytest.mark.parametrize(
    ("wanted", "status"),
    [([2, 1], Status.HELD), ([2, 2], Status.FAILED), ([3, 1], Status.FAILED), ([2], Status.FAILED), ([2, 1, 1], Status.FAILED)],
)
def test_strides_are_exact(wanted: list[int], status: Status):
    judgement = strided({"equals": wanted}, tensor(2, 1))
    assert judgement.status is status
    assert "strides [2, 1]" in judgement.observed


@pytest.mark.parametrize(
    ("wanted", "formats", "status"),
    [
        (True, ["contiguous_format"], Status.HELD),
        (True, [], Status.FAILED),
        (True, ["channels_last"], Status.FAILED),
        (False, ["contiguous_format"], Status.FAILED),
        (False, ["channels_last"], Status.HELD),
        ("channels_last", ["channels_last"], Status.HELD),
        ("channels_last", ["contiguous_format"], Status.FAILED),
        ("contiguous_format", ["contiguous_format", "channels_last"], Status.HELD),
    ],
)
def test_memory_formats(wanted: Any, formats: list[str], status: Status):
    judgement = strided({"contiguous": wanted}, tensor(2, 1, formats=tuple(formats)))
    assert judgement.status is status
    name = wanted if isinstance(wanted, str) else "contiguous_format"
    assert judgement.expected == f"output[0] {'not ' if wanted is False else ''}contiguous as {name}"


def test_strides_and_format_must_both_hold():
    body = {"equals": [1, 2], "contiguous": True}
    assert strided(body, tensor(1, 2)).status is Status.HELD
    assert strided(body, tensor(1, 2, formats=())).status is Status.FAILED
    assert strided(body, tensor(2, 1)).status is Status.FAILED


def test_every_tensor_is_judged_unless_some_are_chosen():
    good, bad = tensor(2, 1), tensor(1, 2)
    assert strided({"equals": [2, 1]}, good, good).status is Status.HELD
    judgement = strided({"equals": [2, 1]}, good, bad)
    assert judgement.status is Status.FAILED
    assert judgement.expected.startswith("output[1]")
    assert strided({"equals": [2, 1], "output": 0}, good, bad).status is Status.HELD
    assert strided({"equals": [2, 1], "output": 1}, good, bad).status is Status.FAILED
    assert strided({"equals": [2, 1], "output": [0, 2]}, good, bad, good).status is Status.HELD
    assert strided({"equals": [2, 1], "output": [0, 1]}, good, bad, good).status is Status.FAILED


def test_a_tensor_that_is_not_there_is_an_error():
    assert strided({"equals": [2, 1]}).status is Status.ERROR
    assert strided({"equals": [2, 1], "output": 1}, tensor(2, 1)).status is Status.ERROR
    assert strided({"equals": [2, 1], "output": [0, 1]}, tensor(2, 1)).status is Status.ERROR
    assert judged("strides", {"equals": [2, 1]})[0].status is Status.ERROR


def test_where_its_condition_does_not_hold_it_claims_nothing():
    assert judged("strides", {"equals": [2, 1], "when": ELSEWHERE})[0].status is Status.NOT_APPLICABLE


@pytest.mark.parametrize(
    "measured", [7, [], {}, {"tensors": 7}, {"tensors": [7]}, {"tensors": [{}]}, {"tensors": {"0": {}}}, {"tensors": "ab"}]
)
@pytest.mark.parametrize("body", [{"equals": [2, 1]}, {"contiguous": True}])
def test_strides_of_another_form_are_an_error_and_no_traceback(body: Any, measured: Any):
    case = make_case(step(expected("strides", body)))
    assert verdict_of(case, observation(seen(measured={"0": measured}))).outcome.label == "ERROR"
