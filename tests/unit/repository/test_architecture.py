"""The rooms of ARCHITECTURE.md as a table, held against what every module imports, also within
functions.

Nothing is imported here.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "runner" / "torch_conformance"

ROOMS: dict[str, tuple[str, ...]] = {
    "model": (),
    "matching": ("model",),
    "optional": ("model",),
    "machine": ("model",),
    "vocabulary": ("model", "matching"),
    "language": ("model", "matching", "optional", "machine", "vocabulary"),
    "worker": ("model", "optional", "vocabulary"),
    "plan": ("model", "matching", "optional", "machine", "language", "vocabulary"),
    "execute": ("model", "machine", "plan"),
    "judge": ("model", "matching", "optional", "machine", "vocabulary"),
    "record": ("model", "optional", "machine"),
    "report": ("model", "optional", "machine", "record"),
    "run": (
        "model",
        "matching",
        "optional",
        "machine",
        "vocabulary",
        "language",
        "plan",
        "execute",
        "judge",
        "record",
    ),
    "cli": ("model", "optional", "machine", "language", "plan", "judge", "record", "report", "run"),
}
"""Each room (a folder of runner/) and the rooms that it may import.

The order is that of the arrows: a room imports only rooms above it.
"""

TOOLS = ("author", "attest", "offline", "fleet", "nodes", "pytest_plugin", "vary")
"""The optional parts, folders of runner/torch_conformance/tools.

