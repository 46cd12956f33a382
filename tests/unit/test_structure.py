"""The bounds of ``tests.structure`` hold for ``runner/``, and the measuring sees what exceeds them."""

import ast
from pathlib import Path

import pytest

from tests import structure


@pytest.fixture(scope="module")
def table() -> dict[str, tuple[int, list[structure.Found]]]:
    return structure.summed(structure.everything())


@pytest.mark.parametrize("measure", structure.BOUNDS)
def test_no_bound_is_exceeded(table: dict[str, tuple[int, list[structure.Found]]], measure: str) -> None:
    value, over = table[measure]
    assert [f"{one.value}  {one.place}" for one in over] == []
    if measure not in ("cycles of imports", "loose parameters"):
        assert value > 5, "nothing was measured"


def test_what_exceeds_a_bound_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structure, "ROOT", tmp_path / "runner")
    (tmp_path / "runner").mkdir()
    body = "".join(f"    def m{number}(self, value: Any) -> None: ...\n" for number in range(16))
    (tmp_path / "runner" / "a.py").write_text(
        f"from runner import b\nfrom runner.b import c\nclass A:\n{body}def long():\n" + "    x = 1\n" * 400
    )
    (tmp_path / "runner" / "b.py").write_text("from runner.a import A\nc = 1\n")
    exceeded = {measure for measure, (_, over) in structure.summed(structure.everything()).items() if over}
    assert exceeded == set(structure.BOUNDS) - {"lines of a class", "entries at the top of runner/"}


@pytest.mark.parametrize(
    ("annotation", "is_loose"),
    [
        ("Any", True),
        ("Mapping[str, Any]", True),
        ("dict[str, Json]", True),
        ("Mapping[str, int]", False),
        ("object", False),
        ("str", False),
    ],
)
def test_a_parameter_that_may_be_anything_is_loose(annotation: str, is_loose: bool) -> None:
    tree = ast.parse(f"def f(x: {annotation}): ...")
    assert bool(list(structure.loose_parameters(tree, "a.py"))) is is_loose
