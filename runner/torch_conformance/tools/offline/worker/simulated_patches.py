"""What of torch and Triton is replaced for a simulated GPU: one table, applied after torch is
imported and before Inductor is.
"""

import importlib
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch_conformance.model.targets import Target
from torch_conformance.tools.offline.simulated_gpus import PROPERTIES, VERSIONS
from torch_conformance.worker.torch_compat import compiling


@dataclass(frozen=True, slots=True)
class Patch:
    """An attribute that is replaced, and why."""

    owner: str
    """The module, with a class after a colon."""
    name: str
    value: Callable[[Target], Any]
    why: str


def properties(target: Target) -> types.SimpleNamespace:
    """Return the device's properties as torch reads them."""
    return types.SimpleNamespace(**PROPERTIES[target.name])


def _of_properties(of: Callable[[Any], Any]) -> Callable[[Target], Any]:
    """Return the replacement of a function by a value that follows from the device's properties."""

    def replacement(target: Target) -> Any:
        value = of(properties(target))
        return lambda *args, **kwargs: value

    return replacement


def _constant(value: object) -> Callable[[Target], Any]:
    return lambda target: lambda *args, **kwargs: value


_YES = _constant(value=True)


def _version(backend: str) -> Callable[[Target], Any]:
    return lambda target: VERSIONS[backend][1] if target.backend == backend else None


def _static(of: Callable[[Target], Any]) -> Callable[[Target], Any]:
    return lambda target: staticmethod(of(target))


_PROPERTIES = _of_properties(lambda table: table)
_CUDA = "torch.cuda"
_INTERFACE = "torch._dynamo.device_interface:CudaInterface"

PATCHES: Sequence[Patch] = (
    Patch(
        "torch.version",
        "hip",
        _version("hip"),
        "Inductor chooses templates, limits and options by it, many while it is imported",
    ),
    Patch("torch.version", "cuda", _version("cuda"), "the same"),
    Patch(_CUDA, "is_available", _YES, "else Inductor has no GPU"),
    Patch(_CUDA, "device_count", _constant(1), "one device"),
    Patch(_CUDA, "current_device", _constant(0), "the only one"),
    Patch(_CUDA, "get_device_properties", _PROPERTIES, "the table of simulated_gpus"),
    Patch(
        _CUDA,
        "get_device_capability",
        _of_properties(lambda table: (table.major, table.minor)),
        "the table",
    ),
    Patch(_CUDA, "get_device_name", _of_properties(lambda table: table.name), "the table"),
    Patch(
        _CUDA,
        "mem_get_info",
        _of_properties(lambda table: (table.total_memory,) * 2),
        "the table: all memory is free",
    ),
    Patch(_CUDA, "is_bf16_supported", _YES, "each target of the table computes bf16"),
    Patch(
        _CUDA,
        "is_tf32_supported",
        lambda target: lambda: target.backend == "cuda",
        "NVIDIA's targets of the table compute tf32",
    ),
    Patch(_CUDA, "synchronize", _constant(None), "nothing runs"),
    Patch(_CUDA, "_lazy_init", _constant(None), "there is no driver"),
    Patch(_CUDA, "is_initialized", _YES, "there is no driver"),
    Patch(_CUDA, "_exchange_device", _constant(0), "the only device"),
    Patch(_CUDA, "_maybe_exchange_device", _constant(0), "the only device"),
    Patch(
        _CUDA,
        "get_rng_state",
        lambda target: _rng_state,
        "nothing draws random numbers of the device",
    ),
    Patch(_CUDA, "set_rng_state", _constant(None), "nothing draws random numbers of the device"),
    Patch(
        _INTERFACE,
        "current_device",
        _static(_constant(0)),
        "the class binds functions of torch.cuda while it is imported",
    ),
    Patch(_INTERFACE, "device_count", _static(_constant(1)), "the same"),
    Patch(_INTERFACE, "get_device_properties", _static(_PROPERTIES), "the same"),
    Patch(_INTERFACE, "synchronize", _static(_constant(None)), "the same"),
    Patch(_INTERFACE, "is_bf16_supported", _static(_YES), "the same"),
    Patch(_INTERFACE, "get_raw_stream", _static(_constant(0)), "the same"),
    Patch(_INTERFACE, "exchange_device", _static(_constant(0)), "the same"),
    Patch(_INTERFACE, "maybe_exchange_device", _static(_constant(0)), "the same"),
    Patch(
        "torch._subclasses.fake_tensor:FakeTensorMode",
        "avoid_device_init",
        lambda target: property(lambda self: True),
        "fake tensors of the device need no device",
    ),
    Patch(
        "torch._subclasses.fake_tensor",
        "init_gpu_context",
        _constant(None),
        "it allocates memory of the device",
    ),
    Patch(
        "torch.nn:Module",
        "_apply",
        lambda target: _moved,
        "parameters of fake tensors cannot be exchanged in place",
    ),
    Patch(
        "torch._inductor.runtime.triton_helpers",
        "set_driver_to_gpu",
        _constant(None),
        "it looks for a driver; the compiler gets the target from the kernel's own "
        "DeviceProperties",
    ),
)
"""In the order in which they are applied.

The last module imports Inductor, so that it comes after ``torch.version``.
"""


def _rng_state(device: object = "cuda") -> Any:
    import torch

    return torch.zeros(16, dtype=torch.uint8)


def _moved(module: Any, fn: Callable[[Any], Any], recurse: bool = True) -> Any:
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
    for patch in PATCHES:
        module, _, inner = patch.owner.partition(":")
        owner = importlib.import_module(module)
        owner = getattr(owner, inner) if inner else owner
        if not hasattr(owner, patch.name):
            raise LookupError(
                f"this torch has no {patch.owner}.{patch.name}, which a simulated GPU "
                f"replaces ({patch.why})"
            )
        setattr(owner, patch.name, patch.value(target))
    # it reads the values of one element that it computes
    compiling.hook(
        "torch._inductor.fx_passes.joint_graph",
        "UniformValueConstantFolder._deduce_value",
        _on_the_cpu,
    )
    import torch
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    gpu, device = (
        GPUTarget(target.backend, target.compiler_arch, target.warp_size),
        torch.device("cuda", 0),
    )
    driver.set_active(  # with the methods that Inductor calls: it launches nothing
        types.SimpleNamespace(
            get_current_target=lambda: gpu,
            get_current_device=lambda: 0,
            get_current_stream=lambda device=0: 0,
            get_active_torch_device=lambda: device,
        )
    )


def _on_the_cpu(original: Callable[..., Any], folder: object, node: object) -> Any:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class OnTheCpu(TorchDispatchMode):  # type: ignore[misc]  # torch has no types here
        def __torch_dispatch__(
            self, func: Any, types: object, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = dict(kwargs or {})
            if kwargs.get("device") is not None:
                kwargs["device"] = torch.device("cpu")
            return func(*args, **kwargs)

    with OnTheCpu():
        return original(folder, node)
