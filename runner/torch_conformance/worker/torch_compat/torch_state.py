"""State of torch that a case sets, reads or resets: options, counters, caches, and the files that
torch and Triton write.

This module does not import torch by itself: the variables that name files must be set before.
"""

import contextlib
import copy
import functools
import importlib
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

from torch_conformance.vocabulary.worker_torch import torch
from torch_conformance.worker.torch_compat import imports

# -- options ---------------------------------------------------------------------------------------


def set_torch_state(state: Mapping[str, Any]) -> None:
    """Apply the ``torch:`` section of a spec; raise ``ValueError`` for an unknown name."""
    for name, value in state.items():
        match name:
            case "float32_matmul_precision":
                torch.set_float32_matmul_precision(value)
            case "allow_tf32":
                torch.backends.cuda.matmul.allow_tf32 = value
                torch.backends.cudnn.allow_tf32 = value
            case "allow_fp16_reduced_precision_reduction":
                torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = value
                torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = value
            case "deterministic":
                torch.use_deterministic_algorithms(value)
            case "default_dtype":
                torch.set_default_dtype(getattr(torch, value))
            case "seed":
                pass  # used by the session, which seeds every generator
            case _:
                raise ValueError(f"no such torch state: {name}")


OPTIONS = {
    "config": "torch._inductor.config",
    "dynamo_config": "torch._dynamo.config",
    "functorch_config": "torch._functorch.config",
}
"""Sections of options, and the modules that hold them."""


@contextlib.contextmanager
def patched_options(sections: Mapping[str, Mapping[str, Any]]) -> Iterator[None]:
    """Set options in this context; raise as torch raises for an unknown name."""
    with contextlib.ExitStack() as stack:
        for section, module in OPTIONS.items():
            if options := dict(sections.get(section, {})):
                stack.enter_context(importlib.import_module(module).patch(options))
        yield


def virtualized(handler: str, value: object) -> contextlib.AbstractContextManager[Any]:
    """Return the context in which ``V.<handler>`` of inductor is ``value``."""
    from torch._inductor.virtualized import V

    context: contextlib.AbstractContextManager[Any] = getattr(V, f"set_{handler}_handler")(value)
    return context


# -- counters --------------------------------------------------------------------------------------


_counters = functools.partial(imports.resolve, "torch._dynamo.utils.counters")
_of_metrics = functools.partial(imports.resolve, "torch._inductor.metrics")
_of_caches = functools.partial(imports.resolve, "torch._inductor.remote_cache.cache_stats._stats")


def counters() -> dict[str, dict[str, int]]:
    """Return every counter, by namespace and name. Empty namespaces are left out."""
    spaces = _counters()
    return {
        str(space): {str(name): int(number) for name, number in names.items()}
        for space, names in spaces.items()
        if names
    }


Frames = tuple[int, int, dict[str, int]]
"""What dynamo has counted so far of the frames that it met: all, those converted, and graph breaks
by reason.
"""


def frames() -> Frames:
    """Return the counts of frames; ``torch._dynamo.reset`` leaves them."""
    spaces = counters()
    of_frames = spaces.get("frames", {})
    return of_frames.get("total", 0), of_frames.get("ok", 0), spaces.get("graph_break", {})


def why_eager(before: Frames) -> str:
    """Return why a call since then, which ran no compiled graph, ran eagerly; empty where it was
    traced whole and had no operation.
    """
    total, ok, breaks = frames()
    total, ok = total - before[0], ok - before[1]
    broke = next(
        (reason for reason, count in breaks.items() if count > before[2].get(reason, 0)), None
    )
    if broke is not None:
        return f"dynamo broke the graph: {next(iter(broke.strip().splitlines()), '')}"
    if total == 0:
        return "dynamo traced no frame"
    return "" if total == ok else f"dynamo converted {ok} of {total} frames"


def _metrics() -> dict[str, Any]:
    """Return inductor's metrics that are numbers or lists, by name."""
    public = {
        name: value for name, value in vars(_of_metrics()).items() if not name.startswith("_")
    }
    return {
        name: value
        for name, value in public.items()
        if isinstance(value, int | float | list) and not isinstance(value, bool)
    }


def metrics() -> dict[str, float]:
    """Return inductor's metrics by name; the value of a list is its length."""
    return {
        name: len(value) if isinstance(value, list) else value for name, value in _metrics().items()
    }


def remote_caches() -> dict[str, dict[str, int]]:
    """Return the counts ``hit``, ``miss``, ``put`` and ``exception`` of each remote cache, by
    name.
    """
    counts, stats = ("hit", "miss", "put", "exception"), _of_caches()
    return {
        name: {count: int(getattr(stat, count)) for count in counts}
        for name, stat in stats.items()
        if name.startswith("Remote")
    }


