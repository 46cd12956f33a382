"""What ``list --coverage`` prints: lines for people, and JSON. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from runner.language.upstream import Covered


def as_json(found: Sequence[Covered]) -> Mapping[str, Any]:
    """Return what ``list --coverage --json`` says."""
    tests = [
        {
            "row": one.test.row,
            "test": one.test.name,
            "covered": not one.missing,
            "instances": [{"id": identity, "cases": [case.id for case in cases]} for identity, cases in one.cases.items()],
            "specs": one.specs,
        }
        for one in found
    ]
    return {"format": 1, "tests": tests, "totals": _totals(found)}


def _totals(found: Sequence[Covered]) -> Mapping[str, int]:
    return {
        "tests": len(found),
        "covered_tests": sum(not one.missing for one in found),
        "instances": sum(len(one.cases) for one in found),
        "covered_instances": sum(len(one.cases) - len(one.missing) for one in found),
    }


def lines(found: Sequence[Covered]) -> Iterator[str]:
    """Yield a line for each upstream test, and for each instance that is missing; then the totals."""
    for one in found:
        size = len(one.cases)
        parts = [f"row {one.test.row:2}", one.test.name, f"{size - len(one.missing)} of {size} instance{'' if size == 1 else 's'}"]
        parts += [f"{spec} ({count} case{'' if count == 1 else 's'})" for spec, count in one.specs.items()]
        yield "  ".join(parts if one.specs else [*parts, "missing"])
        if one.specs:
            yield from (f"        missing {identity}" for identity in one.missing)
    totals = _totals(found)
    yield f"{totals['covered_tests']} of {totals['tests']} tests, {totals['covered_instances']} of {totals['instances']} instances covered"
