"""The coverage ledger: no case vanishes unnoticed. Nothing here imports torch."""

import re
from pathlib import Path

import pytest

from tests.fakes import ROOT, shipped_suite, write_specs
from torch_conformance.cli.parser import main
from torch_conformance.model.folded_ids import fold, unfold
from torch_conformance.model.outcomes import ExitCode
from torch_conformance.plan.case_ledger import NAME

SPEC = """\
summary: Twice a tensor is computed
backends: [cpu]
matrix: {dtype: [float32, float64], size: [2, 3]}
function: |
  def twice(x):
      return x * 2
inputs: [{rand: ["{{ size }}"], dtype: "{{ dtype }}"}]
expect: [{runs: {}}]
"""
TWO = "area/two[backend=cpu,dtype=float32|float64,size=2|3]"


def test_the_shipped_ledger_has_every_case(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shipped, copy = ROOT / "specs" / NAME, tmp_path / NAME
    assert main(["list", str(ROOT / "specs"), "--against", str(shipped)]) == ExitCode.OK
    said = capsys.readouterr()
    assert ": 0 gone, 0 outside the paths" in said.out
    assert "not in the ledger yet" not in said.err, (
        "run: torch-conformance list --update specs/ledger.txt"
    )
    cases = shipped_suite().cases
    assert not {case.spec for case in cases if case.on_request and not case.because}, (
        "on_request says why"
    )
    usual = {case.name for case in cases if not case.on_request and case.device == "cpu"}
    on_cpu = {
        word
        for case in cases
        if case.device == "cpu"
        for word in re.split("[ ;,]", case.because.partition("on GPUs")[0])
    }
    assert {case.name for case in cases} & on_cpu - usual == set(), (
        "a spec that a reason names runs by default"
    )
    copy.write_bytes(shipped.read_bytes())
    assert main(["list", str(ROOT / "specs"), "--update", str(copy)]) == ExitCode.OK
    assert copy.read_bytes() == shipped.read_bytes(), (
        "the ledger is sorted and folded as 'list --update' writes it"
    )


# -- folding ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ids", "lines"),
    [
        ([], []),
        (["a/b"], ["a/b"]),
        (["a/b[backend=cpu]", "a/b[backend=cuda]"], ["a/b[backend=cpu|cuda]"]),
        (["a/b[backend=cpu]", "a/c[backend=cpu]"], ["a/b[backend=cpu]", "a/c[backend=cpu]"]),
        (["a[b=1,c=1]", "a[b=1,c=2]", "a[b=2,c=1]"], ["a[b=1,c=1|2]", "a[b=2,c=1]"]),
        (["a[b=1,c=1]", "a[b=2,d=1]", "a[b=3]"], ["a[b=1,c=1]", "a[b=2,d=1]", "a[b=3]"]),
        (["a", "a[b=1]"], ["a", "a[b=1]"]),
        (["a[b=1]", "a[b=1,c=2]"], ["a[b=1]", "a[b=1,c=2]"]),
    ],
)
def test_a_fold_stands_for_its_ids_alone(ids: list[str], lines: list[str]) -> None:
    assert fold(ids) == lines
    assert sorted(case_id for line in lines for case_id in unfold(line)) == sorted(ids)


def test_six_thousand_ids_stay_readable_and_a_new_operator_is_one_new_line() -> None:
    ids = [
        f"operators/opinfo[backend={backend},op=op{op},dtype={dtype},dynamic={dynamic}]"
        for backend in ("cpu", "cuda", "rocm")
        for op in range(500)
        for dtype in ("float32", "bfloat16")
        for dynamic in ("false", "true")
    ]
    lines = fold(ids)
    assert len(ids) == 6000
    assert sum(map(len, lines)) < 64_000
    assert {case_id for line in lines for case_id in unfold(line)} == set(ids)
    more = fold([*ids, ids[0].replace("op0", "new")])
    assert len(set(more) - set(lines)) == 1
    assert set(lines) <= set(more)


# -- list ------------------------------------------------------------------------------------------


@pytest.fixture
def specs(here: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Return a folder with two specs and their ledger."""
    write_specs(here, dict.fromkeys(("area/one", "area/two"), SPEC))
    assert main(["list", "specs", "--update", "specs/ledger.txt"]) == ExitCode.OK
    capsys.readouterr()
    return here / "specs"


def test_a_new_ledger_has_all_cases_in_a_line_for_each_spec(
    specs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["list", "specs", "--update", "again.txt"]) == ExitCode.OK
    assert capsys.readouterr().out == "again.txt: 8 cases, 8 of them new; 0 gone\n"
    lines = [
        line
        for line in (specs / NAME).read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert lines == [TWO.replace("two", "one"), TWO]
    assert main(["list", "specs", "--against", "specs/ledger.txt"]) == ExitCode.OK
    assert capsys.readouterr().out.startswith("8 cases in specs/ledger.txt: 0 gone")


def test_a_spec_or_a_value_that_is_gone_fails_until_the_ledger_is_written_again(
    specs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (specs / "area" / "two.yaml").unlink()
    (specs / "area" / "one.yaml").write_text(SPEC.replace("[2, 3]", "[2]"))
    assert main(["list", "specs", "--against", "specs/ledger.txt"]) == ExitCode.FAILED
    said = capsys.readouterr().out
    assert f"specs/ledger.txt:5:1: 4 cases are gone: {TWO}" in said
    half = "area/one[backend=cpu,dtype=float32|float64,size=3]"
    assert f"specs/ledger.txt:4:1: 2 cases are gone: {half}" in said
    assert main(["list", "specs", "--update", "specs/ledger.txt"]) == ExitCode.OK
    assert (
        capsys.readouterr().out
        == f"specs/ledger.txt: 2 cases, 0 of them new; 6 gone\n{half}\n{TWO}\n"
    )
    assert main(["list", "specs", "--against", "specs/ledger.txt"]) == ExitCode.OK


@pytest.mark.parametrize("text", ["", "# a comment alone\n"])
def test_a_ledger_without_cases_is_refused(
    specs: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    (specs / NAME).write_text(text, "utf-8")
    assert main(["list", "specs", "--against", "specs/ledger.txt"]) == ExitCode.USAGE
    assert (
        "specs/ledger.txt lists no case: restore it, or rewrite it with list --update "
        "specs/ledger.txt" in capsys.readouterr().err
    )


def test_specs_outside_the_paths_are_not_lost(
    specs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["list", "specs/area/one.yaml", "--against", "specs/ledger.txt"]) == ExitCode.OK
    assert "8 outside the paths" in capsys.readouterr().out
    assert (
        main(["list", str(ROOT / "specs" / "basics"), "--against", str(ROOT / "specs" / NAME)])
        == ExitCode.OK
    )
    assert ": 0 gone, " in capsys.readouterr().out


def test_a_malformed_line_is_a_problem_with_its_position(
    specs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (specs / NAME).open("a") as stream:
        stream.write("a[b\n")
    assert main(["list", "specs", "--against", "specs/ledger.txt"]) == ExitCode.USAGE
    assert "specs/ledger.txt:6:1: 'a[b' does not end with ']'" in capsys.readouterr().err
