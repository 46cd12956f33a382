"""The state that both sides share, which is compared and restored around a call: globals of a spec,
random generators, modes of torch.
"""

import contextlib
import copy
import enum
import functools
import math
import pickle
import random
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

import torch
import torch._dynamo

from torch_conformance.model.devices import ACCELERATORS, CPU
from torch_conformance.worker.case.source_module import PREFIX
from torch_conformance.worker.torch_compat import compiling, device_modules

# -- values ----------------------------------------------------------------------------------------

_PLAIN = (bool, int, float, complex, str, bytes, type(None))

_MOST_ELEMENTS = 1 << 20
"""Of a tensor that is copied."""

_MOST_SHOWN = 8
"""Elements of a tensor in a message."""

_DEPTH = 30

_PART_OF_CHANGE = 1 / 16
"""How far the two sides may differ in a tensor, as a part of its change by eager."""

OF_TORCH = (
    "_dynamo",
    "_torchdynamo",
    "_compiled_call_impl",
    "_is_torch_compile",
    "_orig_mod",
    "_is_fsdp",
    "_opt_called",
)
"""Prefixes of attributes that torch's compiler sets on modules and functions, and a scheduler on an
optimizer, of which a copy has none.
"""

_OF_MODULES = ("_parameters", "_buffers", "_modules")


class Snapshot:
    """A value at one time: the object itself, which may change later, and what was in it."""

    def __init__(self, value: Any, known: dict[int, "Snapshot"], depth: int = 0) -> None:
        """``known`` are the snapshots that are made already, by identity."""
        known[id(value)] = self
        self.value = value
        self.copy: Any = None
        """Of a tensor or a set; None for a tensor that is not copied."""
        self.parts: list[tuple[Any, Snapshot]] = []
        if isinstance(value, torch.Tensor):
            is_plain = (
                type(value) in (torch.Tensor, torch.nn.Parameter)
                and value.layout is torch.strided
                and value.device.type != "meta"
            )
            self.copy = (
                value.detach().clone() if is_plain and value.numel() <= _MOST_ELEMENTS else None
            )
        elif isinstance(value, set):
            self.copy = copy.copy(value)
        elif depth < _DEPTH:
            self.parts = [
                (key, known.get(id(part)) or Snapshot(part, known, depth + 1))
                for key, part in _parts(value)
            ]

    @property
    def is_known(self) -> bool:
        """Whether what was in it can be compared."""
        return (
            isinstance(self.value, (*_PLAIN, list, tuple, deque, dict))
            or self.copy is not None
            or bool(self.parts)
        )

    def restore(self, done: set[int] | None = None) -> None:
        """Give the object what was in it."""
        done = set() if done is None else done
        if id(self) in done:
            return
        done.add(id(self))
        value = self.value
        if isinstance(value, torch.Tensor):
            if (
                self.copy is not None
                and value.shape == self.copy.shape
                and not torch.equal(value, self.copy)
            ):
                value.data.copy_(self.copy)  # no advance of its version counter
        elif isinstance(value, set):
            value.clear()
            value.update(self.copy)
        elif [id(part) for _, part in _parts(value)] != [id(part.value) for _, part in self.parts]:
            parts = {key: part.value for key, part in self.parts}
            if isinstance(value, list | deque):
                value.clear()
                value.extend(parts.values())
            elif isinstance(value, dict):
                value.clear()
                value.update(parts)
            else:
                for name in [name for name, _ in _parts(value) if name not in parts]:
                    del vars(value)[name]
                vars(value).update(parts)
        for _, part in self.parts:
            part.restore(done)

    def is_other(
        self,
        eager: "Snapshot",
        before: "Snapshot | None",
        done: set[tuple[int, int]] | None = None,
        *,
        is_exact: bool = False,
    ) -> bool:
        """Whether the compiled side left another value than eager, which changed ``before``.

        Unless ``is_exact``, tensors may differ by a part of that change. Of an object whose content
        is unknown, the class alone counts.
        """
        done = set() if done is None else done
        if (id(self), id(eager)) in done:
            return False
        done.add((id(self), id(eager)))
        ours, theirs = self.value, eager.value
        if isinstance(ours, float) and isinstance(theirs, float) and not is_exact:
            is_near = math.isclose(ours, theirs, rel_tol=1.3e-6, abs_tol=1e-9)
            return not is_near and not (math.isnan(ours) and math.isnan(theirs))
        if type(ours) is not type(theirs):
            return True
        if isinstance(ours, _PLAIN):
            return bool(ours != theirs)
        if isinstance(ours, torch.Tensor) and is_exact:
            is_known = self.copy is not None and eager.copy is not None
            return not torch.equal(self.copy, eager.copy) if is_known else ours is not theirs
        if isinstance(ours, torch.Tensor):
            return _are_other(self.copy, eager.copy, None if before is None else before.copy)
        if isinstance(ours, set):
            return bool(self.copy != eager.copy)
        keys = [
            (key, their_key)
            for (key, _), (their_key, _) in zip(self.parts, eager.parts, strict=False)
        ]
        plain_keys = [pair for pair in keys if all(isinstance(key, _PLAIN) for key in pair)]
        if len(self.parts) != len(eager.parts) or any(
            key != their_key for key, their_key in plain_keys
        ):
            return True
        begun = (
            {}
            if before is None
            else {
                id(key) if isinstance(key, torch.Tensor) else key: part
                for key, part in before.parts
            }
        )
        return any(
            part.is_other(
                their,
                begun.get(id(key) if isinstance(key, torch.Tensor) else key),
                done,
                is_exact=is_exact,
            )
            for (key, part), (_, their) in zip(self.parts, eager.parts, strict=True)
        )

    def __str__(self) -> str:
        if isinstance(self.value, torch.Tensor):
            return str("*" if self.copy is None else self.copy.flatten()[:_MOST_SHOWN].tolist())
        if isinstance(self.value, list | tuple | deque):
            return f"[{', '.join(str(part) for _, part in self.parts)}]"
        if self.parts:
            texts = {
                key: str(part) for key, part in self.parts if not part.parts or key in _OF_MODULES
            }
            shown = [
                f"{key!r}: {text}"
                for key, text in texts.items()
                if text not in ("*", "{}", "OrderedDict()", "set()")
            ]
            return f"{{{', '.join(shown)}}}"
        return (
            repr(self.value if self.copy is None else self.copy)
            if isinstance(self.value, (*_PLAIN, set, dict))
            else "*"
        )


