"""A device that is made up for the tests: a PrivateUse1 device of torch in C++, with Inductor's C++ for the CPU as its compiler.

``build`` compiles it. Its backends (``BACKENDS``) differ in variables that ``madeup_vendor.torch_conformance`` reads.
"""

import os
import shutil
import subprocess
from pathlib import Path

from runner.machine.installed_torch import installed_torch

PACKAGE = "madeup_vendor"

_SOURCE = Path(__file__).parent / PACKAGE

BACKENDS = """\
madeup:
  summary: A device that is made up
  device: madeup
  module: madeup_vendor.torch_conformance
  requires: [cxx]
  proof: {graphs: {min: 1}}
madeup-wrong:
  summary: The same device, whose kernels are wrong
  joins: [madeup]
  device: madeup
  module: madeup_vendor.torch_conformance
  env: {MADEUP_WRONG: "1"}
  proof: {graphs: {min: 1}}
madeup-lazy:
  summary: The same device, whose compiler gives up, so that dynamo runs everything eagerly
  joins: [madeup]
  device: madeup:0
  module: madeup_vendor.torch_conformance
  env: {MADEUP_LAZY: "1"}
  dynamo_config: {suppress_errors: true}
  proof: {graphs: {min: 1}}
"""


def install(folder: Path) -> Path:
    """Copy the package to a folder, without its library."""
    return Path(shutil.copytree(_SOURCE, folder / PACKAGE, ignore=shutil.ignore_patterns("__pycache__")))


def build(folder: Path) -> None:
    """Copy the package to a folder and compile its library."""
    package = install(folder)
    torch = installed_torch()
    assert torch is not None
    root = torch.root
    includes = [f"-I{root / 'include'}", f"-I{root / 'include/torch/csrc/api/include'}"]
    libraries = [f"-L{root / 'lib'}", "-lc10", "-ltorch_cpu", "-ltorch", f"-Wl,-rpath,{root / 'lib'}"]
    compiler = os.environ.get("CXX", "g++")
    command = [compiler, "-O0", "-std=c++20", "-fPIC", "-shared", *includes, str(package / "device.cpp"), "-o", str(package / "device.so")]
    done = subprocess.run([*command, *libraries], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
