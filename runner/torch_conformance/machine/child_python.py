"""Commands and variables that start another Python with this package and without the working folder
on ``sys.path``.

``-P`` keeps the working folder off ``sys.path``; ``PYTHONSAFEPATH`` does the same for every Python
that the child starts. ``PYTHONPATH`` gets a folder that holds only this package. The folder around
the package would put its other files before the standard library.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # ``--help`` imports neither typing nor pathlib
if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_PACKAGE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))

_SAFE_PATH = "PYTHONSAFEPATH"
_SEARCH = "PYTHONPATH"

_INIT = """\
__path__ = [{folder!r}]
__file__ = {file!r}
with open(__file__, encoding="utf-8") as _stream:
    exec(compile(_stream.read(), __file__, "exec"))
del _stream
"""
"""The ``__init__.py`` of a stand-in package.

It loads the real package, so modules and tracebacks have the real paths.
"""


def command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of this package."""
    return [
        sys.executable,
        "-P",
        *(["-s"] if sys.flags.no_user_site else []),
        "-m",
        module,
        *arguments,
    ]


def variables(environ: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """Return the environment of a child Python that can import this package, followed by the user's
    ``PYTHONPATH``.

    Each call makes a new folder for the package in ``scratch``, because a running case may have
    written into an older one.
    """
    from torch_conformance.model.protocol import NO_ASSERTS

    # a parent that ignores the variables (-E) found its torch without them
    search = "" if sys.flags.ignore_environment else environ.get(_SEARCH, "")
    environment = {
        **{name: value for name, value in environ.items() if name != NO_ASSERTS},
        _SEARCH: os.pathsep.join([_folder_of_package(scratch), *folders(search)]),
        _SAFE_PATH: "1",
    }
    return {**environment, "PYTHONNOUSERSITE": "1"} if sys.flags.no_user_site else environment


def folders(search: str) -> list[str]:
    """Return the folders of a ``PYTHONPATH``.

    Empty entries are removed: Python reads them as the working folder.
    """
    return [os.path.abspath(entry) for entry in search.split(os.pathsep) if entry]


def _folder_of_package(scratch: Path) -> str:
    folder = scratch / f"package-{os.urandom(8).hex()}"
    folder.mkdir(parents=True, mode=0o700)
    stand_in = folder / os.path.basename(_PACKAGE)
    stand_in.mkdir()
    (stand_in / "__init__.py").write_text(
        _INIT.format(folder=_PACKAGE, file=os.path.join(_PACKAGE, "__init__.py")), encoding="utf-8"
    )
    return str(folder)


def leave_out_working_folder() -> None:
    """Take off ``sys.path`` what Python put there unasked: the working folder (``-m``), or the
    folder of the script.

    A checkout of PyTorch has a folder ``torch``: it is not the torch that the workers import, since
    those are started with ``-P``.
    """
    if (
        not sys.flags.safe_path
        and sys.path
        and sys.path[0] in ("", os.getcwd(), os.path.dirname(os.path.realpath(sys.argv[0])))
    ):
        del sys.path[0]
    search = os.environ.get("PYTHONPATH", "")
    if search and not sys.flags.ignore_environment and "" in search.split(os.pathsep):
        # an empty entry means the working folder to Python; a .pth file may name it too, whose
        # entries are the last
        working_folder = os.getcwd()
        if working_folder in sys.path and working_folder not in folders(search):
            sys.path.remove(working_folder)
            sys.path.append(working_folder)
