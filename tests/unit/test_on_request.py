"""``on_request: true``: which specs a run executes, and that it says how many it left out."""

import dataclasses
from pathlib import Path

import pytest

from runner.core.case import Case, CaseId
from runner.core.diagnostics import UsageError
from runner.language.backends import load_backends
from runner.plan.on_request import requested
from runner.plan.selection import select
from tests.fakes import case


def made(id: str, *, on_request: bool, tags: tuple[str, ...] = ()) -> Case:
    spec = f"specs/{id.partition('[')[0]}.yaml"
    return dataclasses.replace(case(), id=CaseId(id), spec=spec, on_request=on_request, tags=tags)


USUAL = made("area/usual[backend=cpu,op=add]", on_request=False, tags=("both",))
FAMILY = [made(f"operators/family[backend=cpu,op={op}]", on_request=True, tags=("operators", "both")) for op in ("add", "mul")]
MIXED = made("area/large[backend=cpu]", on_request=True)
CASES = [USUAL, *FAMILY, MIXED]


@pytest.mark.parametrize(
    ("paths", "globs", "tags", "expected"),
    [
        ((), (), (), [USUAL]),
        (("specs",), (), (), [USUAL]),
        (("specs/operators",), (), (), [USUAL, *FAMILY]),
        (("specs/operators/family.yaml",), (), (), [USUAL, *FAMILY]),
        (("specs/area",), (), (), [USUAL]),
        (("specs/area/large.yaml",), (), (), [USUAL, MIXED]),
        ((), ("*",), (), [USUAL]),
        ((), ("*op=add*",), (), [USUAL]),
        ((), ("*op=mul*",), (), [USUAL, FAMILY[1]]),
        ((), ("operators/*",), (), [USUAL, *FAMILY]),
        ((), (FAMILY[0].id,), (), [USUAL, FAMILY[0]]),
        ((), (), ("operators",), [USUAL, *FAMILY]),
        ((), (), ("both",), [USUAL, *FAMILY]),
        ((), (), ("another",), [USUAL]),
    ],
)
def test_what_names_a_spec_on_request(paths: tuple[str, ...], globs: tuple[str, ...], tags: tuple[str, ...], expected: list[Case]) -> None:
    found = requested(CASES, CASES, paths=list(map(Path, paths)), globs=globs, tags=tags)
    assert [one.id for one in found] == [one.id for one in expected]


def test_a_tag_selects_and_an_unknown_one_is_told() -> None:
    assert select(CASES, load_backends(), tags=["operators"]) == FAMILY
    assert select(CASES, load_backends(), tags=["operators", "both"]) == [USUAL, *FAMILY]
    with pytest.raises(UsageError, match="operators"):
        select(CASES, load_backends(), tags=["operator"])
