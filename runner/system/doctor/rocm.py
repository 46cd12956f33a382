"""Checks of ROCm's tools: where torch takes ROCm from, hipcc, its version and its targets."""

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

from runner.core.escaping import one_line
from runner.system.doctor.findings import Finding, note, ok, problem, warning
from runner.system.doctor.scene import Scene

_TARGET = re.compile(r"\bgfx[0-9a-f]{3,5}(?:-[0-9]+)?(?:-generic)?\b")


def home(scene: Scene) -> tuple[Path | None, str]:
    """Return the folder that torch takes for ROCm, and by what: the order of ``torch.utils.cpp_extension``."""
    for name in ("ROCM_HOME", "ROCM_PATH"):
        if scene.environ.get(name):
            return Path(scene.environ[name]), name
    spec = importlib.util.find_spec("_rocm_sdk_core")
    if spec is not None and spec.origin is not None:
        return Path(spec.origin).parent.resolve(), "the package _rocm_sdk_core"
    hipcc = scene.which("hipcc")
    if hipcc is not None:
        folder = hipcc.resolve().parent.parent
        return folder.parent if folder.name == "hip" else folder, "hipcc on PATH"
    fallback = scene.at("/opt/rocm")
    return (fallback, "the usual folder") if fallback.exists() else (None, "")


def check(scene: Scene) -> Iterator[Finding]:
    """Find ROCm and its compilers, and ask them for versions and targets; no device is needed for that."""
    folder, origin = home(scene)
    if folder is None:
        yield note("rocm.home", "no ROCm: neither ROCM_HOME, ROCM_PATH, hipcc nor /opt/rocm")
        return
    if not folder.is_dir():
        remedy = f"set {origin} to the folder of ROCm, or unset it"
        yield problem("rocm.home", f"{origin} names {folder}, which is no folder", remedy=remedy)
        return
    yield ok("rocm.home", f"{folder} (by {origin}){_version_of(folder)}")
    yield from _hipcc(scene, folder)
    yield from _targets(scene, folder)
    yield from _agents(scene, folder)


def _version_of(folder: Path) -> str:
    try:
        return f", ROCm {one_line((folder / '.info' / 'version').read_text('utf-8', 'replace'), 40)}"
    except OSError:
        return ""


def _hipcc(scene: Scene, folder: Path) -> Iterator[Finding]:
    path = folder / "bin" / "hipcc" if (folder / "bin" / "hipcc").is_file() else scene.which("hipcc")
    if path is None:
        yield warning(
            "rocm.hipcc", f"no hipcc in {folder / 'bin'} nor on PATH", "extensions for HIP cannot be built", "install the package hipcc"
        )
        return
    printed = scene.asked(path, "--version")
    version = re.search(r"HIP version:?\s*(\S+)", printed.text)
    if printed.problem or version is None:
        cause = printed.problem or f"it prints '{one_line(printed.first_line, 80)}'"
        yield problem("rocm.hipcc", f"{path} does not tell its version", cause, remedy="reinstall the package hipcc, or correct PATH")
        return
    wanted = scene.built_for("hip")
    if wanted and version[1].split(".")[:2] != wanted.split(".")[:2]:
        remedy = f"install ROCm {'.'.join(wanted.split('.')[:2])}, or set ROCM_HOME to it"
        yield warning("rocm.hipcc", f"{path}: HIP {version[1]}", f"torch is built for HIP {wanted}", remedy)
        return
    yield ok("rocm.hipcc", f"{path}: HIP {version[1]}")


def _targets(scene: Scene, folder: Path) -> Iterator[Finding]:
    """Yield what the compiler that torch calls for Composable Kernel can compile for."""
    path = folder / "llvm" / "bin" / "clang"
    if not path.exists():
        cause = "torch compiles kernels of Composable Kernel with it"
        finding = warning("rocm.targets", f"no {path}", cause, "install the package rocm-llvm, or set ROCM_HOME to a whole ROCm")
        if scene.generators is None:
            yield finding
        else:
            yield problem(finding.id, finding.found, cause, remedy=finding.remedy)
        return
    printed = scene.asked(path, "--target=amdgcn-amd-amdhsa", "--print-supported-cpus")
    found = sorted(set(_TARGET.findall(printed.text)))
    if not found:
        cause = printed.problem or "its list has no gfx target"
        yield problem("rocm.targets", f"{path} has no target for AMD GPUs", cause, remedy="reinstall rocm-llvm")
        return
    yield ok("rocm.targets", f"{path} compiles for {', '.join(found)}")
    if scene.machine.arch and scene.machine.arch.startswith("gfx") and scene.machine.arch.partition(":")[0] not in found:
        yield problem("rocm.targets", f"the GPU is {scene.machine.arch}, which is not among them", remedy="install a newer ROCm")


def _agents(scene: Scene, folder: Path) -> Iterator[Finding]:
    """Yield the architectures that ROCm's own tools see; they need the device."""
    places = {"rocm_agent_enumerator": folder / "bin" / "rocm_agent_enumerator", "amdgpu-arch": folder / "llvm" / "bin" / "amdgpu-arch"}
    for name, path in places.items():
        if not path.exists():
            continue
        printed = scene.asked(path)
        found = [target for target in _TARGET.findall(printed.text) if target != "gfx000"]
        if found:
            yield ok("rocm.agents", f"{name} sees {', '.join(found)}")
        else:
            yield note("rocm.agents", f"{name} sees no GPU", printed.problem)
