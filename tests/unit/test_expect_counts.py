"""``counter``, ``metric`` and ``generated_files``: one more, one less, and values that nobody read."""

from typing import Any

import pytest

from runner.model.expectation import Status
from runner.vocabulary.expectations.counters import Counter, GeneratedFiles, Metric
from runner.vocabulary.expectations.expectation_base import BadExpectation, parse_count
from tests.fakes import ELSEWHERE, judged

RANGES = [
    (2, [2], [1, 3, 0]),
    (0, [0], [1]),
    ({"min": 1}, [1, 2, 1000], [0]),
    ({"max": 3}, [0, 3], [4]),
    ({"min": 2, "max": 3}, [2, 3], [1, 4]),
    ({"min": 2, "max": 2}, [2], [1, 3]),
    ({"value": 2}, [2], [1, 3]),
    ({"value": 2, "unlisted": True}, [2], [1, 3]),
    ({"any": [2, 4]}, [2, 4], [1, 3, 5]),
    ({"any": [4, 3], "unlisted": True}, [3, 4], [0, 2, 5]),
    ([{"when": ELSEWHERE, "value": 9}, {"value": {"any": [1, 3]}}], [1, 3], [2, 9]),
]


@pytest.mark.parametrize(("wanted", "inside", "outside"), RANGES)
def test_each_side_of_each_bound_of_a_counter(wanted: Any, inside: list[int], outside: list[int]):
    for number in inside:
        (judgement,) = judged("counter", {"inductor.hits": wanted}, counters={"inductor": {"hits": number}})
        assert judgement.status is Status.HELD, number
    for number in outside:
        (judgement,) = judged("counter", {"inductor.hits": wanted}, counters={"inductor": {"hits": number}})
        assert judgement.status is Status.FAILED, number
        assert judgement.observed == str(number)
        assert judgement.expected.startswith("inductor.hits ")
        assert judgement.leaf == "inductor.hits"


@pytest.mark.parametrize(("wanted", "inside", "outside"), RANGES)
def test_each_side_of_each_bound_of_a_metric_and_of_files(wanted: Any, inside: list[int], outside: list[int]):
    for numbers, status in ((inside, Status.HELD), (outside, Status.FAILED)):
        for number in numbers:
            (metric,) = judged("metric", {"generated_kernel_count": wanted}, metrics={"generated_kernel_count": number})
            assert (metric.status, metric.observed) == (status, str(number))
            if number < 100:
                (files,) = judged("generated_files", wanted, code=("x",) * number)
                assert (files.status, files.observed) == (status, str(number))


def test_a_counter_that_torch_never_touched_is_zero():
    facts = {"counters": {"inductor": {"other": 5}}}
    assert judged("counter", {"inductor.hits": 0}, **facts)[0].status is Status.HELD
    assert judged("counter", {"inductor.hits": 1}, **facts)[0].status is Status.FAILED
    assert judged("counter", {"aot_autograd.ok": 0}, **facts)[0].status is Status.HELD


def test_a_wrong_count_of_a_cache_shows_what_bypassed_it():
    facts = {"counters": {"inductor": {"fxgraph_cache_bypass": 1, "other": 5}}}
    assert judged("counter", {"inductor.fxgraph_cache_miss": 1}, **facts)[0].observed == "0 (inductor.fxgraph_cache_bypass: 1)"
    assert judged("counter", {"inductor.other": 1}, **facts)[0].observed == "5"


def test_a_counter_of_another_namespace_is_not_taken():
    facts = {"counters": {"aot_autograd": {"hits": 1}, "inductor": {"aot_autograd.hits": 1}}}
    assert judged("counter", {"inductor.hits": 1}, **facts)[0].status is Status.FAILED


def test_a_name_with_dots_is_split_at_the_first():
    assert judged("counter", {"graph_break.a.b": 1}, counters={"graph_break": {"a.b": 1}})[0].status is Status.HELD


