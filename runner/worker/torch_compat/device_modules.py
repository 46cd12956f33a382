"""Devices: what torch says of each kind of accelerator, and the module that registers a vendor's."""

import contextlib
import importlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch

from runner.model import devices
from runner.model.devices import VendorDevice
from runner.vocabulary.steps.bench import timed_on_host

GeneratorState = tuple[torch.Tensor, dict[str, list[torch.Tensor]]]
"""The state of the CPU's generator, and those of the accelerators' generators by module."""


_OF_VENDORS: dict[str, devices.Accelerator] = {}
"""The kinds of device that modules of vendors have registered in this process."""


def register(vendor: devices.VendorDevice) -> None:
    """Import the module of a vendor, which registers its device; raise what it raises, or ``ImportError`` if torch lacks the device then.

    A worker does that before the first case for the device, after the fork. The device's functions are those of ``torch.KIND``.
    """
    importlib.import_module(vendor.module)
    try:
        torch.device(vendor.kind)
    except RuntimeError as error:
        raise ImportError(f"{vendor.module} was imported, and torch has no device '{vendor.kind}'") from error
    missing = [name for name in REQUIRED if not hasattr(getattr(torch, vendor.kind, None), name)]
    if missing:
        raise ImportError(f"{vendor.module} was imported, and torch.{vendor.kind} has no {', '.join(missing)}")
    _OF_VENDORS[vendor.kind] = devices.Accelerator(module=vendor.kind, builds=(), nodes=(), activity="PrivateUse1")


REQUIRED = ("is_available", "device_count", "synchronize")
"""What the module of a vendor's device must have. All else is used where it is there."""


def modules() -> Iterator[tuple[devices.Accelerator, Any]]:
    """Yield each kind of accelerator that this torch has a module for, and that module."""
    for accelerator in (*devices.ACCELERATORS.values(), *_OF_VENDORS.values()):
        module = getattr(torch, accelerator.module, None)
        if module is not None:
            yield accelerator, module


def _is_initialized(module: Any) -> bool:
    # a vendor's module without the question is used from its import on
    return bool(getattr(module, "is_initialized", lambda: True)())


def danger_of_fork() -> str:
    """Return why a fork of this process is not safe because of an accelerator that it or its parent has used; empty when it is safe."""
    for accelerator, module in modules():
        if _is_initialized(module):
            return f"the zygote has a {accelerator.activity} context"
        if getattr(module, "_is_in_bad_fork", bool)():
            return f"the zygote cannot pass {accelerator.activity} on to a fork"
    return ""


def visible() -> list[Any]:
    """Return torch's properties of the accelerators of the first kind that is available; empty where none is."""
    for _, module in modules():
        if module.is_available() and (count := module.device_count()):
            return [module.get_device_properties(index) for index in range(count)]
    return []


def generator_state() -> GeneratorState:
    """Return the state of every generator."""
    # a vendor's module may lack the functions
    states = {
        accelerator.module: module.get_rng_state_all()
        for accelerator, module in modules()
        if _is_initialized(module) and hasattr(module, "get_rng_state_all") and hasattr(module, "set_rng_state_all")
    }
    return torch.get_rng_state(), states


def restore_generators(state: GeneratorState) -> None:
    """Restore every generator to a state from ``generator_state``."""
    torch.set_rng_state(state[0])
    for accelerator, module in modules():
        if states := state[1].get(accelerator.module):
            module.set_rng_state_all(states)


@dataclass(frozen=True)
class DeviceApi:
    """Torch's functions of the device of a case."""

    name: str

    @property
    def _accelerator(self) -> devices.Accelerator | None:
        kind = devices.kind_of(self.name)
        return devices.ACCELERATORS.get(kind) or _OF_VENDORS.get(kind)

    @property
    def _module(self) -> Any:
        return None if self._accelerator is None else getattr(torch, self._accelerator.module)

    @property
    def activities(self) -> list[str]:
        """The names of the profiler activities."""
        return ["CPU", *([] if self._accelerator is None else [self._accelerator.activity])]

    def synchronize(self) -> None:
        """Wait for all work on the device; raise the error of a kernel that failed."""
        if self._module is not None:
            self._module.synchronize()  # a kernel's error must be raised in the step that launched it

    def timed(self, run: Callable[[], None]) -> float:
        """Return the time of a call in milliseconds, by events of the device where it is an accelerator."""
        if self._module is None:
            return timed_on_host(run)
        if not hasattr(self._module, "Event"):

            def run_whole() -> None:
                run()
                self.synchronize()

            return timed_on_host(run_whole)
        begun, ended = (self._module.Event(enable_timing=True) for _ in range(2))
        self._module.synchronize()
        begun.record()
        run()
        ended.record()
        self._module.synchronize()
        return float(begun.elapsed_time(ended))


_SECONDS = 240.0
"""How long the import of a vendor's module and the look at its devices may take."""

_BYTES = 2000

HOLDS = "returned True"
"""The answer where there is a device, in the words of predicates."""


def answer(question: str, seconds: float = _SECONDS) -> str:
    """Return ``HOLDS`` where torch sees a device, else the reason, from a fork of this process."""
    forks = multiprocessing.get_context("fork")
    mine, theirs = forks.Pipe(duplex=False)
    child = forks.Process(target=_look, args=(question, theirs))
    child.start()
    theirs.close()
    assert child.pid is not None
    try:
        if not mine.poll(seconds):
            return f"the import of its module did not end within {seconds:.0f} s"
        return mine.recv_bytes(_BYTES).decode("utf-8", "replace")
    except (EOFError, OSError):
        return "the process that imported its module ended without an answer"
    finally:
        mine.close()
        with contextlib.suppress(OSError):  # its children too
            os.killpg(child.pid, signal.SIGKILL)
        child.kill()
        child.join()


def _look(question: str, pipe: Connection) -> None:
    os.setsid()
    pipe.send_bytes(_looked(question).encode("utf-8", "replace")[:_BYTES])
    os._exit(0)  # what the module registered for the end of the process does not run


def _looked(question: str) -> str:
    vendor = VendorDevice.parse(question)
    try:
        register(vendor)
        module = getattr(torch, vendor.kind)
        if not module.is_available():
            return f"torch.{vendor.kind}.is_available() returned False"
        return HOLDS if module.device_count() > 0 else f"torch.{vendor.kind}.device_count() returned 0"
    except BaseException as error:  # a vendor's module may raise anything, also SystemExit; the answer says what
        return f"its import raised {type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"[:300]
