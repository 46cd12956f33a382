"""Checks of accelerators: device files and permissions, drivers against the build of torch, how many GPUs are seen; the tools of ROCm."""

import importlib.util
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from runner.model import devices
from runner.model.escaping import one_line
from runner.tools.vendor.doctor.findings import NOTE, OK, PROBLEM, WARNING, Finding, Scene


@dataclass(frozen=True, slots=True, kw_only=True)
class Maker:
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
    """Whether its device files are of this maker alone, and its devices compute: other makers and displays have the others too."""


MAKERS: tuple[Maker, ...] = (
    Maker(
        build="cuda",
        pci="0x10de",
        control=("/dev/nvidiactl", "/dev/dxg"),
        each=("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia[0-9]*"),
        driver="/proc/driver/nvidia/version",
        hidden_by=("CUDA_VISIBLE_DEVICES",),
        container="--gpus all",
    ),
    Maker(
        build="rocm",
        pci="0x1002",
        control=("/dev/kfd", "/dev/dxg"),
        each=("/dev/kfd", "/dev/dri/renderD[0-9]*"),
        driver="/sys/module/amdgpu",
        hidden_by=("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
        container="--device=/dev/kfd --device=/dev/dri --group-add video --group-add render",
    ),
    Maker(
        build="xpu",
        pci="0x8086",
        control=("/dev/dri/renderD128", "/dev/dxg"),
        each=("/dev/dri/renderD[0-9]*",),
        driver="/sys/module/xe",
        hidden_by=("ONEAPI_DEVICE_SELECTOR", "ZE_AFFINITY_MASK"),
        container="--device=/dev/dri --group-add render",
        is_exclusive=False,
    ),
)
"""The makers whose devices are looked for. Another one adds an entry; its build stands in ``model/devices.py``."""

_DISPLAY, _COMPUTE = "0x03", "0x12"
"""Classes of PCI devices: displays, which include GPUs, and processing accelerators."""

_TARGET = re.compile(r"\bgfx[0-9a-f]{3,5}(?:-[0-9]+)?(?:-generic)?\b")
_OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"


def check(scene: Scene) -> Iterator[Finding]:
    """Compare, for each maker, its devices, its driver and the build of torch."""
    for maker in MAKERS:
        yield from _of_maker(scene, maker, next(build for build in devices.builds() if build.capability == maker.build))
    if _OVERRIDE in scene.environ:
        words = f"{_OVERRIDE}={scene.environ[_OVERRIDE]}"
        yield Finding(
            "variables", WARNING, words, "the GPU claims to be another one: results of this run are not its own", f"unset {_OVERRIDE}"
        )


def _of_maker(scene: Scene, maker: Maker, build: devices.Build) -> Iterator[Finding]:
    id, built = f"{maker.build}.device", scene.built_for(build.version)
    if not built and not maker.is_exclusive:
        yield Finding(id, NOTE, f"torch is not built for {build.title}: {build.device} was not looked for")
        return
    nodes = [node for node in maker.control if scene.at(node).exists()]
    if not nodes:
        yield _without_nodes(scene, maker, build)
        return
    paths = sorted(path for pattern in maker.each for path in scene.root.glob(pattern.lstrip("/")))
    closed = [path for path in paths if not os.access(path, os.R_OK | os.W_OK)]
    for path in closed:
        group = _group_of(path)
        remedy = f"add this user to the group {group}, or pass --group-add {group} to the container" if group else "ask for access to it"
        words = f"this user may not read and write {path}"
        yield Finding(f"{maker.build}.permission", PROBLEM, words, f"it belongs to the group {group or '?'}", remedy)
    if paths and not closed:
        words = f"this user may use {', '.join(map(str, paths[:6]))}{' ...' if len(paths) > 6 else ''}"
        yield Finding(f"{maker.build}.permission", OK, words)
    if scene.torch is not None and not built:
        cause = f"torch {scene.torch.version} is built without {build.title}"
        words = f"there is {nodes[0]}, and torch cannot use it"
        yield Finding(id, WARNING, words, cause, f"install a build of torch for {build.title}")
    elif scene.facts is not None:
        yield from _seen(scene, maker, build)


def _without_nodes(scene: Scene, maker: Maker, build: devices.Build) -> Finding:
    """Return what it means that no device file of a maker is there: by the build of torch, and by the GPUs on the PCI bus."""
    id, node, built = f"{maker.build}.device", maker.control[0], scene.built_for(build.version)
    cards = 0
    for folder in scene.at("/sys/bus/pci/devices").glob("*"):
        try:
            vendor, kind = ((folder / name).read_text("ascii").strip() for name in ("vendor", "class"))
        except (OSError, ValueError):
            continue
        cards += vendor == maker.pci and kind.startswith((_DISPLAY, _COMPUTE))
    if cards and built:
        cause = "its driver is not loaded"
        if scene.at(maker.driver).exists():
            cause = "the driver is loaded, but its device files are not here, as in a container without them"
        remedy = f"load the driver; in a container pass {maker.container}"
        return Finding(id, PROBLEM, f"the machine has {build.device} and no {node}", cause, remedy)
    if built:
        words, cause = f"no {node}: the cases for {build.title} cannot run here", f"torch is built for {build.title} {built}"
        return Finding(id, WARNING, words, cause, f"run on a machine with {build.device}")
    if cards:
        return Finding(id, NOTE, f"the machine has {build.device}, without {node}; torch is built without {build.title}")
    return Finding(id, NOTE, f"no {build.device.partition(' ')[2]}")


def _group_of(path: Path) -> str:
    try:
        return path.group()
    except KeyError:  # a container may lack the name of the group
        return str(path.stat().st_gid)
    except OSError:
        return ""


def _seen(scene: Scene, maker: Maker, build: devices.Build) -> Iterator[Finding]:
    """Yield what the worker saw of devices whose files are there and for which torch is built."""
    id, count = f"{maker.build}.device", int(scene.machine.gpus or 0)
    if count:
        memory = f", {scene.machine.gpu_memory / 2**30:.0f} GiB each" if scene.machine.gpu_memory else ""
        facts = scene.facts or {}
        name = facts.get("device", "unnamed")
        yield Finding(id, OK, f"torch sees {count} GPU{'' if count == 1 else 's'}: {name}, {scene.machine.arch}{memory}")
        if driver := facts.get("driver"):
            yield Finding(f"{maker.build}.driver", OK, str(driver))
    elif hidden := [name for name in maker.hidden_by if name in scene.environ]:
        yield Finding(id, WARNING, "torch sees no GPU", f"{', '.join(hidden)} hides them", f"unset {hidden[0]}")
    else:
        cause = f"the driver is not loaded or older than {build.title} {scene.built_for(build.version)} needs"
        remedy = "update the driver, or install a build of torch for it"
        yield Finding(id, PROBLEM, "there are device files, and torch sees no GPU", cause, remedy)


# -- ROCm -----------------------------------------------------------------------------------------------------------


def rocm_home(scene: Scene) -> tuple[Path | None, str]:
    """Return the folder that torch takes for ROCm, and by what: the order of ``torch.utils.cpp_extension``."""
    for name in ("ROCM_HOME", "ROCM_PATH"):
        if scene.environ.get(name):
            return Path(scene.environ[name]), name
    spec = importlib.util.find_spec("_rocm_sdk_core")
    if spec is not None and spec.origin is not None:
        return Path(spec.origin).parent.resolve(), "the package _rocm_sdk_core"
    if (hipcc := scene.which("hipcc")) is not None:
        folder = hipcc.resolve().parent.parent
        return folder.parent if folder.name == "hip" else folder, "hipcc on PATH"
    usual = scene.at("/opt/rocm")
    return (usual, "the usual folder") if usual.exists() else (None, "")


def rocm(scene: Scene) -> Iterator[Finding]:
    """Find ROCm and its compilers, and ask them for versions and targets; no device is needed for that."""
    folder, origin = rocm_home(scene)
    if folder is None:
        yield Finding("rocm.home", NOTE, "no ROCm: neither ROCM_HOME, ROCM_PATH, hipcc nor /opt/rocm")
        return
    if not folder.is_dir():
        remedy = f"set {origin} to the folder of ROCm, or unset it"
        yield Finding("rocm.home", PROBLEM, f"{origin} names {folder}, which is no folder", "", remedy)
        return
    yield Finding("rocm.home", OK, f"{folder} (by {origin})")
    yield _hipcc(scene, folder)
    yield from _targets(scene, folder / "llvm" / "bin" / "clang")


def _hipcc(scene: Scene, folder: Path) -> Finding:
    path = folder / "bin" / "hipcc" if (folder / "bin" / "hipcc").is_file() else scene.which("hipcc")
    if path is None:
        words = f"no hipcc in {folder / 'bin'} nor on PATH"
        return Finding("rocm.hipcc", WARNING, words, "extensions for HIP cannot be built", "install the package hipcc")
    printed = scene.asked(path, "--version")
    version = re.search(r"HIP version:?\s*(\S+)", printed.text)
    if printed.problem or version is None:
        cause = printed.problem or f"it prints '{one_line(printed.first_line, 80)}'"
        return Finding("rocm.hipcc", PROBLEM, f"{path} does not tell its version", cause, "reinstall the package hipcc, or correct PATH")
    built = scene.built_for("hip")
    if built and version[1].split(".")[:2] != built.split(".")[:2]:
        remedy = f"install ROCm {'.'.join(built.split('.')[:2])}, or set ROCM_HOME to it"
        return Finding("rocm.hipcc", WARNING, f"{path}: HIP {version[1]}", f"torch is built for HIP {built}", remedy)
    return Finding("rocm.hipcc", OK, f"{path}: HIP {version[1]}")


def _targets(scene: Scene, clang: Path) -> Iterator[Finding]:
    """Yield what the compiler that torch calls for Composable Kernel can compile for."""
    if not clang.exists():
        level = WARNING if scene.generators is None else PROBLEM
        remedy = "install the package rocm-llvm, or set ROCM_HOME to a whole ROCm"
        yield Finding("rocm.targets", level, f"no {clang}", "torch compiles kernels of Composable Kernel with it", remedy)
        return
    printed = scene.asked(clang, "--target=amdgcn-amd-amdhsa", "--print-supported-cpus")
    targets = sorted(set(_TARGET.findall(printed.text)))
    if not targets:
        cause = printed.problem or "its list has no gfx target"
        yield Finding("rocm.targets", PROBLEM, f"{clang} has no target for AMD GPUs", cause, "reinstall rocm-llvm")
        return
    yield Finding("rocm.targets", OK, f"{clang} compiles for {', '.join(targets)}")
    arch = scene.machine.arch or ""
    if arch.startswith("gfx") and arch.partition(":")[0] not in targets:
        yield Finding("rocm.targets", PROBLEM, f"the GPU is {arch}, which is not among them", "", "install a newer ROCm")
