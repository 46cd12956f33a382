"""The state of the process that both sides share, besides the globals of a spec: random generators,
and modes of torch and numpy.
"""

import contextlib
import copy
import functools
import pickle
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch._dynamo
import torch._inductor.config
from torch.autograd import forward_ad

from torch_conformance.model.devices import ACCELERATORS, CPU
from torch_conformance.worker.torch_compat import compiling, device_modules

# -- generators ------------------------------------------------------------------------------------

PYTHON = "python"
"""The generator of the module ``random``. Dynamo runs its functions as Python does."""

NUMPY = "numpy"
"""The global generator of numpy.

Dynamo replaces its functions by those of torch, unless ``use_numpy_random_stream`` is set.
"""


@dataclass(frozen=True)
class Generators:
    """The state of each generator at one time."""

    torch: device_modules.GeneratorState
    python: object
    numpy: Mapping[str, Any] | None
    """None where numpy is not imported."""

    @classmethod
    def now(cls) -> "Generators":
        """Return the current states."""
        numpy = sys.modules.get("numpy.random")
        return cls(
            device_modules.generator_state(),
            random.getstate(),
            None if numpy is None else numpy.get_state(legacy=False),
        )

    def restore(self) -> None:
        """Set every generator to its state of that time."""
        device_modules.restore_generators(self.torch)
        random.setstate(self.python)  # type: ignore[arg-type]  # what getstate returned
        if self.numpy is not None:
            sys.modules["numpy.random"].set_state(self.numpy)

    @property
    def states(self) -> dict[str, Any]:
        """The states by the generators' names."""
        cpu, accelerators = self.torch
        of_accelerators = {
            f"{module}:{index}": state
            for module, states in accelerators.items()
            for index, state in enumerate(states)
        }
        return {
            "cpu": cpu,
            **of_accelerators,
            PYTHON: self.python,
            **({} if self.numpy is None else {NUMPY: pickle.dumps(self.numpy)}),
        }

    def differs_from(self, other: "Generators") -> bool:
        """Whether a generator that both have has another state."""
        theirs = other.states
        return any(
            name in theirs and not is_same(state, theirs[name])
            for name, state in self.states.items()
        )


def reseed(seed: int) -> None:
    """Set the generators of torch, of ``random`` and, where it is imported, of numpy to a seed."""
    torch.manual_seed(seed)
    random.seed(seed)
    if (numpy := sys.modules.get("numpy.random")) is not None:
        numpy.seed(seed % 2**32)


