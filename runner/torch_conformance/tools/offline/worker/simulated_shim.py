"""The C++ side of a simulated GPU: a device guard and hooks that do nothing, built on demand and
loaded before torch is imported.

torch's C++ code asks for a CUDA device in places that Python cannot replace. The autograd engine,
for example, ends the process where no guard is registered. One device is reported; streams and
events have no effect. For a target of NVIDIA the hooks say that torch was built with cuDNN: the
layout of a convolution's result, which Inductor reads from a fake tensor, depends on it.
"""

import ctypes
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".cpp")

COMPILER = "g++"

CUDNN = 91900
"""The version of cuDNN that the hooks report: 9.19, which the wheel of torch 2.11.0 with CUDA 13.0
requires. Each of NVIDIA's targets has every feature for which torch asks the device."""

_SECONDS = 300.0
_MOST = 400
_LIBRARIES = ("libc10.so", "libtorch_cpu.so")


class NoShim(Exception):
    """The library cannot be built here. The text says why."""


def torch_root() -> Path:
    """Return the folder of torch, found without importing it; raise ``NoShim``."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise NoShim("torch is not installed")
    return Path(spec.origin).parent


def load(folder: Path, *, cudnn: bool) -> ctypes.CDLL:
    """Load torch's libraries, then this one, and register the hooks.

    Call it before torch is imported: torch asks once.

    The library is built in ``folder`` if it is not there yet. Its name has the digest of all it is
    made of. Raise ``NoShim``.
    """
    if "torch" in sys.modules:
        raise NoShim(
            "torch was imported before the C++ side of a simulated GPU, and does not ask for "
            "it again"
        )
    root, compiler = torch_root(), shutil.which(COMPILER)
    if compiler is None:
        raise NoShim(f"{COMPILER} is not installed, which builds the C++ side of a simulated GPU")
    version = (root / "version.py").read_text()
    digest = hashlib.sha256(
        f"{SOURCE.read_text()}\0{CUDNN}\0{version}\0{root}\0{compiler}".encode()
    ).hexdigest()[:24]
    library = folder / f"simulated-{digest}.so"
    if not library.is_file():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            built = Path(scratch, "shim.so")
            options = f"-std=c++20 -O0 -fPIC -shared -DCUDNN={CUDNN}".split()
            command = [compiler, *options, f"-I{root / 'include'}", str(SOURCE), "-o", str(built)]
            try:
                process = subprocess.run(
                    command,
                    capture_output=True,
                    text=True,
                    errors="replace",
                    timeout=_SECONDS,
                    check=False,
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                raise NoShim(
                    f"{COMPILER} did not build the C++ side of a simulated GPU: {error}"
                ) from error
            if process.returncode != 0:
                first = next(
                    (line for line in process.stderr.splitlines() if "error" in line),
                    process.stderr,
                )
                raise NoShim(
                    f"{COMPILER} could not build the C++ side of a simulated GPU: "
                    f"{first.strip()[:_MOST]}"
                )
            os.replace(
                built, library
            )  # another process may build it at the same time: each name is either absent or whole
    for name in _LIBRARIES:
        ctypes.CDLL(str(root / "lib" / name), mode=ctypes.RTLD_GLOBAL)
    loaded = ctypes.CDLL(str(library))
    loaded.simulate_hooks(ctypes.c_bool(cudnn))
    return loaded
