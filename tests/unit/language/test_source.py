"""The reader: YAML 1.2 core values, a place for every value, and bounds that hold before anything
is built.
"""

import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fakes import ROOT
from torch_conformance.language.read.yaml_source import (
    MAX_DEPTH,
    MAX_NODES,
    MAX_TEXT,
    parse,
    read,
    resolve,
)
from torch_conformance.model.diagnostics import InvalidSpecs
from torch_conformance.model.document import Document

SPECS = sorted((ROOT / "specs").rglob("*.yaml"))
HERE = Path("spec.yaml")


def document(text: str) -> Document:
    return parse(text, path=HERE)


def codes(text: str) -> list[str]:
    """Return line, column and code of each problem."""
    with pytest.raises(InvalidSpecs) as caught:
        document(text)
    return [
        f"{problem.position.line}:{problem.position.column} {problem.code}"
        for problem in caught.value.diagnostics
    ]


# -- values ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "value"),
    [
        *(
            ("", None),
            ("~", None),
            ("null", None),
            ("Null", None),
            ("NULL", None),
            ("nULL", "nULL"),
        ),
        *(("true", True), ("True", True), ("FALSE", False), ("tRUE", "tRUE")),
        *(("on", "on"), ("off", "off"), ("yes", "yes"), ("No", "No"), ("y", "y"), ("n", "n")),
        *(
            ("0", 0),
            ("-1", -1),
            ("+12", 12),
            ("012", 12),
            ("0o14", 12),
            ("0xC", 12),
            ("0xc", 12),
            ("-0", 0),
        ),
        *(
            ("0b1", "0b1"),
            ("1_000", "1_000"),
            ("1:30", "1:30"),
            ("0o8", "0o8"),
            ("0xg", "0xg"),
            ("+0x1", "+0x1"),
        ),
        *(
            ("1e-3", 1e-3),
            ("1E3", 1000.0),
            ("1.", 1.0),
            (".5", 0.5),
            ("-.5", -0.5),
            ("+1.5e+2", 150.0),
            ("1e3", 1000.0),
        ),
        *(
            ("1.2.3", "1.2.3"),
            (".", "."),
            ("e3", "e3"),
            ("1e", "1e"),
            ("-", "-"),
            ("+", "+"),
            ("1,5", "1,5"),
            ("٣", "٣"),
        ),
        *(
            (".inf", math.inf),
            ("-.Inf", -math.inf),
            ("+.INF", math.inf),
            (".iNF", ".iNF"),
            ("inf", "inf"),
            ("nan", "nan"),
        ),
        *(("2024-01-01", "2024-01-01"), ("=", "="), ("<<", "<<"), ("1 ", "1 ")),
    ],
)
def test_plain_scalars_are_those_of_yaml_1_2(written: str, value: Any) -> None:
    found = resolve(written)
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    ("digits", "good"),
    [
        (str(2**64 - 1), True),
        (str(2**64), False),
        (str(-(2**63)), True),
        (str(-(2**63) - 1), False),
        ("0x" + "f" * 16, True),
        ("0x1" + "0" * 16, False),
        ("0" * 90 + "1", True),
        ("9" * 5000, False),
    ],
)
def test_the_greatest_whole_number(digits: str, good: bool) -> None:
    if good:
        assert isinstance(document(f"a: {digits}").data["a"], int)
    else:
        assert codes(f"a: {digits}") == ["1:4 yaml-long-number"]


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.name)
def test_structure_and_text_match_another_parser(path: Path) -> None:
    """PyYAML's own constructor, which makes text of every scalar, must see the same maps and lists
    and texts.
    """
    found = read(path)

    def as_written(value: Any, place: tuple[Any, ...]) -> Any:
        if isinstance(value, dict):
            return {key: as_written(item, (*place, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [as_written(item, (*place, index)) for index, item in enumerate(value)]
        return found.marks[place].raw

    assert as_written(found.data, ()) == yaml.load(path.read_text("utf-8"), Loader=yaml.BaseLoader)


# -- places ----------------------------------------------------------------------------------------


def values_below(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [place, *(found for key, item in inner for found in values_below(item, (*place, key)))]


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.name)
def test_positions_of_all_values_in_shipped_specs_are_correct(path: Path) -> None:
    found = read(path)
    lines = path.read_text("utf-8").split("\n")
    assert set(found.marks) == set(values_below(found.data))
    for place, mark in found.marks.items():
        rest = lines[mark.line - 1][mark.column - 1 :]
        if mark.raw is None:
            continue  # a list or a map begins with its first entry
        quote = {"'": "'", '"': '"', "|": "|", ">": ">"}.get(mark.style or "", "")
        assert rest.startswith(quote + ("" if quote in "|>" and quote else mark.raw[:1])), (
            place,
            rest,
        )
    for place, mark in found.key_marks.items():
        assert lines[mark.line - 1][mark.column - 1 :].lstrip("'\"").startswith(place[-1])


def test_columns_count_characters() -> None:
    found = document("a: ['ä😀', {b: 1}]\n")
    assert (found.marks["a", 1, "b"].line, found.marks["a", 1, "b"].column) == (1, 15)
    assert found.key_marks["a", 1, "b"].column == 12


@pytest.mark.parametrize("end", ["\r\n", "\r", "\n"])
@pytest.mark.parametrize("start", ["", "\ufeff"])
def test_line_ends_and_byte_order_mark_do_not_move_positions(
    end: str, start: str, tmp_path: Path
) -> None:
    (tmp_path / "spec.yaml").write_bytes(
        (start + f"a: 1{end}b:{end}  - c: |{end}      x{end}").encode()
    )
    found = read(tmp_path / "spec.yaml")
    assert found.data == {"a": 1, "b": [{"c": "x\n"}]}
    assert (found.marks["b", 0, "c"].line, found.marks["b", 0, "c"].column) == (3, 8)
    assert (found.marks["a",].line, found.marks["a",].column, found.key_marks["a",].column) == (
        1,
        4,
        1,
    )


def test_path_without_position_has_position_of_enclosing_value() -> None:
    found = document("a:\n  b: 1\n")
    places = {(): "1:1", ("a",): "2:3", ("a", "b"): "2:6", ("a", "c"): "2:3", ("x", "y"): "1:1"}
    assert {
        place: str(found.position(place)).removeprefix("spec.yaml:") for place in places
    } == places
    assert str(found.position(("a", "b"), key=True)) == "spec.yaml:2:3"
    assert str(found.position(("a", "c"), key=True)) == "spec.yaml:2:3"


def test_alias_has_its_own_position() -> None:
    found = document("a: &x [1, {b: 2}]\nc: *x\n")
    assert found.data["c"] == [1, {"b": 2}]
    assert str(found.position(("c",))) == str(found.position(("c", 1, "b"))) == "spec.yaml:2:4"


# -- bounds ----------------------------------------------------------------------------------------


def test_all_problems_of_a_file_are_reported() -> None:
    assert codes("a: !x 1\na: 2\nb: !!set {}\n'<<': 3\n<<: 4\n") == [
        "1:4 yaml-tag",
        "2:1 yaml-repeated-key",
        "3:4 yaml-tag",
        "5:1 yaml-merge-key",
        "5:1 yaml-repeated-key",
    ]


def test_depth_is_bounded_and_aliases_count() -> None:
    for opened, closed in (("[", "]"), ("{a: ", "}")):
        deepest = opened * MAX_DEPTH + "1" + closed * MAX_DEPTH
        assert document(deepest).data
        assert codes(opened + deepest + closed)[0].endswith("yaml-too-deep")
    chain = "".join(f"x{index}: &x{index} [*x{index - 1}]\n" for index in range(1, MAX_DEPTH - 1))
    assert document("x0: &x0 [1]\n" + chain).data
    assert codes("x0: &x0 [1]\n" + chain + f"y: &y [*x{MAX_DEPTH - 2}]\nz: [*y]\n")[0].endswith(
        "yaml-too-deep"
    )


@pytest.mark.parametrize(
    ("part", "place"),
    [
        ("[", f"1:{MAX_DEPTH + 1}"),
        ("[\n", f"{MAX_DEPTH + 1}:1"),
        ("{a: ", f"1:{4 * MAX_DEPTH + 1}"),
    ],
)
def test_hundred_thousand_levels_do_not_exhaust_stack(part: str, place: str) -> None:
    assert codes(part * 100_000) == [f"{place} yaml-too-deep"]


def test_size_is_bounded_and_aliases_count_as_often_as_they_are_used() -> None:
    assert len(document("[" + "1," * (MAX_NODES - 1) + "]").data) == MAX_NODES - 1
    half = "&a [" + "1," * (MAX_NODES // 2) + "]"
    assert document(f"a: {half}\n").data
    text = "x" * (MAX_TEXT // 8)
    texts = f"a: [&a {text}, *a]\nb: &b {{c: *a, d: [*a]}}\ne: [*b, *b]\n"
    assert len(document(texts).data) == 3
    for large in (
        "[" + "1," * MAX_NODES + "]",
        f"a: {half}\nb: *a\n",
        *(f"{texts}{more}\n" for more in ("f: x", "f: *a", "f: *b")),
    ):
        assert codes(large)[0].endswith("yaml-too-large")
