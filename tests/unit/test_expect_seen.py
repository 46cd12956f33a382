"""calls, exit, text, log, dead: each judged on facts alone, on both sides of every border."""

from typing import Any

import pytest

from runner.model.case_facts import ChildExit, SpyCalls
from runner.model.expectation import Status, StepFacts
from runner.model.matching import patterns
from runner.vocabulary.expectations import EXPECTATIONS
from runner.vocabulary.expectations.expectation_base import BadExpectation
from runner.vocabulary.expectations.texts import MOST
from tests.fakes import ELSEWHERE, HERE, judged

HELD, FAILED, ERROR, NOT = Status.HELD, Status.FAILED, Status.ERROR, Status.NOT_APPLICABLE


def statuses(kind: str, body: Any, **facts: Any) -> list[Status]:
    return [judgement.status for judgement in judged(kind, body, **facts)]


# -- calls ----------------------------------------------------------------------------------------------------------

ENTRIES = [{"same": True, "size": 1}, {"same": False, "size": {"$float": "inf"}}, {"argv": ["nvcc", "-Wx"], "text": "nvcc -Wx"}]
SEEN = {"order": SpyCalls(count=3, entries=tuple(ENTRIES)), "never": SpyCalls(count=0, entries=())}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"of": "order"}, HELD),
        ({"of": "never"}, FAILED),
        ({"of": "never", "count": 0}, HELD),
        ({"of": "order", "count": 0}, FAILED),
        ({"of": "order", "count": 3}, HELD),
        ({"of": "order", "count": 2}, FAILED),
        ({"of": "order", "count": {"min": 3}}, HELD),
        ({"of": "order", "count": {"min": 4}}, FAILED),
        ({"of": "order", "where": {"same": True}, "count": 1}, HELD),
        ({"of": "order", "where": {"same": 1}}, FAILED),  # 1 is not true
        ({"of": "order", "where": {"same": True, "size": 2}}, FAILED),
        ({"of": "order", "where": {"size": float("inf")}}, HELD),
        ({"of": "order", "where": {"absent": None}}, FAILED),
        ({"of": "order", "where": {"argv": {"contains": ["-Wx", "nvcc"]}}}, HELD),
        ({"of": "order", "where": {"argv": {"contains": ["-W"]}}}, FAILED),  # a part of a list is an item
        ({"of": "order", "where": {"text": {"contains": "-W"}}}, HELD),
        ({"of": "order", "where": {"text": {"contains": "-Y"}}}, FAILED),
        ({"of": "order", "where": {"same": {"contains": "x"}}}, FAILED),
        ({"of": "order", "count": [{"when": ELSEWHERE, "value": 9}, {"value": 3}]}, HELD),
        ({"of": "order", "count": [{"when": ELSEWHERE, "value": 9}]}, NOT),
        ({"of": "order", "when": ELSEWHERE, "count": 9}, NOT),
        ({"of": "stranger"}, ERROR),
    ],
)
def test_calls(body: Any, status: Status) -> None:
    assert statuses("calls", body, calls=SEEN) == [status]


def test_entries_that_were_not_kept_are_not_guessed() -> None:
    many = {"order": SpyCalls(count=5, entries=({"same": True},))}
    assert statuses("calls", {"of": "order", "count": 5}, calls=many) == [HELD]
    assert statuses("calls", {"of": "order", "where": {"same": True}, "count": 1}, calls=many) == [ERROR]


# -- exit -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "code", "stderr", "status"),
    [
        ({"code": 0}, 0, "", HELD),
        ({"code": 0}, 1, "", FAILED),
        ({"code": 0}, -11, "", FAILED),
        ({"code": 3, "stderr": "planted"}, 3, "planted", HELD),
        ({"code": 3, "stderr": "planted"}, 1, "planted", FAILED),
        ({"code": 3, "stderr": "planted"}, 3, "ImportError", FAILED),
        ({"nonzero": True, "stderr": "planted"}, 1, "it was planted here", HELD),
        ({"nonzero": True, "stderr": "planted"}, -9, "planted", HELD),
        ({"nonzero": True, "stderr": "planted"}, 0, "planted", FAILED),
        ({"nonzero": True, "stderr": ["planted", "here"]}, 1, "planted", FAILED),
        ({"code": 0, "when": ELSEWHERE}, 1, "", NOT),
    ],
)
def test_exit(body: Any, code: int, stderr: str, status: Status) -> None:
    assert statuses("exit", body, exit=ChildExit(code=code, stderr=stderr)) == [status]


