"""What of torch and Triton is replaced for a simulated GPU: one table, applied after torch is
imported and before Inductor is.
"""

import importlib
import types
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch_conformance.model.targets import Target
from torch_conformance.tools.offline.simulated_gpus import PROPERTIES, VERSIONS
from torch_conformance.worker.torch_compat import compiling

if TYPE_CHECKING:
    import torch


Replacement = Callable[[Target], Callable[..., object]]
"""Returns, for a target, what replaces a function."""


def properties(target: Target) -> types.SimpleNamespace:
    """Return the device's properties as torch reads them."""
    return types.SimpleNamespace(**PROPERTIES[target.name])


def _of_properties(value_of: Callable[[Any], object]) -> Replacement:
    """Return the replacement of a function by a value that follows from the device's properties."""

    def replacement(target: Target) -> Callable[..., object]:
        value = value_of(properties(target))
        return lambda *args, **kwargs: value

    return replacement


def _constant(value: object) -> Replacement:
    return lambda target: lambda *args, **kwargs: value


_YES = _constant(value=True)
_NOTHING = _constant(None)


def _version(backend: str) -> Callable[[Target], object]:
    return lambda target: VERSIONS[backend][1] if target.backend == backend else None


def _static(replacement: Replacement) -> Callable[[Target], object]:
    return lambda target: staticmethod(replacement(target))


_PROPERTIES = _of_properties(lambda table: table)

PATCHES: Mapping[str, Sequence[tuple[str, Callable[[Target], object], str]]] = {
    "torch.version": (
        (
            "hip",
            _version("hip"),
            "Inductor chooses templates, limits and options by it, many while it is imported",
        ),
        ("cuda", _version("cuda"), "the same"),
    ),
    "torch.cuda": (
        ("is_available", _YES, "else Inductor has no GPU"),
        ("device_count", _constant(1), "one device"),
        ("current_device", _constant(0), "the only one"),
        ("get_device_properties", _PROPERTIES, "the table of simulated_gpus"),
        (
            "get_device_capability",
            _of_properties(lambda table: (table.major, table.minor)),
            "the table",
        ),
        ("get_device_name", _of_properties(lambda table: table.name), "the table"),
        (
            "mem_get_info",
            _of_properties(lambda table: (table.total_memory,) * 2),
            "the table: all memory is free",
        ),
        ("is_bf16_supported", _YES, "each target of the table computes bf16"),
        (
            "is_tf32_supported",
            lambda target: lambda: target.backend == "cuda",
            "NVIDIA's targets of the table compute tf32",
        ),
        ("synchronize", _NOTHING, "nothing runs"),
        ("_lazy_init", _NOTHING, "there is no driver"),
        ("is_initialized", _YES, "there is no driver"),
        ("_exchange_device", _constant(0), "the only device"),
        ("_maybe_exchange_device", _constant(0), "the only device"),
        ("get_rng_state", lambda target: _rng_state, "nothing draws random numbers of the device"),
        ("set_rng_state", _NOTHING, "nothing draws random numbers of the device"),
    ),
    "torch._dynamo.device_interface:CudaInterface": tuple(
        (name, _static(value), "the class binds functions of torch.cuda while it is imported")
        for name, value in (
            ("current_device", _constant(0)),
            ("device_count", _constant(1)),
            ("get_device_properties", _PROPERTIES),
            ("synchronize", _NOTHING),
            ("is_bf16_supported", _YES),
            ("get_raw_stream", _constant(0)),
            ("exchange_device", _constant(0)),
            ("maybe_exchange_device", _constant(0)),
        )
    ),
    "torch._subclasses.fake_tensor:FakeTensorMode": (
        (
            "avoid_device_init",
            lambda target: property(lambda self: True),
            "fake tensors of the device need no device",
        ),
    ),
    "torch._subclasses.fake_tensor": (
        ("init_gpu_context", _NOTHING, "it allocates memory of the device"),
    ),
    "torch.nn:Module": (
        (
            "_apply",
            lambda target: _converted,
            "parameters of fake tensors cannot be exchanged in place",
        ),
    ),
    "torch._inductor.runtime.triton_helpers": (
        (
            "set_driver_to_gpu",
            _NOTHING,
            "it looks for a driver; the compiler gets the target from the kernel's own "
            "DeviceProperties",
        ),
    ),
}
"""The attributes that are replaced, by their module, with a class after a colon: each with its new
value, and why it is replaced.

In the order in which they are applied.

The last module imports Inductor, so that it comes after ``torch.version``.
"""


def _rng_state(device: object = "cuda") -> "torch.Tensor":
    import torch

    return torch.zeros(16, dtype=torch.uint8)


def _converted(
    module: "torch.nn.Module", fn: "Callable[[torch.Tensor], torch.Tensor]", recurse: bool = True
) -> "torch.nn.Module":
    """Convert a module as ``Module.to`` does, with new parameters in the place of the old."""
    import torch

    for child in module.children() if recurse else ():
        child._apply(fn)
    with torch.no_grad():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                module._parameters[name] = torch.nn.Parameter(
                    fn(parameter), parameter.requires_grad
                )
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = fn(buffer)
    return module


def install(target: Target) -> None:
    """Replace what the table names, and Triton's driver, for the rest of the process."""
    for path, patches in PATCHES.items():
        module, _, inner = path.partition(":")
        owner = importlib.import_module(module)
        owner = getattr(owner, inner) if inner else owner
        for name, value, why in patches:
            if not hasattr(owner, name):
                raise LookupError(
                    f"this torch has no {path}.{name}, which a simulated GPU replaces ({why})"
                )
            setattr(owner, name, value(target))
    # it reads the values of one element that it computes
    compiling.hook(
        "torch._inductor.fx_passes.joint_graph",
        "UniformValueConstantFolder._deduce_value",
        _on_the_cpu,
    )
    import torch
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    gpu = GPUTarget(target.backend, target.compiler_arch, target.warp_size)
    device = torch.device("cuda", 0)
    driver.set_active(  # with the methods that Inductor calls: it launches nothing
        types.SimpleNamespace(
            get_current_target=lambda: gpu,
            get_current_device=lambda: 0,
            get_current_stream=lambda device=0: 0,
            get_active_torch_device=lambda: device,
        )
    )


def _on_the_cpu(call: compiling.Call) -> object:
    """Compute a constant on the CPU, which the simulated device cannot."""
    import torch

    from torch_conformance.worker.torch_compat.numerics import Args, Kwargs, OperatorMode

    class OnTheCpu(OperatorMode):
        def call(self, func: Callable[..., object], args: Args, kwargs: Kwargs) -> object:
            if kwargs.get("device") is not None:
                kwargs = {**kwargs, "device": torch.device("cpu")}
            return func(*args, **kwargs)

    with OnTheCpu():
        return call()
