"""The device of ``docs/guides/example-device.md``: a PrivateUse1 device in C++, with Inductor's C++
for the CPU.
"""

import subprocess
import sys
from pathlib import Path

from tests.fences import ROOT, fences, write

PACKAGE = "our_npu"

_FENCES = fences(ROOT / "docs" / "guides" / "example-device.md")

(BACKENDS,) = (fence.text for fence in _FENCES if fence.name == "broken.yaml")
"""The device, one that is wrong, and one whose compiler gives up: they differ in variables that the
module reads.
"""

(OWN_OPERATORS,) = (fence.text for fence in _FENCES if fence.name == "eager.yaml")
"""The device whose operators are called one by one."""


def install(folder: Path) -> None:
    """Write the package to a folder, without its library."""
    for fence in _FENCES:
        if fence.mark == "module":
            write(fence, folder)


def build(folder: Path) -> None:
    """Write the package to a folder, and compile its library as the page says."""
    install(folder)
    done = subprocess.run(
        [sys.executable, folder / PACKAGE / "build.py"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
