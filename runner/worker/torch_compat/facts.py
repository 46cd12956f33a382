"""What this machine is, as torch sees it: asked once a run, in a worker, so that only a worker ever touches a device."""

import importlib.util
import platform
from typing import Any


def collect() -> dict[str, Any]:
    """Return versions, devices and what backends' options may name as ``facts``."""
    import torch

    from runner.worker.torch_compat import compat

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    facts: dict[str, Any] = {
        "torch": torch.__version__,
        "torch_root": compat.torch_root(),
        "torch_git": torch.version.git_version,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": platform.processor() or platform.machine(),
        "vec_isa": compat.picked_vector_isa(),
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "triton": _triton_version(),
        "gpus": count,
        "ck_dir": _ck_dir(),
    }
    if count:
        facts.update(_devices(count))
    return facts


def _devices(count: int) -> dict[str, Any]:
    import torch

    properties = [torch.cuda.get_device_properties(index) for index in range(count)]
    first = properties[0]
    arch = getattr(first, "gcnArchName", None) if torch.version.hip else f"sm_{first.major}{first.minor}"
    return {
        "device": first.name,
        "arch": str(arch),
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
