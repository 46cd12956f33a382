"""Hooks into compilation: phases, backends, graph breaks, generated code, timed choices."""

import contextlib
import functools
import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def name_lines(file: str, names: Mapping[int, str]) -> None:
    """Store the function of each line of a file in dynamo's cache. Otherwise dynamo parses the file as Python and may raise."""
    from torch._dynamo import funcname_cache

    funcname_cache.cache[file] = dict(names)


PHASES: tuple[tuple[str, str, str], ...] = (
    ("torch._inductor.graph", "GraphLowering.run", "lower"),
    ("torch._inductor.graph", "GraphLowering.codegen", "codegen"),
    ("torch._inductor.codecache", "PyCodeCache.load_by_key_path", "kernel build"),
    ("torch._inductor.async_compile", "AsyncCompile.wait", "kernel build"),
    ("torch._inductor.codecache", "AotCodeCompiler.compile", "kernel build"),
    ("torch._inductor.select_algorithm", "AlgorithmSelectorCache.__call__", "autotune"),
    ("torch._inductor.output_code", "CompiledFxGraph.__call__", "run"),
    ("torch.export.pt2_archive._package", "AOTICompiledModel.__call__", "run"),
)
"""Module, method, and the phase of a case during its calls."""


def hook(module: str, name: str, call: Callable[..., Any]) -> None:
    """Replace a function or a method of torch: ``call`` gets it, followed by the arguments. Raise ``AttributeError`` where there is none.

    Class methods and static methods remain such.
    """
    owner: Any = importlib.import_module(module)
    *parents, attribute = name.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    raw = vars(owner).get(attribute, getattr(owner, attribute))
    kind = type(raw) if isinstance(raw, classmethod | staticmethod) else None
    original = raw.__func__ if kind else raw

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return call(original, *args, **kwargs)

    setattr(owner, attribute, kind(wrapper) if kind else wrapper)


def compiled(function: Callable[..., Any], options: Mapping[str, Any]) -> tuple[Callable[..., Any], Any]:
    """Return ``torch.compile`` of a function, and the backend object with which dynamo will compile its frames (None if unknown)."""
    import torch._dynamo

    backends: list[Any] = []
    original = torch._dynamo.optimize

    def optimize(*args: Any, **kwargs: Any) -> Any:
        backends.append(kwargs["backend"] if "backend" in kwargs else args[0])
        return original(*args, **kwargs)

    torch._dynamo.optimize = optimize
    try:
        optimized = torch.compile(function, **options)
    finally:
        torch._dynamo.optimize = original
    return optimized, backends[-1] if backends else None


def has_ignored_mark(function: Callable[..., Any]) -> bool:
    """Whether a function is marked with ``torch.compiler.disable``, and ``torch.compile`` of it unwraps and compiles what was marked.

    Of methods, and of a module whose ``forward`` is marked, torch obeys the mark.
    """
    from torch._dynamo.eval_frame import DisableContext, innermost_fn

    is_marked = getattr(function, "_torchdynamo_disable", False) or isinstance(getattr(function, "dynamo_ctx", None), DisableContext)
    return is_marked and innermost_fn(function) is not function


def backend_calls() -> list[tuple[str, str]]:
    """Return the methods by which dynamo calls the backend objects that ``torch.compile`` makes."""
    import torch

    names = ("_TorchCompileInductorWrapper", "_TorchCompileAOTInductorWrapper", "_TorchCompileWrapper")
    return [("torch", f"{name}.__call__") for name in names if "__call__" in vars(getattr(torch, name, object))]


def compile_context() -> Any:
    """Return torch's context of the current compile, None outside. Torch enters it again when it compiles the backward later."""
    from torch._guards import CompileContext

    return CompileContext.try_get()


def is_graph_break(error: Exception) -> bool:
    """Whether an exception from the conversion of a frame is a graph break.

    At the recompile limit torch raises the same type. That is not a graph break, because the frame was traced before.
    """
    from torch._dynamo import exc

    at_limit = getattr(error, "frame_exec_strategy", None) is not None or "recompile limit" in str(error)[:2000].lower()
    breaks = tuple(getattr(exc, name) for name in ("Unsupported", "UserError", "SkipFrame") if hasattr(exc, name))
    return isinstance(error, breaks) and not at_limit


def is_restart(error: Exception) -> bool:
    """Whether an exception makes dynamo trace a frame again: the frame is not abandoned."""
    from torch._dynamo import exc

    return isinstance(error, getattr(exc, "RestartAnalysis", ()))


def is_erased(value: Any) -> bool:
    """Whether freezing has discarded a parameter: every use of it raises."""
    freezing = sys.modules.get("torch._inductor.freezing")
    return freezing is not None and isinstance(value, freezing.ErasedTensor)


def reference_stance() -> contextlib.AbstractContextManager[Any]:
    """Return the context in which compiled functions run eagerly."""
    import torch.compiler

    stance: contextlib.AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
    return stance


def falls_back_for_random() -> bool:
    """Whether inductor calls eager's random operators, instead of kernels that draw from seeds of their own."""
    from torch._inductor import config

    return bool(config.fallback_random)


def is_freezing() -> bool:
    """Whether inductor turns parameters into constants."""
    from torch._inductor import config

    return bool(config.freezing)


def on_output_code(save: Callable[[str], None]) -> None:
    """Call ``save`` with each piece of code that inductor generates or loads from a cache."""
    from torch._inductor.graph import GraphLowering

    GraphLowering.save_output_code = save


def on_timed_choices(save: Callable[[Mapping[tuple[str, str], float]], None]) -> None:
    """Call ``save`` after each autotuning with the times of the choices, in milliseconds by name and class."""
    from torch._inductor import select_algorithm

    def feedback(timings: Mapping[Any, float], *rest: Any) -> None:
        save({(str(choice.name), class_of_choice(choice)): float(time) for choice, time in timings.items()})

    select_algorithm.add_feedback_saver(feedback)


def class_of_choice(choice: Any) -> str:
    """Return the dotted path of the class of a choice's template, or of the choice; empty where the module does not have the class.

    The name of a choice can be set by any user. The name of a class is verified by a lookup in its module.
    """
    # a wrapper that converts arguments and results holds the choice
    choice = vars(choice).get("_wrapped", choice)
    maker = type(vars(choice).get("template") or choice)
    resolved: Any = sys.modules.get(maker.__module__)
    for part in maker.__qualname__.split("."):
        resolved = getattr(resolved, part, None)
    return f"{maker.__module__}.{maker.__qualname__}" if resolved is maker else ""
