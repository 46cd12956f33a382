"""The checks of ``doctor``: each looks at a ``Machine`` with its files and programs (``Scene``),
and yields what it finds (``Finding``).
"""

import ast
import contextlib
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from torch_conformance.language.torch_names import NameTables
from torch_conformance.machine import scratch
from torch_conformance.machine.capabilities import Machine, rocm_home
from torch_conformance.machine.installed_torch import InstalledTorch, installed_torch
from torch_conformance.machine.redaction import environment_variables, redacted
from torch_conformance.model import devices
from torch_conformance.model.diagnostics import UsageError
from torch_conformance.model.escaping import one_line
from torch_conformance.model.values import frozen
from torch_conformance.plan import schedule


class Level(Enum):
    """How much a finding matters."""

    OK = "ok"
    """It is there and it works, as far as was looked."""
    NOTE = "note"
    """It is not there, and nothing on this machine says that it is."""
    WARNING = "warning"
    """Cases run, but slower, fewer, or in another way than the machine suggests."""
    PROBLEM = "problem"
    """The machine claims to have it (a package, a build of torch, a variable, a device), and it
    does not work.
    """


OK, NOTE, WARNING, PROBLEM = Level.OK, Level.NOTE, Level.WARNING, Level.PROBLEM


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding.

    ``id`` is stable from version to version; several findings of one check may share it.
    """

    id: str
    level: Level
    found: str
    cause: str = ""
    remedy: str = ""
    """What to type or install next; never empty for a problem."""


class Printed(NamedTuple):
    """What a program printed, on both streams, and why it gave no answer; empty when it ended with
    0.
    """

    text: str
    problem: str = ""

    def line(self, part: str = "") -> str:
        """Return the first line that has a part, or that is not empty; of several without the part,
        the last one.
        """
        lines = [line.strip() for line in self.text.splitlines() if line.strip()]
        return one_line(
            next((line for line in lines if part in line.lower()), lines[-1] if lines else ""), 200
        )


def run_program(
    command: Sequence[str],
    *,
    stdin: bytes = b"",
    seconds: float = 30.0,
    environ: Mapping[str, str] | None = None,
) -> Printed:
    """Run a command in a session of its own, kill the whole session at the deadline, and return the
    end of what it printed.
    """
    with tempfile.TemporaryFile() as stream, tempfile.TemporaryFile() as source:
        source.write(stdin)
        source.seek(0)
        try:
            child = subprocess.Popen(
                list(command),
                stdin=source,
                stdout=stream,
                stderr=stream,
                env=environ,
                start_new_session=True,
            )
        except OSError as error:
            return Printed("", f"it cannot be started: {error.strerror}")
        try:
            code = child.wait(seconds)
            ending = f"it ended with exit code {code}" * bool(code)
            ending = f"it was ended by signal {-code}" if code < 0 else ending
        except subprocess.TimeoutExpired:
            ending = f"it did not end within {seconds:.0f} s"
        finally:
            # a driver of a compiler starts other programs, which would outlive it
            with contextlib.suppress(OSError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        stream.seek(max(0, stream.seek(0, os.SEEK_END) - 64_000))
        return Printed(stream.read().decode("utf-8", "replace"), ending)


@frozen
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
    generators: Mapping[str, Any] = field(default_factory=dict)
    """What ``ck_generators`` wrote, or why it wrote nothing (``problem``)."""
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    root: Path = Path("/")
    """The root of the file system of devices: ``/dev``, ``/sys``, ``/opt/rocm``."""
    run: Callable[..., Printed] = run_program

    def which(self, name: str) -> Path | None:
        """Return the path of a program, by the PATH of this machine."""
        path = shutil.which(name, path=self.environ.get("PATH", os.defpath))
        return Path(path) if path else None

    def at(self, path: str) -> Path:
        """Return an absolute path of the machine below its root."""
        return self.root / path.lstrip("/")

    def built_for(self, version: str) -> str | None:
        """Return the version that torch is built for, by its name in ``torch.version``: ``hip``."""
        return self.torch.builds.get(version) if self.torch else None

    def package(self, capability: str) -> Path | None:
        """Return the folder of an installed package, by the capability that looks for it."""
        return next(map(Path, self.machine.found.get(capability, ())), None)


# -- Python and torch ------------------------------------------------------------------------------


def python(scene: Scene) -> Iterator[Finding]:
    """Name the interpreter."""
    yield Finding("python.version", OK, f"Python {platform.python_version()}, {sys.executable}")


def torch(scene: Scene) -> Iterator[Finding]:
    """Report the torch that files show, and what the worker that imported it said."""
    if scene.torch is None or scene.torch_problem:
        remedy = (
            "reinstall torch, or remove the folder from PYTHONPATH"
            if scene.torch_problem
            else "pip install torch"
        )
        words = scene.torch_problem or scene.machine.no_torch
        yield Finding("torch.version", PROBLEM, words, "without torch no case can run", remedy)
        return
    built = [
        f"{build.title} {version}"
        for build in devices.builds()
        if (version := scene.built_for(build.version))
    ]
    commit = f", commit {scene.torch.git[:12]}" if scene.torch.git else ""
    words = (
        f"torch {scene.torch.version}{commit}, built for {' and '.join(built) or 'the CPU only'}, "
        f"{scene.torch.root}"
    )
    yield Finding("torch.version", OK, words)
    if untested := NameTables(scene.torch).untested:
        yield Finding("torch.untested", NOTE, untested)
    if scene.facts is not None:
        yield Finding(
            "torch.worker", OK, "a worker imports torch and reports the facts of the machine"
        )
    else:
        remedy = f"{sys.executable} -P -c 'import torch._inductor.compile_fx' shows the whole error"
        cause = one_line(scene.worker_problem or "it sent nothing")
        yield Finding(
            "torch.worker",
            PROBLEM,
            "no worker with torch could report the facts of this machine",
            cause,
            remedy,
        )


def triton(scene: Scene) -> Iterator[Finding]:
    """Say whether there is a Triton that a worker can import."""
    folder, version = scene.package("triton"), (scene.facts or {}).get("triton")
    if folder is None:
        is_needed = any(scene.built_for(build.version) for build in devices.builds())
        remedy = "reinstall torch with its Triton" if is_needed else ""
        cause = "torch compiles for GPUs with it"
        yield Finding(
            "triton.version",
            PROBLEM if is_needed else NOTE,
            "Triton is not installed",
            cause,
            remedy,
        )
    elif scene.facts is not None and version is None:
        words = f"Triton is in {folder}, and a worker cannot import it"
        yield Finding("triton.import", PROBLEM, words, "", "reinstall the Triton of this torch")
    else:
        yield Finding("triton.version", OK, f"Triton {version or 'of unknown version'}, {folder}")


# -- compilers -------------------------------------------------------------------------------------

_OPENMP = b'#include <omp.h>\nextern "C" int threads() { return omp_get_max_threads(); }\n'
_LOCALE = (
    b'#include <locale>\nextern "C" bool is_classic() { return std::locale() == '
    b"std::locale::classic(); }\n"
)

_SHARED_RUNTIMES = (b"libstdc++.so", b"libc++.so")
"""The names by which a library asks for a C++ runtime that other libraries have too."""


def cxx(scene: Scene) -> Iterator[Finding]:
    """Name the compiler that torch calls, ``$CXX`` as one word, else g++, and build two small
    libraries with it.
    """
    variable = scene.environ.get("CXX")
    compiler = scene.which("g++" if variable is None else variable)
    if compiler is None:
        # the value itself is not shown: it is not among the variables that are recorded
        words, remedy = "CXX names no program", "set CXX to the path of one program, or unset it"
        several = "torch starts its whole value as one program, and the value has several words"
        cause = several * (len((variable or "").split()) > 1)
        if variable is None:
            other = scene.which("clang++")
            words = f"there is {other or 'no C++ compiler'}{', and no g++' * bool(other)}"
            remedy = f"export CXX={other}" if other else "install g++"
            cause = (
                "without CXX torch calls only g++: every compile for the CPU fails, and Triton's "
                "launchers, so that most cases are UNAVAILABLE"
            )
        yield Finding("cxx.version", PROBLEM, words, cause, remedy)
        return
    printed = scene.run([str(compiler), "--version"])
    if printed.problem:
        words = f"torch calls {compiler}, which does not answer --version"
        yield Finding(
            "cxx.version",
            PROBLEM,
            words,
            _why(printed),
            "reinstall g++, or set CXX to another compiler",
        )
        return
    origin = "named by CXX" if variable is not None else "the first g++ on PATH"
    yield Finding("cxx.version", OK, f"torch calls {compiler} ({origin}): {printed.line()}")
    names = {
        name for path in (compiler, compiler.resolve()) for name in (path.name, path.parent.name)
    }
    if wrapper := next(filter(names.__contains__, _WRAPPERS), ""):
        cause = (
            "it may answer from a cache or another machine, so that a case compiles nothing here"
        )
        yield Finding(
            "cxx.wrapper",
            WARNING,
            f"{compiler} is {wrapper}, a compiler wrapper",
            cause,
            "set CXX to the compiler itself for a run that counts",
        )
    with tempfile.TemporaryDirectory(prefix="torch-conformance-doctor-") as folder:
        target = Path(folder) / "built.so"
        command = [str(compiler), "-x", "c++", "-", "-shared", "-fPIC", "-o", str(target)]
        printed = scene.run([*command, "-fopenmp"], stdin=_OPENMP)
        if printed.problem:
            remedy = (
                "install the OpenMP library of this compiler (libgomp for g++, libomp-dev for "
                "clang++)"
            )
            yield Finding(
                "cxx.openmp",
                PROBLEM,
                "the compiler builds no library that uses OpenMP",
                _why(printed),
                remedy,
            )
        else:
            yield Finding("cxx.openmp", OK, "the compiler builds a library that uses OpenMP")
        target.unlink(missing_ok=True)
        if scene.run(command, stdin=_LOCALE).problem or not target.is_file():
            return
        is_shared = any(name in target.read_bytes() for name in _SHARED_RUNTIMES)
    if is_shared:
        yield Finding("cxx.runtime", OK, "the libraries that it builds share the C++ runtime")
    else:  # seen with torch 2.11 on an H200: SIGSEGV in std::regex of a package that was loaded
        cause = (
            "torch has another copy of the runtime: std::regex crashed (SIGSEGV) where a package "
            "of AOTInductor was loaded"
        )
        words = "each library that it builds has its own copy of the C++ runtime"
        yield Finding("cxx.runtime", WARNING, words, cause, "set CXX to another compiler")


def _why(printed: Printed) -> str:
    return ": ".join(filter(None, (printed.problem, printed.line("error"))))


_WRAPPERS = "ccache sccache distcc icecc buildcache fastbuild clcache".split()
"""Programs that are called in place of a compiler, by name or by a link, and may answer from a
cache or from another machine.
"""


# -- accelerators ----------------------------------------------------------------------------------


class Maker(NamedTuple):
    """What Linux shows of the GPUs of one maker."""

    build: str
    """The capability of its build of torch (``model/devices.py``)."""
    pci: str
    """Its number on the PCI bus."""
    control: tuple[str, ...]
    """Device files of the driver, of which one must be there."""
    each: tuple[str, ...]
    """Patterns of files that a process opens for computing."""
    driver: str
    """A file that exists while the driver is loaded."""
    hidden_by: tuple[str, ...]
    """Variables that hide GPUs."""
    container: str
    """The options with which a container gets the devices."""
    is_exclusive: bool = True
    """Whether its device files are only of this maker, and its devices compute: other makers and
    displays have the others too.
    """


_NVIDIA = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia[0-9]*")
_RENDER = "/dev/dri/renderD[0-9]*"
_HIDES = ("CUDA_VISIBLE_DEVICES",)
_AMD_HIDES = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", *_HIDES)
_INTEL_HIDES = ("ONEAPI_DEVICE_SELECTOR", "ZE_AFFINITY_MASK")
_GROUPS = "--device=/dev/dri --group-add render"
_AMD_GROUPS = f"--device=/dev/kfd --group-add video {_GROUPS}"

MAKERS: tuple[Maker, ...] = (
    Maker(
        "cuda",
        "0x10de",
        ("/dev/nvidiactl", "/dev/dxg"),
        _NVIDIA,
        "/proc/driver/nvidia/version",
        _HIDES,
        "--gpus all",
    ),
    Maker(
        "rocm",
        "0x1002",
        ("/dev/kfd", "/dev/dxg"),
        ("/dev/kfd", _RENDER),
        "/sys/module/amdgpu",
        _AMD_HIDES,
        _AMD_GROUPS,
    ),
    Maker(
        "xpu",
        "0x8086",
        ("/dev/dri/renderD128", "/dev/dxg"),
        (_RENDER,),
        "/sys/module/xe",
        _INTEL_HIDES,
        _GROUPS,
        is_exclusive=False,
    ),
)
"""The makers whose devices are looked for.

