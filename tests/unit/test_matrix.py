"""The points of a spec: their order, their ids, and what is excluded."""

from pathlib import Path

import pytest

from runner.language.backends import Backend, Proof
from runner.language.read import matrix
from runner.language.read.document import Document
from runner.language.read.yaml_source import parse

EMPTY = parse("{}", path=Path("backends.yaml"))


def backend(name: str, *joins: str, device: str = "cpu") -> Backend:
    names = frozenset([name, *joins])
    return Backend(
        name=name, summary="", device=device, names=names, requires=(), compiles=True, proof=Proof(), document=EMPTY, settings={}
    )


CPU, CUDA, ROCM, VENDOR = (
    backend("cpu"),
    backend("cuda", device="cuda"),
    backend("rocm", device="cuda"),
    backend("vendor", "rocm", device="cuda"),
)


def document(text: str) -> Document:
    return parse(text, path=Path("spec.yaml"))


def brackets(text: str, *backends: Backend) -> list[str]:
    found = document(text)
    axes, problems = matrix.axes(found)
    assert problems == []
    return [point.bracket for point in matrix.points(found, axes, backends or (CPU,))]


def test_backend_first_then_the_keys_in_the_order_of_the_file() -> None:
    assert brackets("matrix: {z: [1, 2], a: [x]}", CUDA, CPU) == [
        "[backend=cuda,z=1,a=x]",
        "[backend=cuda,z=2,a=x]",
        "[backend=cpu,z=1,a=x]",
        "[backend=cpu,z=2,a=x]",
    ]


@pytest.mark.parametrize(
    ("written", "label"),
    [
        *(("1e-3", "1e-3"), ("0.001", "0.001"), ("012", "012"), ("0x0A", "0x0A"), ("+1", "+1"), ("1.0", "1.0")),
        *(("true", "true"), ("True", "True"), ("null", "null"), ("~", "%7E"), (".nan", ".nan"), (".inf", ".inf")),
        *(("float32", "float32"), ("a_b.c+d-e", "a_b.c+d-e"), ("a b", "a%20b"), ("a,b", None), ("'a,b'", "a%2Cb"), ("'[x]'", "%5Bx%5D")),
        *(
            ("a=b", "a%3Db"),
            ("a/b", "a%2Fb"),
            ("a%b", "a%25b"),
            ("ä", "%C3%A4"),
            ("'😀'", "%F0%9F%98%80"),
            ('"a\\nb"', "a%0Ab"),
            ("a*b?", "a%2Ab%3F"),
        ),
        *(("''", ""), ('""', ""), ("'null'", "null"), ("'1'", "1"), ("{id: one, value: [1]}", "one"), ("{id: 1, value: {a: 1}}", "1")),
        *(("{id: true, value: x}", "true"), ("{id: 'a b', value: null}", "a%20b")),
    ],
)
def test_values_stand_in_an_id_as_they_stand_in_the_file(written: str, label: str | None) -> None:
    if label is None:
        assert brackets(f"matrix:\n  v: [{written}]") == ["[backend=cpu,v=a]", "[backend=cpu,v=b]"]
        return
    assert brackets(f"matrix:\n  v: [{written}]") == [f"[backend=cpu,v={label}]"]


# -- mistakes -------------------------------------------------------------------------------------------------------


def test_values_that_would_have_one_id() -> None:
    _, problems = matrix.axes(document("matrix: {a: [1, '1', 1.0, {id: '1.0', value: 3}], b: ['', '', ~, null]}"))
    assert [problem.message for problem in problems] == [
        "the value 1 of 'a' is repeated",
        "the value 1.0 of 'a' is repeated",
        "the value  of 'b' is repeated",
    ]


@pytest.mark.parametrize(("values", "backends", "good"), [(100, 1, True), (101, 1, False), (50, 4, True), (50, 5, False)])
def test_the_largest_matrix(values: int, backends: int, good: bool) -> None:
    row = "[" + ", ".join(map(str, range(values))) + "]"
    found = document(f"matrix: {{a: {row}, b: {row}}}")
    axes, _ = matrix.axes(found)
    problem = matrix.size_problem(found, axes, backends)
    assert (problem is None) is good
    assert problem is None or problem.message == f"a matrix of {values * values * backends:,} cases; at most 10,000 are expanded"


