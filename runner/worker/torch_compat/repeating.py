"""Compiled code changed for an additional call: poisoned memory, and one candidate of autotuning."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from runner.vocabulary.expectations.additional_calls import Poison


@contextlib.contextmanager
def only(number: int) -> Iterator[list[list[str]]]:
    """Compile anew within the context; each autotuning may choose only the candidate ``number``, counted from 0.

    An autotuning with fewer candidates counts on from its first. The context has the names of all candidates of each autotuning, the chosen
    one first. Caches are off: the result of another candidate must not be found.
    """
    import torch._dynamo
    from torch._inductor import config, select_algorithm

    seen: list[list[str]] = []

    def choose(choices: list[Any]) -> list[Any]:
        if not choices:
            return choices
        chosen = choices[number % len(choices)]
        seen.append([str(choice.name) for choice in (chosen, *(choice for choice in choices if choice is not chosen))])
        return [chosen]

    functions = select_algorithm.get_algorithm_selector_cache().preprocessing_fns
    functions.append(choose)
    torch._dynamo.reset()
    try:
        with config.patch(force_disable_caches=True):
            yield seen
    finally:
        functions.remove(choose)
        torch._dynamo.reset()


_ALLOCATORS = (
    "empty_strided",
    "empty_strided_cpu",
    "empty_strided_cpu_pinned",
    "empty_strided_cuda",
    "empty_strided_xpu",
    "empty_strided_mtia",
)
"""The names in a generated module of the functions that allocate its buffers."""

BYTE = 255
"""NaN for every float, -1 for signed integers, the greatest number for others."""


@contextlib.contextmanager
def poisoned() -> Iterator[Poison]:
    """Fill each buffer that a loaded generated module allocates.

    Memory that kernels and operators of ATen allocate themselves, and that of ``cpp_wrapper``, is not reached.
    """
    from torch._inductor.codecache import PyCodeCache

    poison = Poison()
    replaced: list[tuple[Any, str, Any]] = []
    try:
        for module in list(PyCodeCache.modules):
            for name in _ALLOCATORS:
                if (original := vars(module).get(name)) is not None:
                    replaced.append((module, name, original))
                    setattr(module, name, functools.partial(_filled, original, poison))
        yield poison
    finally:
        for module, name, original in replaced:
            setattr(module, name, original)


def _filled(allocate: Callable[..., torch.Tensor], poison: Poison, *args: Any, **kwargs: Any) -> torch.Tensor:
    tensor = allocate(*args, **kwargs)
    storage = tensor.untyped_storage()
    if storage.nbytes():
        torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage).fill_(BYTE)
    poison.allocations += 1
    poison.bytes += storage.nbytes()
    return tensor
