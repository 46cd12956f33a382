"""What the compiler built while a zygote warmed up: a later zygote of this machine starts in half of the time with it.

The files are those of torch's own caches: a precompiled header, the kernels of the warm-up. A zygote for the CPU copies
those of an earlier one into its own folders before it warms up, or adds its own when it is warm. No case writes there, so that one that is
killed leaves no half of a file.
"""

import contextlib
import hashlib
import os
import platform
import secrets
import shutil
from pathlib import Path

from runner.worker.torch_compat import torch_state

_MOST = 8
"""How many folders are kept, two for each compiler, torch and CPU: a precompiled header takes some 150 MB."""

_VARIABLES = ("CXX", "COMPILER_PATH", "CPATH", "CPLUS_INCLUDE_PATH", "C_INCLUDE_PATH", "GCC_EXEC_PREFIX", "LD_LIBRARY_PATH", "LIBRARY_PATH")
"""Variables that change what a compiler builds."""

_LEFT_OUT = shutil.ignore_patterns("fxgraph", "aotautograd", "locks", "*.lock")
"""torch's caches of graphs: with a hit the warm-up would compile nothing."""


class WarmFiles:
    """The files for this torch, compiler and CPU in a folder that only this user can write to; none in None."""

    def __init__(self, folder: str | None) -> None:
        self._kept = Path(folder, _key()) if folder else None
        self._are_there = self._kept is not None and self._kept.is_dir()

    def probes(self) -> str | None:
        """Return the folder of answers to torch's probes of vector instructions; None for none."""
        if self._kept is None:
            return None
        folder = self._kept.with_name(f"{self._kept.name}-probes")
        with contextlib.suppress(OSError):
            folder.mkdir(exist_ok=True)
        return str(folder)

    def restore(self) -> None:
        """Copy the files of an earlier zygote into the folders of this one."""
        if self._kept is not None and self._are_there:
            try:
                os.utime(self._kept)
                for name, own in torch_state.built_by_warm_up().items():
                    if (self._kept / name).is_dir():
                        shutil.copytree(self._kept / name, own, dirs_exist_ok=True)
            except OSError:  # removed by another run, or a full disk: torch builds what is missing
                self._are_there = False

    def keep(self) -> None:
        """Add the files of this zygote, where there are none yet, and remove those that were not used for longest."""
        if self._kept is None or self._are_there:
            return
        part = self._kept.with_name(f"{self._kept.name}.{secrets.token_hex(8)}.part")
        try:
            for name, own in torch_state.built_by_warm_up().items():
                if os.path.isdir(own):
                    shutil.copytree(own, part / name, ignore=_LEFT_OUT)
            part.rename(self._kept)
        except OSError:  # another zygote was first, or a full disk
            shutil.rmtree(part, ignore_errors=True)
        with contextlib.suppress(OSError):
            by_age = sorted(self._kept.parent.iterdir(), key=lambda path: path.stat().st_mtime)
            for old in by_age[:-_MOST]:
                shutil.rmtree(old, ignore_errors=True)


def _key() -> str:
    import torch

    compiler = shutil.which(os.environ.get("CXX") or "g++")
    stamp = os.stat(compiler) if compiler else None
    lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    cpu = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    known = [torch.__version__, torch.version.git_version, platform.python_version(), platform.machine(), cpu, compiler]
    known += [stamp and (stamp.st_size, stamp.st_mtime_ns), {name: os.environ.get(name) for name in _VARIABLES}]
    return hashlib.sha256(repr(known).encode("utf-8", "surrogatepass")).hexdigest()
