"""Redirects the files that torch and Triton write to default paths into the case's folder, by environment variables.

Torch computes some of these paths at its import, which happens once for all cases of an environment. Hence the variables are set twice: to
the run's scratch folder before the import, and to the case's folder before the case. This module does not import torch.
"""

import os
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from hashlib import sha256
from typing import Any

_DEBUG = "TORCH_COMPILE_DEBUG_DIR"

ALWAYS: Mapping[str, str] = {
    _DEBUG: "",  # torch appends torch_compile_debug
    "TRITON_DUMP_DIR": "triton_dump",
    "TORCH_FR_DUMP_TEMP_FILE": "nccl_trace_rank_",
    "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "nccl_trace_rank_",
}
"""Variables whose default path is in the working folder, the home folder or /tmp: the name of each below the case's folder."""

CACHES: Mapping[str, str] = {"TORCH_EXTENSIONS_DIR": "torch_extensions", "QUACK_CACHE_DIR": "quack"}
"""The same for caches. They are placed in the case's scratch folder, which is deleted."""

WHERE_NAMED: Mapping[str, str] = {
    "TORCH_TRACE": "torch_trace",
    "TORCH_DTRACE": "torch_trace",
    "TORCH_LOGS_OUT": "torch_logs.txt",
    "TORCHINDUCTOR_PROFILE_OUTPUT": "profile_bandwidth.txt",
    "TORCHINDUCTOR_MM_LOGGING_FILE": "mm_choices.json",
    "TORCHINDUCTOR_CONV_LOGGING_FILE": "conv_choices.json",
    "TORCHINDUCTOR_FLEX_ATTENTION_LOGGING_FILE": "flex_attention_choices.json",
    "PARTITIONER_MEMORY_BUDGET_PARETO_DIR": "memory_budget_pareto",
    "PYTORCH_TUNABLEOP_FILENAME": "tunableop_results.csv",
    "TRITON_DUMP_MIR": "triton_mir",
    "TRITON_REPRODUCER_PATH": "triton_reproducer.mlir",
    "NCCL_DEBUG_FILE": "nccl_debug.txt",
}
"""Variables that enable a file or folder by its path: where one is set, its path is replaced by this name below the case's folder."""

_SWITCH_OR_FILE = {"TORCH_COMPILE_DYNAMO_PROFILER": "dynamo_profile.prof"}
"""Variables that hold a switch or a path. Only a path is replaced."""

_SWITCHES = ("", "0", "1", "true", "false", "True", "False")


def redirect(folder: str, cache: str, environ: MutableMapping[str, str] = os.environ) -> None:
    """Set the variables to paths in ``folder``, those of caches to paths in ``cache``."""
    environ.update({name: os.path.join(folder, place) if place else folder for name, place in ALWAYS.items()})
    environ.update({name: os.path.join(cache, place) for name, place in CACHES.items()})
    environ.update({name: os.path.join(folder, place) for name, place in WHERE_NAMED.items() if environ.get(name)})
    for name, place in _SWITCH_OR_FILE.items():
        if environ.get(name, "") not in _SWITCHES:
            environ[name] = os.path.join(folder, place)


def begin_in_scratch() -> None:
    """Change to the scratch folder before torch is imported, so that an import or a crash does not write to the runner's folder."""
    temporary = os.environ.get("TMPDIR")
    if temporary and os.path.isdir(temporary):
        os.chdir(temporary)
        redirect(temporary, temporary)


def write_no_bytecode() -> None:
    """Disable ``__pycache__`` for the modules that a case, or a child of it, imports."""
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


def keep_code(folder: str, step: int, texts: Sequence[str]) -> Mapping[str, Any]:
    """Write a step's pieces of generated code; return their number and digests as facts: code of a later step may change the files."""
    digests = []
    for piece, text in enumerate(texts):
        data = text.encode("utf-8", "surrogatepass")
        with open(os.path.join(folder, f"code-{step}-{piece}.txt"), "wb") as stream:
            stream.write(data)
        digests.append(sha256(data).hexdigest())
    return {"code": len(texts), "code_digests": digests}
