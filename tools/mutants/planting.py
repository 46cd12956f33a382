"""Plants a mutant in a worker, after the fork, and notes which lines of some modules a case
executes.

Each live function whose code is that of the mutated one gets the mutated code: references,
decorators and closures stay what they are.
"""

import ast
import gc
import importlib
import importlib.util
import json
import os
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

from tools.mutants.operators import mutated_tree, only

NOTES = "planted-mutant"
"""The file in a case's folder: there when its mutant was planted in at least one function."""

LINES = "executed-lines.json"
"""The file in a case's folder: module -> lines that the case executed."""


def plant(
    module: str, number: int, function: str, folder: Path, expected: tuple[str, int] | None = None
) -> None:
    """Give every live copy of the function the mutated code, and write how many there were."""
    found = importlib.import_module(module)
    file = str(found.__file__)
    tree = _parsed.pop(module, None) or ast.parse(Path(file).read_text("utf-8"))
    code = compile(
        only(mutated_tree(tree, number, expected), function), file, "exec", dont_inherit=True
    )
    made = {(one.co_qualname, one.co_firstlineno): one for one in _codes(code)}
    changed = 0
    for live in _functions(found, file, function):
        other = made.get((live.__code__.co_qualname, live.__code__.co_firstlineno))
        if other is not None and other.co_freevars == live.__code__.co_freevars:
            live.__code__ = other
            changed += 1
    if changed:
        (folder / NOTES).write_text(str(changed), "ascii")


_parsed: dict[str, ast.Module] = {}


def parse_before_forks(modules: Iterable[str]) -> None:
    """In a zygote: parse modules once for all of its workers, each of which changes its own
    copy.
    """
    for module in modules:
        spec = importlib.util.find_spec(module)
        assert spec is not None
        _parsed[module] = ast.parse(Path(str(spec.origin)).read_text("utf-8"))


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _functions(module: ModuleType, file: str, function: str) -> list[FunctionType]:
    """Return the live functions of a file whose qualified name is this one, or begins with it
    (functions inside of it).

    A function holds the names of its module. A list of all objects would copy each page that the
    worker shares with the zygote.
    """
    gc.unfreeze()  # the zygote froze its heap, and get_referrers leaves out what is frozen
    found = [
        one
        for one in gc.get_referrers(vars(module))
        if type(one) is FunctionType
        and one.__code__.co_filename == file
        and (
            one.__code__.co_qualname == function
            or one.__code__.co_qualname.startswith(f"{function}.<locals>.")
        )
    ]
    gc.freeze()
    return found


def note_lines(modules: Sequence[str], folder: Path) -> None:
    """From now on, write the lines of these modules that this process executes, when it ends a case
    and each second before.
    """
    files = {
        str(spec.origin): module
        for module in modules
        if (spec := importlib.util.find_spec(module)) is not None
    }
    seen: dict[str, set[int]] = {module: set() for module in modules}
    _watch(files, seen)

    def write() -> None:
        target = folder / LINES
        beside = target.with_suffix(".new")
        beside.write_text(
            json.dumps({module: sorted(lines.copy()) for module, lines in seen.items() if lines}),
            "ascii",
        )
        os.replace(beside, target)

    global _write
    _write = write


def _nothing() -> None:
    """Write nothing: no lines are noted."""


_write = _nothing


def write_lines() -> None:
    """Write the lines noted so far."""
    _write()


def _watch(files: dict[str, str], seen: dict[str, set[int]]) -> None:
    if sys.version_info >= (3, 12):
        _monitor(files, seen)
    else:
        _trace(files, seen)


def _monitor(files: dict[str, str], seen: dict[str, set[int]]) -> None:
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
    tool = monitoring.COVERAGE_ID
    monitoring.use_tool_id(tool, "tools.mutants")

    def line(code: CodeType, number: int) -> object:
        module = files.get(code.co_filename)
        if module is not None:
            seen[module].add(number)
        return monitoring.DISABLE

    monitoring.register_callback(tool, monitoring.events.LINE, line)
    monitoring.set_events(tool, monitoring.events.LINE)


def _trace(files: dict[str, str], seen: dict[str, set[int]]) -> None:
    unseen: dict[CodeType, set[int]] = {}

    def inside(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            seen[files[frame.f_code.co_filename]].add(frame.f_lineno)
            unseen[frame.f_code].discard(frame.f_lineno)
        return inside

    def entered(frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        if code.co_filename not in files:
            return None
        if code not in unseen:
            unseen[code] = {line for *_, line in code.co_lines() if line is not None}
        # a function whose lines were all seen is not traced again: the functions that are called
        # most cost most
        return inside(frame, "line", None) if unseen[code] else None

    threading.settrace(entered)
    sys.settrace(entered)