They may import every room; no room imports one, and none imports another one.
"""

MOST_ROOMS = 14

LATE = ("jinja2", "jsonschema", "numpy", "referencing", "torch", "triton")
"""Packages that cost too much to be imported by every command: within functions only, and torch by
the worker alone.
"""


@dataclass(frozen=True)
class Import:
    """One import: who imports what, on which line, and within which functions (none at the top of
    the module).
    """

    module: str
    target: str
    line: int
    functions: tuple[str, ...]

    def __str__(self) -> str:
        return f"{MODULES[self.module].relative_to(ROOT)}:{self.line} imports {self.target}"


FILES = sorted(PACKAGE.rglob("*.py"))
MODULES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in FILES
}

STATEMENTS = (ast.stmt, ast.ExceptHandler, ast.match_case)
"""What an import can be, or stand in: expressions hold none, and most of a tree is expressions."""


def imports_below(node: ast.AST, module: str, functions: tuple[str, ...] = ()) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, STATEMENTS):
            continue
        inner = (
            (*functions, child.name)
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            else functions
        )
        if (
            isinstance(child, ast.If)
            and isinstance(child.test, ast.Name)
            and child.test.id == "TYPE_CHECKING"
        ):
            inner = (*inner, "TYPE_CHECKING")  # never executed, and an arrow all the same
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(module, alias.name, child.lineno, inner)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, f"{module}:{child.lineno}: write imports from the root"
            for alias in child.names:
                whole = f"{child.module}.{alias.name}"
                yield Import(
                    module, whole if whole in MODULES else str(child.module), child.lineno, inner
                )
        yield from imports_below(child, module, inner)


@cache
def imports() -> tuple[Import, ...]:
    """Return every import of every module; not while tests are collected, which each worker
    does.
    """
    return tuple(
        found
        for name, path in MODULES.items()
        for found in imports_below(ast.parse(path.read_text("utf-8")), name)
    )


@cache
def ours() -> tuple[Import, ...]:
    return tuple(found for found in imports() if found.target.split(".")[0] == "torch_conformance")


def room(module: str) -> str:
    return "".join(module.split(".")[1:2])


def tool(module: str) -> str:
    return module.split(".")[2] if room(module) == "tools" and module.count(".") > 1 else ""


def is_workers(module: str) -> bool:
    """Whether a module is imported by processes with torch alone."""
    return (
        room(module) == "worker"
        or module.startswith("torch_conformance.tools.offline.worker")
        or module == "torch_conformance.tools.attest.ck_generators"
        or module == "torch_conformance.tools.nodes.worker"
    )


def arrows(name: str) -> list[Import]:
    """Return the imports that lead out of a room, but for those for types alone; any room may read
    the package itself, with the version.
    """
    return [
        found
        for found in ours()
        if room(found.module) == name
        and room(found.target) not in ("", name)
        and "TYPE_CHECKING" not in found.functions
    ]


def test_every_room_is_in_the_table() -> None:
    entries = {
        path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"
    }
    modules = {path.stem for path in PACKAGE.glob("*.py")}
    assert entries == {*ROOMS, "tools"}, (
        "a new room: add it to ARCHITECTURE.md and to ROOMS here, with what it may import"
    )
    assert modules == {"__init__", "__main__"}
    assert len(ROOMS) <= MOST_ROOMS


@pytest.mark.parametrize("name", ROOMS)
def test_a_room_imports_what_it_may(name: str) -> None:
    strange = [str(found) for found in arrows(name) if room(found.target) not in ROOMS[name]]
    assert not strange, (
        f"not allowed to {name}, by ARCHITECTURE.md (Rooms) and ROOMS here: {strange}"
    )


@pytest.mark.parametrize("name", ROOMS)
def test_a_room_needs_what_it_may(name: str) -> None:
    used = {room(found.target) for found in arrows(name)}
    assert set(ROOMS[name]) <= used, (
        f"no longer needed by {name}: {set(ROOMS[name]) - used}; take it out of ROOMS"
    )


def test_only_the_program_and_the_tools_import_the_command_line() -> None:
    assert not [
        str(found)
        for found in ours()
        if room(found.target) == "cli" and room(found.module) not in ("cli", "__main__", "tools")
    ]


def test_no_room_imports_a_tool_and_no_tool_another_one() -> None:
    strange = [str(found) for found in ours() if tool(found.target) not in ("", tool(found.module))]
    assert not strange, f"ask for it by torch_conformance.optional.tools.hooks: {strange}"
    assert {tool(module) for module in MODULES} - {""} == set(TOOLS)
    assert {tool(found.module) for found in ours() if room(found.target) == "model"} >= set(
        TOOLS
    ), "this test sees nothing"


def test_no_module_imports_itself_through_others() -> None:
    """Imports within functions and for types count too."""
    edges: dict[str, set[str]] = {module: set() for module in MODULES}
    for found in ours():
        if found.target != found.module:
            edges[found.module].add(found.target)
    done: set[str] = set()

    def walk(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, (
            f"a circle of imports: {' -> '.join((*path[path.index(module) :], module))}"
        )
        if module not in done:
            for target in sorted(edges[module]):
                walk(target, (*path, module))
            done.add(module)

    for module in MODULES:
        walk(module, ())


def test_what_costs_much_is_imported_late() -> None:
    early = [
        str(found)
        for found in imports()
        if found.target.split(".")[0] in LATE
        and not found.functions
        and not is_workers(found.module)
    ]
    assert not early, f"import these within the function that needs them: {early}"


def test_torch_is_the_workers() -> None:
    """Besides, what an expectation measures stands beside it, and runs in the worker."""
    places = [
        found
        for found in imports()
        if found.target.split(".")[0] in ("torch", "triton") and not is_workers(found.module)
    ]
    strange = [
        str(found) for found in places if room(found.module) != "vocabulary" or not found.functions
    ]
    assert not strange, (
        "torch belongs to runner/torch_conformance/worker and "
        "runner/torch_conformance/tools/offline/worker, and to functions of "
        f"runner/torch_conformance/vocabulary: {strange}"
    )
    assert places, "no expectation measures anything: this test sees nothing"


def test_what_the_runner_imports_imports_no_torch() -> None:
    """The closure of every module but the worker's own, over imports at module level."""
    edges: dict[str, list[Import]] = {module: [] for module in MODULES}
    for found in imports():
        if not found.functions:
            edges[found.module].append(found)
    waiting = [module for module in MODULES if not is_workers(module)]
    seen: set[str] = set()
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        for found in edges[module]:
            assert found.target.split(".")[0] not in ("torch", "triton"), (
                f"{found}, which the runner imports"
            )
            if found.target in MODULES:
                waiting.append(found.target)
    assert not set(filter(is_workers, seen))
    assert "torch_conformance.model.protocol" in seen


def test_the_document_names_every_room() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    rows = {
        cells[1].strip(" `/"): cells
        for line in text.splitlines()
        if len(cells := line.split("|")) == 5
    }
    for name, allowed in ROOMS.items():
        assert name in rows, f"ARCHITECTURE.md (Rooms) does not name {name}"
        named = {word.strip(" `") for word in rows[name][3].split(",")} - {"-"}
        assert named == set(allowed), (
            f"ARCHITECTURE.md (Rooms) lets {name} import {named}, ROOMS here {set(allowed)}"
        )
        folder = PACKAGE / name
        parts = {
            path.name
            for path in folder.iterdir()
            if path.is_dir() and path.name not in ("__pycache__", "data")
        }
        unnamed = {part for part in parts if f"`{part}/`" not in rows[name][2]}
        assert not unnamed, f"ARCHITECTURE.md (Rooms), {name}: no word about {unnamed}"
    for name in TOOLS:
        assert f"\n| `{name}/` |" in text, f"ARCHITECTURE.md (Tools) does not name {name}"