def compared(
    before: Generators, eager: Generators, compiled: Generators, settings: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the facts of each generator; a generator of an accelerator that was not used before
    the call is left out.

    ``exact`` is whether the compiled function must leave the state of eager. Unless
    ``fallback_random`` is set, inductor draws one seed for all random operators of a graph, and
    removes unused ones: then only a generator that eager does not use can be compared. The same
    holds for numpy's.
    """
    states = [generators.states for generators in (before, eager, compiled)]
    falls_back = (settings.get("options") or {}).get(
        "fallback_random", compiling.is_set("fallback_random")
    )
    draws_as_eager = settings.get("backend", "inductor") != "inductor" or bool(falls_back)
    draws_as_eager &= not settings.get("random")
    comparisons = []
    for name in (name for name in states[0] if all(name in state for state in states)):
        first, theirs, ours = (state[name] for state in states)
        facts = {
            "eager_advanced": not is_same(first, theirs),
            "compiled_advanced": not is_same(first, ours),
            "same": is_same(theirs, ours),
        }
        comparisons.append(
            {"name": name, "exact": name != NUMPY and (draws_as_eager or name == PYTHON), **facts}
        )
    return comparisons


def is_same(left: object, right: object) -> bool:
    """Whether two values are equal; of tensors, all their numbers."""
    if isinstance(left, torch.Tensor):
        return isinstance(right, torch.Tensor) and bool(torch.equal(left, right))
    return bool(left == right)


# -- modes -----------------------------------------------------------------------------------------

Mode = tuple[Callable[[], Any], Callable[[Any], Any]]
"""The reader and the writer of a mode."""

_MOST_TEXT = 200
"""Characters of a value in a message."""

_ROUNDS = 3


def _default_device() -> torch.device | None:
    return getattr(getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None), "device", None)


def _autocast(device: str) -> Mode:
    """Return the mode of autocast for a kind of device: whether it is on, and its dtype."""

    def write(state: tuple[bool, Any]) -> None:
        torch.set_autocast_enabled(device, state[0])
        torch.set_autocast_dtype(device, state[1])

    return lambda: (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)), write


def _sdp(name: str) -> Mode:
    return getattr(torch.backends.cuda, f"{name}_sdp_enabled"), getattr(
        torch.backends.cuda, f"enable_{name}_sdp"
    )


def _switch(name: str) -> Mode:
    """Return the mode that ``torch._C`` reads and writes by a pair of functions of one name."""
    readers = (getattr(torch._C, f"{prefix}{name}", None) for prefix in ("_get_", "_is_", "_"))
    read, write = next(filter(None, readers)), getattr(torch._C, f"_set_{name}")
    return read, lambda value: write(*value) if isinstance(value, tuple) else write(value)


def _attribute(owner: object, name: str) -> Mode:
    return functools.partial(getattr, owner, name), functools.partial(setattr, owner, name)


def _of_backends() -> Iterator[tuple[str, Mode]]:
    """Yield the modes of ``torch.backends``: each property that can be written, and the precision
    of each of its operators.
    """
    for name, module in sorted(sys.modules.items()):
        if not name.startswith("torch.backends") or module is None:
            continue
        for holder in (vars(type(module)), vars(module)):
            for word, value in holder.items():
                if type(value).__name__ == "ContextProp":
                    yield f"{name}.{word}", _attribute(module, word)
                elif type(value).__name__ == "_FP32Precision":
                    yield f"{name}.{word}.fp32_precision", _attribute(value, "fp32_precision")


def _inductor_options() -> dict[str, Any]:
    """Return Inductor's options, containers as copies."""
    # torch's own copy has other objects in the place of a spec's passes
    options = {
        name: getattr(torch._inductor.config, name) for name in torch._inductor.config._config
    }
    del options["aot_inductor.metadata"]  # a package that is made fills it
    return {
        name: copy.copy(value) if isinstance(value, dict | list | set) else value
        for name, value in options.items()
    }


def _set_inductor_options(options: Mapping[str, Any]) -> None:
    for name, value in _inductor_options().items():
        if options.get(name) != value:
            setattr(torch._inductor.config, name, options[name])


_NO_MODES = (
    "graph_exec_group",
    "sdp_priority_order",
    "thread_name",
    "tracing_state",
    "value_trace",
)
"""Pairs of functions of ``torch._C`` that read and write something else than a mode. The priority
of attention kernels is set by torch itself at the first attention on a GPU.
"""


def _numpy_errors() -> dict[str, str] | None:
    numpy = sys.modules.get("numpy")
    return None if numpy is None else numpy.geterr()


_IGNORING_TRACING = True
_HALF = 0.5
"""A name, so that Python does not compute the product when it compiles the code."""

_MODES: Mapping[str, Mode] = {
    **{
        name.removeprefix("_set_").replace("_", " "): _switch(name.removeprefix("_set_"))
        for name in dir(torch._C)
        if name.startswith("_set_")
        and name.removeprefix("_set_") not in _NO_MODES
        and any(hasattr(torch._C, name.replace("_set", word, 1)) for word in ("_get", "_is", ""))
    },
    **dict(_of_backends()),
    "grad mode": (torch.is_grad_enabled, torch.set_grad_enabled),
    "inference mode": (torch.is_inference_mode_enabled, lambda _: None),
    "anomaly detection": (
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda state: torch.set_anomaly_enabled(*state),
    ),
    "default device": (
        _default_device,
        lambda device: _default_device() == device or torch.set_default_device(device),
    ),  # a function mode
    "function modes": (torch._C._len_torch_function_stack, lambda _: None),
    "dispatch modes": (torch._C._len_torch_dispatch_stack, lambda _: None),
    "default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    **{f"autocast of {kind}": _autocast(kind) for kind in (CPU, *ACCELERATORS)},
    "threads": (torch.get_num_threads, torch.set_num_threads),
    "deterministic algorithms": (
        lambda: (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        lambda state: torch.use_deterministic_algorithms(state[0], warn_only=state[1]),
    ),
    "flushing of subnormal numbers": (
        lambda: sys.float_info.min * _HALF == 0,
        torch.set_flush_denormal,
    ),
    "hooks of saved tensors": (
        functools.partial(torch._C._autograd._top_saved_tensors_default_hooks, _IGNORING_TRACING),
        lambda _: None,
    ),
    "functorch's transforms": (torch._C._functorch.peek_interpreter_stack, lambda _: None),
    "dynamo's stance": (
        lambda: copy.copy(torch._dynamo.eval_frame._stance),
        lambda state: torch._dynamo.eval_frame._set_stance(copy.copy(state)),
    ),
    "autocast's cache": (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    "numpy's handling of errors": (
        _numpy_errors,
        lambda state: state is None or sys.modules["numpy"].seterr(**state),
    ),
    "level of forward AD": _attribute(forward_ad, "_current_level"),
    "options of Inductor": (_inductor_options, _set_inductor_options),
    **{
        f"{name} attention": _sdp(word)
        for name, word in (
            ("flash", "flash"),
            ("memory-efficient", "mem_efficient"),
            ("plain", "math"),
            ("cuDNN's", "cudnn"),
        )
    },
}
"""Modes of a process that change what later calls compute, found by looking at the properties of
``torch.backends`` and the switches of ``torch._C``, and those that have no such pair. Compiled code
must leave each as eager does. A mode whose writer does nothing is only reported."""


def _texts(eager: object, compiled: object) -> tuple[str, str]:
    """Return two values of a mode in words; of two maps the entries that differ."""
    if isinstance(eager, dict) and isinstance(compiled, dict):
        names = [name for name in eager if compiled.get(name) != eager[name]]
        eager, compiled = ({name: side.get(name) for name in names} for side in (eager, compiled))
    return str(eager), str(compiled)


class Modes:
    """The modes at one time."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        for name, (read, _) in _MODES.items():
            with contextlib.suppress(Exception):  # this torch or this build does not have it
                self._values[name] = read()

    def restore(self) -> None:
        """Set every mode to its value of that time; one that torch cannot set, such as the
        inference mode, stays.
        """
        # several rounds: writing one mode of torch can change the value of another
        for _ in range(_ROUNDS):
            for name, state in self._values.items():
                with contextlib.suppress(Exception):
                    # a case may have broken the reader or the writer
                    read, write = _MODES[name]
                    if not is_same(read(), state):
                        write(state)

    def other_than(self, other: "Modes") -> list[dict[str, str]]:
        """Return the modes that differ after two calls, each with both values: those of this one
        are of eager.
        """
        return [
            {"name": name, "eager": theirs[:_MOST_TEXT], "compiled": ours[:_MOST_TEXT]}
            for name, value in self._values.items()
            if name in other._values and not is_same(other._values[name], value)
            for theirs, ours in [_texts(value, other._values[name])]
        ]

    def changed_since(self, before: "Modes") -> list[str]:
        """Return the names of the modes that had other values before."""
        return [mode["name"] for mode in self.other_than(before)]
