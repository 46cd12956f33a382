"""Random number generators before and after a call, compiled and eager."""

import pickle
import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from runner.worker.torch_compat import compiling, devices

PYTHON = "python"
"""The generator of the module ``random``. Dynamo runs its functions as Python does."""

NUMPY = "numpy"
"""The global generator of numpy. Dynamo replaces its functions by those of torch, unless ``use_numpy_random_stream`` is set."""


@dataclass(frozen=True)
class Generators:
    """The state of each generator at one time."""

    torch: devices.GeneratorState
    python: object
    numpy: Mapping[str, Any] | None
    """None where numpy is not imported."""

    @classmethod
    def now(cls) -> "Generators":
        """Return the current states."""
        numpy = sys.modules.get("numpy.random")
        return cls(devices.generator_state(), random.getstate(), None if numpy is None else numpy.get_state(legacy=False))

    def restore(self) -> None:
        """Set every generator to its state of that time."""
        devices.restore_generators(self.torch)
        random.setstate(self.python)  # type: ignore[arg-type]  # what getstate returned
        if self.numpy is not None:
            sys.modules["numpy.random"].set_state(self.numpy)

    def named(self) -> dict[str, Any]:
        """Return the states by the generators' names."""
        cpu, accelerators = self.torch
        found = {f"{module}:{index}": state for module, states in accelerators.items() for index, state in enumerate(states)}
        return {"cpu": cpu, **found, PYTHON: self.python, **({} if self.numpy is None else {NUMPY: pickle.dumps(self.numpy)})}

    def differs_from(self, other: "Generators") -> bool:
        """Whether a generator that both have has another state."""
        mine, theirs = self.named(), other.named()
        return any(name in theirs and not _same(state, theirs[name]) for name, state in mine.items())


def reseed(seed: int) -> None:
    """Set the generators of torch, of ``random`` and, where it is imported, of numpy to a seed."""
    torch.manual_seed(seed)
    random.seed(seed)
    if (numpy := sys.modules.get("numpy.random")) is not None:
        numpy.seed(seed % 2**32)


def compared(before: Generators, eager: Generators, compiled: Generators, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the facts of each generator; a generator of an accelerator that was not used before the call is left out.

    ``exact`` is whether the compiled function must leave the state of eager. Unless ``fallback_random`` is set, inductor draws one seed for
    all random operators of a graph, and removes unused ones: then only a generator that eager does not use can be compared. The same holds
    for numpy's.
    """
    states = [one.named() for one in (before, eager, compiled)]
    exact = draws_as_eager(settings)
    found = []
    for name in (name for name in states[0] if all(name in state for state in states)):
        first, theirs, ours = (state[name] for state in states)
        facts = {"eager_advanced": not _same(first, theirs), "compiled_advanced": not _same(first, ours), "same": _same(theirs, ours)}
        found.append({"name": name, "exact": name != NUMPY and (exact or name == PYTHON), **facts})
    return found


def draws_as_eager(settings: Mapping[str, Any]) -> bool:
    """Whether code that is compiled with the arguments ``settings`` of ``torch.compile`` draws its random numbers as eager does."""
    if settings.get("backend", "inductor") != "inductor":
        return True
    options = settings.get("options") or {}
    return bool(options.get("fallback_random", compiling.falls_back_for_random()))


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return bool(torch.equal(one, other))
    return bool(one == other)
