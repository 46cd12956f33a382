"""Measure the size (in tokens) and the structure of the project: ``python -m tests.structure
[--trace] [--json]``; exit 1 where imports are circular, or a plain run loads a tool.

``--trace`` also runs one small spec and counts what of ``runner/`` the runner's process executes
(torch must be installed; about 15 s).
"""

import argparse
import ast
import json
import os
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
ROOT = TOP / "runner" / "torch_conformance"

BOUNDS: Mapping[str, float] = {"cycles of imports": 0, "executed by one run: files of tools": 0}
"""What must not be exceeded. Sizes are for people to read, and fail nothing: a bound of lines was
met by longer lines.
"""

LAYOUT = frozenset(
    {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENCODING,
        tokenize.ENDMARKER,
    }
)
"""Tokens that are no part of the program."""

ENTRIES = frozenset({"__init__.py", "hooks.py", "zygote.py", "entry.py"})
"""Basenames that several files may have: the entries of tools and of the two packages of worker
processes.
"""

VAGUE = frozenset({"found", "one", "given", "made", "here", "told", "held", "wanted", "some"})
"""Names that do not say what a value is."""

SPEC = """\
summary: relu equals eager
backends: [cpu]
function: |
  def fn(x):
      return x.relu()
inputs: [{randn: [8, 8]}]
expect:
  - close: {to: eager}
"""
"""What ``--trace`` runs."""

TRACED = """\
import json, sys, threading
import torch_conformance.machine.redaction, torch_conformance.model.diagnostics
import torch_conformance.optional.options, torch_conformance.model.outcomes
from torch_conformance.cli.parser import main
functions = set()
def note(frame, event, argument):
    if event == "call" and not frame.f_code.co_name.startswith("<"):
        functions.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))
sys.setprofile(note), threading.setprofile(note)
code = main(sys.argv[2:])
sys.setprofile(None), threading.setprofile(None)
ours = sorted(place for place in functions if place[0].startswith(sys.argv[1]))
print(json.dumps({"code": code, "functions": ours}), file=sys.__stdout__)
"""


@dataclass(frozen=True)
class Measure:
    """One figure, and places that explain it."""

    name: str
    value: float
    places: tuple[str, ...] = ()

    @property
    def exceeded(self) -> bool:
        """Whether the figure has a bound and is above it."""
        return self.value > BOUNDS.get(self.name, float("inf"))


def python_files(folder: Path) -> list[Path]:
    """Return the Python files below a folder."""
    return sorted(path for path in folder.rglob("*.py") if "__pycache__" not in path.parts)


def tokens(files: Sequence[Path]) -> int:
    """Return how many tokens of Python some files have together, without comments and layout."""
    total = 0
    for path in files:
        with path.open("rb") as stream:
            total += sum(token.type not in LAYOUT for token in tokenize.tokenize(stream.readline))
    return total