def clear_counters() -> None:
    """Clear all counters and statistics of remote caches."""
    _counters().clear()
    _of_caches().clear()


def clear_metrics() -> None:
    """Set inductor's metrics to 0."""
    _of_metrics().reset()


@contextlib.contextmanager
def counts_kept() -> Iterator[None]:
    """Restore counters, metrics and statistics of remote caches when the context ends."""
    spaces, caches = _counters(), _of_caches()
    counted = {space: dict(names) for space, names in spaces.items()}
    measured = {name: copy.copy(value) for name, value in _metrics().items()}
    remote = {name: copy.copy(stat) for name, stat in caches.items()}
    try:
        yield
    finally:
        for space in [space for space in spaces if space not in counted]:
            del spaces[space]
        for space, names in counted.items():
            spaces[space].clear()
            spaces[space].update(names)
        vars(_of_metrics()).update(measured)
        caches.clear()
        caches.update(remote)


# -- files -----------------------------------------------------------------------------------------

ALWAYS: Mapping[str, str] = {
    "TORCH_COMPILE_DEBUG_DIR": "",  # torch appends torch_compile_debug
    "TRITON_DUMP_DIR": "triton_dump",
    "TORCH_FR_DUMP_TEMP_FILE": "nccl_trace_rank_",
    "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "nccl_trace_rank_",
}
"""Variables whose default path is in the working folder, the home folder or /tmp: the name of each
below the case's folder.
"""

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
    "TORCH_COMPILE_DYNAMO_PROFILER": "dynamo_profile.prof",
    "TRITON_DUMP_MIR": "triton_mir",
    "TRITON_REPRODUCER_PATH": "triton_reproducer.mlir",
    "NCCL_DEBUG_FILE": "nccl_debug.txt",
}
"""Variables that enable a file or folder by its path: where one is set, its path is replaced by
this name below the case's folder.
"""

_SWITCHES = {"TORCH_COMPILE_DYNAMO_PROFILER": ("0", "1", "true", "false", "True", "False")}
"""Values of these variables that are not paths."""


def redirect(folder: str, cache: str, environ: MutableMapping[str, str] = os.environ) -> None:
    """Set the variables that name files to paths in ``folder``, those of caches to paths in
    ``cache``.

    Torch computes some of these paths at its import, which happens once for all cases of an
    environment. Hence this is called twice: for the run's scratch folder before the import, and for
    the case's folder before the case.
    """
    environ.update(
        {name: os.path.join(folder, place) if place else folder for name, place in ALWAYS.items()}
    )
    environ.update({name: os.path.join(cache, place) for name, place in CACHES.items()})
    for name, place in WHERE_NAMED.items():
        if environ.get(name) and environ[name] not in _SWITCHES.get(name, ()):
            environ[name] = os.path.join(folder, place)


def begin_in_scratch() -> None:
    """Change to the scratch folder before torch is imported, so that an import or a crash does not
    write to the runner's folder.
    """
    temporary = os.environ.get("TMPDIR")
    if temporary and os.path.isdir(temporary):
        os.chdir(temporary)
        redirect(temporary, temporary)


def begin_in_case(folder: str, cache: str) -> None:
    """Redirect all files to the case's folders, and disable ``__pycache__`` for the modules that
    the case, or a child of it, imports.
    """
    os.chdir(folder)  # files that code of a spec writes to its working folder stay with the case
    redirect(folder, cache)
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


def use_cache_dir(folder: str) -> None:
    """Set the cache folders of inductor and Triton; create the folder."""
    os.makedirs(folder, exist_ok=True)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
    os.environ["TRITON_CACHE_DIR"] = os.path.join(folder, "triton")


@contextlib.contextmanager
def cache_folder(folder: str) -> Iterator[None]:
    """Set the cache folders of inductor and Triton in this context."""
    before = {
        name: os.environ.get(name) for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
    }
    use_cache_dir(folder)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


_PATH_OPTIONS = {
    ("config", "profile_bandwidth_output"): "TORCHINDUCTOR_PROFILE_OUTPUT",
    ("functorch_config", "memory_budget_pareto_dir"): "PARTITIONER_MEMORY_BUDGET_PARETO_DIR",
    ("dynamo_config", "dynamo_profiler"): "TORCH_COMPILE_DYNAMO_PROFILER",
}
"""Options with a path that torch reads from a variable at its import."""


