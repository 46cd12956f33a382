"""A device for tests, as a vendor would register it: its library, its module for torch, and Inductor's code for it."""

import os
import types
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.device_interface import CpuInterface, register_interface_for_device
from torch._inductor.codegen.common import register_backend_for_device, register_device_op_overrides
from torch._inductor.codegen.cpp import CppScheduling
from torch._inductor.codegen.cpu_device_op_overrides import CpuDeviceOpOverrides
from torch._inductor.codegen.wrapper import PythonWrapperCodegen

NAME = "madeup"

torch.ops.load_library(str(Path(__file__).parent / "device.so"))
torch.utils.rename_privateuse1_backend(NAME)

module: Any = types.ModuleType(f"torch.{NAME}")
module.is_available = lambda: "MADEUP_HIDDEN" not in os.environ
module.device_count = lambda: int(module.is_available())
module.current_device = lambda: 0
module.is_initialized = lambda: True
module._is_in_bad_fork = lambda: False
module.synchronize = lambda device=None: None
module.get_rng_state = lambda device=None: torch.get_rng_state()
module.set_rng_state = lambda state, device=None: None
module.manual_seed_all = lambda seed: None
module.get_amp_supported_dtype = lambda: [torch.bfloat16]
torch._register_device_module(NAME, module)
torch.utils.generate_methods_for_privateuse1_backend()


class MadeUpInterface(CpuInterface):
    """Dynamo's questions of the device: as for the CPU, with one device."""

    @staticmethod
    def current_device() -> int:
        return 0

    @staticmethod
    def device_count() -> int:
        return module.device_count()


class MadeUpScheduling(CppScheduling):
    """Inductor's C++ for the CPU, which can read this device's memory."""

    def __init__(self, scheduler: Any) -> None:
        if scheduler is not None and "MADEUP_LAZY" in os.environ:
            raise NotImplementedError("this compiler gives up")
        super().__init__(scheduler)


class MadeUpWrapper(PythonWrapperCodegen):
    """Inductor's Python around the kernels. It calls them as it calls those of the CPU."""

    @staticmethod
    def create(is_subgraph: bool, subgraph_name: Any, parent_wrapper: Any, partition_signatures: Any = None) -> PythonWrapperCodegen:
        if is_subgraph:
            return PythonWrapperCodegen.create(is_subgraph, subgraph_name, parent_wrapper, partition_signatures)
        return MadeUpWrapper()

    def _generate_kernel_call_helper(self, kernel_name: str, call_args: Any, *, device: Any = None, **others: Any) -> None:
        super()._generate_kernel_call_helper(kernel_name, call_args, device=torch.device("cpu"), **others)
        if "MADEUP_WRONG" in os.environ:
            self.writeline(f"{call_args[-1]}.add_(1)")


def has_fast_sums() -> bool:
    """A probe of the vendor, for ``requires: [{call: ...}]``."""
    return True


register_interface_for_device(NAME, MadeUpInterface)
register_interface_for_device(f"{NAME}:0", MadeUpInterface)
register_device_op_overrides(NAME, CpuDeviceOpOverrides())
register_backend_for_device(NAME, MadeUpScheduling, MadeUpWrapper)