def _parts(value: Any) -> Iterable[tuple[Any, Any]]:
    """Return the parts of a container, of a module or an optimizer, and of an object of a class of
    the spec.
    """
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, list | tuple | deque):
        return list(enumerate(value))
    is_of_spec = type(value).__module__.startswith(PREFIX) and not isinstance(value, type)
    if is_of_spec or isinstance(value, torch.nn.Module | torch.optim.Optimizer):
        return [
            (name, part)
            for name, part in getattr(value, "__dict__", {}).items()
            if not name.startswith(OF_TORCH)
        ]
    return []


def _are_other(
    ours: torch.Tensor | None, theirs: torch.Tensor | None, before: torch.Tensor | None
) -> bool:
    if ours is None or theirs is None:
        return False
    if (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
        return True
    if not ours.is_floating_point():
        return not torch.equal(ours, theirs)
    is_changed = before is not None and before.shape == theirs.shape
    change = (
        theirs.double() - before.double() if is_changed and before is not None else theirs.double()
    )
    return bool((ours.double() - theirs.double()).norm() > _PART_OF_CHANGE * change.norm())


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
            name in theirs and not _same(state, theirs[name]) for name, state in self.states.items()
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
    comparisons = []
    for name in (name for name in states[0] if all(name in state for state in states)):
        first, theirs, ours = (state[name] for state in states)
        facts = {
            "eager_advanced": not _same(first, theirs),
            "compiled_advanced": not _same(first, ours),
            "same": _same(theirs, ours),
        }
        comparisons.append(
            {"name": name, "exact": name != NUMPY and (draws_as_eager or name == PYTHON), **facts}
        )
    return comparisons


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, Snapshot):
        return isinstance(right, Snapshot) and not left.is_other(right, None, is_exact=True)
    if isinstance(left, torch.Tensor):
        return isinstance(right, torch.Tensor) and bool(torch.equal(left, right))
    return bool(left == right)


# -- modes -----------------------------------------------------------------------------------------

Mode = tuple[Callable[[], Any], Callable[[Any], Any]]
"""The reader and the writer of a mode."""

_MOST_TEXT = 200
"""Characters of a value in a message."""

_ROUNDS = 3


def _attribute(holder: Any, name: str) -> Mode:
    def read() -> Snapshot:
        return Snapshot(getattr(holder, name), {})

    def write(snapshot: Snapshot) -> None:
        snapshot.restore()
        if getattr(holder, name, None) is not snapshot.value:
            setattr(holder, name, snapshot.value)

    return read, write


def _default_device() -> Any:
    return getattr(getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None), "device", None)


def _autocast(device: str) -> Mode:
    def write(state: tuple[bool, Any]) -> None:
        torch.set_autocast_enabled(device, state[0])
        torch.set_autocast_dtype(device, state[1])

    return lambda: (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)), write


def _sdp(name: str) -> Mode:
    return getattr(torch.backends.cuda, f"{name}_sdp_enabled"), getattr(
        torch.backends.cuda, f"enable_{name}_sdp"
    )


_IGNORING_TRACING = True
_HALF = 0.5
"""A name, so that Python does not compute the product when it compiles the code."""

GLOBAL = "global "
"""How the names of globals of the spec's Python begin."""

