"""How this program starts another Python: with this package, wherever it lies, and with nothing from the working folder.

``-P`` keeps the working folder off ``sys.path``; the variable does the same for every Python that the child starts. This package is named
by a folder that holds nothing else: were the folder around the package on ``PYTHONPATH``, its neighbours would come before the standard
library.
"""

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]

_SAFE_PATH = "PYTHONSAFEPATH"
_SEARCH = "PYTHONPATH"

_INIT = """\
__path__ = [{folder!r}]
__file__ = {file!r}
with open(__file__, encoding="utf-8") as _stream:
    exec(compile(_stream.read(), __file__, "exec"))
del _stream
"""
"""What stands for this package: its modules, and so the paths in tracebacks, are those of the package itself."""


def command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of this package."""
    return [sys.executable, "-P", *(["-s"] if sys.flags.no_user_site else []), "-m", module, *arguments]


def variables(given: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """Return the variables of a Python that is to find this package, then what the user put on ``PYTHONPATH``.

    The folder that names the package is a new one in ``scratch`` each time: what runs already may have written into the last.
    """
    # a parent that ignores the variables found its torch without them
    wanted = "" if sys.flags.ignore_environment else given.get(_SEARCH, "")
    found = {**given, _SEARCH: os.pathsep.join([_folder_of_package(scratch), *folders(wanted)]), _SAFE_PATH: "1"}
    return {**found, "PYTHONNOUSERSITE": "1"} if sys.flags.no_user_site else found


def folders(search: str) -> list[str]:
    """Return the folders that a ``PYTHONPATH`` names. An empty entry is left out: Python takes it for the working folder."""
    return [os.path.abspath(entry) for entry in search.split(os.pathsep) if entry]


def _folder_of_package(scratch: Path) -> str:
    scratch.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="package-", dir=scratch))
    (folder / _PACKAGE.name).mkdir()
    text = _INIT.format(folder=str(_PACKAGE), file=str(_PACKAGE / "__init__.py"))
    (folder / _PACKAGE.name / "__init__.py").write_text(text, encoding="utf-8")
    return str(folder)
