"""What patches are made of: names of torch that are replaced, lines of torch that are edited, and a
note of every bite.

Used in the worker alone, after the fork and before the case touches torch. A patch whose place is
gone raises ``Unplantable``: the worker dies before it claims anything.
"""

import importlib
import inspect
import os
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FunctionType
from typing import Any

NOTES = "planted"
"""The file in a case's folder: there when its fault was planted, and one byte long for each time
that it bit.
"""

_descriptor: int | None = None

Around = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Takes what stood there, returns what stands there from now on."""


class Unplantable(Exception):
    """The installed torch has not what a fault would change."""


def begin(folder: Path) -> None:
    """Begin the notes of a case; call once the fault is planted."""
    global _descriptor
    _descriptor = os.open(
        folder / NOTES, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644
    )


def bite(value: Any = None) -> Any:
    """Note that the fault changed what torch does, and return the wrong value."""
    if _descriptor is not None:
        os.write(_descriptor, b"!")
    return value


def find(path: str) -> Any:
    """Return the object at ``module:attribute.attribute``."""
    module, _, names = path.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for name in names.split(".") if names else []:
            found = getattr(found, name)
    except (ImportError, AttributeError) as error:
        raise Unplantable(f"{path}: {error}") from error
    return found


def replace(path: str, around: Around) -> None:
    """Replace a function, or a method, which stays static or a class's; also where it was imported
    by name.
    """
    owner, name, kind, function = _place(path)
    _put(owner, name, kind, function, around(function))


def replace_item(path: str, key: Any, around: Around) -> None:
    """Replace the value of a key in a table of functions."""
    table = find(path)
    if key not in table:
        raise Unplantable(f"{path}: no {key}")
    table[key] = around(table[key])


def edit(path: str, old: str, new: str) -> None:
    """Replace a text that stands once in a function's source, and put the function that this gives
    in its place.

    ``new`` may call ``bite``. Decorators are applied anew.
    """
    edit_all(path, {old: new})


def edit_all(path: str, changes: Mapping[str, str]) -> None:
    """Replace several texts of one function; a function can be edited once."""
    owner, name, kind, held = _place(path)
    function = inspect.unwrap(held)
    try:
        source = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError) as error:
        raise Unplantable(f"{path}: {error}") from error
    for old, new in changes.items():
        if source.count(old) != 1:
            raise Unplantable(f"{path}: {source.count(old)} times, and not once: {old}")
        source = source.replace(old, new)
    made = _compiled(function, source)
    _put(
        owner,
        name,
        kind,
        held,
        made.__func__ if isinstance(made, staticmethod | classmethod) else made,
    )


def _compiled(function: FunctionType, source: str) -> Any:
    """Return what the source of a function defines, with the globals and the closure of the
    function.
    """
    closure = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    outer = ["bite", *closure]
    factory = (
        f"def _factory({', '.join(outer)}):\n{textwrap.indent(source, '    ')}\n    return "
        f"{function.__name__}\n"
    )
    namespace: dict[str, Any] = {}
    futures = (
        function.__code__.co_flags & importlib.import_module("__future__").annotations.compiler_flag
    )
    # under the name of torch's own file: dynamo and inductor ask where a function comes from
    code = compile(factory, function.__code__.co_filename, "exec", flags=futures, dont_inherit=True)
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
