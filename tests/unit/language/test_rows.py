"""Rows of a matrix from other files: their ids, their types, their positions, and what depends on
them.
"""

from pathlib import Path

import pytest

from torch_conformance.language.load import inspect, load
from torch_conformance.language.read.rows import files_named
from torch_conformance.model.diagnostics import Diagnostic
from torch_conformance.plan.worker_plan import digest_of

SPEC = """summary: A product equals eager
backends: [cpu]
{matrix}
function: |
  def fn(x):
      return x * 2
inputs: [{{rand: ["{{{{ {size} }}}}"]}}]
expect: [{{close: {{to: eager}}}}]
"""
IN_MATRIX = "matrix: {row: {file: rows.csv}}"


def written(folder: Path, matrix: str = IN_MATRIX, size: str = "row.m", **files: str) -> Path:
    """Write a spec and its files; ``rows_csv`` is ``rows.csv``."""
    for name, text in files.items():
        folder.joinpath(name.replace("_", ".")).write_bytes(text.encode("utf-8", "surrogateescape"))
    spec = folder / "spec.yaml"
    spec.write_text(SPEC.format(matrix=matrix, size=size))
    return spec


def ids(spec: Path) -> list[str]:
    return [
        case.id.removeprefix("spec[backend=cpu,").removesuffix("]") for case in load([spec]).cases
    ]


CSV = "m,dtype, alpha\n4,float32,1e0\n\n5,'x,\n"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("rows_csv", CSV, ["m4_dtype-float32_alpha1.0", "m5_dtype-%27x_alpha-null"]),
        ("rows_csv", '\ufeffm;t\r\n4;"a;b"\r\n', ["m4_t-a%3Bb"]),
        ("rows_csv", "id\tm\nsmall\t4\n012\t5\n", ["small", "012"]),
        ("rows_json", '[\n\t{"m": 4, "pads": [[1], 2], "on": true}\n]', ["m4_pads1x2_on-true"]),
        ("rows_yaml", "- {m: 4, s: -1, x1: 5}\n- id: a\n  value: {m: 3}", ["m4_s--1_x1-5", "a"]),
        ("rows_yaml", f"[{{m: 4, t: {'b' * 200}}}]", [f"m4_t-{'b' * 95}-be3ad667"]),
    ],
)
def test_each_form_of_a_file_and_the_ids_of_its_rows(
    tmp_path: Path, name: str, text: str, expected: list[str]
) -> None:
    matrix = IN_MATRIX.replace("rows.csv", name.replace("_", "."))
    assert ids(written(tmp_path, matrix, **{name: text})) == [f"row={each}" for each in expected]


def test_the_values_of_csv_have_the_types_of_yaml(tmp_path: Path) -> None:
    text = "m,a,b,c,d\n0x10,1e-3,true,~,'2'\n"
    (case,) = load([written(tmp_path, rows_csv=text)]).cases
    assert case.params["row"] == {"m": 16, "a": 0.001, "b": True, "c": None, "d": "'2'"}


def test_lines_of_a_text_and_rows_without_an_id_in_the_spec(tmp_path: Path) -> None:
    matrix = "matrix: {n: {file: names.txt}, row: [{m: 4}, {m: 5, id: five}], l: [{k: [1, 2]}]}"
    spec = written(tmp_path, matrix, names_txt="# names\n7\n\naten::abs\n")
    spec.write_text(spec.read_text().replace("* 2", "* params.l['k'][0] + len(params.n)"))
    names = [(row, name) for name in ("7", "aten%3A%3Aabs") for row in ("m4", "five")]
    assert ids(spec) == [f"n={name},row={row},l=k1x2" for row, name in names]
    assert load([spec]).cases[0].params == {"n": 7, "row": {"m": 4}, "l": {"k": [1, 2]}}


def test_rows_of_include(tmp_path: Path) -> None:
    """They follow the combinations; values of a column that are equal are one value."""
    matrix = (
        "matrix: {m: [1, 2], k: [8, 9]}\n"
        "include: [{m: 3, k: 8}, {file: rows.csv}]\n"
        "exclude: [{m: 2, k: 9, reason: not here}, {m: 7, reason: nor this}]"
    )
    spec = written(tmp_path, matrix, "m + k", rows_csv="k,m\n9,7\n0x8,9\n8,10\n")
    assert ids(spec) == ["m=1,k=8", "m=1,k=9", "m=2,k=8", "m=3,k=8", "m=9,k=8", "m=10,k=8"]


def test_rows_of_include_are_the_matrix_where_there_is_none(tmp_path: Path) -> None:
    """A column of a file that the spec does not use is no mistake of the spec."""
    spec = written(tmp_path, "include: [{file: rows.csv}]", "m", rows_csv="m,note\n4,a\n5,b\n")
    assert ids(spec) == ["m=4,note=a", "m=5,note=b"]
    spec = written(tmp_path, "include: [{m: 4, note: a}]", "m")
    assert [problem.code for problem in inspect([spec]).problems] == ["unused-key"]


ROWS = "include: [{file: rows.csv}]"


