"""What the checks of ``doctor`` look at: one frozen value, so that a test can describe a machine that is not there."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.system.capabilities import Machine
from runner.system.doctor.programs import Printed, RunProgram, run_program
from runner.system.installed_torch import InstalledTorch


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorReport:
    """What a process with torch said of the generators of Composable Kernel's instances."""

    inductor: str = ""
    """Why ``torch._inductor`` cannot be imported; empty where it can."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """How many instances each generator gives."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why a generator gives none."""
    problem: str = ""
    """Why there is no answer at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A machine as the checks see it."""

    machine: Machine
    torch: InstalledTorch | None
    torch_problem: str = ""
    """Why the files of an installed torch cannot be read."""
    facts: Mapping[str, Any] | None = None
    """What a worker reported; None where none could."""
    worker_problem: str = ""
    """Why no worker reported, with the end of its output."""
    generators: GeneratorReport | None = None
    """None where the package of Composable Kernel is not installed."""
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    root: Path = Path("/")
    """The root of the file system of devices: ``/dev``, ``/sys``, ``/opt/rocm``."""
    run: RunProgram = run_program

    def which(self, name: str) -> Path | None:
        """Return the path of a program, by the PATH of this machine."""
        found = shutil.which(name, path=self.environ.get("PATH", os.defpath))
        return Path(found) if found else None

    def asked(self, program: Path, *arguments: str) -> Printed:
        """Return what a program prints when it is given some arguments."""
        return self.run([str(program), *arguments])

    def at(self, path: str) -> Path:
        """Return an absolute path of the machine below its root."""
        return self.root / path.lstrip("/")

    def built_for(self, version: str) -> str | None:
        """Return the version that torch is built for, by its name in ``torch.version``: ``hip``."""
        return self.torch.builds.get(version) if self.torch else None
