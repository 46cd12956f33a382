"""Facts of a case that contradict each other: the rules about inductor's entry, on steps made by hand."""

from typing import Any

import pytest

from runner.judge.evidence import CarriedOut, carried_out
from runner.tools.vendor.contradictions import disagreements
from tests.fakes import backend, case, observation, observed, seen, step

NEVER = "graphs were compiled or loaded, and inductor was never entered"


def carried(*pairs: tuple[str, dict[str, Any]]) -> list[CarriedOut]:
    facts = observed(observation(*(found for _, found in pairs)))
    return list(carried_out(case(*(step(kind=kind) for kind, _ in pairs)), facts.steps))


def found(*pairs: tuple[str, dict[str, Any]]) -> list[str]:
    facts = observed(observation(*(one for _, one in pairs)))
    return list(disagreements(backend(), {}, facts, carried(*pairs)))


@pytest.mark.parametrize("kind", ["api", "script"])
def test_python_of_a_spec_may_compile_a_graph_behind_the_entry(kind: str) -> None:
    """As specs/upstream/permuted-input-beside-scalar does, which calls compile_fx_inner."""
    behind = seen(entered=0, code=1, executed={}, executed_others={"cpu": 1})
    assert found((kind, behind)) == []
    assert found((kind, seen(entered=0, graphs=[], executed={}, counters={}, metrics={})), (kind, behind)) == []


def test_a_call_that_compiled_a_graph_entered_inductor() -> None:
    assert found(("call", seen(code=1))) == []
    assert found(("call", seen(entered=0, code=1))) == [NEVER]
    assert found(("api", seen(entered=0, code=1)), ("call", seen(entered=0, code=1))) == [NEVER]
    assert found(("api", seen(entered=1, code=1)), ("call", seen(entered=0, code=1))) == []