@pytest.mark.parametrize(
    ("matrix", "rows", "expected"),
    [
        (IN_MATRIX, "m,n\n1,2\n3\n", "rows.csv:3:1 other-columns"),
        (IN_MATRIX, "m,m\n1,2\n", "rows.csv:1:1 bad-column"),
        (IN_MATRIX, "m,\n1,2\n", "rows.csv:1:1 bad-column"),
        (IN_MATRIX, 'm\n1\n"2\n', "rows.csv:3:1 csv-syntax"),
        (IN_MATRIX, "m\n1\n" + "9" * 30 + "\n", "rows.csv:3:1 yaml-long-number"),
        (IN_MATRIX, "m,n\n", "rows.csv:1:1 no-list-of-rows"),
        (IN_MATRIX, "m\n\udcff\n", "rows.csv:2:1 not-utf-8"),
        (IN_MATRIX, 'm,n\n1,"a\nb"\n2,c\n1,"a\nb"\n', "rows.csv:5:1 repeated-value"),
        (IN_MATRIX, "m\n" + "1\n" * 10_001, "rows.csv:10002:1 too-many-rows"),
        (IN_MATRIX, "m\n" + "1234567\n" * 200_000, "rows.csv:1:1 too-large-file"),
        (IN_MATRIX.replace("csv", "cvs"), "m\n1\n", "spec.yaml:3:22 no-file-of-rows"),
        (IN_MATRIX.replace("rows", "row"), "m\n1\n", "spec.yaml:3:22 rows-not-there"),
        (IN_MATRIX.replace("rows", "../rows"), "m\n1\n", "spec.yaml:3:22 rows-out-of-the-tree"),
        (IN_MATRIX.replace("rows", "/etc/x"), "m\n1\n", "spec.yaml:3:22 rows-out-of-the-tree"),
        (ROWS, "M\n1\n", "rows.csv:2:1 column-is-no-key"),
        (ROWS, "m\n1\n1\n", "rows.csv:3:1 repeated-row"),
        (f"matrix: {{m: [1, 2]}}\n{ROWS}", "m\n2\n", "rows.csv:2:1 repeated-row"),
        (f"matrix: {{m: [1], k: [2]}}\n{ROWS}", "m\n2\n", "rows.csv:2:1 row-lacks-keys"),
        (f"matrix: {{m: [1]}}\n{ROWS}", "m,kk\n2,3\n", "rows.csv:2:1 unknown-matrix-key"),
        ("include: [{m: 1}, {n: 1}]", "", "spec.yaml:3:19 row-lacks-keys"),
    ],
)
def test_what_is_wrong_with_rows(tmp_path: Path, matrix: str, rows: str, expected: str) -> None:
    size = "row.m" if "row:" in matrix else "m"
    problems = inspect([written(tmp_path, matrix, size, rows_csv=rows)]).problems
    found = [place(problem) for problem in sorted(problems)]
    assert expected in found
    assert len(found) <= 2


def place(problem: Diagnostic) -> str:
    position = problem.position
    name = Path(position.file).name if position else ""
    return f"{name}:{position.line}:{position.column} {problem.code}" if position else ""


def test_both_places_of_one_row_are_named(tmp_path: Path) -> None:
    (problem,) = inspect([written(tmp_path, rows_csv="m\n1\n2\n1\n")]).problems
    assert "rows.csv:4:1" in str(problem)
    assert "rows.csv:2:1 too" in str(problem)


@pytest.mark.parametrize("text", ["a: 1\n", "- [1\n", "[]\n", "- !!python/name:os.system {}\n", ""])
def test_yaml_that_is_no_list_of_rows_quotes_nothing(tmp_path: Path, text: str) -> None:
    spec = written(tmp_path, IN_MATRIX.replace("csv", "yaml"), rows_yaml=text)
    problems = inspect([spec]).problems
    assert problems
    assert all("rows.yaml" in str(problem) for problem in problems)
    assert "os.system" not in "".join(map(str, problems))


def test_a_file_of_rows_beside_specs_is_no_spec(tmp_path: Path) -> None:
    spec = written(tmp_path, IN_MATRIX.replace("csv", "yaml"), rows_yaml="[{m: 3}]")
    assert len(load([tmp_path]).cases) == 1
    spec.unlink()
    assert [problem.code for problem in inspect([tmp_path]).problems] == ["other-file"]


def test_a_changed_row_is_a_changed_spec(tmp_path: Path) -> None:
    """The header of a run, and so its archive, has the digest of the file; watch waits for it."""
    spec = written(tmp_path, rows_csv="id,m\na,1\n")
    before = load([spec])
    assert [Path(name).name for name in before.digests] == ["spec.yaml", "rows.csv"]
    (tmp_path / "rows.csv").write_text("id,m\na,2\n")
    after = load([spec])
    assert before.cases[0].id == after.cases[0].id
    assert digest_of(before.cases[0]) != digest_of(after.cases[0])
    assert before.digests != after.digests
    assert files_named(spec) == [tmp_path / "rows.csv"]
    spec.write_text(spec.read_text().replace("expect", "expct"))
    assert files_named(spec) == [tmp_path / "rows.csv"]
