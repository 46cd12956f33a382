"""The identity of a C++ compiler: part of the keys of cached objects and cached probe results."""

import functools
import hashlib
import json
import os
import shlex
import shutil
import stat
import subprocess
from collections.abc import Mapping
from typing import Any, BinaryIO

VARIABLES = (
    *("COMPILER_PATH", "CPATH", "CPLUS_INCLUDE_PATH", "C_INCLUDE_PATH", "GCC_EXEC_PREFIX", "LD_LIBRARY_PATH", "LD_PRELOAD", "LD_RUN_PATH"),
    *("LIBRARY_PATH", "SOURCE_DATE_EPOCH"),
)
"""Variables that change the output of a compiler or a linker, or whether it can be loaded."""

_SECONDS = 60


def digest(value: Any) -> str:
    """Return the sha256 of a JSON value, in hexadecimal."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()


def digest_of_file(path: str) -> str:
    """Return the sha256 of a file's content, in hexadecimal; raise ``OSError``."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return those of ``VARIABLES`` that are set."""
    return {name: environ[name] for name in VARIABLES if environ.get(name)}


def torch_build() -> list[str]:
    """Return the version of torch and its git commit."""
    import torch

    return [str(torch.__version__), str(torch.version.git_version)]


@functools.cache
def identity(compiler: str, machine_flags: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the identity of a compiler with these machine flags on this CPU; None where ``-###`` fails.

    The identity includes the expansion of the flags, because ``-march=native`` stands for other flags and cache sizes on every CPU.
    """
    path = shutil.which(compiler)
    if path is None:
        return None
    command = [path, "-###", *machine_flags, "-x", "c++", "-E", os.devnull]
    environ = {**os.environ, "LC_ALL": "C"}
    try:
        # a fixed working folder: clang prints it among its options
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_SECONDS,
            check=True,
            env=environ,
            cwd="/",
        )
        words = done.stdout.decode("utf-8", "replace")
        programs = {path, *(shlex.split(line)[0] for line in words.splitlines() if line.lstrip().startswith(("/", '"/')))}
        return (path, words, *(_stamp(program) for program in sorted(programs)))
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def _stamp(program: str) -> str:
    real = os.path.realpath(program)
    found = os.stat(real)
    return f"{real} {found.st_size} {found.st_mtime_ns}"


def open_ours(path: str) -> BinaryIO:
    """Open a file if it is regular, not a link, owned by this user and writable by no other user; else raise ``OSError``."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        os.close(descriptor)
        raise PermissionError(f"{path} is not a regular file that only this user can write")
    return os.fdopen(descriptor, "rb")