def follow_variables(folder: str) -> dict[str, dict[str, Any]]:
    """Redirect torch's logs and traces to the paths in the variables; return the options that need
    the same paths.

    Torch has read the variables at its import, possibly in the zygote. The zygote's own open files
    are not affected.
    """
    root = os.path.join(folder, "torch_compile_debug")
    options: dict[str, dict[str, Any]] = {"dynamo_config": {"debug_dir_root": root}}
    for (section, name), variable in _PATH_OPTIONS.items():
        path = getattr(importlib.import_module(OPTIONS[section]), name, None)
        if isinstance(path, str) and os.environ.get(variable):
            options.setdefault(section, {})[name] = os.environ[variable]
    # the files of log and trace handlers, which are opened at the first record
    files = {
        handler
        for logger in logging.Logger.manager.loggerDict.values()
        for handler in getattr(logger, "handlers", ())
        if isinstance(handler, logging.FileHandler)
    }
    for handler in files if os.environ.get("TORCH_LOGS_OUT") else ():
        _forget_stream(handler)
        handler.baseFilename = os.environ["TORCH_LOGS_OUT"]
    trace: Any = sys.modules["torch._logging._internal"].LOG_TRACE_HANDLER
    if getattr(trace, "root_dir", None) is not None:
        _forget_stream(trace)
        trace.root_dir = (
            os.environ.get("TORCH_DTRACE")
            or os.environ.get("TORCH_TRACE")
            or os.path.join(root, "tlparse")
        )
    select: Any = sys.modules.get("torch._inductor.select_algorithm")
    for name in ("get_mm_log_filename", "get_conv_log_filename", "get_flex_attention_log_filename"):
        function: Any = getattr(select, name, None)  # get_conv_log_filename: until torch 2.11
        if hasattr(function, "cache_clear"):
            function.cache_clear()
    return options


def _forget_stream(handler: logging.StreamHandler[Any]) -> None:
    if handler.stream is not None:
        with contextlib.suppress(OSError, ValueError):
            handler.stream.close()
        handler.stream = None


# -- compiled code ---------------------------------------------------------------------------------


def built_by_warm_up() -> dict[str, str]:
    """Return the folders, by name, in which torch caches what the compiler builds in this
    process.
    """
    from torch._inductor import codecache

    folders = {"cache": os.environ["TORCHINDUCTOR_CACHE_DIR"], "headers": codecache._HEADER_DIR}
    return {name: folder for name, folder in folders.items() if folder}


def forget_compiles() -> None:
    """Clear the state of compiles that torch's own resets do not clear."""
    from torch._dynamo import utils
    from torch._dynamo.variables.builtin import BuiltinVariable
    from torch._inductor.codecache import PyCodeCache
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.compiler._cache import CacheArtifactManager

    # the artifacts of ``save_cache_artifacts``
    CacheArtifactManager.clear()
    # cached results of fake implementations: two cases may register operators of the same name
    FakeTensorMode.cache_clear()
    utils._compilation_metrics.clear()
    PyCodeCache.linemaps.clear()
    for owner, name in (
        # strings that the structured log writes only once
        (sys.modules.get("torch._logging.structured"), "INTERN_TABLE"),
        (sys.modules.get("torch.utils._stats"), "simple_call_counter"),
        (BuiltinVariable, "call_function_handler_cache"),
        (sys.modules["torch._inductor.compile_fx"].FxCompile, "_compile_stats"),
        (
            sys.modules.get("torch._inductor.template_heuristics.registry"),
            "_HEURISTIC_CACHE",
        ),  # until torch 2.13
        (sys.modules.get("torch._inductor.heuristics.registry"), "_HEURISTIC_CACHE"),
        (sys.modules["torch._dynamo.eval_frame"].DynamoTLS, "traced_frame_infos"),
    ):
        getattr(owner, name, {}).clear()
    for name in [name for name in sys.modules if _GENERATED.match(name)]:
        del sys.modules[name]


_GENERATED = re.compile(r"torch\._inductor\.runtime\.compile_tasks\.|c[a-z2-7]{51}\.")
"""Names of modules that inductor generated."""


def _call(path: str, **options: object) -> None:
    imports.resolve(path)(**options)


RESETS: Mapping[str, Callable[[], None]] = {
    # dynamo's compiled code
    "dynamo": functools.partial(_call, "torch._dynamo.reset"),
    # inductor's caches in memory
    "inductor": functools.partial(_call, "torch._inductor.utils.clear_caches"),
    # the caches on disk
    "aot_autograd": functools.partial(
        _call, "torch._functorch._aot_autograd.autograd_cache.AOTAutogradCache.clear"
    ),
    "fx_graph": functools.partial(_call, "torch._inductor.codecache.FxGraphCache.clear"),
    # the modules of generated code, with their files
    "code": functools.partial(
        _call, "torch._inductor.codecache.PyCodeCache.cache_clear", purge=True
    ),
}
"""What the step ``reset`` clears, by word. The session implements ``rng``."""


def delete_generated_files() -> int:
    """Delete the files of the loaded generated modules; return their number."""
    from torch._inductor.codecache import PyCodeCache

    files = [
        file
        for module in PyCodeCache.modules
        if (file := getattr(module, "__file__", None)) and os.path.exists(file)
    ]
    for file in files:
        os.remove(file)
    return len(files)
