"""Measure the structure of ``runner/``: ``python -m tests.structure [--json]``; exit 1 when a bound is exceeded."""

import argparse
import ast
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1] / "runner"

BOUNDS = {
    "lines of a function": 40,
    "lines of a class": 200,
    "methods of a class": 15,
    "lines of a file": 350,
    "entries at the top of runner/": 12,
    "cycles of imports": 0,
    "loose parameters": 0,
}

WIRE = (
    *(
        "language/read",
        "language/names",
        "language/reference",
        "language/backends",
        "language/waivers",
        "language/profiles",
        "language/authoring",
        "language/waiver_text",
        "language/text_edits",
        "core/protocol.py",
        "core/diagnostics.py",
    ),
    *(
        "judge/reading",
        "record/journal",
        "system/redaction.py",
        "system/availability.py",
        "worker",
        "vocabulary",
        "report/html/observed.py",
    ),
    *("plan/script", "run/shrinking"),  # the JSON of a plan as code, the YAML of a spec as a document
)
"""Where values are untyped by nature: what YAML, JSON, torch and the constants of a Python test give. Elsewhere a parameter has a type."""


@dataclass(frozen=True)
class Found:
    """One place that exceeds a bound, or the most of a measure."""

    measure: str
    value: int
    place: str


def statements(tree: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements of a module at every depth; expressions, which hold none, are not walked."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.stmt):
            yield node
        if isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield from statements(node)


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the functions of a module, those within others too."""
    yield from (node for node in statements(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def length(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> int:
    """Return the lines of a definition, decorators not counted."""
    return (node.end_lineno or node.lineno) - node.lineno + 1


def is_loose(annotation: ast.expr | None) -> bool:
    """Return whether a parameter may be anything: ``Any``, ``Json``, or a map of such."""
    text = "" if annotation is None else ast.unparse(annotation)
    return text in ("Any", "Json", "Mapping[str, Any]", "Mapping[str, Json]", "dict[str, Any]", "dict[str, Json]")


def loose_parameters(tree: ast.AST, place: str) -> Iterator[Found]:
    """Yield the parameters that have no type of ours."""
    for function in functions(tree):
        arguments = function.args
        for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            if is_loose(one.annotation) and one.arg not in ("self", "cls"):
                yield Found("loose parameters", 1, f"{place}:{function.lineno} {function.name}({one.arg})")


def measured(path: Path, tree: ast.Module) -> Iterator[Found]:
    """Yield every measure of one module."""
    text = path.read_text("utf-8")
    place = str(path.relative_to(ROOT.parent))
    yield Found("lines of a file", len(text.splitlines()), place)
    for function in functions(tree):
        yield Found("lines of a function", length(function), f"{place}:{function.lineno} {function.name}")
    for node in statements(tree):
        if isinstance(node, ast.ClassDef):
            methods = sum(isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) for item in node.body)
            yield Found("lines of a class", length(node), f"{place}:{node.lineno} {node.name}")
            yield Found("methods of a class", methods, f"{place}:{node.lineno} {node.name}")
    if not str(path.relative_to(ROOT)).startswith(WIRE):
        yield from loose_parameters(tree, place)


def edges(trees: Mapping[Path, ast.Module]) -> dict[str, set[str]]:
    """Return which module imports which, at module level."""
    names = {".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__"): path for path in trees}
    found: dict[str, set[str]] = {}
    for name, path in names.items():
        imports = (node for node in trees[path].body if isinstance(node, ast.ImportFrom) and node.module)
        targets = {
            f"{node.module}.{alias.name}" if f"{node.module}.{alias.name}" in names else node.module
            for node in imports
            for alias in node.names
        }
        found[name] = {target for target in targets if target in names and target != name}
    return found


def cycles(trees: Mapping[Path, ast.Module]) -> Iterator[Found]:
    """Yield modules from which an import leads back to them."""
    graph = edges(trees)
    for name in graph:
        seen: set[str] = set()
        waiting = list(graph[name])
        while waiting:
            one = waiting.pop()
            if one not in seen:
                seen.add(one)
                waiting.extend(graph[one])
        if name in seen:
            yield Found("cycles of imports", 1, name)


def everything() -> list[Found]:
    """Return every measure of every module."""
    entries = [path.name for path in ROOT.iterdir() if not path.name.startswith("__") and path.name != "py.typed"]
    found = [Found("entries at the top of runner/", len(entries), "runner")]
    trees = {path: ast.parse(path.read_text("utf-8")) for path in sorted(ROOT.rglob("*.py"))}
    found += cycles(trees)
    for path, tree in trees.items():
        found += measured(path, tree)
    return found


def summed(found: list[Found]) -> dict[str, tuple[int, list[Found]]]:
    """Return for each measure its value (the most, or how many) and the places that exceed the bound."""
    table = {}
    for measure, bound in BOUNDS.items():
        of_it = [one for one in found if one.measure == measure]
        counted = measure in ("cycles of imports", "loose parameters")
        value = len(of_it) if counted else max((one.value for one in of_it), default=0)
        table[measure] = (value, [one for one in of_it if one.value > (0 if counted else bound)])
    return table


def main(arguments: list[str] | None = None) -> int:
    """Print the table; return 1 when a bound is exceeded."""
    parser = argparse.ArgumentParser(prog="python -m tests.structure", description=__doc__)
    parser.add_argument("--json", action="store_true", help="the table as JSON")
    options = parser.parse_args(arguments)
    table = summed(everything())
    if options.json:
        print(json.dumps({measure: {"value": value, "bound": BOUNDS[measure]} for measure, (value, _) in table.items()}, indent=1))
    else:
        for measure, (value, over) in table.items():
            print(f"{measure:32} {value:5}  bound {BOUNDS[measure]:4}  {'exceeded' if over else 'met'}")
            for one in sorted(over, key=lambda one: (-one.value, one.place)):
                print(f"    {one.value:5}  {one.place}")
    return int(any(over for _, over in table.values()))


if __name__ == "__main__":
    sys.exit(main())
