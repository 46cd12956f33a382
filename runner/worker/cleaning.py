"""The state in which a worker of several cases began, to which it is brought back after each; what stays otherwise is said."""

import contextlib
import functools
import gc
import linecache
import os
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from runner.worker import compat, hooks, source_module, warming

_WATCHED = ("torch._dynamo", "torch._functorch", "torch._inductor")
"""Packages of which functions, classes and methods must stay what they were."""


@dataclass
class Odd:
    """What could not be brought back."""

    text: str = ""


class Baseline:
    """What this process was before its first case."""

    def __init__(self) -> None:
        hooks.install()
        self._options = compat.option_values()
        self._variables = dict(os.environ)
        self._path = list(sys.path)
        self._filters = list(warnings.filters)
        self._flags = {name: read() for name, (read, _) in _FLAGS.items()}
        self._functions = _functions()
        self._threads = set(threading.enumerate())
        self._allocated = _gpu_memory()

    @contextlib.contextmanager
    def kept(self) -> Iterator[tuple[contextlib.ExitStack, Odd]]:
        """Run a case; what it puts on the stack is undone, and all else that we know of brought back, or said."""
        odd = Odd()
        sizes = warming.cache_sizes()
        with contextlib.ExitStack() as undo:
            yield undo, odd
        self._bring_back()
        warming.forget_answers(sizes)
        odd.text = "; ".join(self._oddities())

    def _bring_back(self) -> None:
        compat.reset_dynamo()
        compat.reset_inductor()
        compat.clear_counters()
        compat.clear_metrics()
        os.environ.clear()
        os.environ.update(self._variables)
        os.chdir("/")
        sys.path[:] = self._path
        warnings.filters[:] = self._filters  # type: ignore[index]  # it is a list, which typeshed calls a sequence
        for name, (_, write) in _FLAGS.items():
            write(self._flags[name])
        source_module.forget_all()
        linecache.checkcache()
        gc.collect()
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
            compat.free_gpu_memory()

    def _oddities(self) -> Iterator[str]:
        options = compat.option_values()
        yield from (f"option {name} stays changed" for name, value in self._options.items() if options.get(name, value) != value)
        functions = _functions()
        yield from (f"{name} stays replaced" for name, value in self._functions.items() if functions.get(name) is not value)
        yield from (f"thread {thread.name} goes on" for thread in threading.enumerate() if thread not in self._threads)
        if (more := _gpu_memory() - self._allocated) > 0:
            yield f"{more} bytes of GPU memory stay allocated"
        if torch.cuda.is_initialized() and torch.cuda.current_stream() != torch.cuda.default_stream():
            yield "another stream stays the current one"


def _gpu_memory() -> int:
    return int(torch.cuda.memory_allocated()) if torch.cuda.is_initialized() else 0


def _functions() -> dict[str, Any]:
    """Return what can be called in the modules that are watched, by its path, and the methods of their classes."""
    found: dict[str, Any] = {}
    for name, module in list(sys.modules.items()):
        if not name.startswith(_WATCHED):
            continue
        for key, value in list(vars(module).items()):
            if isinstance(value, _CALLED):
                found[f"{name}.{key}"] = value
            if isinstance(value, type) and value.__module__ == name:
                members = list(vars(value).items())
                found.update({f"{name}.{key}.{member}": method for member, method in members if isinstance(method, _METHODS)})
    return found


_CALLED = (types.FunctionType, type(functools.cache(len)), type)
_METHODS = (types.FunctionType, classmethod, staticmethod, property)


def _setting(owner: Any, name: str) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    return functools.partial(getattr, owner, name), functools.partial(setattr, owner, name)


_FLAGS: Mapping[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "grad mode": (torch.is_grad_enabled, torch.set_grad_enabled),
    "default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "threads": (torch.get_num_threads, torch.set_num_threads),
    "deterministic algorithms": (
        lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        lambda held: torch.use_deterministic_algorithms(held[0], warn_only=held[1]),
    ),
    "matmul precision": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "TF32 of products": _setting(torch.backends.cuda.matmul, "allow_tf32"),
    "TF32 of convolutions": _setting(torch.backends.cudnn, "allow_tf32"),
    "reduced precision of float16": _setting(torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction"),
    "reduced precision of bfloat16": _setting(torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction"),
}
"""Settings of the process that a case may change, each with how it is read and written; in the order in which they are brought back."""