Another one adds an entry; its build is in ``model/devices.py``.
"""

_DISPLAY, _COMPUTE = "0x03", "0x12"
"""Classes of PCI devices: displays, which include GPUs, and processing accelerators."""

_OF_LIBRARIES = tuple(
    "HIP HSA_ MIOPEN_ PYTORCH_TUNABLEOP_ ROC CUBLAS CUDA_VISIBLE_DEVICES "
    "NVIDIA_TF32_OVERRIDE".split()
)
"""How recorded variables begin that choose devices, or kernels of a vendor's library, and so change
results.
"""


def accelerators(scene: Scene) -> Iterator[Finding]:
    """Compare, for each maker, its devices, its driver and the build of torch."""
    for maker in MAKERS:
        (build,) = (build for build in devices.builds() if build.capability == maker.build)
        yield from _of_maker(scene, maker, build)
    for name, value in environment_variables(scene.environ).items():
        if name == "HSA_OVERRIDE_GFX_VERSION":
            cause = "the GPU claims to be another one: results of this run are not its own"
            yield Finding("variables", WARNING, f"{name}={value}", cause, f"unset {name}")
        elif name.startswith(_OF_LIBRARIES):
            yield Finding("variables", NOTE, f"{name}={value}", "the header of a run records it")


def _of_maker(scene: Scene, maker: Maker, build: devices.Build) -> Iterator[Finding]:
    id, built, node = f"{maker.build}.device", scene.built_for(build.version), maker.control[0]
    if not built and not maker.is_exclusive:
        yield Finding(
            id, NOTE, f"torch is not built for {build.title}: {build.device} was not looked for"
        )
        return
    if not any(scene.at(file).exists() for file in maker.control):
        cards = 0
        for folder in scene.at("/sys/bus/pci/devices").glob("*"):
            with contextlib.suppress(OSError, ValueError):
                vendor, kind = (
                    (folder / name).read_text("ascii").strip() for name in ("vendor", "class")
                )
                cards += vendor == maker.pci and kind.startswith((_DISPLAY, _COMPUTE))
        if cards and built:
            is_loaded = scene.at(maker.driver).exists()
            cause = (
                "the driver is loaded, but its device files are not here, as in a container"
                if is_loaded
                else "its driver is not loaded"
            )
            remedy = f"load the driver; in a container pass {maker.container}"
            yield Finding(
                id, PROBLEM, f"the machine has {build.device} and no {node}", cause, remedy
            )
        elif built:
            words = f"no {node}: the cases for {build.title} cannot run here"
            yield Finding(
                id,
                WARNING,
                words,
                f"torch is built for {build.title} {built}",
                f"run on a machine with {build.device}",
            )
        elif cards:
            yield Finding(
                id,
                NOTE,
                f"the machine has {build.device}, without {node}; torch is built without "
                f"{build.title}",
            )
        else:
            yield Finding(id, NOTE, f"no {build.device.partition(' ')[2]}")
        return
    paths = sorted(path for pattern in maker.each for path in scene.root.glob(pattern.lstrip("/")))
    closed = [path for path in paths if not os.access(path, os.R_OK | os.W_OK)]
    for path in closed:
        try:
            group = path.group()
        except (KeyError, OSError):  # a container may lack the name of the group
            group = "of its number"
        remedy = f"add this user to the group {group}, or pass --group-add {group} to the container"
        words = f"this user may not read and write {path}"
        yield Finding(
            f"{maker.build}.permission", PROBLEM, words, f"it belongs to the group {group}", remedy
        )
    if paths and not closed:
        yield Finding(
            f"{maker.build}.permission",
            OK,
            f"this user may use {', '.join(map(str, paths[:6]))}{' ...' * (len(paths) > 6)}",
        )
    facts, count = scene.facts or {}, int(scene.machine.gpus or 0)
    if scene.torch is not None and not built:
        cause = f"torch {scene.torch.version} is built without {build.title}"
        words = f"there are device files as {node}, and torch cannot use them"
        yield Finding(id, WARNING, words, cause, f"install a build of torch for {build.title}")
    elif scene.facts is not None and count:
        memory = (
            f", {scene.machine.gpu_memory / 2**30:.0f} GiB each" if scene.machine.gpu_memory else ""
        )
        summary = (
            f"torch sees {count} GPU{'' if count == 1 else 's'}: "
            f"{facts.get('device', 'unnamed')}, {scene.machine.arch}{memory}"
        )
        yield Finding(id, OK, summary)
        if driver := facts.get("driver"):
            yield Finding(f"{maker.build}.driver", OK, str(driver))
    elif scene.facts is not None and (
        hidden := [name for name in maker.hidden_by if name in scene.environ]
    ):
        yield Finding(
            id,
            WARNING,
            "torch sees no GPU",
            f"{', '.join(hidden)} hides them",
            f"unset {hidden[0]}",
        )
    elif scene.facts is not None:
        cause = f"the driver is not loaded or older than {build.title} {built} needs"
        remedy = "update the driver, or install a build of torch for it"
        yield Finding(id, PROBLEM, "there are device files, and torch sees no GPU", cause, remedy)


# -- ROCm ------------------------------------------------------------------------------------------

_TARGET = re.compile(r"\bgfx[0-9a-f]{3,5}(?:-[0-9]+)?(?:-generic)?\b")


def rocm(scene: Scene) -> Iterator[Finding]:
    """Find ROCm and its compilers, and ask them for versions and targets; no device is needed for
    that.
    """
    folder, origin = rocm_home(scene.environ, scene.at("/opt/rocm"))
    if folder is None:
        yield Finding(
            "rocm.home", NOTE, "no ROCm: neither ROCM_HOME, ROCM_PATH, hipcc nor /opt/rocm"
        )
        return
    if not folder.is_dir():
        remedy = f"set {origin} to the folder of ROCm, or unset it"
        yield Finding(
            "rocm.home", PROBLEM, f"{origin} names {folder}, which is not a folder", "", remedy
        )
        return
    yield Finding("rocm.home", OK, f"{folder} (by {origin})")
    path, built = folder / "bin" / "hipcc", ".".join((scene.built_for("hip") or "").split(".")[:2])
    path = path if path.is_file() else scene.which("hipcc") or path
    printed = scene.run([str(path), "--version"])
    version = re.search(r"HIP version:?\s*(\S+)", printed.text)
    if version is None:
        words = f"{path} does not tell its version: extensions for HIP cannot be built"
        level = PROBLEM if path.exists() else WARNING
        yield Finding(
            "rocm.hipcc",
            level,
            words,
            _why(printed),
            "reinstall the package hipcc, or set ROCM_HOME to a whole ROCm",
        )
    elif built and version[1].split(".")[:2] != built.split("."):
        remedy = f"install ROCm {built}, or set ROCM_HOME to it"
        yield Finding(
            "rocm.hipcc",
            WARNING,
            f"{path}: HIP {version[1]}",
            f"torch is built for HIP {built}",
            remedy,
        )
    else:
        yield Finding("rocm.hipcc", OK, f"{path}: HIP {version[1]}")
    # the compiler that torch calls for Composable Kernel
    clang, arch = folder / "llvm" / "bin" / "clang", scene.machine.arch or ""
    printed = scene.run([str(clang), "--target=amdgcn-amd-amdhsa", "--print-supported-cpus"])
    targets = sorted(set(_TARGET.findall(printed.text)))
    if not targets:
        level = PROBLEM if scene.generators or clang.exists() else WARNING
        remedy = "install the package rocm-llvm, or set ROCM_HOME to a whole ROCm"
        yield Finding(
            "rocm.targets",
            level,
            f"{clang} compiles for no AMD GPU",
            printed.problem or "its list has no gfx target",
            remedy,
        )
        return
    yield Finding("rocm.targets", OK, f"{clang} compiles for {', '.join(targets)}")
    if arch.startswith("gfx") and arch.partition(":")[0] not in targets:
        yield Finding(
            "rocm.targets",
            PROBLEM,
            f"the GPU is {arch}, which is not among them",
            "",
            "install a newer ROCm",
        )


# -- Composable Kernel -----------------------------------------------------------------------------
#
# When a header is missing, every candidate of Composable Kernel fails to compile, torch drops them
# one by one, and another library serves the operation: a run stays green. When a package is
# missing, torch's generators are empty, with the same effect.

_PACKAGE = "ck4inductor"

GENERATORS: Mapping[str, str] = {
    "universal_gemm": "universal GEMM",
    "batched_gemm": "batched GEMM",
    "grouped_conv": "grouped convolution",
    "ck_tile": "CK tile GEMM",
}
"""The generators of torch's templates, with their titles.

