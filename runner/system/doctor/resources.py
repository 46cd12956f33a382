"""Checks of cores, memory, disk, and of the folders that runs write to."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from runner.core.diagnostics import UsageError
from runner.system import cache_dirs, hardware, scratch
from runner.system.doctor.findings import Finding, ok, problem, warning
from runner.system.doctor.scene import Scene

_LEAST_MEMORY = 2 << 30
"""Two cases that compile, and what the runner and its zygotes use."""

_LEAST_DISK = 1 << 30
"""Generated code, objects and precompiled headers of a run: a header alone takes some 200 MB."""


def check(scene: Scene) -> Iterator[Finding]:
    """Report cores and memory within the limits of control groups, and each folder that runs write to."""
    cores, memory = hardware.cores(), hardware.available_memory()
    text = f"{cores:g} cores, {memory / 2**30:.1f} GiB of memory available"
    if memory < _LEAST_MEMORY:
        yield warning("resources.memory", text, "a case that compiles takes about 1 GiB", "close other programs, or run with --jobs 1")
    else:
        yield ok("resources.memory", text)
    yield from _scratch()
    yield from _cache(scene)
    yield from _named_folders(scene)


def _scratch() -> Iterator[Finding]:
    try:
        scratch.check()
    except UsageError as error:
        yield problem("folders.temporary", str(error), remedy="set TMPDIR to a folder with free space in which programs may run")
        return
    folder = Path(tempfile.gettempdir())
    space = scratch.space_of(folder)
    text = f"{folder}: {space.bytes / 2**30:.1f} GiB free"
    if space.bytes < _LEAST_DISK:
        yield warning("folders.temporary", text, "runs keep generated code and objects there", "set TMPDIR to a larger folder")
    else:
        yield ok("folders.temporary", text)


def _cache(scene: Scene) -> Iterator[Finding]:
    folder = cache_dirs.home()
    if _is_writable(folder):
        yield ok("folders.cache", f"{folder} is writable")
    elif scene.environ.get(cache_dirs.VARIABLE):
        remedy = f"set {cache_dirs.VARIABLE} to a folder of yours, or unset it"
        yield problem("folders.cache", f"{cache_dirs.VARIABLE} names {folder}, which is not writable", remedy=remedy)
    else:
        yield warning("folders.cache", f"{folder} is not writable", "every run probes the CPU again", f"set {cache_dirs.VARIABLE}")


def _named_folders(scene: Scene) -> Iterator[Finding]:
    """Yield the caches of torch and Triton that variables name and that cannot be written: torch outside of a run uses them."""
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TRITON_HOME"):
        named = scene.environ.get(name)
        if named and not _is_writable(Path(named)):
            yield problem("folders.cache", f"{name} names {named}, which is not writable", remedy=f"unset {name}, or name another folder")


def _is_writable(folder: Path) -> bool:
    """Whether a folder, or the nearest one above it that exists, can be written to."""
    there = next((path for path in (folder, *folder.absolute().parents) if path.exists()), folder)
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)
