"""Values are printed as a spec would write them: what is read back is what was printed."""

from pathlib import Path
from typing import Any

import pytest

from torch_conformance.language.read.yaml_source import parse
from torch_conformance.model.flow import flow

VALUES = [
    *(
        None,
        True,
        False,
        0,
        -3,
        1.5,
        1e-05,
        1e30,
        float("inf"),
        float("-inf"),
        [],
        {},
        [1, "a", None],
        [[], {}],
    ),
    *(
        {"a": [1, {"b": "c d"}], "x: y": 2.0},
        "",
        " ",
        "a b",
        "a b ",
        "x\ny",
        "\t",
        "\u2028",
        "- a",
        "a: b",
        "a #b",
        "a, b",
        "{{ a }}",
    ),
    *"a 1 1e-3 0x1f 012 true Null ~ - [a] {a} ' \" é * &a !a % @ ` .5 .inf -.inf +1 ^a.b/c "
    "cpu:0 a? = <".split(),
    *"torch.float32 >=2.12 on no 2026-01-01 a\\b".split(),
]


@pytest.mark.parametrize("value", VALUES)
def test_what_is_printed_is_read_back(value: Any) -> None:
    text = flow(value)
    assert "\n" not in text
    assert parse(f"given: {text}\nwithin: [{text}]\n", path=Path("x.yaml")).data == {
        "given": value,
        "within": [value],
    }
