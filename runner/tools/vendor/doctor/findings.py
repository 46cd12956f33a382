"""What the checks of ``doctor`` look at (``Scene``), what they find (``Finding``), and how they run a program of the machine."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from runner.machine.capabilities import Machine
from runner.machine.installed_torch import InstalledTorch

_SECONDS = 30.0
"""How long a program may take to tell its version."""
_BYTES = 64_000
"""How much of its output is read: the end."""


class Level(Enum):
    """How much a finding matters."""

    OK = "ok"
    """It is there and it works, as far as was looked."""
    NOTE = "note"
    """It is not there, and nothing on this machine says that it is."""
    WARNING = "warning"
    """Cases run, but slower, fewer, or in another way than the machine suggests."""
    PROBLEM = "problem"
    """The machine claims to have it (a package, a build of torch, a variable, a device), and it does not work."""


OK, NOTE, WARNING, PROBLEM = Level.OK, Level.NOTE, Level.WARNING, Level.PROBLEM


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. ``id`` is stable from version to version; several findings of one check may share it."""

    id: str
    level: Level
    found: str
    cause: str = ""
    remedy: str = ""
    """What to type or install next; never empty for a problem."""

    def __post_init__(self) -> None:
        if self.level is PROBLEM and not self.remedy:
            raise ValueError(f"the problem {self.id} says nothing of what to do")


@dataclass(frozen=True, slots=True)
class Printed:
    """What a program printed, on both streams, and how it ended."""

    text: str
    problem: str = ""
    """Why it gave no answer; empty when it ended with 0."""

    @property
    def first_line(self) -> str:
        """The first line that is not empty."""
        return next((line.strip() for line in self.text.splitlines() if line.strip()), "")


def run_program(
    command: Sequence[str], *, stdin: bytes = b"", seconds: float = _SECONDS, environ: Mapping[str, str] | None = None
) -> Printed:
    """Run a command in a session of its own, kill the whole session at the deadline, and return the end of what it printed."""
    with tempfile.TemporaryFile() as stream, tempfile.TemporaryFile() as source:
        source.write(stdin)
        source.seek(0)
        try:
            child = subprocess.Popen(list(command), stdin=source, stdout=stream, stderr=stream, env=environ, start_new_session=True)
        except OSError as error:
            return Printed("", f"it cannot be started: {error.strerror}")
        try:
            code = child.wait(seconds)
            ending = f"it was ended by signal {-code}" if code < 0 else f"it ended with exit code {code}" if code else ""
        except subprocess.TimeoutExpired:
            ending = f"it did not end within {seconds:.0f} s"
        finally:
            # a driver of a compiler starts other programs, which would outlive it
            with contextlib.suppress(OSError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        stream.seek(max(0, stream.seek(0, os.SEEK_END) - _BYTES))
        return Printed(stream.read(_BYTES).decode("utf-8", "replace"), ending)


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
    """A machine as the checks see it, so that a test can describe a machine that is not there."""

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
    run: Callable[..., Printed] = run_program

    def which(self, name: str) -> Path | None:
        """Return the path of a program, by the PATH of this machine."""
        path = shutil.which(name, path=self.environ.get("PATH", os.defpath))
        return Path(path) if path else None

    def asked(self, program: Path, *arguments: str) -> Printed:
        """Return what a program prints when it is given some arguments."""
        return self.run([str(program), *arguments])

    def at(self, path: str) -> Path:
        """Return an absolute path of the machine below its root."""
        return self.root / path.lstrip("/")

    def built_for(self, version: str) -> str | None:
        """Return the version that torch is built for, by its name in ``torch.version``: ``hip``."""
        return self.torch.builds.get(version) if self.torch else None

    def package(self, capability: str) -> Path | None:
        """Return the folder of an installed package, by the capability that looks for it."""
        return next(map(Path, self.machine.found.get(capability, ())), None)
