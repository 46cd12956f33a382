"""The side effects of a step with ``repeat``: those of every repetition count."""

from typing import Any

from runner.worker.case.repetitions import with_repetition


def facts(*paths: str, apart: tuple[str, ...] = (), generators: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"compared": 3, "apart": list(apart), "leaves": [{"path": path} for path in paths], "generators": list(generators)}


def test_what_differs_after_the_first_repetition_is_kept_although_it_is_apart_before_the_second() -> None:
    found = with_repetition(facts("argument [0]"), facts(apart=("argument [0]", "argument [1]")))
    assert found["leaves"] == [{"path": "argument [0]"}]
    assert found["apart"] == ["argument [1]"]


def test_each_path_is_reported_once_and_generators_of_all_repetitions_are_judged() -> None:
    found = with_repetition(facts("a", generators=("first",)), facts("a", "b", generators=("second",)))
    assert [leaf["path"] for leaf in found["leaves"]] == ["a", "b"]
    assert found["generators"] == ["first", "second"]


def test_the_first_repetition_is_as_it_is() -> None:
    assert with_repetition(None, facts("a")) == facts("a")
