"""Settings of a process other than torch's options: how each is read and written, and how all are restored."""

import contextlib
import copy
import functools
import gc
import logging
import os
import signal
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, cast

import torch
import torch._dynamo

from runner.core import devices

Setting = tuple[Callable[[], Any], Callable[[Any], Any]]
"""The reader and the writer of a setting."""


_MOST_TEXT = 200
"""Characters of a value in a message."""


class Settings:
    """The values of settings at the time of construction: of those that are named, or of all."""

    def __init__(self, names: Collection[str] | None = None) -> None:
        self._held: dict[str, Any] = {}
        self.unreadable: dict[str, str] = {}
        """Settings that this torch does not have, and the text of the exception."""
        for name in SETTINGS if names is None else names:
            try:
                self._held[name] = SETTINGS[name][0]()
            except (AttributeError, ImportError, RuntimeError) as error:
                self.unreadable[name] = str(error)

    def bring_back(self) -> Iterator[str]:
        """Restore every setting; yield those that could not be restored."""
        # several rounds: writing one setting of torch can change the value of another
        for _ in range(_ROUNDS):
            for name in self._changed():
                with contextlib.suppress(Exception):  # a case may have broken the reader or the writer
                    SETTINGS[name][1](self._held[name])
        yield from (f"{name} stays {now}" for name, now in self._changed().items())

    def other_than(self, other: "Settings") -> Iterator[tuple[str, str, str]]:
        """Yield the settings that two times hold and that differ: the name, the text here, and there."""
        for name, held in self._held.items():
            if name in other._held and other._held[name] != held:
                yield name, str(held)[:_MOST_TEXT], str(other._held[name])[:_MOST_TEXT]

    def _changed(self) -> dict[str, str]:
        """Return the settings that differ now, and the text of their values."""
        found: dict[str, str] = {}
        for name, held in self._held.items():
            try:
                now = SETTINGS[name][0]()
                if now != held:
                    found[name] = str(now)[:_MOST_TEXT]
            except (
                Exception
            ) as error:  # torch raises after a mix of old and new API for one setting; a case's own object can raise anything
                found[name] = f"unreadable: {error}"[:_MOST_TEXT]
        return found


_ROUNDS = 3


def _attribute(owner: Any, name: str) -> Setting:
    return functools.partial(getattr, owner, name), functools.partial(setattr, owner, name)


def _everywhere(path: str, name: str) -> Setting:
    """Return a setting below ``torch.backends``. It is looked up late, because not every torch has it."""

    def owner() -> Any:
        return functools.reduce(getattr, path.split("."), torch.backends) if path else torch.backends

    return lambda: getattr(owner(), name), lambda value: setattr(owner(), name, value)


def _write_variables(held: Mapping[str, str]) -> None:
    if dict(os.environ) != held:
        os.environ.clear()
        os.environ.update(held)


def _list(found: Callable[[], list[Any]]) -> Setting:
    def write(held: list[Any]) -> None:
        found()[:] = held

    return lambda: list(found()), write


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _handlers() -> dict[int, Any]:
    return {number: signal.getsignal(number) for number in _SIGNALS}


def _write_handlers(held: Mapping[int, Any]) -> None:
    for number, handler in held.items():
        if handler is not None and signal.getsignal(number) is not handler:
            signal.signal(number, handler)


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGCHLD, signal.SIGPIPE, signal.SIGUSR2)
"""Without SIGUSR1, which faulthandler uses for the runner."""


def _default_device() -> Any:
    held = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return None if held is None else held.device


def _write_default_device(held: Any) -> None:
    if _default_device() != held:
        torch.set_default_device(held)


def _saved_hooks() -> Any:
    ignores_tracing = True
    return torch._C._autograd._top_saved_tensors_default_hooks(ignores_tracing)


def _stance() -> Any:
    return copy.copy(torch._dynamo.eval_frame._stance)


def _write_stance(held: Any) -> None:
    torch._dynamo.eval_frame._set_stance(copy.copy(held))