def test_a_metric_that_torch_does_not_have_is_an_error_even_where_zero_is_claimed():
    for wanted in (0, {"max": 5}, 1):
        (judgement,) = judged("metric", {"gone": wanted}, metrics={"generated_kernel_count": 1})
        assert judgement.status is Status.ERROR
        assert judgement.leaf == "gone"


def test_the_first_condition_that_holds_is_taken():
    wanted = [{"when": ELSEWHERE, "value": 1}, {"when": {"device": "cpu"}, "value": 2}, {"value": 3}]
    assert judged("counter", {"a.b": wanted}, counters={"a": {"b": 2}})[0].status is Status.HELD
    assert judged("counter", {"a.b": wanted}, counters={"a": {"b": 3}})[0].status is Status.FAILED
    assert judged("counter", {"a.b": wanted}, counters={"a": {"b": 1}})[0].status is Status.FAILED


def test_where_no_condition_holds_nothing_is_claimed():
    wanted = [{"when": ELSEWHERE, "value": 1}]
    assert judged("counter", {"a.b": wanted}, counters={})[0].status is Status.NOT_APPLICABLE
    assert judged("metric", {"gone": wanted}, metrics={})[0].status is Status.NOT_APPLICABLE
    assert judged("generated_files", wanted)[0].status is Status.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "without min and max"),
        ({"unlisted": True}, "without min and max"),
        ({"min": 3, "max": 2}, "is empty"),
        ({"min": 0}, "is true for every count"),
        ({"value": 1, "min": 1}, "value together with min"),
        ({"any": [3]}, "any with one number"),
        ({"any": [1, 2, 4, 5, 13]}, "any of so many small numbers could hardly fail"),
        ({"any": [1, 2], "min": 1}, "any together with min"),
        ({"any": [1, -2]}, "less than 0"),
        (-1, "less than 0"),
        ({"value": -1}, "less than 0"),
        ({"min": -1, "max": 3}, "less than 0"),
        ({"max": -1}, "less than 0"),
    ],
)
def test_a_range_that_says_nothing_is_refused(body: Any, words: str):
    with pytest.raises(BadExpectation, match=words):
        parse_count(body)
    for parse in (lambda: Counter.parse({"a.b": body}), lambda: Metric.parse({"m": body}), lambda: GeneratedFiles.parse(body)):
        with pytest.raises(BadExpectation, match=words):
            parse()


def test_the_path_leads_to_the_value_that_is_wrong():
    with pytest.raises(BadExpectation) as caught:
        Counter.parse({"a.b": [{"value": 1}, {"value": {"min": 0}}]})
    assert caught.value.path == ("a.b", 1, "value")
    with pytest.raises(BadExpectation) as caught:
        Metric.parse({"m": [{"value": {"min": 0}}]})
    assert caught.value.path == ("m", 0, "value")


def test_a_counter_without_a_namespace_is_refused():
    with pytest.raises(BadExpectation, match="no namespace") as caught:
        Counter.parse({"hits": 1})
    assert caught.value.hint == "did you mean 'inductor.hits'?"


@pytest.mark.parametrize(
    ("body", "is_allowed"),
    [
        ({"value": 0, "unlisted": True}, False),
        ({"max": 3, "unlisted": True}, False),
        ({"min": 0, "max": 3, "unlisted": True}, False),
        ({"value": 1, "unlisted": True}, True),
        ({"min": 1, "unlisted": True}, True),
        ([{"value": {"value": 1, "unlisted": True}}, {"value": 0}], False),
        ([{"value": {"value": 1, "unlisted": True}}, {"value": 2}], True),
    ],
)
def test_an_unlisted_counter_may_not_be_claimed_zero(body: Any, is_allowed: bool):
    if is_allowed:
        assert Counter.parse({"a.b": body}).counts == {"a.b": body}
        return
    with pytest.raises(BadExpectation, match="may not be expected to be 0"):
        Counter.parse({"a.b": body})
