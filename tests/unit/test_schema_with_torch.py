"""``schema --with-torch`` with a stand-in for torch refuses wrong names."""

from pathlib import Path
from typing import Any

import jsonschema
import pytest

from runner.machine.installed_torch import torch_at
from runner.tools.author.commands import schema as published_names
from tests.unit.test_names import make_torch


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    counters = 'def count():\n    from torch._dynamo.utils import counters\n    counters["inductor"]["stand_ins"] += 1\n'
    root = make_torch(tmp_path, _inductor__config="stand_in: bool = True\n", _inductor__pass_one=counters)
    monkeypatch.setattr(published_names, "installed_torch", lambda: torch_at(root))
    return published_names.schema_of_installed()


def accepts(made: dict[str, Any], part: str, value: object) -> bool:
    return jsonschema.Draft202012Validator({**made, "$ref": f"#/$defs/{part}"}).is_valid(value)


@pytest.mark.parametrize(
    ("part", "right", "wrong"),
    [
        ("config", {"stand_in": False}, {"stand_ni": False}),
        ("config", {"stand_in": "{{ on }}"}, {"stand_in": 3}),
        ("counter", {"inductor.stand_ins": 1}, {"inductor.stand_in": 1}),
        ("backend", "cpu", "cup"),
    ],
)
def test_names_of_the_installed_torch_alone_are_accepted(made: dict[str, Any], part: str, right: object, wrong: object) -> None:
    assert accepts(made, part, right)
    assert not accepts(made, part, wrong)