def _autocast(device: str) -> Setting:
    def read() -> tuple[bool, Any]:
        return torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)

    def write(held: tuple[bool, Any]) -> None:
        torch.set_autocast_enabled(device, held[0])
        torch.set_autocast_dtype(device, held[1])

    return read, write


def _loggers() -> dict[str, Any]:
    """Return the state of each logger, and torch's own state of logging."""
    manager = logging.Logger.manager
    loggers = {"": logging.root, **{name: found for name, found in manager.loggerDict.items() if isinstance(found, logging.Logger)}}
    state = torch._logging._internal.log_state
    return {
        "loggers": {name: (one.level, one.propagate, one.disabled, list(one.handlers), list(one.filters)) for name, one in loggers.items()},
        "disabled": manager.disable,
        "levels": dict(state.log_qname_to_level),
        "artifacts": set(state.artifact_names),
    }


def _write_loggers(held: Mapping[str, Any]) -> None:
    state = torch._logging._internal.log_state
    state.log_qname_to_level.clear()
    state.log_qname_to_level.update(held["levels"])
    state.artifact_names.clear()
    state.artifact_names.update(held["artifacts"])
    logging.disable(held["disabled"])
    for name in _loggers()["loggers"]:
        logger: Any = logging.getLogger(name) if name else logging.root
        if name in held["loggers"]:
            level, logger.propagate, logger.disabled, logger.handlers[:], logger.filters[:] = held["loggers"][name]
            logger.setLevel(level)
        elif hasattr(logger, "artifact_name"):
            # a module of torch that was imported later: configure its logger as torch does
            logger.setLevel(logging.NOTSET)
            torch._logging._internal.configure_artifact_log(logger)
        else:
            logger.setLevel(logging.NOTSET)


class _Loggers:
    """The state of the loggers. Two states are equal when the loggers in both have equal settings."""

    def __init__(self) -> None:
        self.held = _loggers()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Loggers):
            return NotImplemented
        names = self.held["loggers"].keys() & other.held["loggers"].keys()
        mine, theirs = ({**one.held, "loggers": {name: one.held["loggers"][name] for name in names}} for one in (self, other))
        return mine == theirs

    def __str__(self) -> str:
        return "changed"


def _sdp(name: str) -> Setting:
    return getattr(torch.backends.cuda, f"{name}_sdp_enabled"), getattr(torch.backends.cuda, f"enable_{name}_sdp")


