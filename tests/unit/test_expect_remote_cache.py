"""``remote_cache``: each side of each bound, caches that torch never asked, and statistics that nobody read."""

from typing import Any

import pytest

from runner.model.expectation import Status, StepFacts
from runner.vocabulary.expectations.counters import RemoteCache
from runner.vocabulary.expectations.expectation_base import BadExpectation
from tests.fakes import ELSEWHERE, HERE, expected, judged

SEEN = {"RemoteFxGraphCache": {"hit": 3, "miss": 1, "put": 1, "exception": 0}}


@pytest.mark.parametrize(
    ("wanted", "statuses"),
    [
        ({"hit": 3, "miss": 1, "put": 1}, ["held", "held", "held"]),
        ({"hit": 2, "miss": 1}, ["failed", "held"]),
        ({"hit": 4, "put": {"min": 2}}, ["failed", "failed"]),
        ({"hit": {"min": 3, "max": 3}}, ["held"]),
        ({"put": 1, "exception": 0}, ["held", "held"]),
        ({"put": 1, "exception": {"min": 1}}, ["held", "failed"]),
    ],
)
def test_each_count_is_judged_by_itself(wanted: dict[str, Any], statuses: list[str]):
    found = judged("remote_cache", {"RemoteFxGraphCache": wanted}, remote=SEEN)
    assert [judgement.status.value for judgement in found] == statuses
    assert [judgement.expected.split(" ")[:2] for judgement in found] == [["RemoteFxGraphCache", word] for word in wanted]
    assert [judgement.leaf for judgement in found] == [f"RemoteFxGraphCache {word}" for word in wanted]
    assert found[0].observed == str(SEEN["RemoteFxGraphCache"][next(iter(wanted))])


def test_a_cache_that_torch_never_asked_counts_nothing():
    (judgement,) = judged("remote_cache", {"RemoteAutotuneCache": {"hit": 1}}, remote=SEEN)
    assert (judgement.status, judgement.observed) == (Status.FAILED, "0")
    hit, other = judged("remote_cache", {"RemoteFxGraphCache": {"hit": 3}, "RemoteAutotuneCache": {"put": 0}}, remote=SEEN)
    assert (hit.status, other.status) == (Status.HELD, Status.HELD)


def test_statistics_that_were_not_read_are_an_error():
    for remote in ({}, {"remote": None}):
        (judgement,) = judged("remote_cache", {"RemoteFxGraphCache": {"hit": 1}}, **remote)
        assert (judgement.status, judgement.observed) == (Status.ERROR, "no statistics of remote caches were read")


def test_a_condition_that_does_not_hold_claims_nothing():
    body = {"RemoteFxGraphCache": {"hit": [{"when": ELSEWHERE, "value": 7}]}}
    (judgement,) = judged("remote_cache", body, remote=SEEN)
    assert (judgement.status, judgement.leaf) == (Status.NOT_APPLICABLE, "RemoteFxGraphCache hit")


def test_each_count_changed_is_a_mutant_that_does_not_hold():
    check = RemoteCache.parse({"RemoteFxGraphCache": {"hit": 3, "put": {"min": 1}}})
    mutants = list(check.mutants(StepFacts(remote=SEEN), HERE))
    assert [(mutant.name, mutant.leaf.split(" ")[1]) for mutant in mutants] == [
        *(("one more", "hit"), ("one less", "hit"), ("just below its least", "put")),
    ]
    for mutant in mutants:
        assert mutant.facts is not None
        judged_again = {judgement.leaf: judgement.status for judgement in check.judge(mutant.facts, HERE)}
        assert judged_again.pop(mutant.leaf) is Status.FAILED
        assert set(judged_again.values()) == {Status.HELD}, "one thing is changed"


def test_a_failure_points_to_the_line_of_its_cache():
    made = expected("remote_cache", {"RemoteFxGraphCache": {"hit": 1}}, line=12)
    assert made.place("RemoteFxGraphCache hit") == made.leaves["RemoteFxGraphCache"] != made.position
    assert made.place("something else") == made.position


@pytest.mark.parametrize(
    "body",
    [
        {"RemoteFxGraphCache": {"hit": 0}},
        {"RemoteFxGraphCache": {"hit": 0, "miss": {"max": 3}}},
        {"RemoteFxGraphCache": {"hit": 0}, "RemoteAutotuneCache": {"put": 0}},
        {"RemoteFxGraphCache": {"hit": [{"when": ELSEWHERE, "value": 1}, {"value": 0}]}},
    ],
)
def test_what_holds_without_any_cache_is_refused(body: Any):
    with pytest.raises(BadExpectation, match="every count may be 0"):
        RemoteCache.parse(body)


@pytest.mark.parametrize(
    ("count", "message", "path"),
    [
        (-1, "less than 0", ("RemoteFxGraphCache", "hit")),
        ({"min": 3, "max": 1}, "is empty", ("RemoteFxGraphCache", "hit")),
        ([{"value": {"min": 0}}], "is true for every count", ("RemoteFxGraphCache", "hit", 0, "value")),
    ],
)
def test_a_count_that_means_nothing_has_its_place(count: Any, message: str, path: tuple[Any, ...]):
    with pytest.raises(BadExpectation, match=message) as caught:
        RemoteCache.parse({"RemoteFxGraphCache": {"hit": count}})
    assert caught.value.path == path