# -- exclude --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("exclusion", "left"),
    [
        ("a: 1", ["a=2,b=x", "a=2,b=y"]),
        ("a: 1, b: x", ["a=1,b=y", "a=2,b=x", "a=2,b=y"]),
        ("a: [1, 2], b: x", ["a=1,b=y", "a=2,b=y"]),
        ("backend: cpu, b: x", ["a=1,b=y", "a=2,b=y"]),
        ("backend: cuda, b: x", ["a=1,b=x", "a=1,b=y", "a=2,b=x", "a=2,b=y"]),
        ("backend: [cuda, cpu], b: [x, y], a: 2", ["a=1,b=x", "a=1,b=y"]),
    ],
)
def test_all_keys_must_match_and_a_list_means_any(exclusion: str, left: list[str]) -> None:
    found = brackets(f"matrix: {{a: [1, 2], b: [x, y]}}\nexclude: [{{{exclusion}, reason: it fails}}]")
    assert [bracket.removeprefix("[backend=cpu,").removesuffix("]") for bracket in found] == left


def test_excluding_a_backend_also_excludes_those_that_join_it() -> None:
    text = "matrix: {a: [1, 2]}\nexclude: [{backend: rocm, a: 1, reason: it fails}]"
    assert brackets(text, CUDA, ROCM, VENDOR) == [
        *("[backend=cuda,a=1]", "[backend=cuda,a=2]"),
        "[backend=rocm,a=2]",
        "[backend=vendor,a=2]",
    ]
    assert brackets(text.replace("rocm", "vendor"), ROCM, VENDOR) == ["[backend=rocm,a=1]", "[backend=rocm,a=2]", "[backend=vendor,a=2]"]


@pytest.mark.parametrize(
    ("values", "wanted", "left"),
    [
        ("[1, 1.0, '1x', true]", "1", ["1.0", "1x", "true"]),
        ("[1, 1.0, '1x', true]", "1.0", ["1", "1x", "true"]),
        ("[1, true]", "true", ["1"]),
        ("[null, 0, false]", "null", ["0", "false"]),
        ("[.nan, 1.5]", ".nan", ["1.5"]),
        ("[{id: square, value: [4, 4]}, {id: long, value: [1, 16]}]", "square", ["long"]),
        ("[{id: square, value: [4, 4]}, {id: long, value: [1, 16]}]", "[[4, 4]]", ["long"]),
        ("[{id: 1, value: [4, 4]}, 2]", "1", ["2"]),
        ("[{id: half, value: float16}, float32]", "half", ["float32"]),
        ("[{id: half, value: float16}, float32]", "float16", ["float32"]),
    ],
)
def test_a_value_is_excluded_by_itself_or_by_the_id_it_was_given(values: str, wanted: str, left: list[str]) -> None:
    found = document(f"matrix: {{v: {values}}}\nexclude: [{{v: {wanted}, reason: it fails}}]")
    axes, _ = matrix.axes(found)
    assert matrix.exclusion_problems(found, axes, [CPU]) == []
    assert [point.labels["v"] for point in matrix.points(found, axes, [CPU])] == left


@pytest.mark.parametrize(
    ("exclusion", "message"),
    [
        ("v: 3", "'v' is never 3: this excludes nothing"),
        ("v: '1'", "'v' is never \"1\": this excludes nothing"),
        ("v: 1.0", "'v' is never 1.0: this excludes nothing"),
        ("v: true", "'v' is never true: this excludes nothing"),
        ("v: [1, 3]", "'v' is never 3: this excludes nothing"),
        ("v: {id: 1}", "'v' is never {\"id\": 1}: this excludes nothing"),
        ("v: []", "an empty list for 'v': this excludes nothing"),
        ("backend: cuda", "'backend' is never \"cuda\": this excludes nothing"),
        ("backend: [{a: 1}]", "'backend' is never {\"a\": 1}: this excludes nothing"),
        ("w: 1", "unknown matrix key 'w'"),
        ("device: cpu", "unknown matrix key 'device'"),
    ],
)
def test_what_excludes_nothing(exclusion: str, message: str) -> None:
    found = document(f"matrix: {{v: [1, 2]}}\nexclude: [{{{exclusion}, reason: it fails}}]")
    (problem,) = matrix.exclusion_problems(found, matrix.axes(found)[0], [CPU])
    assert problem.message == message
    assert problem.hint
