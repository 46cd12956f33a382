"""No imports are circular, a plain run loads no tool, and the measuring sees what exceeds that."""

import ast
from collections.abc import Iterator

import pytest

from tests import structure
from tests.fakes import prestarted


def test_no_imports_are_circular() -> None:
    graph = structure.edges(structure.trees())
    assert len(graph) > 100, "nothing was measured"
    assert structure.cycles(graph) == []


@pytest.mark.torch
def test_a_plain_run_loads_no_tool() -> None:
    measures = list(structure.traced(prestarted()))
    assert not [
        f"{measure.name}: {measure.value}, {measure.places}"
        for measure in measures
        if measure.exceeded
    ]
    assert all(measure.value > 50 or "of tools" in measure.name for measure in measures), (
        "nothing was measured"
    )


def test_a_cycle_and_a_vague_name_are_seen() -> None:
    assert structure.cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == ["a", "b", "c"]
    names = list(
        structure.bound_names(
            ast.parse("def f(found):\n    for one in found:\n        value = one")
        )
    )
    assert sorted(names) == ["found", "one", "value"]


def within(node: ast.AST, kinds: tuple[type[ast.AST], ...]) -> Iterator[ast.AST]:
    """Yield the nodes of some kinds below a node, without those of functions that it defines."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, kinds):
            yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from within(child, kinds)


def suspended_contexts(tree: ast.AST) -> list[str]:
    """Return the generators that yield inside a ``with`` block; functions that are context managers
    are meant to.
    """
    return [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and not any("contextmanager" in ast.unparse(one) for one in node.decorator_list)
        and any(
            True
            for block in within(node, (ast.With,))
            for _ in within(block, (ast.Yield, ast.YieldFrom))
        )
    ]


@pytest.mark.parametrize("folder", ["worker", "vocabulary"])
def test_no_generator_of_worker_code_is_suspended_within_a_context(folder: str) -> None:
    """Two generators that take turns leave a mode of torch otherwise than they found it: each
    restores what it found on entry.
    """
    files = sorted((structure.ROOT / folder).rglob("*.py"))
    assert len(files) > 20
    assert {
        str(path): found
        for path in files
        if (found := suspended_contexts(ast.parse(path.read_text())))
    } == {}
