"""``list --json`` is written case by case, and is the text that the whole array would be."""

import json
from typing import Any

import pytest

from runner.cli.commands.list import _array

VALUES: list[dict[str, Any]] = [
    {},
    {"a": [], "b": {}},
    {"text": 'two\nlines, "quoted"', "deep": [{"x": [1, 2]}, None]},
    {"nach": "\u2028ü"},
]


@pytest.mark.parametrize("count", range(len(VALUES) + 1))
def test_the_parts_are_the_whole(count: int) -> None:
    assert "".join(_array(VALUES[:count])) == json.dumps(VALUES[:count], indent=2) + "\n"
