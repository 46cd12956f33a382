"""``deterministic``, ``batch_invariant``, ``poisoned`` and ``candidates`` judged on facts alone."""

from typing import Any

import pytest

from runner.model.expectation import Judgement, Status
from runner.vocabulary.expectations import EXPECTATIONS
from runner.vocabulary.expectations.additional_calls import _spread
from runner.vocabulary.expectations.expectation_base import BadExpectation
from tests.fakes import ELSEWHERE, HERE, close_facts, close_leaf, judged

DONE = {"done": True, "tensors": 1, "eager_calls": 0}
OTHER = {"path": "[0]", "why": "1 of 3 elements; at [2]: nan instead of 1.0"}


def parts(*differences: list[Any], size: int = 2, batch: int = 5) -> dict[str, Any]:
    starts = (0, batch - size)
    found = [{"start": start, "size": size, "differences": one} for start, one in zip(starts, differences, strict=False)]
    return {**DONE, "batch": batch, "parts": found}


def tried(*names: str, **changes: Any) -> list[dict[str, Any]]:
    return [{"number": number, "chosen": [name], "measured": close_facts(close_leaf()), **changes} for number, name in enumerate(names)]


WRONG = {"measured": close_facts(close_leaf(mismatches=1, excess=1.0, max_abs=1.0))}
BROKEN = {"number": 1, "chosen": ["broken"], "raised": "CppCompileError: no"}

HELD: dict[str, tuple[str, Any, dict[str, Any], str]] = {
    "as many runs": ("deterministic", {"runs": 2}, {**DONE, "runs": [[], []]}, "1 tensors with the same bits in 2 runs"),
    "parts": ("batch_invariant", {"sizes": [2]}, parts([], []), "the same bits for 2 parts of a batch of 5"),
    "poison": ("poisoned", True, {**DONE, "differences": [], "allocations": 2, "bytes": 8}, "2 allocations of 8 bytes poisoned"),
    "all candidates": ("candidates", {}, {**DONE, "seen": 2, "tried": tried("mm", "cpp_1")}, "2 of 2 candidates ran: mm, cpp_1"),
    "bounded candidates": (
        "candidates",
        {"at_most": 2},
        {**DONE, "seen": 7, "tried": tried("mm", "cpp_1")},
        "2 of 7 candidates ran, at most 2 are tried: mm, cpp_1",
    ),
    "a candidate that cannot run": (
        "candidates",
        {"min": 1},
        {**DONE, "seen": 2, "tried": [*tried("mm"), BROKEN]},
        "1 of 2 candidates ran: mm; 1 could not run: broken (CppCompileError: no)",
    ),
}

FAILED: dict[str, tuple[str, Any, dict[str, Any], str]] = {
    "the last run": ("deterministic", {"runs": 2}, {**DONE, "runs": [[], [OTHER]]}, "run 2: output[0]: 1 of 3 elements; at [2]"),
    "the last part": ("batch_invariant", {"sizes": [2]}, parts([], [OTHER]), "elements 3 to 4 of 5: output[0]: 1 of 3"),
    "poison in the result": ("poisoned", True, {**DONE, "differences": [OTHER], "allocations": 1, "bytes": 8}, "output[0]: 1 of 3"),
    "a wrong candidate": (
        "candidates",
        {},
        {**DONE, "seen": 2, "tried": [*tried("mm"), *tried("cpp_1", **WRONG)]},
        "candidate cpp_1: greatest difference 1",
    ),
    "no candidate": ("candidates", {}, {**DONE, "seen": 0, "tried": []}, "autotuning had no candidates"),
    "too few candidates": ("candidates", {}, {**DONE, "seen": 1, "tried": tried("mm")}, "1 of 1 candidates ran: mm"),
    "no candidate that runs": (
        "candidates",
        {"min": 1},
        {**DONE, "seen": 1, "tried": [BROKEN]},
        "0 of 1 candidates ran: none; 1 could not",
    ),
}


def judgement(kind: str, body: Any, measured: Any) -> Judgement:
    (found,) = EXPECTATIONS[kind].parse(body).judge(_facts(measured), HERE)
    return found


def _facts(measured: Any) -> Any:
    from runner.model.expectation import StepFacts

    return StepFacts(measured=measured)


@pytest.mark.parametrize("name", HELD)
def test_what_passes(name: str) -> None:
    kind, body, measured, observed = HELD[name]
    found = judgement(kind, body, measured)
    assert found.status is Status.HELD, found
    assert observed in found.observed


@pytest.mark.parametrize("name", FAILED)
def test_what_fails(name: str) -> None:
    kind, body, measured, observed = FAILED[name]
    found = judgement(kind, body, measured)
    assert found.status is Status.FAILED, found
    assert observed in found.observed


BODIES: dict[str, Any] = {"deterministic": {"runs": 2}, "batch_invariant": {"sizes": [2]}, "poisoned": True, "candidates": {}}


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize(
    ("facts", "status", "words"),
    [
        (None, Status.ERROR, "nothing was measured"),
        ({}, Status.ERROR, "ended before the additional calls"),
        ({"why_not": "a package would be built again"}, Status.ERROR, "a package"),
        ({"raised": "RuntimeError: no"}, Status.FAILED, "an additional call raised RuntimeError: no"),
        ({**DONE, "tensors": 0}, Status.ERROR, "nothing to compare"),
        ({**DONE, "eager_calls": 1}, Status.ERROR, "1 of the additional calls ran no compiled graph"),
    ],
)
def test_facts_that_show_nothing(kind: str, facts: Any, status: Status, words: str) -> None:
    found = judgement(kind, BODIES[kind], facts)
    assert found.status is status
    assert words in found.observed


@pytest.mark.parametrize(
    ("kind", "measured", "words"),
    [
        ("deterministic", {**DONE, "runs": [[]]}, "1 runs were made"),
        ("batch_invariant", parts([]), "1 parts of the batch were tried"),
        ("poisoned", {**DONE, "differences": [], "allocations": 0, "bytes": 0}, "allocated no memory"),
    ],
)
def test_too_few_calls_are_an_error(kind: str, measured: Any, words: str) -> None:
    found = judgement(kind, BODIES[kind], measured)
    assert found.status is Status.ERROR
    assert words in found.observed


@pytest.mark.parametrize("kind", BODIES)
def test_a_condition_that_does_not_hold(kind: str) -> None:
    body = {**(BODIES[kind] if isinstance(BODIES[kind], dict) else {}), "when": ELSEWHERE}
    (found,) = judged(kind, body, measured=None)
    assert found.status is Status.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        ("poisoned", False, "poisoned is false"),
        ("batch_invariant", {"sizes": [1, 1]}, "an entry twice"),
        ("candidates", {"at_most": 1}, "min is 2"),
        ("candidates", {"atol": -1, "rtol": 0}, "atol is -1"),
    ],
)
def test_claims_that_mean_nothing(kind: str, body: Any, words: str) -> None:
    with pytest.raises(BadExpectation, match=words):
        EXPECTATIONS[kind].parse(body)


@pytest.mark.parametrize(("count", "most", "found"), [(3, 5, [0, 1, 2]), (7, 2, [0, 6]), (10, 4, [0, 3, 6, 9]), (5, 1, [0])])
def test_which_candidates_are_tried(count: int, most: int, found: list[int]) -> None:
    assert _spread(count, most) == found
