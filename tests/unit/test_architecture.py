"""The rooms of ARCHITECTURE.md as a table, held against what every module imports, also within functions. Nothing is imported here."""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

FOR_ALL = ("", "diagnostics", "model")
"""What every room may import: the version, the user's mistakes as values, what passes between the stages."""

STAGES = (
    *("availability", "capabilities", "language", "machine", "outcomes", "plan", "record", "report", "required", "runs", "schedule"),
    *("selection", "sharing", "times", "upstream", "waivers"),
)

ROOMS: dict[str, tuple[str, ...]] = {
    "__main__": ("cli",),
    "cli": ("escaping", "exits", "output", "redaction", "streams"),
    "commands": (
        "agreement",
        "attempts",
        "audit",
        "conditions",
        "consistency",
        "escaping",
        "evidence",
        "exits",
        "interrupt",
        "kept",
        "merge",
        "output",
        "recorded",
        "redaction",
        "rejudge",
        "scratch",
        "session",
        "services",
        "protocol",
        *STAGES,
    ),
    "diagnostics": ("escaping",),
    "escaping": (),
    "output": ("escaping", "redaction", "streams"),
    "redaction": (),
    "folding": ("outcomes",),
    "consistency": ("attempts", "exits", "folding", "outcomes"),
    "evidence": ("left_behind",),
    "rejudge": ("conditions", "evidence", "folding", "judge", "language.backends", "outcomes", "redaction", "selection", "waivers"),
    "recorded": (
        *("capabilities", "conditions", "language.expand", "language.files", "language.load", "language.waivers", "machine"),
        *("plan", "record", "rejudge", "waivers"),
    ),
    "run_lock": (),
    "exits": ("outcomes",),
    "merge": ("agreement", "exits", "record"),
    "streams": ("escaping", "redaction"),
    "interrupt": (),
    "agreement": ("record",),
    "outcomes": (),
    "folders": (),
    "kept": (),
    "scratch": (),
    "child_python": (),
    "model": ("outcomes",),
    "conditions": (),
    "capabilities": ("conditions",),
    "machine": (),
    "availability": ("capabilities", "machine"),
    "required": (),
    "patterns": (),
    "protocol": (),
    "filecheck": ("patterns",),
    "generated_code": ("patterns",),
    "expectations": ("conditions", "filecheck", "generated_code", "patterns", "protocol"),
    "upstream": (),
    "language": ("capabilities", "conditions", "expectations", "filecheck", "folders", "machine", "patterns", "upstream"),
    "selection": ("language.backends",),
    "plan": ("conditions", "expectations", "language.substitution", "protocol"),
    "sharing": (),
    "hardware": (),
    "left_behind": (),
    "times": ("left_behind",),
    "schedule": ("capabilities", "conditions", "execute.jobs", "execute.room", "hardware"),
    "execute": ("child_python", "protocol"),
    "worker": ("expectations", "protocol"),
    "judge": (
        "language.backends",
        "conditions",
        "expectations",
        "filecheck",
        "generated_code",
        "folding",
        "language.schema",
        "outcomes",
        "patterns",
        "plan",
        "protocol",
        "stacks",
        "traffic",
    ),
    "traffic": (),
    "stacks": (),
    "attempts": ("outcomes",),
    "waivers": ("conditions", "language.waivers", "outcomes", "patterns", "selection"),
    "record": ("consistency", "outcomes", "streams"),
    "runs": ("agreement", "language.source", "record", "run_lock", "streams"),
    "report": ("escaping", "outcomes", "output", "record", "streams"),
    "services": ("child_python", "protocol", "redaction"),
    "audit": ("conditions", "expectations", "judge", "patterns", "plan", "protocol"),
    "session": (
        *("availability", "capabilities", "conditions", "evidence", "execute", "interrupt", "judge", "kept", "language.backends"),
        *("language.expand", "language.flow", "language.load", "language.schema", "language.templates", "left_behind", "outcomes", "plan"),
        *("protocol", "redaction", "runs", "schedule", "scratch", "services", "sharing", "streams", "waivers"),
    ),
}
"""Each room (a module or a folder of runner/) and what it may import besides itself and what all may."""

LATE = ("jinja2", "jsonschema", "numpy", "rich", "torch", "triton")
"""Packages that cost too much to be imported by every command: within functions only, and torch by the worker alone."""


@dataclass(frozen=True)
class Import:
    """One import: who imports what, on which line, and within which functions (none at the top of the module)."""

    module: str
    target: str
    line: int
    functions: tuple[str, ...]

    def __str__(self) -> str:
        return f"{MODULES[self.module].relative_to(ROOT)}:{self.line} imports {self.target}"


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_name(path): path for path in sorted((ROOT / "runner").rglob("*.py"))}


def imports_below(node: ast.AST, module: str, functions: tuple[str, ...] = ()) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        inner = (*functions, child.name) if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else functions
        if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(module, alias.name, child.lineno, inner)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, f"{module}:{child.lineno}: write imports from the root"
            for alias in child.names:
                whole = f"{child.module}.{alias.name}"
                yield Import(module, whole if whole in MODULES else str(child.module), child.lineno, inner)
        yield from imports_below(child, module, inner)


IMPORTS = [found for name, path in MODULES.items() for found in imports_below(ast.parse(path.read_text("utf-8")), name)]
OURS = [found for found in IMPORTS if found.target.split(".")[0] == "runner"]


