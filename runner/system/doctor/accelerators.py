"""Checks of accelerators: device files and permissions, drivers against the build of torch, how many GPUs are seen."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from runner.core import devices
from runner.system.doctor.findings import Finding, note, ok, problem, warning
from runner.system.doctor.scene import Scene
from runner.system.redaction import environment_variables


@dataclass(frozen=True, slots=True, kw_only=True)
class Maker:
    """What Linux shows of the GPUs of one maker."""

    build: str
    """The capability of its build of torch (``core/devices.py``)."""
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
"""The makers whose devices are looked for. Another one adds an entry; its build stands in ``core/devices.py``."""

_DISPLAY, _COMPUTE = "0x03", "0x12"
"""Classes of PCI devices: displays, which include GPUs, and processing accelerators."""


def check(scene: Scene) -> Iterator[Finding]:
    """Compare, for each maker, its devices, its driver and the build of torch."""
    for maker in MAKERS:
        build = next(build for build in devices.builds() if build.capability == maker.build)
        yield from _of_maker(scene, maker, build)
    yield from _variables(scene)


def _of_maker(scene: Scene, maker: Maker, build: devices.Build) -> Iterator[Finding]:
    id = f"{maker.build}.device"
    is_built = bool(scene.built_for(build.version))
    if not is_built and not maker.is_exclusive:
        yield note(id, f"torch is not built for {build.title}: {build.device} was not looked for")
        return
    nodes = [node for node in maker.control if scene.at(node).exists()]
    cards = _on_bus(scene, maker.pci)
    if not nodes:
        yield _without_nodes(scene, maker, build, cards=cards, is_built=is_built)
        return
    yield from _permissions(scene, maker)
    if scene.torch is None:
        return
    if not is_built:
        cause = f"torch {scene.torch.version} is built without {build.title}"
        yield warning(id, f"there is {nodes[0]}, and torch cannot use it", cause, f"install a build of torch for {build.title}")
        return
    yield from _seen(scene, maker, build)


def _without_nodes(scene: Scene, maker: Maker, build: devices.Build, *, cards: int, is_built: bool) -> Finding:
    id, wanted = f"{maker.build}.device", maker.control[0]
    if cards and is_built:
        loaded = scene.at(maker.driver).exists()
        cause = (
            "the driver is loaded, but its device files are not here, as in a container without them"
            if loaded
            else "its driver is not loaded"
        )
        return problem(
            id, f"the machine has {build.device} and no {wanted}", cause, remedy=f"load the driver; in a container pass {maker.container}"
        )
    if is_built:
        cause = f"torch is built for {build.title} {scene.built_for(build.version)}"
        return warning(id, f"no {wanted}: the cases for {build.title} cannot run here", cause, f"run on a machine with {build.device}")
    if cards:
        return note(id, f"the machine has {build.device}, without {wanted}; torch is built without {build.title}")
    return note(id, f"no {build.device.partition(' ')[2]}")


def _permissions(scene: Scene, maker: Maker) -> Iterator[Finding]:
    """Yield the device files that this user may not open."""
    paths = sorted(path for pattern in maker.each for path in scene.root.glob(pattern.lstrip("/")))
    closed = [path for path in paths if not os.access(path, os.R_OK | os.W_OK)]
    for path in closed:
        group = _group_of(path)
        remedy = f"add this user to the group {group}, or pass --group-add {group} to the container" if group else "ask for access to it"
        yield problem(
            f"{maker.build}.permission",
            f"this user may not read and write {path}",
            f"it belongs to the group {group or '?'}",
            remedy=remedy,
        )
    if paths and not closed:
        yield ok(
            f"{maker.build}.permission", f"this user may use {', '.join(str(path) for path in paths[:6])}{' ...' if len(paths) > 6 else ''}"
        )


def _group_of(path: Path) -> str:
    try:
        return path.group()
    except KeyError:  # a container may lack the name of the group
        return str(path.stat().st_gid)
    except OSError:
        return ""


def _seen(scene: Scene, maker: Maker, build: devices.Build) -> Iterator[Finding]:
    """Yield what the worker saw of devices whose files are there and for which torch is built."""
    if scene.facts is None:
        return
    id, count = f"{maker.build}.device", int(scene.machine.gpus or 0)
    if count == 0:
        hidden = [name for name in maker.hidden_by if name in scene.environ]
        if hidden:
            yield warning(id, "torch sees no GPU", f"{', '.join(hidden)} hides them", f"unset {hidden[0]}")
        else:
            cause = f"the driver is not loaded or older than {build.title} {scene.built_for(build.version)} needs"
            yield problem(
                id, "there are device files, and torch sees no GPU", cause, remedy="update the driver, or install a build of torch for it"
            )
        return
    memory = f", {scene.machine.gpu_memory / 2**30:.0f} GiB each" if scene.machine.gpu_memory else ""
    name = scene.facts.get("device", "unnamed")
    yield ok(id, f"torch sees {count} GPU{'' if count == 1 else 's'}: {name}, {scene.machine.arch}{memory}")
    if driver := scene.facts.get("driver"):
        yield ok(f"{maker.build}.driver", str(driver))
    if count > 1:
        yield note("gpus.count", f'{count} GPUs: cases for one GPU use the first of them; specs with gpus: ">=2" can run')


def _on_bus(scene: Scene, pci: str) -> int:
    """Return how many GPUs of a maker are on the PCI bus."""
    count = 0
    for folder in scene.at("/sys/bus/pci/devices").glob("*"):
        try:
            vendor, kind = ((folder / name).read_text("ascii").strip() for name in ("vendor", "class"))
        except (OSError, ValueError):
            continue
        count += vendor == pci and kind.startswith((_DISPLAY, _COMPUTE))
    return count


_PREFIXES = ("CUDA_", "HIP_", "HSA_", "ROCM_", "ROCR_", "PYTORCH_ROCM_", "NVIDIA_")


def _variables(scene: Scene) -> Iterator[Finding]:
    """Yield the variables of drivers and their libraries that are set, of those that are recorded."""
    found = {name: value for name, value in environment_variables(scene.environ).items() if name.startswith(_PREFIXES)}
    for name, value in sorted(found.items()):
        if name == "HSA_OVERRIDE_GFX_VERSION":
            yield warning(
                "variables", f"{name}={value}", "the GPU claims to be another one: results of this run are not its own", f"unset {name}"
            )
        else:
            yield note("variables", f"{name}={value}")
