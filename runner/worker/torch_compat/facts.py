"""Facts of this machine as torch reports them. A worker collects them once per run, so that only workers use a device."""

import importlib.util
import platform
from collections.abc import Iterable
from typing import Any

from runner.model.devices import builds


def collect(questions: Iterable[str] = ()) -> dict[str, Any]:
    """Return versions and devices: the ``facts`` that options of backends may use. Memory is in bytes.

    ``questions`` are paths of predicates, and devices of vendors (``KIND=MODULE``); ``answers`` has what each returned.
    """
    import torch

    from runner.worker.torch_compat import device_modules, imports

    # first, in forks of this process, in which no driver is initialized yet
    asked = tuple(questions)
    of_vendors = {question: device_modules.answer(question) for question in asked if "=" in question}
    properties = device_modules.visible()
    ck = importlib.util.find_spec("ck4inductor")
    mkldnn = []
    if torch.backends.mkldnn.is_available():
        asks = {"bfloat16": "_is_mkldnn_bf16_supported", "float16": "_is_mkldnn_fp16_supported"}
        mkldnn = ["float32", *(dtype for dtype, name in asks.items() if getattr(torch.ops.mkldnn, name, bool)())]
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
        "ck_dir": next(iter(ck.submodule_search_locations or []), None) if ck else None,
        "mkldnn": " ".join(mkldnn),
        "answers": {question: of_vendors.get(question) or _answer(question) for question in asked},
    }
    if properties:
        counts = [count for entry in properties if (count := getattr(entry, "multi_processor_count", None)) is not None]
        facts.update(
            device=properties[0].name,
            arch=imports.arch_of(properties[0]),
            gpu_memory=min(entry.total_memory for entry in properties),
            sms=min(counts, default=None),
            driver=_driver(),
        )
    return facts


def _answer(path: str) -> str:
    """Call a predicate; return what it returned or raised, in words (``capabilities.HOLDS`` where it holds)."""
    from runner.worker.torch_compat import imports

    try:
        answer = imports.resolve(path.replace(":", "."))()
    except Exception as error:  # a predicate of any package may raise anything
        return f"raised {type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"[:300]
    return f"returned {answer}" if isinstance(answer, bool) else f"returned a value of type {type(answer).__name__}, not True or False"


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
