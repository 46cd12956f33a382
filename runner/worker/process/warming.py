"""What every first compile of a process does once, done before a case needs it: in the template, or in a worker that waits for its case.

What is compiled here is forgotten again. What stays is what torch imports, registers and asks the compiler once a process: a worker's
first compile then takes what its second would have.
"""

import functools
import gc
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import torch

from runner.worker.process import registered
from runner.worker.torch_compat import counting, output_folders, resets

_ONCE = functools.cache(lambda: None)
_CACHE_TYPE = type(_ONCE)

_ANSWERS_OF_THE_COMPILER = ("torch._inductor.cpp_builder", "torch._inductor.cpu_vec_isa")
"""Modules whose caches hold what the C++ compiler of this machine answered; their keys hold what was asked."""

_ANSWERS_OF_FILES = ("_precompile_header", "triton_key")
"""Functions whose caches hold what was made from installed files: torch's headers, Triton's sources."""


def compile_something(device: str, *, with_gradients: bool) -> str:
    """Compile and run small functions on a device, and forget them; return what torch raised meanwhile, which the next case will see too.

    Tracing gradients starts torch's autograd, which asks every driver that torch is built for: nothing for a process that is forked from.
    """
    before, counters = cache_sizes(), registered.Counters()
    problem = ""
    try:
        with tempfile.TemporaryDirectory() as folder, output_folders.cache_folder(folder):
            _compile(device, with_gradients=with_gradients)
    except Exception as error:  # without a compiler that works there is nothing to do beforehand
        problem = f"{type(error).__name__}: {error}"
    _forget(before, counters)
    return problem


def _forget(before: dict[int, int], counters: registered.Counters) -> None:
    resets.reset_dynamo()
    resets.reset_inductor()
    counting.clear_counters()
    counting.clear_metrics()
    resets.forget_compiles()
    forget_answers(before)
    gc.collect()
    counters.set_back(also_names=True)


def trace_something() -> None:
    """Let dynamo and AOTAutograd trace small functions, and forget them: asks no device, registers no pattern and builds nothing."""
    before, counters = cache_sizes(), registered.Counters()
    with torch.no_grad():
        torch.compile(_pointwise, backend="aot_eager")(torch.rand(8, 8), torch.rand(8))
        torch.compile(_calls, backend="eager")(torch.rand(4, 4))
    _forget(before, counters)


def _compile(device: str, *, with_gradients: bool) -> None:
    for function, shapes, wants_gradients in _EXAMPLES:
        if wants_gradients and not with_gradients:
            continue
        arguments = [torch.rand(shape, device=device, requires_grad=wants_gradients) for shape in shapes]
        with torch.set_grad_enabled(wants_gradients):
            torch.compile(function)(*arguments)
        resets.reset_dynamo()
    # what is called in it makes dynamo import what it knows of functions; no kernel is built for that
    torch.compile(_calls, backend="eager")(torch.rand(4, 4, device=device))


def _pointwise(x: Any, y: Any) -> Any:
    return (x * 2 + 1).relu(), (x.sum(1) + y.mean()).softmax(0)


def _product(x: Any, y: Any) -> Any:
    return (x @ y).sin()


def _calls(x: Any) -> Any:
    parts = [torch.nn.functional.relu(x), _helper(x, factor=2)]
    torch._dynamo.graph_break()
    return {"sum": sum(parts), "shape": x.shape}


def _helper(x: Any, *, factor: int) -> Any:
    return x * factor


_EXAMPLES: tuple[tuple[Callable[..., Any], tuple[tuple[int, ...], ...], bool], ...] = (
    (_pointwise, ((8, 8), (8,)), False),
    # its backward is traced, and compiled only where it is run: that would start autograd's threads
    (_product, ((4, 4), (4, 4)), True),
)
"""Functions, the shapes of their arguments, and whether those want gradients."""


def cache_sizes() -> dict[int, int]:
    """Return how much each of functools' caches holds, by the identity of the cache."""
    return {id(found): found.cache_info().currsize for found in _caches()}


_frozen: list[Any] = []
"""The caches that were there when the heap was frozen: the collector does not show them any more."""


def _caches() -> Iterator[Any]:
    # isinstance would ask proxies for their class, and a dead one raises
    yield from _frozen
    yield from (found for found in gc.get_objects() if type(found) is _CACHE_TYPE)


def forget_answers(before: dict[int, int]) -> None:
    """Empty what was cached since, where it may depend on options, variables or devices, which the next case sets otherwise."""
    for cache in list(_caches()):
        if cache.cache_info().currsize > before.get(id(cache), 0) and not _may_stay(cache):
            cache.cache_clear()


def _may_stay(cache: Any) -> bool:
    module, name = str(getattr(cache, "__module__", "")), str(getattr(cache, "__qualname__", ""))
    if not module.startswith(("torch.", "triton.")):
        return True
    return module in _ANSWERS_OF_THE_COMPILER or name in _ANSWERS_OF_FILES or _was_for_effect(cache)


def _was_for_effect(cache: Any) -> bool:
    """Whether every call returned nothing: it registered something, and would register it again. One that warns once is to warn again."""
    if "warn" in str(getattr(cache, "__qualname__", "")):
        return False
    values = [value for held in gc.get_referents(cache) if isinstance(held, dict) and held is not vars(cache) for value in held.values()]
    return bool(values) and all(value is None for value in values)


def freeze() -> None:
    """Move what is alive to a generation that is never collected: a worker would copy its pages only to look through them."""
    gc.collect()
    _frozen.extend(list(_caches()))
    gc.freeze()