The process that counts their instances is ``ck_generators``.
"""

_WHEEL = "the Python package of Composable Kernel (ck4inductor), from its source: no index has it"
_GENERATED = "ck/config.h"
"""A header that the build of Composable Kernel writes, and that a wheel of its sources can lack;
``ck/ck.hpp`` includes it.
"""
_SOURCES = Path("_inductor") / "codegen" / "rocm"
_INCLUDE = re.compile(r"^\s*#\s*include\s*[<\"](ck(?:_tile)?/[^>\"\n]+)[>\"]", re.MULTILINE)


def composable_kernel(scene: Scene) -> Iterator[Finding]:
    """Report package, headers and generators; nothing of the package is run in this process."""
    package = scene.package("ck")
    if package is None:
        remedy = f"install {_WHEEL}" if scene.built_for("hip") else ""
        words = f"Composable Kernel (the package {_PACKAGE}) is not installed"
        yield Finding("ck.package", NOTE, words, "its backends are unavailable", remedy)
        return
    yield Finding("ck.package", OK, f"{_PACKAGE}, {package}")
    headers = headers_of_torch(scene.torch.root) if scene.torch is not None else {}
    if any(name.startswith("ck/") for name in headers):
        headers[_GENERATED] = "ck/ck.hpp"
    variable = scene.environ.get("TORCHINDUCTOR_CK_DIR")
    if variable and Path(variable).resolve() != package.resolve():
        cause = f"torch replaces it by {package} when it renders a GEMM"
        yield Finding(
            "ck.folder",
            WARNING,
            f"TORCHINDUCTOR_CK_DIR={variable} has no effect",
            cause,
            "unset TORCHINDUCTOR_CK_DIR",
        )
    home, _ = rocm_home(scene.environ, scene.at("/opt/rocm"))
    # the folders in which torch lets the compiler look for headers, in their order
    folders = [
        package / "include",
        package / "library" / "include",
        *([home / "include"] if home else []),
    ]
    lost = [name for name in headers if not any((folder / name).is_file() for folder in folders)]
    for header in lost:
        cause = (
            f"{headers[header]} includes it: no candidate that needs it compiles, and torch drops "
            "each without an error"
        )
        words = f"the header {header} is not in {', '.join(map(str, folders))}"
        remedy = (
            "composablekernel-dev of ROCm (its build writes the header)"
            if header == _GENERATED
            else _WHEEL
        )
        yield Finding("ck.header", PROBLEM, words, cause, f"install {remedy}")
    if not lost:
        yield Finding(
            "ck.headers",
            OK,
            f"all {len(headers)} headers that torch includes for CK and CK tile are there",
        )
    report = scene.generators or {"problem": "nothing asked for it"}
    if report.get("problem"):
        remedy = (
            f"{sys.executable} -P -c 'import {_PACKAGE}.universal_gemm.gen_instances' shows the "
            "whole error"
        )
        yield Finding(
            "ck.generators",
            PROBLEM,
            "the generators of instances could not be asked",
            one_line(report["problem"]),
            remedy,
        )
        return
    if report.get("inductor"):
        cause = f"{_PACKAGE} is incomplete: {one_line(report['inductor'])}"
        remedy = (
            f"install the whole package {_PACKAGE}, or remove it: a part of it disables "
            "torch.compile"
        )
        yield Finding("ck.import", PROBLEM, "torch._inductor cannot be imported", cause, remedy)
    for name, title in GENERATORS.items():
        if count := report["counts"].get(name, 0):
            yield Finding("ck.generator", OK, f"{title}: {count} instances")
            continue
        cause = one_line(report["reasons"].get(name, "")) or "it returned an empty list"
        words = f"{title}: the generator is empty, so no candidate is rendered"
        yield Finding("ck.generator", PROBLEM, words, cause, f"install {_WHEEL}")


def headers_of_torch(torch_root: Path) -> dict[str, str]:
    """Return the headers that the templates of an installed torch include, each with the file of
    torch that names it first.
    """
    headers: dict[str, str] = {}
    for path in sorted((torch_root / _SOURCES).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for name in _INCLUDE.findall(node.value):
                    headers.setdefault(name, f"torch/{_SOURCES.as_posix()}/{path.name}")
    return headers


# -- memory and space ------------------------------------------------------------------------------


def resources(scene: Scene) -> Iterator[Finding]:
    """Report cores and memory within the limits of control groups, and the space for temporary
    files.
    """
    memory = schedule.available_memory()
    words = f"{schedule.cores():g} cores, {memory / 2**30:.1f} GiB of memory available"
    if memory < 2 << 30:  # two cases that compile, and what the runner and its zygotes use
        remedy = "close other programs, or run with --jobs 1"
        yield Finding(
            "resources.memory", WARNING, words, "a case that compiles takes about 1 GiB", remedy
        )
    else:
        yield Finding("resources.memory", OK, words)
    try:
        scratch.check()
    except UsageError as error:
        yield Finding(
            "folders.temporary",
            PROBLEM,
            str(error),
            "",
            "set TMPDIR to a folder with free space in which programs may run",
        )
        return
    folder = Path(tempfile.gettempdir())
    space = scratch.space_of(folder).bytes
    words = f"{folder}: {space / 2**30:.1f} GiB free"
    if space < 1 << 30:  # one precompiled header takes some 200 MB
        cause = "runs keep generated code and objects there"
        yield Finding("folders.temporary", WARNING, words, cause, "set TMPDIR to a larger folder")
    else:
        yield Finding("folders.temporary", OK, words)


CHECKS: tuple[tuple[str, Callable[[Scene], Iterable[Finding]]], ...] = (
    ("Python and torch", python),
    ("Python and torch", torch),
    ("Python and torch", triton),
    ("Compilers", cxx),
    ("Accelerators", accelerators),
    ("ROCm", rocm),
    ("Composable Kernel", composable_kernel),
    ("Resources", resources),
)
"""Every check, with the group in which its findings are shown, in the order of the report."""


def examine(
    scene: Scene, checks: Iterable[tuple[str, Callable[[Scene], Iterable[Finding]]]] = ()
) -> Iterator[tuple[str, Finding]]:
    """Yield every finding with its group.

    A check that cannot read the machine says so, and the others go on.
    """
    for group, check in checks or CHECKS:
        try:
            yield from ((group, finding) for finding in check(scene))
        except OSError as error:
            cause = f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"
            yield (
                group,
                Finding(
                    f"{check.__name__}.unread",
                    WARNING,
                    f"the check '{check.__name__}' failed",
                    cause,
                ),
            )


# -- what a run cites where it is red --------------------------------------------------------------

TOOLS: Mapping[str, tuple[Callable[[Scene], Iterable[Finding]], tuple[str, ...]]] = {
    "cxx": (cxx, ("cxx.",)),
    "triton": (triton, ("triton.",)),
    "cuda": (accelerators, ("cuda.",)),
    "rocm": (accelerators, ("rocm.", "variables")),
    "xpu": (accelerators, ("xpu.",)),
    "hipcc": (rocm, ("rocm.",)),
    "ck": (composable_kernel, ("ck.package", "ck.folder", "ck.header")),
}
"""The check of a capability, and the beginnings of the ids of its findings.

None needs a worker: the generators of Composable Kernel do.
"""


def warnings_of(machine: Machine, names: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield each warning and problem of the tools with these names of capabilities: the name, and
    the text, which can be shown.

    ``machine`` has the facts of a worker.
    """
    scene = Scene(machine=machine, torch=installed_torch(), facts=machine.facts or None)
    for name, (check, ids) in TOOLS.items():
        for _, finding in examine(scene, [(name, check)]) if name in names else ():
            if finding.level in (WARNING, PROBLEM) and finding.id.startswith(ids):
                because = f"; {finding.cause}" if finding.cause else ""
                yield (
                    name,
                    shown_text(
                        f"{name}: {finding.found}{because}; next: "
                        f"{finding.remedy or 'torch-conformance doctor'}"
                    ),
                )


def shown_text(text: str) -> str:
    """Return a text of a finding as it can be shown: one line, escaped, without secrets."""
    return redacted(one_line(text, limit=1000))
