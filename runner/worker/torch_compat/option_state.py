"""Options of torch and of its compilers: set, copied, restored."""

import contextlib
import copy
import importlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any


def set_torch_state(state: Mapping[str, Any]) -> None:
    """Apply the ``torch:`` section of a spec; raise ``ValueError`` for an unknown name."""
    import torch

    for name, value in state.items():
        match name:
            case "float32_matmul_precision":
                torch.set_float32_matmul_precision(value)
            case "allow_tf32":
                torch.backends.cuda.matmul.allow_tf32 = value
                torch.backends.cudnn.allow_tf32 = value
            case "allow_fp16_reduced_precision_reduction":
                torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = value
                torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = value
            case "deterministic":
                torch.use_deterministic_algorithms(value)
            case "default_dtype":
                torch.set_default_dtype(getattr(torch, value))
            case "seed":
                pass  # used by the session, which seeds every generator
            case _:
                raise ValueError(f"no such torch state: {name}")


OPTIONS = {"config": "torch._inductor.config", "dynamo_config": "torch._dynamo.config", "functorch_config": "torch._functorch.config"}
"""Sections of options, and the modules that hold them."""


@contextlib.contextmanager
def patched_options(sections: Mapping[str, Mapping[str, Any]]) -> Iterator[None]:
    """Set options in this context; raise as torch raises for an unknown name."""
    with contextlib.ExitStack() as stack:
        for section, module in OPTIONS.items():
            options = dict(sections.get(section, {}))
            if options:
                stack.enter_context(importlib.import_module(module).patch(options))
        yield


def option_values() -> dict[tuple[str, str], Any]:
    """Return a copy of every option of all imported config modules, by module and name."""
    from torch.utils._config_module import ConfigModule

    modules = [(name, found) for name, found in list(sys.modules.items()) if issubclass(type(found), ConfigModule)]
    return {(module, name): value for module, found in modules for name, value in found.get_config_copy().items()}


def set_option(module: str, name: str, value: Any) -> None:
    """Set an option to a copy of a value."""
    setattr(sys.modules[module], name, copy.deepcopy(value))


def virtualized(handler: str, value: Any) -> contextlib.AbstractContextManager[Any]:
    """Return the context in which ``V.<handler>`` of inductor is ``value``."""
    from torch._inductor.virtualized import V

    made: contextlib.AbstractContextManager[Any] = getattr(V, f"set_{handler}_handler")(value)
    return made