SETTINGS: Mapping[str, Setting] = {
    "the environment": (lambda: dict(os.environ), _write_variables),
    "sys.path": _list(lambda: sys.path),
    "sys.meta_path": _list(lambda: sys.meta_path),
    "sys.path_hooks": _list(lambda: sys.path_hooks),
    "sys.argv": _list(lambda: sys.argv),
    "sys.stdin": _attribute(sys, "stdin"),
    "sys.stdout": _attribute(sys, "stdout"),
    "sys.stderr": _attribute(sys, "stderr"),
    "sys.excepthook": _attribute(sys, "excepthook"),
    "the recursion limit": (sys.getrecursionlimit, sys.setrecursionlimit),
    "the switch interval": (sys.getswitchinterval, sys.setswitchinterval),
    "the trace function": (sys.gettrace, sys.settrace),
    "the profile function": (sys.getprofile, sys.setprofile),
    "garbage collection": (gc.isenabled, lambda held: gc.enable() if held else gc.disable()),
    "thresholds of garbage collection": (gc.get_threshold, lambda held: gc.set_threshold(*held)),
    "the umask": (_umask, os.umask),
    "signal handlers": (_handlers, _write_handlers),
    "warnings filters": _list(lambda: cast("list[Any]", warnings.filters)),
    "warnings.showwarning": _attribute(warnings, "showwarning"),
    "loggers": (_Loggers, lambda held: _write_loggers(held.held)),
    "grad mode": (torch.is_grad_enabled, torch.set_grad_enabled),
    "inference mode": (torch.is_inference_mode_enabled, lambda _: None),
    "anomaly detection": (
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda held: torch.set_anomaly_enabled(*held),
    ),
    "threads of autograd": (torch._C._is_multithreading_enabled, torch._C._set_multithreading_enabled),
    "hooks of saved tensors": (_saved_hooks, lambda _: None),
    "torch functions": (torch._C._get_torch_function_state, torch._C._set_torch_function_state),
    "function modes": (torch._C._len_torch_function_stack, lambda _: None),
    "dispatch modes": (torch._C._len_torch_dispatch_stack, lambda _: None),
    "functorch's transforms": (torch._C._functorch.peek_interpreter_stack, lambda _: None),
    "dynamo's stance": (_stance, _write_stance),
    "dynamo's recursion limit": (lambda: torch._dynamo.get_recursion_limit(), lambda held: torch._dynamo.set_recursion_limit(held)),
    "default device": (_default_device, _write_default_device),
    "default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    **{f"autocast of {kind}": _autocast(kind) for kind in (devices.CPU, *devices.ACCELERATORS)},
    "autocast's cache": (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    "threads": (torch.get_num_threads, torch.set_num_threads),
    "deterministic algorithms": (
        lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        lambda held: torch.use_deterministic_algorithms(held[0], warn_only=held[1]),
    ),
    "filling of new memory": (torch._C._get_deterministic_fill_uninitialized_memory, torch._C._set_deterministic_fill_uninitialized_memory),
    "torch.set_warn_always": (torch.is_warn_always_enabled, torch.set_warn_always),
    "how tensors are printed": (
        lambda: copy.copy(vars(torch._tensor_str.PRINT_OPTS)),
        lambda held: vars(torch._tensor_str.PRINT_OPTS).update(held),
    ),
    "precision": _everywhere("", "fp32_precision"),
    "precision of CUDA's matmuls": _everywhere("cuda.matmul", "fp32_precision"),
    "precision of cuDNN": _everywhere("cudnn", "fp32_precision"),
    "precision of cuDNN's convolutions": _everywhere("cudnn.conv", "fp32_precision"),
    "precision of cuDNN's recurrent networks": _everywhere("cudnn.rnn", "fp32_precision"),
    "precision of oneDNN": _everywhere("mkldnn", "fp32_precision"),
    "precision of oneDNN's matmuls": _everywhere("mkldnn.matmul", "fp32_precision"),
    "precision of oneDNN's convolutions": _everywhere("mkldnn.conv", "fp32_precision"),
    "precision of oneDNN's recurrent networks": _everywhere("mkldnn.rnn", "fp32_precision"),
    "matmul precision": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "TF32 of matmuls": _everywhere("cuda.matmul", "allow_tf32"),
    "TF32 of convolutions": _everywhere("cudnn", "allow_tf32"),
    "reduced precision of float16": _everywhere("cuda.matmul", "allow_fp16_reduced_precision_reduction"),
    "reduced precision of bfloat16": _everywhere("cuda.matmul", "allow_bf16_reduced_precision_reduction"),
    "accumulation in float16": _everywhere("cuda.matmul", "allow_fp16_accumulation"),
    "cuDNN": _everywhere("cudnn", "enabled"),
    "cuDNN's benchmarks": _everywhere("cudnn", "benchmark"),
    "cuDNN's determinism": _everywhere("cudnn", "deterministic"),
    "oneDNN": _everywhere("mkldnn", "enabled"),
    "oneDNN's determinism": _everywhere("mkldnn", "deterministic"),
    "opt_einsum": _everywhere("opt_einsum", "enabled"),
    "opt_einsum's strategy": _everywhere("opt_einsum", "strategy"),
    "flash attention": _sdp("flash"),
    "memory-efficient attention": _sdp("mem_efficient"),
    "plain attention": _sdp("math"),
    "cuDNN's attention": _sdp("cudnn"),
    "linear algebra library": (torch.backends.cuda.preferred_linalg_library, torch.backends.cuda.preferred_linalg_library),
    "BLAS library": (torch.backends.cuda.preferred_blas_library, torch.backends.cuda.preferred_blas_library),
}
"""Settings that a case may change; restored in this order. A setting whose writer does nothing is only reported.

Neither restored nor reported: ``torch.set_flush_denormal``, warnings that C++ code issues once, the number of inter-op threads,
process limits (``setrlimit``), native threads, timers and the state of C libraries.
"""