def test_exit_without_a_child() -> None:
    assert statuses("exit", {"code": 0}) == [ERROR]


@pytest.mark.parametrize("body", [{"code": 1}, {"code": -6}, {"nonzero": True}])
def test_a_failing_exit_needs_its_text(body: Any) -> None:
    with pytest.raises(BadExpectation, match="a non-zero exit code without 'stderr'"):
        EXPECTATIONS["exit"].parse(body)


# -- text and log ---------------------------------------------------------------------------------------------------

TEXTS = [
    ({"contains": "nvcc"}, "nvcc -Wx a.cu", HELD),
    ({"contains": "nvcc"}, "", FAILED),
    ({"contains": ["nvcc", "-Wx"]}, "-Wx nvcc", HELD),
    ({"contains": ["nvcc", "-Wy"]}, "nvcc -Wx", FAILED),
    ({"matches": "^nvcc .*cu$"}, "nvcc -Wx a.cu", HELD),
    ({"matches": "^nvcc$"}, "nvcc -Wx", FAILED),
    ({"contains": "nvcc", "matches": "-Wy"}, "nvcc -Wx", FAILED),
    ({"contains": "nvcc", "matches": "-Wx"}, "nvcc -Wx", HELD),
    ({"contains": "nvcc", "lacks": "-Wy"}, "nvcc -Wx", HELD),
    ({"contains": "nvcc", "lacks": "-Wx"}, "nvcc -Wx", FAILED),
    ({"contains": "nvcc", "lacks": ["-Wy", "-Wx"]}, "nvcc -Wx", FAILED),
    ({"matches": "^nvcc", "lacks": "-Wy"}, "nvcc -Wx", HELD),
    ({"contains": "nvcc", "lacks": "-Wy"}, "-Wx", FAILED),
    ({"contains": "nvcc", "when": ELSEWHERE}, "", NOT),
    ({"contains": "ld", "count": 2}, "nvcc ldx ldy", HELD),
    ({"contains": "ld", "count": 2}, "nvcc ldx", FAILED),
    ({"contains": "ld", "count": 2}, "ldx ldy ldz", FAILED),
    ({"contains": "ld", "count": 1}, "nvcc", FAILED),
    ({"contains": ["ld", "nvcc"], "count": {"min": 2}}, "nvcc nvcc ldx ldy ldz", HELD),
    ({"contains": ["ld", "nvcc"], "count": 2}, "nvcc ldx ldy", FAILED),  # each part, so nvcc too
    ({"contains": "ld", "count": {"max": 2}}, "ldx ldy ldz", FAILED),
    ({"contains": "ld", "count": {"any": [1, 3]}}, "ldx ldy", FAILED),
    ({"contains": "ld", "count": [{"when": ELSEWHERE, "value": 7}, {"value": 1}]}, "ldx", HELD),
    ({"contains": "ld", "count": [{"when": ELSEWHERE, "value": 7}]}, "ldx", HELD),  # that it is there still applies
    ({"contains": "ana", "count": 1}, "anana", HELD),  # without overlaps
    ({"contains": "ld", "count": 1, "matches": "^nvcc"}, "ldx", FAILED),
    ({"contains": "ld", "count": 1, "lacks": "y"}, "ldy", FAILED),
]


@pytest.mark.parametrize("kind", ["text", "log"])
@pytest.mark.parametrize(("body", "text", "status"), TEXTS)
def test_texts(kind: str, body: Any, text: str, status: Status) -> None:
    assert statuses(kind, body, measured={"text": text, "type": "a str"}) == [status]
    assert statuses(kind, body) == [NOT if status is NOT else ERROR]


