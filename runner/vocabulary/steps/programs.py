"""The programs that a ``spawn`` step may run. Reading a spec never starts one; a worker does, like any other code of the spec."""

from collections.abc import Mapping
from typing import Any

from runner.core.protocol import Json
from runner.vocabulary.expectations.texts import MOST
from runner.vocabulary.steps.session import Session, needed, values_of

_PYTHON = "<python>"
"""Stands for the Python of the worker."""

PROGRAMS: Mapping[str, tuple[str, ...]] = {
    "python": (_PYTHON,),
    "torchrun": (_PYTHON, "-m", "torch.distributed.run"),
    "cxx": ("c++",),
    "cmake": ("cmake",),
    "nvcc": ("nvcc",),
    "hipcc": ("hipcc",),
}
"""By the word of the language, the executable and its first arguments."""


def run(session: Session, program: str, argv: Json) -> dict[str, Any]:
    """Run a program to its end; return its exit code and the end of what it printed."""
    import subprocess
    import tempfile

    with needed("the program"):
        command = [*_command(program), *map(str, values_of(session, argv, None)[0])]
    with session.phases("spawn"), tempfile.TemporaryFile(dir=session.cache) as printed:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=printed)
        code = child.wait()
        printed.seek(max(0, printed.seek(0, 2) - MOST))
        text = printed.read().decode("utf-8", "backslashreplace")
    return {"code": code, "stderr": session.log_of_step(), "stdout": text}


def _command(program: str) -> list[str]:
    """Return the beginning of the command; raise ``LookupError`` where the program is not on PATH."""
    import shutil
    import sys

    executable, *first = PROGRAMS[program]
    found = sys.executable if executable == _PYTHON else shutil.which(executable)
    if found is None:
        raise LookupError(f"{executable} is not on PATH")
    return [found, *first]
