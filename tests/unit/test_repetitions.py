"""The side effects of a step with ``repeat``: those of every repetition count."""

from typing import Any

from runner.worker.case.effects import with_repetition
from tests.fakes import close_leaf


def leaf(path: str, mismatches: int = 1) -> dict[str, Any]:
    """Return the facts of a tensor that differs from eager's, by more than the tolerance where there are mismatches."""
    return {**close_leaf(excess=1.0, mismatches=mismatches), "path": path}


def facts(*paths: str, apart: tuple[str, ...] = (), generators: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"compared": 3, "changes": 1, "apart": list(apart), "leaves": [leaf(path) for path in paths], "generators": list(generators)}


def test_what_differs_after_the_first_repetition_is_kept_although_it_is_apart_before_the_second() -> None:
    found = with_repetition(facts("argument [0]"), facts(apart=("argument [0]", "argument [1]")))
    assert found["leaves"] == [leaf("argument [0]")]
    assert found["apart"] == ["argument [1]"]


def test_each_path_is_reported_once_and_generators_of_all_repetitions_are_judged() -> None:
    found = with_repetition(facts("a", generators=("first",)), facts("a", "b", generators=("second",)))
    assert [one["path"] for one in found["leaves"]] == ["a", "b"]
    assert found["generators"] == ["first", "second"]


def test_a_value_that_is_near_is_judged_after_each_repetition() -> None:
    near = {**facts(), "leaves": [leaf("a", mismatches=0)]}
    found = with_repetition(near, facts("a", apart=("b",)))
    assert found["leaves"] == [leaf("a", mismatches=0), leaf("a")]
    assert with_repetition(facts("a"), near)["leaves"] == [leaf("a")]


def test_the_first_repetition_is_as_it_is() -> None:
    assert with_repetition(None, facts("a")) == facts("a")
