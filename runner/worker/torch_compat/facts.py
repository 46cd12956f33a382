"""Facts of this machine as torch reports them. A worker collects them once per run, so that only workers use a device."""

import importlib.util
import platform
from collections.abc import Iterable, Sequence
from typing import Any

from runner.core.devices import builds


def collect(questions: Iterable[str] = ()) -> dict[str, Any]:
    """Return versions and devices: the ``facts`` that options of backends may use. Memory is in bytes.

    ``questions`` are paths of predicates, and devices of vendors (``KIND=MODULE``); ``answers`` has what each returned.
    """
    import torch

    from runner.worker.torch_compat import devices, imports

    # first, in forks of this process, in which no driver is initialized yet
    asked = tuple(questions)
    of_vendors = {question: devices.answer(question) for question in asked if devices.is_question(question)}
    properties = devices.visible()
    facts: dict[str, Any] = {
        "torch": torch.__version__,
        "torch_root": imports.torch_root(),
        "torch_git": torch.version.git_version,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": platform.processor() or platform.machine(),
        "vec_isa": imports.picked_vector_isa(),
        **{build.version: getattr(torch.version, build.version, None) for build in builds()},
        "triton": _triton_version(),
        "gpus": len(properties),
        "ck_dir": _ck_dir(),
        "mkldnn": " ".join(_mkldnn_dtypes()),
        "answers": {question: of_vendors.get(question) or _answer(question) for question in asked},
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
        "sms": _multiprocessors(properties),
        "driver": _driver(),
    }


def _multiprocessors(properties: Sequence[Any]) -> int | None:
    counts = [count for entry in properties if (count := getattr(entry, "multi_processor_count", None)) is not None]
    return min(counts, default=None)


def _mkldnn_dtypes() -> list[str]:
    """Return the dtypes that oneDNN computes on this CPU."""
    import torch

    if not torch.backends.mkldnn.is_available():
        return []
    questions = {"bfloat16": "_is_mkldnn_bf16_supported", "float16": "_is_mkldnn_fp16_supported"}
    return [
        "float32",
        *(dtype for dtype, name in questions.items() if hasattr(torch.ops.mkldnn, name) and getattr(torch.ops.mkldnn, name)()),
    ]


def _answer(path: str) -> str:
    """Call a predicate; return what it returned or raised, in words (``capabilities.HOLDS`` where it holds)."""
    from runner.worker.torch_compat import imports

    try:
        found = imports.resolve(path.replace(":", "."))()
    except Exception as error:  # a predicate of any package may raise anything
        return f"raised {type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"[:300]
    return f"returned {found}" if isinstance(found, bool) else f"returned a value of type {type(found).__name__}, not True or False"


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
