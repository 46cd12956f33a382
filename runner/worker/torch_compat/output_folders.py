"""Folders and servers of torch's output: caches, logs, traces, remote caches."""

import contextlib
import importlib
import logging
import os
import sys
from collections.abc import Iterator
from typing import Any

from runner.worker.torch_compat.option_state import OPTIONS


def use_cache_dir(folder: str) -> None:
    """Set the cache folders of inductor and Triton; create the folder."""
    os.makedirs(folder, exist_ok=True)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
    os.environ["TRITON_CACHE_DIR"] = os.path.join(folder, "triton")


_PATH_OPTIONS = {
    ("config", "profile_bandwidth_output"): "TORCHINDUCTOR_PROFILE_OUTPUT",
    ("functorch_config", "memory_budget_pareto_dir"): "PARTITIONER_MEMORY_BUDGET_PARETO_DIR",
    ("dynamo_config", "dynamo_profiler"): "TORCH_COMPILE_DYNAMO_PROFILER",
}
"""Options with a path that torch reads from a variable at its import."""


def follow_variables(folder: str) -> dict[str, dict[str, Any]]:
    """Redirect torch's logs and traces to the paths in the variables of ``own_files``; return the options that need the same paths.

    Torch has read the variables at its import, possibly in the zygote. The zygote's own open files are not affected.
    """
    root = os.path.join(folder, "torch_compile_debug")
    options: dict[str, dict[str, Any]] = {"dynamo_config": {"debug_dir_root": root}}
    for (section, name), variable in _PATH_OPTIONS.items():
        held = getattr(importlib.import_module(OPTIONS[section]), name, None)
        if isinstance(held, str) and os.environ.get(variable):
            options.setdefault(section, {})[name] = os.environ[variable]
    _move_logs(root)
    select: Any = sys.modules.get("torch._inductor.select_algorithm")
    for name in ("get_mm_log_filename", "get_conv_log_filename", "get_flex_attention_log_filename"):
        found: Any = getattr(select, name, None)
        if hasattr(found, "cache_clear"):
            found.cache_clear()
    return options


def _move_logs(debug_root: str) -> None:
    """Set the files of torch's log and trace handlers from the variables. A file is opened at the first record."""
    loggers = [one for one in logging.Logger.manager.loggerDict.values() if isinstance(one, logging.Logger)]
    files = {id(one): one for logger in loggers for one in logger.handlers if isinstance(one, logging.FileHandler)}
    for handler in files.values() if os.environ.get("TORCH_LOGS_OUT") else ():
        _forget_stream(handler)
        handler.baseFilename = os.environ["TORCH_LOGS_OUT"]
    trace: Any = getattr(sys.modules["torch._logging._internal"], "LOG_TRACE_HANDLER", None)
    if getattr(trace, "root_dir", None) is not None:
        _forget_stream(trace)
        named = os.environ.get("TORCH_DTRACE") or os.environ.get("TORCH_TRACE")
        trace.root_dir = named or os.path.join(debug_root, "tlparse")


def _forget_stream(handler: Any) -> None:
    if handler.stream is not None:
        with contextlib.suppress(OSError, ValueError):
            handler.stream.close()
        handler.stream = None


@contextlib.contextmanager
def cache_folder(folder: str) -> Iterator[None]:
    """Set the cache folders of inductor and Triton in this context."""
    names = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
    before = {name: os.environ.get(name) for name in names}
    use_cache_dir(folder)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def built_by_warm_up() -> dict[str, str]:
    """Return the folders, by name, in which torch caches what the compiler builds in this process."""
    from torch._inductor import codecache

    folders = {"cache": os.environ["TORCHINDUCTOR_CACHE_DIR"], "headers": getattr(codecache, "_HEADER_DIR", "")}
    return {name: folder for name, folder in folders.items() if folder}


def use_redis(url: str) -> None:
    """Set the server of torch's Redis client. Torch reads it at each compile."""
    os.environ["TORCHINDUCTOR_REDIS_URL"] = url
