"""The bounds of ``tests.structure`` hold for ``runner/``, and the measuring sees what exceeds them."""

import ast
from collections.abc import Iterator
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


def within(node: ast.AST, kinds: tuple[type[ast.AST], ...]) -> Iterator[ast.AST]:
    """Yield the nodes of some kinds below a node, without those of functions that it defines."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, kinds):
            yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from within(child, kinds)


def suspended_contexts(tree: ast.AST) -> list[str]:
    """Return the generators that yield inside a ``with`` block; functions that are context managers are meant to."""
    return [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and not any("contextmanager" in ast.unparse(one) for one in node.decorator_list)
        and any(True for block in within(node, (ast.With,)) for _ in within(block, (ast.Yield, ast.YieldFrom)))
    ]


@pytest.mark.parametrize("folder", ["worker", "vocabulary"])
def test_no_generator_of_worker_code_is_suspended_within_a_context(folder: str) -> None:
    """Two generators that take turns leave a mode of torch otherwise than they found it: each restores what it found on entry."""
    files = sorted((structure.ROOT / folder).rglob("*.py"))
    assert len(files) > 20
    assert {str(path): found for path in files if (found := suspended_contexts(ast.parse(path.read_text())))} == {}


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("with mode():\n        yield 1", ["f"]),
        ("for _ in x:\n        with mode():\n            yield from x", ["f"]),
        ("with mode():\n        def g(): yield 1", []),
        ("yield 1\n    with mode(): pass", []),
    ],
)
def test_a_generator_suspended_within_a_context_is_seen(body: str, found: list[str]) -> None:
    assert suspended_contexts(ast.parse(f"def f():\n    {body}")) == found
    assert suspended_contexts(ast.parse(f"@contextlib.contextmanager\ndef f():\n    {body}")) == []


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