_MODES: Mapping[str, Mode] = {
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
    "torch functions": (
        torch._C._get_torch_function_state,
        torch._C._set_torch_function_state,
    ),  # __torch_function__ of subclasses
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
    "matmul precision": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "flushing of subnormal numbers": (
        lambda: sys.float_info.min * _HALF == 0,
        torch.set_flush_denormal,
    ),
    "threads of autograd": (
        torch._C._is_multithreading_enabled,
        torch._C._set_multithreading_enabled,
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
    "filling of new memory": (
        torch._C._get_deterministic_fill_uninitialized_memory,
        torch._C._set_deterministic_fill_uninitialized_memory,
    ),
    "oneDNN": (
        lambda: torch.backends.mkldnn.enabled,
        functools.partial(setattr, torch.backends.mkldnn, "enabled"),
    ),
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
"""Modes of a process that change what later calls compute. Compiled code must leave each as eager
does. A mode whose writer does nothing is only reported."""


class Modes:
    """The modes at one time."""

    def __init__(self, holders: Iterable[Any] = ()) -> None:
        """Attributes of ``holders``, which are classes, functions and modules (of their globals),
        count as modes.
        """
        self._modes = dict(_MODES)
        self._names: list[tuple[Any, set[str]]] = []
        # an enumeration keeps the members that calls make
        for number, holder in enumerate(
            holder for holder in holders if not isinstance(holder, enum.EnumMeta)
        ):
            is_module = isinstance(holder, ModuleType)
            self._names.append((holder, set(vars(holder))))
            for name, value in vars(holder).items():
                if not name.startswith(("__", *OF_TORCH)) and Snapshot(value, {}).is_known:
                    # each function of a spec has globals of its own
                    key = (
                        f"{GLOBAL}{name}{f' ({number})' if number else ''}"
                        if is_module
                        else f"{holder.__qualname__}.{name}"
                    )
                    self._modes[key] = _attribute(holder, name)
            is_own = (
                isinstance(holder, FunctionType)
                and holder.__globals__.get("__name__") == holder.__module__
            )  # no decorator of torch
            for name, cell in (
                zip(holder.__code__.co_freevars, holder.__closure__ or (), strict=True)
                if is_own
                else ()
            ):
                with contextlib.suppress(ValueError):  # a cell that is not filled yet
                    if Snapshot(cell.cell_contents, {}).is_known:
                        self._modes[f"{holder.__qualname__}<{name}>"] = _attribute(
                            cell, "cell_contents"
                        )
        self._values: dict[str, Any] = {}
        for name, (read, _) in self._modes.items():
            with contextlib.suppress(AttributeError, ImportError, RuntimeError):
                # this torch does not have it
                self._values[name] = read()

    def restore(self) -> None:
        """Set every mode to its value of that time; one that torch cannot set, such as the
        inference mode, stays.
        """
        for holder, names in self._names:
            new = [name for name in vars(holder) if name not in names]
            for name in [name for name in new if not name.startswith(("__", *OF_TORCH))]:
                # those are torch's
                delattr(holder, name)
        # several rounds: writing one mode of torch can change the value of another
        for _ in range(_ROUNDS):
            for name, state in self._values.items():
                with contextlib.suppress(Exception):
                    # a case may have broken the reader or the writer
                    read, write = self._modes[name]
                    if not _same(read(), state):
                        write(state)

    def other_than(self, other: "Modes", before: "Modes | None" = None) -> list[dict[str, str]]:
        """Return the modes that two calls left otherwise, each with both values: those of this one
        are the eager ones.

        Globals and attributes of classes are compared only where eager changed their value of
        ``before``: a backend, a pass or a hook of the compiler, which eager does not call, may
        count in others.
        """
        created = [
            name
            for name in self._values
            if before is not None and name not in before._values and name not in _MODES
        ]
        names = [
            name
            for name in self._values
            if name in other._values and (name in _MODES or not self._is_as(before, name))
        ]
        others = [name for name in created if name not in other._values]
        for name in names:
            ours, theirs = other._values[name], self._values[name]
            begun = None if before is None else before._values.get(name)
            if (
                ours.is_other(theirs, begun)
                if isinstance(ours, Snapshot)
                else not _same(ours, theirs)
            ):
                others.append(name)
        texts = [
            {
                "name": name,
                "eager": self._values[name],
                "compiled": other._values.get(name, "absent"),
            }
            for name in others
        ]
        return [
            {
                key: str(value) if key == "name" else str(value)[:_MOST_TEXT]
                for key, value in text.items()
            }
            for text in texts
        ]

    def changed_since(self, before: "Modes") -> list[str]:
        """Return the names of the modes that were otherwise before."""
        return [
            name
            for name in self._values
            if name not in before._values or not self._is_as(before, name)
        ]

    def _is_as(self, before: "Modes | None", name: str) -> bool:
        return (
            before is None
            or name not in before._values
            or _same(before._values[name], self._values[name])
        )