def room(module: str) -> str:
    return "".join(module.split(".")[1:2])


def within(module: str, allowed: tuple[str, ...]) -> str | None:
    """Return the entry of ``allowed`` that a module falls under."""
    inner = module.removeprefix("runner").removeprefix(".")
    return next((entry for entry in allowed if inner == entry or (entry and inner.startswith(f"{entry}."))), None)


def test_the_reader_sees_imports() -> None:
    assert len(MODULES) > 50
    assert len(OURS) > 150
    assert any(found.functions for found in OURS)
    text = "import a\nif TYPE_CHECKING:\n    import b\ndef f():\n    class C:\n        def g(self):\n            from c.d import e\n"
    found = list(imports_below(ast.parse(text), "x"))
    assert [(one.target, one.line, one.functions) for one in found] == [("a", 1, ()), ("c.d", 7, ("f", "g"))]


def test_every_room_stands_in_the_table() -> None:
    rooms = {room(module) for module in MODULES} - {""}
    assert rooms == set(ROOMS), "a new room: say in ARCHITECTURE.md and in ROOMS here what it may import"


@pytest.mark.parametrize("name", ROOMS)
def test_a_room_imports_what_it_may(name: str) -> None:
    allowed = (*FOR_ALL, name, *ROOMS[name])
    strange = [str(found) for found in OURS if room(found.module) == name and within(found.target, allowed) is None]
    assert not strange, f"not allowed to {name}, by ARCHITECTURE.md (Rooms) and ROOMS here: {strange}"


@pytest.mark.parametrize("name", ROOMS)
def test_a_room_needs_what_it_may(name: str) -> None:
    used = {within(found.target, ROOMS[name]) for found in OURS if room(found.module) == name}
    assert set(ROOMS[name]) <= used, f"no longer needed by {name}: {set(ROOMS[name]) - used}; take it out of ROOMS"


def test_nothing_imports_the_commands() -> None:
    assert not [
        str(found)
        for found in OURS
        if room(found.target) in ("commands", "cli") and found.module not in ("runner.__main__", "runner.commands.explain")
    ]


def test_no_module_imports_itself_through_others() -> None:
    """At module level; within functions a lazy import may close a circle."""
    edges: dict[str, set[str]] = {module: set() for module in MODULES}
    for found in OURS:
        if not found.functions and found.target != found.module:
            edges[found.module].add(found.target)
    done: set[str] = set()

    def walk(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, f"a circle of imports: {' -> '.join((*path[path.index(module) :], module))}"
        if module not in done:
            for target in sorted(edges[module]):
                walk(target, (*path, module))
            done.add(module)

    for module in MODULES:
        walk(module, ())


def test_what_costs_much_is_imported_late() -> None:
    early = [
        str(found) for found in IMPORTS if found.target.split(".")[0] in LATE and not found.functions and room(found.module) != "worker"
    ]
    assert not early, f"import these within the function that needs them: {early}"


def test_torch_is_the_workers() -> None:
    """Besides, what an expectation measures stands beside it, and runs in the worker."""
    places = [found for found in IMPORTS if found.target.split(".")[0] in ("torch", "triton") and room(found.module) != "worker"]
    strange = [str(found) for found in places if room(found.module) != "expectations" or not found.functions]
    assert not strange, f"torch belongs to runner/worker, and to functions of runner/expectations: {strange}"
    assert places, "no expectation measures anything: this test sees nothing"


def test_what_the_runner_imports_imports_no_torch() -> None:
    """The closure of every module but the worker's own, over imports at module level."""
    edges: dict[str, list[Import]] = {module: [] for module in MODULES}
    for found in IMPORTS:
        if not found.functions:
            edges[found.module].append(found)
    waiting = [module for module in MODULES if room(module) != "worker"]
    seen: set[str] = set()
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        for found in edges[module]:
            assert found.target.split(".")[0] not in ("torch", "triton"), f"{found}, which the runner imports"
            if found.target in MODULES:
                waiting.append(found.target)
    assert not {module for module in seen if room(module) == "worker"}
    assert "runner.protocol" in seen


def test_measuring_stands_beside_each_expectation() -> None:
    """What imports torch is measure(...) or by what it calls, never by the class that judges."""
    for found in IMPORTS:
        if room(found.module) == "expectations" and found.target.split(".")[0] == "torch":
            tree = ast.parse(MODULES[found.module].read_text("utf-8"))
            methods = [item for node in tree.body if isinstance(node, ast.ClassDef) for item in node.body]
            inside = [item for item in methods if item.lineno <= found.line <= (item.end_lineno or 0)]
            assert not inside, f"{found} within a class, which judges"


@pytest.mark.parametrize("module", ["exits", "outcomes", "conditions", "model", "diagnostics", "folders", "hardware", "left_behind"])
def test_small_rooms_need_nothing_but_the_standard_library(module: str) -> None:
    foreign = [
        str(found)
        for found in IMPORTS
        if found.module == f"runner.{module}" and found.target.split(".")[0] not in {*sys.stdlib_module_names, "runner"}
    ]
    assert not foreign


def test_the_document_names_every_room() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    missing = {name for name in ROOMS if f"`{name}.py`" not in text and f"`{name}/`" not in text and name != "__main__"}
    assert not missing, f"ARCHITECTURE.md (Rooms) does not name {missing}"
