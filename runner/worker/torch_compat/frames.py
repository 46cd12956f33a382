"""What dynamo did with a frame: its backend, its guards, its graph breaks and the reasons of its recompiles."""

import re
from collections.abc import Callable, Mapping
from typing import Any


def backends_of(convert: Any) -> list[Any]:
    """Return the backend object with which a converter of frames compiles, and those that it wraps."""
    chain: list[Any] = []
    found = getattr(convert, "_torchdynamo_orig_backend", None)
    while found is not None and len(chain) < 20:
        chain.append(found)
        found = getattr(found, "_torchdynamo_orig_backend", None)
    return chain


_NOT_A_LEAF = re.compile(r"\w*GuardManager\b|TREE_GUARD_MANAGER")
_USER_CODE = re.compile(r"\s+# .*$")


def guards_of(manager: Any) -> list[str]:
    """Return the guards of a ``CheckFunctionManager``, each as ``TYPE: CODE``, as torch's log of guards shows them.

    The log ends each guard with the line of the user's code as a comment, which is no part of the guard.
    """
    lines = (line.lstrip("|+- ") for line in str(manager.guard_manager).splitlines())
    return [_USER_CODE.sub("", line) for line in lines if line.strip() and not _NOT_A_LEAF.match(line)]


def break_reasons() -> list[str]:
    """Return the reasons of all graph breaks of this process, as ``torch._dynamo.explain`` reads them."""
    from torch._dynamo.utils import graph_break_reasons

    return [str(found.reason) for found in graph_break_reasons]


def why_skipped(error: Exception) -> str:
    """Return why a frame runs without a graph, for a graph break after which dynamo cannot continue; empty for another exception."""
    from torch._dynamo import exc

    return str(error) if isinstance(error, exc.Unsupported | exc.UserError) else ""


def guard_failures() -> Mapping[Any, list[str]]:
    """Return the reasons of all recompiles of this process, by code object."""
    from torch._dynamo.utils import guard_failures as found

    return {code: list(reasons) for code, reasons in found.items()}


def on_lookup(note: Callable[[bool], None]) -> None:
    """Call ``note`` each time that dynamo compared the guards of a frame's compiled codes with its arguments: whether one of them fits.

    A frame without compiled code has no guards to compare.
    """
    from torch._C._dynamo.eval_frame import set_guard_complete_hook

    def hook(is_found: bool) -> bool:
        note(is_found)
        return is_found

    set_guard_complete_hook(hook)


CONVERSION = ("torch._dynamo.convert_frame", "ConvertFrameAssert.__call__")
"""The method that converts a frame. Its arguments are the frame and the first of the frame's compiled codes, None before the first."""

GUARDS = ("torch._dynamo.guards", "CheckFunctionManager.__init__")
"""The constructor of the guards of a frame; its second argument is the frame's code."""


def name_of(frame: Any) -> str:
    """Return the name of a frame's function."""
    return str(frame.f_code.co_name)
