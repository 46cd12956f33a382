"""Kinds of device in one table: what they are called, how torch is built for them, and what must be
asked before a process forks.

A device of a case is a kind and sometimes a number: ``cpu``, ``cuda``, ``cuda:1``. The worker's
side is ``torch_compat/device_modules``.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from torch_conformance.model.values import frozen

CPU = "cpu"

WITHOUT_MODULE = (CPU, "cuda", "xpu", "mps")
"""The kinds of device that torch itself can bring.

Any other is registered by a module that its backend names.
"""


@frozen
class Build:
    """A way in which torch is built for a kind of device."""

    capability: str
    """The word of ``requires``."""
    version: str
    """The name in ``torch.version`` that says which version it is built for."""
    title: str
    vendor: str
    """The word of conditions."""
    device: str
    """A device of it, for messages."""
    visible: str
    """The variable that says which devices a process sees, by number and with commas; the driver
    reads it when it is initialized.
    """


@frozen
class Accelerator:
    """A kind of device that is not the CPU. torch has a module for it, of the functions that all
    accelerators have.
    """

    module: str
    """The name of the module: ``torch.MODULE.synchronize()``."""
    builds: tuple[Build, ...]
    nodes: tuple[str, ...]
    """Device files: where none of them is, there is no such device, and its driver need not be
    asked.
    """
    activity: str
    """Its name in ``torch.profiler.ProfilerActivity``."""


ACCELERATORS: Mapping[str, Accelerator] = {
    "cuda": Accelerator(
        module="cuda",
        builds=(
            Build(
                capability="cuda",
                version="cuda",
                title="CUDA",
                vendor="nvidia",
                device="an NVIDIA GPU",
                visible="CUDA_VISIBLE_DEVICES",
            ),
            Build(
                capability="rocm",
                version="hip",
                title="ROCm",
                vendor="amd",
                device="an AMD GPU",
                visible="HIP_VISIBLE_DEVICES",
            ),
        ),
        nodes=("/dev/nvidiactl", "/dev/nvidia0", "/dev/kfd", "/dev/dxg"),
        activity="CUDA",
    ),
    "xpu": Accelerator(
        module="xpu",
        builds=(
            Build(
                capability="xpu",
                version="xpu",
                title="XPU",
                vendor="intel",
                device="an Intel GPU",
                visible="ZE_AFFINITY_MASK",
            ),
        ),
        nodes=("/dev/dri/renderD128", "/dev/dxg"),
        activity="XPU",
    ),
}
"""The kinds of device other than the CPU.

Of these torch asks drivers: each worker does that for itself, after the fork.
"""


@dataclass(frozen=True, slots=True)
class VendorDevice:
    """A kind of device that a vendor's package brings, and the module of it that registers the
    device with torch and Inductor.
    """

    kind: str
    module: str

    def __str__(self) -> str:
        return f"{self.kind}={self.module}"

    @classmethod
    def fits(cls, text: str) -> bool:
        """Whether ``parse`` can read a text."""
        return _VENDOR_DEVICE.fullmatch(text) is not None

    @classmethod
    def parse(cls, text: str) -> "VendorDevice":
        """Return what ``str`` wrote; raise ``ValueError`` for another text."""
        if (match := _VENDOR_DEVICE.fullmatch(text)) is None:
            raise ValueError(f"'{text}' is not KIND=MODULE")
        return cls(match[1], match[2])


@dataclass(frozen=True, slots=True)
class VendorCompiler:
    """A name that torch.compile knows a compiler by, and the module that registers it; empty where
    an entry point does.
    """

    name: str
    module: str = ""

    def __str__(self) -> str:
        return f"{self.name}@{self.module}"

    @classmethod
    def parse(cls, text: str) -> "VendorCompiler":
        """Return what ``str`` wrote."""
        name, _, module = text.partition("@")
        return cls(name, module)


HOLDS = "returned True"
"""The answer of a predicate that holds, and where there is a device or a compiler."""

UNKNOWN_COMPILER = "torch knows no compiler of this name, but "
"""Begins the answer of a worker that looked for a compiler; the names that torch knows follow."""

_VENDOR_DEVICE = re.compile(r"([a-z][a-z0-9_]*)=([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)", re.ASCII)


def kind_of(device: str) -> str:
    """Return the kind of a device: ``cuda`` of ``cuda:1``."""
    return device.partition(":")[0]


def index_of(device: str) -> int:
    """Return the number of a device; 0 where it has none."""
    index = device.partition(":")[2]
    return int(index) if index.isdecimal() else 0


def is_accelerator(device: str) -> bool:
    """Whether a device, or a kind of device, is not the host's own."""
    return kind_of(device) in ACCELERATORS


def builds() -> tuple[Build, ...]:
    """Return every way in which torch is built for an accelerator."""
    return tuple(build for accelerator in ACCELERATORS.values() for build in accelerator.builds)


def sees_own(variables: Iterable[str]) -> bool:
    """Whether one of the variables that an environment sets or removes says which devices its
    processes see.
    """
    names = {build.visible for build in builds()} | {"ROCR_VISIBLE_DEVICES"}
    return not names.isdisjoint(variables)


def visible_to(gpus: Iterable[int], inherited: str | None) -> str:
    """Return the value of ``Build.visible`` under which a process sees some of the devices that
    ``inherited`` lets it see.
    """
    names = inherited.split(",") if inherited else []
    return ",".join(names[gpu].strip() if gpu < len(names) else str(gpu) for gpu in gpus)
