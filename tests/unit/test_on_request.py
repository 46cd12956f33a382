"""``on_request: true``: which specs a run executes, and that it says how many it left out."""

import dataclasses
from pathlib import Path

import pytest

from runner.cli.parser import parse
from runner.language.backends import load_backends
from runner.model.case import Case, CaseId
from runner.model.diagnostics import UsageError
from runner.model.options import RunOptions
from runner.plan.selection import requested, select
from runner.run.preparation import Prepared, prepare
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


def test_a_tag_after_an_exclamation_mark_excludes() -> None:
    assert select(CASES, load_backends(), tags=["!operators"]) == [one for one in CASES if "operators" not in one.tags]
    assert select(CASES, load_backends(), tags=["both", "!operators"]) == [USUAL]
    assert select(CASES, load_backends(), tags=["!both", "!operators"]) == [MIXED]
    assert requested([USUAL, *FAMILY], CASES, paths=[], globs=[], tags=["!both"]) == [USUAL]
    with pytest.raises(UsageError, match="unknown tag 'operator'"):
        select(CASES, load_backends(), tags=["!operator"])


def chosen(folder: Path, *arguments: str) -> Prepared:
    """Return what a run of a folder selects: one usual spec and one on request of two cases."""
    api = "summary: A claim about a library function\nbackends: [host]\nsteps:\n  - api: {call: operator.pos, args: [1], as: n}\n"
    (folder / "usual.yaml").write_text(f"{api}    expect: [{{equals: {{n: 1}}}}]\n")
    many = "tags: [many]\non_request: true\nmatrix: {repeat: [1, 2]}\n"
    (folder / "family.yaml").write_text(f"{api}    expect: [{{equals: {{n: 1}}}}]\n{many}")
    _, options = parse(["run", *arguments])
    assert isinstance(options, RunOptions)
    return prepare(options)


def test_a_run_leaves_them_out(tmp_path: Path) -> None:
    found = chosen(tmp_path, str(tmp_path))
    assert [one.name for one in found.selected] == ["usual"]
    assert (found.header.not_requested, len(found.suite.cases)) == (0, 3), "they are read, and not told of to who gave a path"


@pytest.mark.parametrize("arguments", [["family.yaml"], [".", "--tag", "many"], [".", "--select", "family*"]])
def test_a_run_that_names_them_selects_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    monkeypatch.chdir(tmp_path)
    found = chosen(tmp_path, *arguments)
    assert [one.name for one in found.selected] == ["family", "family"]
    assert found.header.not_requested == 0
