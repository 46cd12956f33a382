"""Where torch and Triton write what nobody asked a path for: into the case's folder, whatever the working folder or a variable says.

Torch computes some of these paths when it is imported, which happens once for all cases of an environment. So they are set twice: to the
run's scratch folder before the import, and to the case's folder before the case. Imports no torch.
"""

import os
import sys
from collections.abc import Mapping, MutableMapping

_DEBUG = "TORCH_COMPILE_DEBUG_DIR"

ALWAYS: Mapping[str, str] = {
    _DEBUG: "",  # torch appends torch_compile_debug
    "TRITON_DUMP_DIR": "triton_dump",
    "TORCH_FR_DUMP_TEMP_FILE": "nccl_trace_rank_",
    "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "nccl_trace_rank_",
}
"""Variables whose default lies in the working folder, the home folder or /tmp, and the name of each below the case's folder."""

CACHES: Mapping[str, str] = {"TORCH_EXTENSIONS_DIR": "torch_extensions", "QUACK_CACHE_DIR": "quack"}
"""The same for caches, which are deleted with the scratch folder of the case."""

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
"""Variables that ask for a file or folder by naming it: it is written, and lies below the case's folder under this name."""

_SWITCH_OR_FILE = {"TORCH_COMPILE_DYNAMO_PROFILER": "dynamo_profile.prof"}
"""Variables that are a switch, or name a file."""

_SWITCHES = ("", "0", "1", "true", "false", "True", "False")


def redirect(folder: str, cache: str, environ: MutableMapping[str, str] = os.environ) -> None:
    """Let every variable name a place in these folders."""
    environ.update({name: os.path.join(folder, place) if place else folder for name, place in ALWAYS.items()})
    environ.update({name: os.path.join(cache, place) for name, place in CACHES.items()})
    environ.update({name: os.path.join(folder, place) for name, place in WHERE_NAMED.items() if environ.get(name)})
    for name, place in _SWITCH_OR_FILE.items():
        if environ.get(name, "") not in _SWITCHES:
            environ[name] = os.path.join(folder, place)


def begin_in_scratch() -> None:
    """Leave the folder in which the runner was started, before torch is imported: nothing that an import or a crash writes lies there."""
    temporary = os.environ.get("TMPDIR")
    if temporary and os.path.isdir(temporary):
        os.chdir(temporary)
        redirect(temporary, temporary)


def write_no_bytecode() -> None:
    """Write no ``__pycache__`` beside the modules that a case, or a child of it, imports."""
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
