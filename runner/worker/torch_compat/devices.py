"""What is asked of torch about devices: each function works for every kind in ``core/devices.py``."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from runner.core import devices
from runner.vocabulary.steps.bench import timed_on_host

GeneratorState = tuple[torch.Tensor, dict[str, list[torch.Tensor]]]
"""State of the generator of the CPU, and of those of accelerators by module."""


def modules() -> Iterator[tuple[devices.Accelerator, Any]]:
    """Yield the module of torch for each kind of accelerator that it knows."""
    for accelerator in devices.ACCELERATORS.values():
        module = getattr(torch, accelerator.module, None)
        if module is not None:
            yield accelerator, module


def _initialized() -> Iterator[tuple[devices.Accelerator, Any]]:
    """Yield the modules of accelerators that this process has used."""
    yield from ((accelerator, module) for accelerator, module in modules() if module.is_initialized())


def used() -> str:
    """Return the name of an accelerator that this process has used; empty where it has used none."""
    return next((accelerator.activity for accelerator, _ in _initialized()), "")


def refused_to_forks() -> str:
    """Return the name of an accelerator that this process, a fork, cannot use because it was used before; empty where there is none."""
    in_bad_fork = (one for one, module in modules() if hasattr(module, "_is_in_bad_fork") and module._is_in_bad_fork())
    return next((accelerator.activity for accelerator in in_bad_fork), "")


def visible() -> list[Any]:
    """Return the properties of each accelerator that torch sees, of the first kind of which there is one."""
    for _, module in modules():
        if module.is_available() and (count := module.device_count()):
            return [module.get_device_properties(index) for index in range(count)]
    return []


def synchronize_all() -> None:
    """Wait until every accelerator that was used has done all it was given."""
    for _, module in _initialized():
        module.synchronize()


def allocated() -> int:
    """Return how many bytes of accelerators' memory this process holds."""
    return sum(int(module.memory_allocated()) for _, module in _initialized())


def has_other_stream() -> bool:
    """Whether another stream than the default one is current."""
    streams = [module for _, module in _initialized() if hasattr(module, "default_stream")]
    return any(module.current_stream() != module.default_stream() for module in streams)


def free_memory() -> None:
    """Give back what torch keeps of accelerators' memory although nothing uses it."""
    for accelerator, module in _initialized():
        clear_workspaces = getattr(torch._C, f"_{accelerator.module}_clearCublasWorkspaces", None)
        if clear_workspaces is not None:
            clear_workspaces()
        module.empty_cache()


def generator_state() -> GeneratorState:
    """Return the state of every generator."""
    return torch.get_rng_state(), {one.module: module.get_rng_state_all() for one, module in _initialized()}


def restore_generators(state: GeneratorState) -> None:
    """Set every generator to a state that it had."""
    torch.set_rng_state(state[0])
    for accelerator, module in modules():
        if held := state[1].get(accelerator.module):
            module.set_rng_state_all(held)


@dataclass(frozen=True)
class DeviceApi:
    """What torch is asked about the device of a case."""

    name: str

    @property
    def _accelerator(self) -> devices.Accelerator | None:
        return devices.ACCELERATORS.get(devices.kind_of(self.name))

    @property
    def _module(self) -> Any:
        return None if self._accelerator is None else getattr(torch, self._accelerator.module)

    @property
    def activities(self) -> list[str]:
        """The names of what a profiler records."""
        return ["CPU", *([] if self._accelerator is None else [self._accelerator.activity])]

    def synchronize(self) -> None:
        """Wait until the device has done all it was given."""
        if self._module is not None:
            self._module.synchronize()  # a kernel's error must be seen in the step that launched it

    def timed(self, run: Callable[[], None]) -> float:
        """Return how many milliseconds a call took, by the clock of the device where it has one."""
        if self._module is None:
            return timed_on_host(run)
        begun, ended = (self._module.Event(enable_timing=True) for _ in range(2))
        self._module.synchronize()
        begun.record()
        run()
        ended.record()
        self._module.synchronize()
        return float(begun.elapsed_time(ended))
