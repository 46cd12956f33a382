"""A C++ compiler for the tests that compiles nothing twice.

``install`` puts a folder with a ``g++`` first on PATH, for one session of pytest and all that it
starts. That ``g++`` runs this file. It serves a command of torch that another process of the
session has run already, byte for byte, and runs the real compiler for each other one. A command is
the same when its words, the content of the files that it names, or of stdin where it compiles that
(as ``doctor`` does, and runs that cite it), and the variables of the compiler are the same; paths
of inputs and of the output do not count. The headers are those of torch and Python, which do not
change during a session: a command that searches other folders is run by the real compiler, and so
is one of another kind. What fails is not stored. Nothing of the runner is changed: torch calls
``g++``.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

FOLDER = "TESTS_COMPILER_CACHE"
"""The variable with the folder of the session."""

STDIN = "-"
"""The word of a command that compiles what it reads from stdin."""

_INPUTS = (".cpp", ".h", ".hpp", ".o")
"""How inputs end whose content, with the headers, is all that is read: an assembler file may name
another file.
"""

_ARGUMENT = frozenset(["-D", "-I", "-L", "-l", "-x"])
_KNOWN = (
    "-D",
    "-O",
    "-W",
    "-f",
    "-g1",
    "-l",
    "-m",
    "-std=",
    "-pedantic",
    "-shared",
    "-c",
    "-E",
    "-P",
    "-x",
    "-o",
    "-include",
    "-I",
    "-L",
)
_UNKNOWN = ("-Wl,", "-Wa,", "-Wp,", "-fplugin", "-fprofile", "-fdump", "-flto", "-fstats")
_VARIABLES = (
    *(
        "COMPILER_PATH",
        "CPATH",
        "CPLUS_INCLUDE_PATH",
        "C_INCLUDE_PATH",
        "GCC_EXEC_PREFIX",
        "LIBRARY_PATH",
        "LD_RUN_PATH",
    ),
    *(
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
        "SOURCE_DATE_EPOCH",
        "DEPENDENCIES_OUTPUT",
        "SUNPRO_DEPENDENCIES",
        "GCC_COMPARE_DEBUG",
    ),
)


def install(folder: str, headers: Sequence[str], python: str = sys.executable) -> None:
    """Put a ``g++`` that serves from ``folder`` first on PATH; ``headers`` are the folders whose
    content does not change.

    Where there is no g++, or CXX names a compiler, nothing is done.
    """
    real = shutil.which("g++")
    if real is None or os.environ.get("CXX") or os.environ.get(FOLDER):
        return
    words = [
        python,
        "-S",
        "-E",
        "-s",
        os.path.abspath(__file__),
        real,
        os.pathsep.join(map(os.path.realpath, headers)),
    ]
    programs = os.path.join(folder, "bin")
    os.makedirs(programs)
    os.makedirs(os.path.join(folder, "outputs"))
    script = os.path.join(programs, "g++")
    with open(script, "w", encoding="utf-8") as stream:
        stream.write(
            "#!/bin/sh\nexec "
            + " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)
            + ' "$@"\n'
        )
    os.chmod(script, 0o755)
    os.environ[FOLDER] = folder
    os.environ["PATH"] = programs + os.pathsep + os.environ.get("PATH", os.defpath)


def key_of(
    words: Sequence[str], headers: Sequence[str], stdin: bytes = b""
) -> tuple[str, str] | None:
    """Return the key of a command and its output; None for a command that the real compiler must
    run.

    Raise ``OSError``.
    """
    found = hashlib.sha256(stdin)
    outputs: list[str] = []
    waiting = iter(words)
    for word in waiting:
        if word == STDIN:
            continue
        if not word.startswith("-"):
            if not word.endswith(_INPUTS):
                return None
            _add_file(found, word)
            continue
        if not word.startswith(_KNOWN) or word.startswith(_UNKNOWN):
            return None
        argument = next(waiting, "") if word in {*_ARGUMENT, "-o", "-include"} else ""
        if word == "-o":
            outputs.append(argument)
            argument = os.path.splitext(argument)[1]
        elif word == "-include":
            _add_file(found, argument)
            argument = ""
        searched = argument or word[2:]
        if word.startswith(("-I", "-L")) and not _is_below(searched, headers):
            return None
        found.update(f"{word}\0{argument}\0".encode())
    if len(outputs) != 1 or not os.path.isabs(outputs[0]):
        return None
    for name in _VARIABLES:
        found.update(f"{name}={os.environ.get(name)}\0".encode())
    return found.hexdigest(), outputs[0]


def _is_below(path: str, folders: Sequence[str]) -> bool:
    real = os.path.realpath(path)
    return any(real == folder or real.startswith(os.path.join(folder, "")) for folder in folders)


def _add_file(found: "hashlib._Hash", path: str) -> None:
    """Add the name and the content of a file.

    A precompiled header is named after its content, and lies beside a short one.
    """
    with open(path, "rb") as stream:
        content = stream.read()
    found.update(f"{os.path.basename(path)}\0{len(content)}\0".encode() + content)


def main(real: str, headers: str, *words: str) -> int:
    """Serve the output of a command, or run it."""
    command = [real, *words]
    source = sys.stdin.buffer.read() if STDIN in words else b""
    try:
        known = key_of(words, headers.split(os.pathsep), source)
    except OSError:
        known = None
    folder = os.environ.get(FOLDER, "")
    if known is None or not os.path.isdir(folder):
        if source:
            return subprocess.run(command, input=source, timeout=600, check=False).returncode
        os.execv(real, command)
    key, output = known
    stored = os.path.join(folder, "outputs", key)
    with open(f"{stored}.lock", "wb") as lock:  # who needs the same output waits for it
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(stored):
            options = {"input": source} if source else {}
            code = subprocess.run(command, timeout=600, check=False, **options).returncode
            if code == 0:
                _put(output, stored)
            return code
    _put(stored, output)
    return 0


def _put(source: str, target: str) -> None:
    """Copy a file, atomically.

    Headers are linked, for they are large. A library is not: two links are one library to the
    loader.
    """
    part = f"{target}.{os.getpid()}.part"
    try:
        linked = source.endswith(".gch") or target.endswith(".gch")
        if linked:
            try:
                os.link(source, part)
            except OSError:  # another file system
                linked = False
        if not linked:
            shutil.copy(source, part)
        os.replace(part, target)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
