"""``schema --with-torch`` with a stand-in for torch refuses wrong names. And the last run of a spec in an editor."""

from pathlib import Path
from typing import Any

import jsonschema
import pytest

from runner.cli.editor import outcomes
from runner.language.names import installed
from runner.system.installed_torch import torch_at
from tests.unit.test_names import make_torch


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    counters = 'def count():\n    from torch._dynamo.utils import counters\n    counters["inductor"]["stand_ins"] += 1\n'
    root = make_torch(tmp_path, _inductor__config="stand_in: bool = True\n", _inductor__pass_one=counters)
    monkeypatch.setattr(installed, "installed_torch", lambda: torch_at(root))
    return installed.schema_of_installed()


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


def test_the_last_run_counts_outcomes_and_stays_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes, "last_results", lambda _: (["PASS", "FAIL", "PASS"], 0.0))
    assert outcomes.last_outcome(Path("a.yaml")).startswith("last run: 1 FAIL, 2 PASS (")
    monkeypatch.setattr(outcomes, "last_results", lambda _: (["PASS\nFAIL"], 0.0))
    assert "\n" not in outcomes.last_outcome(Path("a.yaml"))


@pytest.mark.parametrize("error", [OSError("gone"), ValueError("no journal"), None])
def test_without_a_readable_run_there_is_no_last_run(error: Exception | None, monkeypatch: pytest.MonkeyPatch) -> None:
    def last(_: Path) -> None:
        if error is not None:
            raise error

    monkeypatch.setattr(outcomes, "last_results", last)
    assert outcomes.last_outcome(Path("a.yaml")) == ""
