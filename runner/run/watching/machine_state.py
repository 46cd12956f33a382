"""The state of the machine that a zygote was started in: installed packages, the files of torch, variables, files of backends.

A zygote is not used in another state: its torch would be one that is no longer installed.
"""

import contextlib
import functools
import hashlib
import importlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from runner.system.data_dirs import folder
from runner.system.installed_torch import installed_torch

_LEFT_OUT = ("__pycache__", "include", "share", "test", "testing")
"""Folders of torch without code that a worker imports."""

_CODE = (".py", ".so")
_INSTALLED = (".dist-info", ".egg-info", ".egg-link", ".pth")


def state(backends: Iterable[Path], environ: Mapping[str, str] = os.environ) -> str:
    """Return a digest that differs when a zygote must start anew."""
    digest = hashlib.sha256()
    for name, value in sorted(environ.items()):
        digest.update(repr((name, value)).encode("utf-8", "surrogateescape"))
    for path in (folder("specs") / "backends.yaml", *backends):
        with contextlib.suppress(OSError):
            digest.update(path.read_bytes())
    for line in _installed():
        digest.update(line.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def forget_cached() -> None:
    """Forget what this process has cached of files, so that each run reads them as a new process would."""
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "runner":
            for value in list(vars(module).values()):
                if isinstance(value, functools._lru_cache_wrapper):  # noqa: SLF001 - functools exports no public name for its type
                    value.cache_clear()


def _installed() -> Iterator[str]:
    """Yield a line for each installed package, and for each file of torch that can be imported."""
    for entry in sys.path:
        with contextlib.suppress(OSError):
            yield from sorted(f"{one.name} {one.stat().st_mtime_ns}" for one in os.scandir(entry or ".") if one.name.endswith(_INSTALLED))
    importlib.invalidate_caches()
    torch = installed_torch()
    if torch is not None:
        yield from sorted(_code_below(str(torch.root)))


def _code_below(folder: str) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in _LEFT_OUT:
                    yield from _code_below(entry.path)
            elif entry.name.endswith(_CODE):
                status = entry.stat()
                yield f"{entry.path} {status.st_mtime_ns} {status.st_size}"
