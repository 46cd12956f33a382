"""Modes of torch before and after a call, compiled and eager: what every later call of the process sees."""

import contextlib
import copy
import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch._dynamo

from runner.core import devices

Mode = tuple[Callable[[], Any], Callable[[Any], Any]]
"""The reader and the writer of a mode."""

_MOST_TEXT = 200
"""Characters of a value in a message."""

_ROUNDS = 3


def _default_device() -> Any:
    held = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return None if held is None else held.device


def _write_default_device(held: Any) -> None:
    if _default_device() != held:
        torch.set_default_device(held)


def _saved_hooks() -> Any:
    ignores_tracing = True
    return torch._C._autograd._top_saved_tensors_default_hooks(ignores_tracing)


def _autocast(device: str) -> Mode:
    def read() -> tuple[bool, Any]:
        return torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)

    def write(held: tuple[bool, Any]) -> None:
        torch.set_autocast_enabled(device, held[0])
        torch.set_autocast_dtype(device, held[1])

    return read, write


def _sdp(name: str) -> Mode:
    return getattr(torch.backends.cuda, f"{name}_sdp_enabled"), getattr(torch.backends.cuda, f"enable_{name}_sdp")


_MODES: Mapping[str, Mode] = {
    "grad mode": (torch.is_grad_enabled, torch.set_grad_enabled),
    "inference mode": (torch.is_inference_mode_enabled, lambda _: None),
    "anomaly detection": (
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda held: torch.set_anomaly_enabled(*held),
    ),
    "default device": (_default_device, _write_default_device),  # a function mode, too
    "torch functions": (torch._C._get_torch_function_state, torch._C._set_torch_function_state),  # __torch_function__ of subclasses
    "function modes": (torch._C._len_torch_function_stack, lambda _: None),
    "dispatch modes": (torch._C._len_torch_dispatch_stack, lambda _: None),
    "default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    **{f"autocast of {kind}": _autocast(kind) for kind in (devices.CPU, *devices.ACCELERATORS)},
    "threads": (torch.get_num_threads, torch.set_num_threads),
    "deterministic algorithms": (
        lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        lambda held: torch.use_deterministic_algorithms(held[0], warn_only=held[1]),
    ),
    "matmul precision": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "threads of autograd": (torch._C._is_multithreading_enabled, torch._C._set_multithreading_enabled),
    "hooks of saved tensors": (_saved_hooks, lambda _: None),
    "functorch's transforms": (torch._C._functorch.peek_interpreter_stack, lambda _: None),
    "dynamo's stance": (
        lambda: copy.copy(torch._dynamo.eval_frame._stance),
        lambda held: torch._dynamo.eval_frame._set_stance(copy.copy(held)),
    ),
    "autocast's cache": (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    "filling of new memory": (torch._C._get_deterministic_fill_uninitialized_memory, torch._C._set_deterministic_fill_uninitialized_memory),
    "oneDNN": (
        functools.partial(getattr, torch.backends.mkldnn, "enabled"),
        functools.partial(setattr, torch.backends.mkldnn, "enabled"),
    ),
    "flash attention": _sdp("flash"),
    "memory-efficient attention": _sdp("mem_efficient"),
    "plain attention": _sdp("math"),
    "cuDNN's attention": _sdp("cudnn"),
}
"""Modes of a process that change what later calls compute. Compiled code must leave each as eager does. A mode whose writer does nothing
is only reported."""


class Modes:
    """The modes at one time."""

    def __init__(self) -> None:
        self._held: dict[str, Any] = {}
        for name, (read, _) in _MODES.items():
            with contextlib.suppress(AttributeError, ImportError, RuntimeError):  # this torch does not have it
                self._held[name] = read()

    def restore(self) -> None:
        """Set every mode to its value of that time; one that torch cannot set, such as the inference mode, stays."""
        # several rounds: writing one mode of torch can change the value of another
        for _ in range(_ROUNDS):
            for name, held in self._held.items():
                with contextlib.suppress(Exception):  # a case may have broken the reader or the writer
                    read, write = _MODES[name]
                    if read() != held:
                        write(held)

    def other_than(self, other: "Modes") -> list[dict[str, str]]:
        """Return the modes that two calls left otherwise, each with both values: those of this one are the eager ones."""
        return [
            {"name": name, "eager": str(held)[:_MOST_TEXT], "compiled": str(other._held[name])[:_MOST_TEXT]}
            for name, held in self._held.items()
            if name in other._held and other._held[name] != held
        ]
