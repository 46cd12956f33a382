"""Facts of this machine as torch reports them. A worker collects them once per run, so that only workers use a device."""

import importlib.util
import platform
from collections.abc import Sequence
from typing import Any

from runner.core.devices import builds


def collect() -> dict[str, Any]:
    """Return versions and devices: the ``facts`` that options of backends may use. Memory is in bytes."""
    import torch

    from runner.worker.torch_compat import devices, imports, lookup

    properties = devices.visible()
    facts: dict[str, Any] = {
        "torch": torch.__version__,
        "torch_root": lookup.torch_root(),
        "torch_git": torch.version.git_version,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": platform.processor() or platform.machine(),
        "vec_isa": imports.picked_vector_isa(),
        **{build.version: getattr(torch.version, build.version, None) for build in builds()},
        "triton": _triton_version(),
        "gpus": len(properties),
        "ck_dir": _ck_dir(),
    }
    if properties:
        facts.update(_of_devices(properties))
    return facts


def _of_devices(properties: Sequence[Any]) -> dict[str, Any]:
    from runner.worker.torch_compat import imports

    first = properties[0]
    return {
        "device": first.name,
        "arch": imports.arch_of(first),
        "gpu_memory": min(entry.total_memory for entry in properties),
        "driver": _driver(),
    }


def _driver() -> str | None:
    try:
        with open("/proc/driver/nvidia/version", encoding="ascii", errors="replace") as stream:
            return stream.readline().strip()
    except OSError:
        return None


def _triton_version() -> str | None:
    try:
        import triton
    except ImportError:
        return None
    return str(triton.__version__)


def _ck_dir() -> str | None:
    spec = importlib.util.find_spec("ck4inductor")
    return next(iter(spec.submodule_search_locations or []), None) if spec else None