def tracked(folder: str) -> list[Path]:
    """Return the files of a folder that git has, or all files where there is no git."""
    if not (TOP / ".git").exists():
        return [path for path in (TOP / folder).rglob("*") if path.is_file()]
    done = subprocess.run(
        ["git", "ls-files", "-z", folder],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return [path for name in done.stdout.split("\0") if name and (path := TOP / name).is_file()]


def kilobytes(files: Sequence[Path]) -> int:
    """Return the size of some files together, in KB of 1,000 bytes, rounded up."""
    return -(-sum(path.stat().st_size for path in files) // 1000)


def bound_names(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a module binds to values: variables, parameters, targets of loops."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def edges(trees: Mapping[Path, ast.Module]) -> dict[str, set[str]]:
    """Return which module imports which, at module level."""
    names = {
        ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(
            ".__init__"
        ): path
        for path in trees
    }
    graph: dict[str, set[str]] = {}
    for name, path in names.items():
        imports = (
            node for node in trees[path].body if isinstance(node, ast.ImportFrom) and node.module
        )
        targets = {
            f"{node.module}.{alias.name}" if f"{node.module}.{alias.name}" in names else node.module
            for node in imports
            for alias in node.names
        }
        graph[name] = {target for target in targets if target in names and target != name}
    return graph


def cycles(graph: Mapping[str, set[str]]) -> list[str]:
    """Return the modules from which an import leads back to them."""
    circular = []
    for name in graph:
        seen: set[str] = set()
        waiting = list(graph[name])
        while waiting:
            module = waiting.pop()
            if module not in seen:
                seen.add(module)
                waiting.extend(graph[module])
        if name in seen:
            circular.append(name)
    return circular


def trees() -> dict[Path, ast.Module]:
    """Return the parsed modules of the package."""
    return {path: ast.parse(path.read_text("utf-8")) for path in python_files(ROOT)}


def counted() -> Iterator[Measure]:
    """Yield what can be counted without running anything."""
    files = python_files(ROOT)
    parsed = trees()
    yield Measure("runner/: tokens of Python", tokens(files))
    yield Measure("runner/: files", len(files))
    core = [path for path in files if not path.is_relative_to(ROOT / "tools")]
    yield Measure("the core: tokens of Python", tokens(core))
    yield Measure("the core: files", len(core))
    yield Measure("tests/: tokens of Python", tokens(python_files(TOP / "tests")))
    yield Measure("tests/: modules of runner that they import", len(imported_by_tests(parsed)))
    yield Measure("tools/: tokens of Python", tokens(python_files(TOP / "tools")))
    for folder in ("docs", "reports"):
        yield Measure(f"{folder}/: files", len(tracked(folder)))
        yield Measure(f"{folder}/: KB", kilobytes(tracked(folder)))
    yield Measure("subcommands", len(subcommands()))
    graph = edges(parsed)
    yield Measure("cycles of imports", len(circular := cycles(graph)), tuple(circular))
    names = Counter(name for tree in parsed.values() for name in bound_names(tree))
    vague = sum(names[name] for name in VAGUE)
    most = tuple(f"{name} {names[name]}" for name in sorted(VAGUE, key=lambda name: -names[name]))
    yield Measure("vague names, % of bound names", round(100 * vague / names.total(), 1), most)
    shared = Counter(path.name for path in files if path.name not in ENTRIES)
    several = tuple(f"{name} {number}" for name, number in shared.most_common() if number > 1)
    yield Measure(
        "files that share their basename",
        sum(number for number in shared.values() if number > 1),
        several,
    )
    importers = Counter(target for targets in graph.values() for target in targets)
    small = [path for path in files if len(path.read_text("utf-8").splitlines()) <= 100]
    modules = {
        ".".join(path.relative_to(ROOT.parent).with_suffix("").parts): path for path in small
    }
    yield Measure(
        "files of at most 100 lines with one importer",
        sum(importers[name] == 1 for name in modules),
    )


def imported_by_tests(trees: Mapping[Path, ast.Module]) -> set[str]:
    """Return the modules of the package that some test imports."""
    known = {
        ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")
        for path in trees
    }
    names: set[str] = set()
    for path in python_files(TOP / "tests"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                names |= {
                    node.module
                    if f"{node.module}.{alias.name}" not in known
                    else f"{node.module}.{alias.name}"
                    for alias in node.names
                }
            elif isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
    return names & known


def subcommands() -> list[str]:
    """Return the names of the commands."""
    from torch_conformance.cli.parser import parser

    (action,) = [
        action for action in parser()._actions if isinstance(action, argparse._SubParsersAction)
    ]
    return list(action.choices)


def traced(variables: Mapping[str, str] | None = None) -> Iterator[Measure]:
    """Run one small spec, and yield how many functions of ``runner/`` its process called, and the
    files that they are in.
    """
    variables = variables or {**os.environ, "PYTHONPATH": str(ROOT.parent)}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "relu.yaml").write_text(SPEC)
        # the first look at a torch scans its source, and keeps the names
        warm = [sys.executable, "-m", "torch_conformance", "validate", "relu.yaml"]
        subprocess.run(
            warm,
            cwd=folder,
            env=variables,
            capture_output=True,
            check=True,
            timeout=300,
        )
        command = [sys.executable, "-c", TRACED, f"{ROOT}/", "run", "relu.yaml", "--out", "run"]
        done = subprocess.run(
            command,
            cwd=folder,
            env=variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
    record = json.loads(done.stdout.splitlines()[-1]) if done.stdout else {"code": done.returncode}
    if record["code"] != 0:
        raise RuntimeError(
            f"the traced run ended with {record['code']}:\n{done.stdout}\n{done.stderr}"
        )
    where = Counter(
        file.removeprefix(f"{ROOT}/").rpartition("/")[0] for file, _ in record["functions"]
    )
    files = {file.removeprefix(f"{ROOT}/") for file, _ in record["functions"]}
    yield Measure("executed by one run: files", len(files))
    yield Measure(
        "executed by one run: files of tools", sum(file.startswith("tools/") for file in files)
    )
    yield Measure(
        "executed by one run: functions",
        len(record["functions"]),
        tuple(f"{room} {n}" for room, n in where.most_common(12)),
    )


def main(arguments: list[str] | None = None) -> int:
    """Print the table; return 1 when a bound is exceeded."""
    parser = argparse.ArgumentParser(prog="python -m tests.structure", description=__doc__)
    parser.add_argument(
        "--trace", action="store_true", help="run one small spec and count what it executes"
    )
    parser.add_argument("--json", action="store_true", help="the table as JSON")
    options = parser.parse_args(arguments)
    measures = [*counted(), *(traced() if options.trace else ())]
    if options.json:
        print(
            json.dumps(
                {
                    measure.name: {"value": measure.value, "bound": BOUNDS.get(measure.name)}
                    for measure in measures
                },
                indent=1,
            )
        )
    else:
        for measure in measures:
            bound = BOUNDS.get(measure.name)
            limit = (
                ""
                if bound is None
                else f"at most {bound}{'  EXCEEDED' if measure.exceeded else ''}"
            )
            print(f"{measure.name:46} {measure.value:8}  {limit}")
            if measure.places:
                print(f"    {', '.join(measure.places)}")
    return int(any(measure.exceeded for measure in measures))


if __name__ == "__main__":
    sys.exit(main())
