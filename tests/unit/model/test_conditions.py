"""Conditions are structure: ranges of versions, names, and what holds where."""

from typing import Any

import pytest

from torch_conformance.model.conditions import BadRange, Surroundings, VersionRange, choose, holds

HERE = Surroundings(
    backends=frozenset(["vendor", "rocm"]),
    device="cuda:1",
    torch=(2, 13, 0),
    python=(3, 12, 1),
    vendor="amd",
    arch="gfx942",
    code="extern_kernels.mm(a, b)\nreturn",
)
NOWHERE = Surroundings(backends=frozenset(["cpu"]), device="cpu")


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        (
            ">=2.12",
            ["2.12", "2.12.0", "2.12.1", "2.13", "3.0", "2.100"],
            ["2.11", "2.11.9", "2.1", "1.99"],
        ),
        (">2.12", ["2.12.1", "2.13"], ["2.12", "2.12.0", "2.11"]),
        ("<=2.12", ["2.12", "2.12.0", "2.11.9"], ["2.12.1", "2.13"]),
        ("<2.12", ["2.11.9", "2.2"], ["2.12", "2.12.0"]),
        ("==2.12", ["2.12", "2.12.0"], ["2.12.1", "2.1", "2.120"]),
        ("!=2.12", ["2.12.1", "2.11"], ["2.12", "2.12.0"]),
        (">=2.11,<2.13", ["2.11", "2.12.9"], ["2.13", "2.10"]),
        (" >= v2.11 , < 2.13 ", ["2.11"], ["2.13"]),
        (">=2", ["2.0", "2"], ["1.9"]),
        (">3.11.8", ["3.11.9", "3.12"], ["3.11.8", "3.11"]),
    ],
)
def test_ranges(text: str, inside: list[str], outside: list[str]) -> None:
    found = VersionRange.parse(text)
    numbers = {version: tuple(map(int, version.split("."))) for version in [*inside, *outside]}
    assert [version for version in numbers if found.holds(numbers[version])] == inside


_NO_RANGES = "2.12 >= ~=2.12 >=2.x >=2.12, , =2.12 latest >=2.12a0 >=-1 >=2..1 >=٢".split()


@pytest.mark.parametrize("text", ["", ">=2.12 <2.13", ">=" + "9" * 10, *_NO_RANGES])
def test_what_is_no_range(text: str) -> None:
    with pytest.raises(BadRange, match="is not a version range: write for example"):
        VersionRange.parse(text)


@pytest.mark.parametrize(
    ("when", "here"),
    [
        ({}, True),
        (None, True),
        ({"torch": ">=2.13"}, True),
        ({"torch": "<2.13"}, False),
        ({"python": ">3.11.8"}, True),
        ({"python": "<3.12"}, False),
        ({"device": "cuda"}, True),
        ({"device": ["cpu", "cuda"]}, True),
        ({"device": "cpu"}, False),
        ({"vendor": "amd"}, True),
        ({"vendor": ["nvidia", "intel"]}, False),
        ({"backend": "vendor"}, True),
        ({"backend": "rocm"}, True),
        ({"backend": ["cpu", "rocm"]}, True),
        ({"backend": "roc"}, False),
        ({"arch": "gfx942"}, True),
        ({"arch": "gfx9"}, True),
        ({"arch": ["sm_90", "gfx90a"]}, False),
        ({"torch": ">=2.13", "device": "cuda", "vendor": "amd"}, True),
        ({"torch": ">=2.13", "device": "cpu"}, False),
        ({"code": {"contains": "extern_kernels.mm"}}, True),
        ({"code": {"contains": ["extern_kernels.mm", "return"]}}, True),
        ({"code": {"contains": ["extern_kernels.mm", "triton"]}}, False),
        ({"code": {"lacks": "triton"}}, True),
        ({"code": {"lacks": ["triton", "return"]}}, False),
        ({"code": {"contains": "return", "lacks": "triton"}}, True),
        ({"code": {"contains": "return"}, "device": "cpu"}, False),
    ],
)
def test_all_that_is_given_must_hold(when: Any, here: bool) -> None:
    assert holds(when, HERE) is here


@pytest.mark.parametrize(
    "when",
    [
        {"torch": ">=2.11"},
        {"python": ">=3"},
        {"vendor": "amd"},
        {"arch": "sm_90"},
        {"arch": ""},
        {"code": {"lacks": "x"}},
    ],
)
def test_condition_on_unknown_fact_does_not_hold(when: Any) -> None:
    assert not holds(when, NOWHERE)


def test_first_applicable_entry_is_chosen() -> None:
    entries = [
        {"when": {"device": "cpu"}, "value": 1},
        {"when": {"vendor": "amd"}, "value": 2},
        {"value": 3},
    ]
    assert choose(entries, HERE) == (True, 2)
    assert choose(entries, NOWHERE) == (True, 1)
    assert choose(entries[1:2], NOWHERE) == (False, None)
