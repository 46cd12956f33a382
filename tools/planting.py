"""Changes torch in a worker, after the fork and before its case: faults, mutants, noted lines.

``PLANTED`` names a file: ``{"lines": [module, ...], "changes": {case id: change}}``. A change is
the name of a fault, or ``[module, number, function, kind, line]`` of a mutant. Nothing on the disk
is changed: the template, and the worker of the next case, know nothing of it. A change whose place
is gone raises ``Unplantable``: the worker dies before it claims anything.
"""

import ast
import contextlib
import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import json
import os
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

VARIABLE = "PLANTED"
SITE = Path(__file__).with_name("site")
NOTES = "planted"
"""The file in a case's folder: there when its change was planted, and one byte long for each time
that a fault was executed.
"""
LINES = "executed-lines.json"
"""The file in a case's folder: module -> lines that the case executed."""
RUNS_CASES = "torch_conformance.worker.case.run_case"

Wrap = Callable[[Any], Any]
"""Takes what was in a place, returns what is there from now on."""

_descriptor: int | None = None


class Unplantable(Exception):
    """The installed torch has not what a change is made in."""


class Planter(importlib.abc.MetaPathFinder):
    """Wraps the function ``run`` of the worker's module that runs a case, when it is imported."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> Any:
        """Find that module and no other."""
        if name != RUNS_CASES:
            return None
        spec: Any = importlib.machinery.PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module

        def execute_and_wrap(module: Any) -> None:
            execute(module)
            module.run = planting(module.run)

        spec.loader.exec_module = execute_and_wrap
        return spec


def install() -> None:
    """Plant before the case of each worker that this process becomes or starts."""
    sys.meta_path.insert(0, Planter())


def planting(run: Callable[..., None]) -> Callable[..., None]:
    """Return what plants the change of a case and runs it."""
    request = json.loads(Path(os.environ[VARIABLE]).read_bytes())
    for change in request["changes"].values():
        # once for all workers of a zygote: each changes a copy of its own
        if isinstance(change, list) and (module := change[0]) not in _parsed:
            _parsed[module] = ast.parse(Path(_file_of(module)).read_bytes())

    def planted(plan_file: str, *rest: Any) -> None:
        plan = json.loads(Path(plan_file).read_bytes())
        folder, change = Path(plan["folder"]), request["changes"].get(plan["id"])
        if isinstance(change, str):
            from tools.faults.catalogue import FAULTS

            FAULTS[change].plant()
            begin(folder)
        elif change is not None and plant_mutant(*change):
            begin(folder)
        with noting(request["lines"]) as executed:
            try:
                run(plan_file, *rest)
            finally:
                if request["lines"]:
                    lines = {module: sorted(numbers.copy()) for module, numbers in executed.items()}
                    (folder / LINES).write_text(json.dumps(lines), "ascii")

    return planted


def _file_of(module: str) -> str:
    spec = importlib.util.find_spec(module)
    assert spec is not None
    return str(spec.origin)


def begin(folder: Path) -> None:
    """Begin the notes of a case; call once the change is planted."""
    global _descriptor
    _descriptor = os.open(
        folder / NOTES, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644
    )


def bite(value: Any = None) -> Any:
    """Note that the fault changed what torch does, and return the wrong value."""
    if _descriptor is not None:
        os.write(_descriptor, b"!")
    return value


# -- faults: named places, whose functions are replaced or whose lines are edited ------------------


def find(path: str) -> Any:
    """Return the object at ``module:attribute.attribute``."""
    module, _, names = path.partition(":")
    try:
        value: Any = importlib.import_module(module)
        for name in names.split(".") if names else []:
            value = getattr(value, name)
    except (ImportError, AttributeError) as error:
        raise Unplantable(f"{path}: {error}") from error
    return value


def replace(path: str, wrap: Wrap) -> None:
    """Replace a function, or a method, which stays static or a class's; also where it was imported
    by name.
    """
    owner, name, kind, function = _place(path)
    _put(owner, name, kind, function, wrap(function))


def replace_item(path: str, key: Any, wrap: Wrap) -> None:
    """Replace the value of a key in a table of functions."""
    table = find(path)
    if key not in table:
        raise Unplantable(f"{path}: no {key}")
    table[key] = wrap(table[key])


def edit(path: str, *texts: str) -> None:
    """Replace texts (old, new, old, new, ...) of a function's source, each of which it has once.

    The new ones may call ``bite``. Decorators are applied anew. A function can be edited once.
    """
    owner, name, kind, original = _place(path)
    function = inspect.unwrap(original)
    try:
        source = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError) as error:
        raise Unplantable(f"{path}: {error}") from error
    for old, new in zip(texts[::2], texts[1::2], strict=True):
        if source.count(old) != 1:
            raise Unplantable(f"{path}: {source.count(old)} times, and not once: {old}")
        source = source.replace(old, new)
    compiled = _compiled(function, source)
    is_method = isinstance(compiled, staticmethod | classmethod)
    _put(owner, name, kind, original, compiled.__func__ if is_method else compiled)


def edits(path: str, *texts: str) -> Callable[[], None]:
    """Return a fault that edits a function."""
    return partial(edit, path, *texts)


def answers(path: str, value: Any = None) -> Callable[[], None]:
    """Return a fault under which a function does nothing, and returns a value."""
    return partial(replace, path, lambda _: lambda *_args, **_words: bite(value))


def _compiled(function: FunctionType, source: str) -> Any:
    """Return what the source of a function defines, with the globals and the closure of the
    function.
    """
    closure = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    factory = (
        f"def _factory({', '.join(['bite', *closure])}):\n{textwrap.indent(source, '    ')}\n"
        f"    return {function.__name__}\n"
    )
    namespace: dict[str, Any] = {}
    annotations = importlib.import_module("__future__").annotations.compiler_flag
    # under the name of torch's own file: dynamo and inductor ask where a function comes from
    code = compile(
        factory,
        function.__code__.co_filename,
        "exec",
        flags=function.__code__.co_flags & annotations,
        dont_inherit=True,
    )
    exec(code, function.__globals__, namespace)
    return namespace["_factory"](bite, *[cell.cell_contents for cell in closure.values()])


def _place(path: str) -> tuple[Any, str, type | None, Any]:
    """Return who holds the function, under which name, whether it is static or a class's, and the
    function.
    """
    parent, _, name = path.rpartition("." if "." in path.partition(":")[2] else ":")
    owner = find(parent)
    if name not in vars(owner):
        raise Unplantable(f"{path}: {parent} has no '{name}' of its own")
    raw = vars(owner)[name]
    if isinstance(raw, staticmethod | classmethod):
        return owner, name, type(raw), raw.__func__
    return owner, name, None, raw


def _put(owner: Any, name: str, kind: type | None, old: Any, new: Any) -> None:
    setattr(owner, name, kind(new) if kind else new)
    if inspect.ismodule(owner):
        # whoever has said 'from ... import' holds the old one
        for module in list(sys.modules.values()):
            for other, value in list(getattr(module, "__dict__", {}).items()):
                if value is old:
                    setattr(module, other, new)


# -- mutants: the code of live functions ----------------------------------------------------------


_parsed: dict[str, ast.Module] = {}


def plant_mutant(
    module: str, number: int, function: str, kind: str | None = None, line: int | None = None
) -> int:
    """Give every live copy of the function the mutated code, and return how many there were:
    references, decorators and closures stay what they are.
    """
    from tools.mutants.operators import mutated, only

    loaded = importlib.import_module(module)
    file = str(loaded.__file__)
    tree = _parsed.pop(module, None) or ast.parse(Path(file).read_bytes())
    change = mutated(tree, number, None if kind is None else (kind, line))
    code = compile(only(change, function), file, "exec", dont_inherit=True)
    compiled = {(item.co_qualname, item.co_firstlineno): item for item in _codes(code)}
    changed = 0
    for live in _functions(loaded, file, function):
        other = compiled.get((live.__code__.co_qualname, live.__code__.co_firstlineno))
        if other is not None and other.co_freevars == live.__code__.co_freevars:
            live.__code__ = other
            changed += 1
    return changed


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
    functions = [
        live
        for live in gc.get_referrers(vars(module))
        if type(live) is FunctionType
        and live.__code__.co_filename == file
        and f"{live.__code__.co_qualname}.".startswith(f"{function}.")
    ]
    gc.freeze()
    return functions


@contextlib.contextmanager
def noting(modules: Sequence[str]) -> Iterator[Mapping[str, set[int]]]:
    """Note the lines of these modules that this process executes: they fill the sets."""
    executed: dict[str, set[int]] = {module: set() for module in modules}
    files = {_file_of(module): executed[module] for module in modules}
    unseen: dict[CodeType, set[int]] = {}

    def inside(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            files[frame.f_code.co_filename].add(frame.f_lineno)
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

    if modules:
        threading.settrace(entered)
        sys.settrace(entered)
    try:
        yield executed
    finally:
        if modules:
            sys.settrace(None)
            threading.settrace(None)
