"""The table of samples of mutants: what is counted where, and how records are joined."""

from typing import Any

import pytest

from tools.mutants.named import Named, Survivor
from tools.mutants.table import rates, read


def record(
    mutants: dict[str, dict[str, str]], torch: str = "2.13.0", seed: int | None = 1
) -> dict[str, Any]:
    """Return a record; each mutant is called ``MODULE:LINE`` and is a ``not`` in the function f."""
    rows = [
        {
            "name": f"{name}:not:{name[-1]}",
            "function": "f",
            "difference": f"-{name}\n+not {name}",
            "cases": cases,
        }
        for name, cases in mutants.items()
    ]
    return {"torch": torch, "seed": seed, "reached": {"a": 7, "b": 3}, "mutants": rows}


def mutant(name: str) -> Named:
    return Named(name.partition(":")[0], "f", "not", f"-{name}\n+not {name}")


def row(text: str, module: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {module} |")]
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_each_mutant_is_counted_once_and_in_one_place() -> None:
    first = {
        "a:1": {"x": "FAIL"},
        "a:2": {"x": "ERROR"},
        "a:3": {"x": "PASS"},
        "a:4": {"x": "PASS"},
        "b:5": {"x": "TIMEOUT"},
        "b:6": {},
    }
    again = {
        "a:3": {"y": "PASS"},
        "a:4": {"y": "PASS"},
        "b:5": {"x": "PASS", "y": "CRASH"},
        "b:7": {"x": "TIMEOUT"},
    }
    sample = read([record(first), record(again, seed=None)])
    said = [Survivor(mutant("a:3"), "equivalent", "a reason", "")]
    text = "\n".join(rates(sample, said))
    assert row(text, "a") == ["7", "4", "2", "1", "2", "1", "67 %", "0"]
    assert row(text, "b") == ["3", "1", "1", "0", "0", "0", "100 %", "1"]
    assert row(text, "all") == ["10", "5", "3", "1", "2", "1", "75 %", "1"]
    assert "equivalent: 1, not read yet: 1. Not planted in any case: 1." in text
    survived = [row.outcomes for row in sample.rows if row.status == "survived"]
    assert survived == [{"x": "PASS", "y": "PASS"}] * 2


def test_a_rate_of_nothing_is_no_number() -> None:
    text = "\n".join(rates(read([record({"a:1": {}})]), []))
    assert row(text, "all") == ["10", "0", "0", "0", "0", "0", "-", "0"]


def test_records_of_several_versions_are_refused() -> None:
    with pytest.raises(ValueError, match="several versions of torch"):
        read([record({}), record({}, torch="2.12.0")])