def test_a_value_of_another_type_is_no_text() -> None:
    (judgement,) = judged("text", {"of": "found", "contains": "1"}, measured={"text": None, "type": "a list"})
    assert (judgement.status, judgement.expected, judgement.observed) == (FAILED, "found is a text", "a list")


@pytest.mark.parametrize("kind", ["text", "log"])
@pytest.mark.parametrize("text", ["x" * MOST, "x" * (MOST - 3), "\u20ac" * (MOST // 3)])
def test_a_text_of_which_the_beginning_may_be_lost_is_not_said_to_lack_anything(kind: str, text: str) -> None:
    """Only the end of a long text is kept: the part may have been in what is gone. What is there is seen."""
    wanted = {"contains": text[:2], "lacks": "-Wy"}
    assert statuses(kind, wanted, measured={"text": text, "type": "a str"}) == [ERROR]
    assert statuses(kind, wanted, measured={"text": text + "-Wy", "type": "a str"}) == [FAILED]
    assert statuses(kind, {"contains": text[:2]}, measured={"text": text, "type": "a str"}) == [HELD]


@pytest.mark.parametrize("kind", ["text", "log"])
def test_parts_of_a_text_of_which_the_beginning_may_be_lost_are_not_counted(kind: str) -> None:
    """More may have been in what is gone; too many are too many."""
    facts = {"text": "x" * MOST + "ldld", "type": "a str"}
    assert statuses(kind, {"contains": "ld", "count": 2}, measured=facts) == [ERROR]
    assert statuses(kind, {"contains": "ld", "count": 1}, measured=facts) == [FAILED]
    assert statuses(kind, {"contains": "ld", "count": {"min": 3}}, measured=facts) == [ERROR]


@pytest.mark.parametrize("kind", ["text", "log"])
@pytest.mark.parametrize(
    ("body", "message", "path"),
    [
        ({"matches": "an", "count": 1}, "count without contains", ("count",)),
        ({"contains": "an", "count": 0}, "0 times is no part of a text that contains it", ("count",)),
        ({"contains": "an", "count": {"max": 0}}, "0 times is no part of a text that contains it", ("count",)),
        ({"contains": "an", "count": [{"value": 0}]}, "0 times is no part of a text that contains it", ("count",)),
        ({"contains": "an", "count": {"min": 1}}, "true for every text that contains it", ("count",)),
        ({"contains": "an", "count": -1}, "-1 is less than 0", ("count",)),
        ({"contains": "an", "count": [{"value": {"min": 3, "max": 2}}]}, "the range from 3 to 2 is empty", ("count", 0, "value")),
    ],
)
def test_counts_of_parts_that_say_nothing(kind: str, body: Any, message: str, path: tuple[str | int, ...]) -> None:
    with pytest.raises(BadExpectation, match=message) as raised:
        EXPECTATIONS[kind].parse(body)
    assert raised.value.path == path
    assert raised.value.hint


@pytest.mark.parametrize("kind", ["text", "log"])
def test_a_text_cannot_have_a_part_and_lack_what_is_in_it(kind: str) -> None:
    with pytest.raises(BadExpectation, match="no text contains what it must and lacks 'cc'"):
        EXPECTATIONS[kind].parse({"contains": ["gcc", "nvcc"], "lacks": ["x", "cc"]})


SLOW = pytest.mark.nightly(reason="waits until the time limit of a pattern; the same search is tested for text")


@pytest.mark.parametrize("kind", ["text", pytest.param("log", marks=SLOW)])
def test_a_pattern_that_takes_for_ever_is_an_error(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns.search, "__kwdefaults__", {"seconds": 0.5})  # five seconds else: only the wait is shorter
    facts = {"text": "a" * 40 + "b", "type": "a str"}
    assert statuses(kind, {"matches": "(a|a)*compiled"}, measured=facts) in ([ERROR], [FAILED])


@pytest.mark.parametrize("pattern", ["x*", "(a|)", "^"])
def test_a_pattern_that_every_text_matches_is_refused(pattern: str) -> None:
    with pytest.raises(BadExpectation, match="matches an empty text"):
        EXPECTATIONS["text"].parse({"matches": pattern})


# -- dead -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "status"),
    [
        ({"was": True, "type": "Parameter", "alive": False}, HELD),
        ({"was": True, "type": "Parameter", "alive": True}, FAILED),
        ({"was": False, "type": "AttributeError: no", "alive": False}, ERROR),
    ],
)
def test_dead(state: Any, status: Status) -> None:
    assert statuses("dead", ["function.weight"], measured={"function.weight": state}) == [status]


def test_dead_without_facts() -> None:
    assert statuses("dead", ["a.b", "c.d"]) == [ERROR]


# -- mutants --------------------------------------------------------------------------------------------------------

CHILD = ChildExit(code=3, stderr="planted planted")
ANY_TEXT = "every character, each alone"

MUTATED: list[tuple[str, Any, dict[str, Any], list[str]]] = [
    ("calls", {"of": "order"}, {"calls": SEEN}, ["just below its least"]),
    ("calls", {"of": "order", "count": 3}, {"calls": SEEN}, ["one more", "one less"]),
    ("calls", {"of": "never", "count": 0}, {"calls": SEEN}, ["one more", "one less: counts are not negative"]),
    ("calls", {"of": "order", "where": {"same": True}, "count": 1}, {"calls": SEEN}, ["one more", "one less", "entries that do not fit"]),
    ("calls", {"of": "order", "where": {"same": 7}, "count": 0}, {"calls": SEEN}, ["one more", "one less: counts are not negative"]),
    (
        "calls",
        {"of": "order", "where": {"argv": {"contains": "q"}}, "count": {"max": 1}},
        {"calls": SEEN},
        ["just above its most", "far more than observed"],
    ),
    ("exit", {"code": 0}, {"exit": ChildExit(code=0, stderr="")}, ["another code"]),
    ("exit", {"nonzero": True, "stderr": "planted"}, {"exit": CHILD}, ["another code", "its part removed"]),
    ("exit", {"code": 3, "stderr": ["planted"]}, {"exit": CHILD}, ["another code", "its part removed"]),
    (
        "text",
        {"contains": ["aa", "bb"]},
        {"measured": {"text": "aabaabb", "type": ""}},
        [*["its part removed"] * 2, ANY_TEXT],
    ),
    ("text", {"matches": "a+b"}, {"measured": {"text": "aabab", "type": ""}}, ["its match removed", ANY_TEXT]),
    (
        "log",
        {"contains": "an", "matches": "of"},
        {"measured": {"text": "an of"}},
        ["its part removed", "its match removed", ANY_TEXT],
    ),
    ("text", {"contains": "a", "count": 2}, {"measured": {"text": "aba", "type": ""}}, ["its part removed", "one more", "one less"]),
    ("log", {"contains": "an", "count": {"min": 2}}, {"measured": {"text": "an ban"}}, ["its part removed", "just below its least"]),
    ("dead", ["a.b"], {"measured": {"a.b": {"was": True, "type": "T", "alive": False}}}, ["still alive"]),
]


@pytest.mark.parametrize(("kind", "body", "facts", "names"), MUTATED)
def test_each_mutant_is_seen(kind: str, body: Any, facts: dict[str, Any], names: list[str]) -> None:
    check = EXPECTATIONS[kind].parse(body)
    assert {judgement.status for judgement in check.judge(StepFacts(**facts), HERE)} == {HELD}
    found = list(check.mutants(StepFacts(**facts), HERE))
    assert [mutant.name + (f": {mutant.why_not}" if mutant.why_not else "") for mutant in found] == names
    for mutant in found:
        if mutant.facts is not None:
            assert [judgement.status for judgement in check.judge(mutant.facts, HERE)] == [FAILED]
