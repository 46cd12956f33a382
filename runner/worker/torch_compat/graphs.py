"""Graphs of a compile at each stage: the functions that make them, their operators, their text."""

import collections
import importlib
from collections.abc import Iterator, Mapping
from typing import Any

PASSES: Mapping[str, tuple[str, str]] = {
    "pre_grad": ("torch._inductor.compile_fx", "_recursive_pre_grad_passes"),
    "joint": ("torch._inductor.compile_fx", "_recursive_joint_graph_passes"),
    "post_grad": ("torch._inductor.compile_fx", "_recursive_post_grad_passes"),
}
"""The function that runs the passes of a stage. It changes the graph, or returns a new one."""


def is_available(stage: str) -> bool:
    """Whether this torch has the function of a stage."""
    module, name = PASSES[stage]
    return hasattr(importlib.import_module(module), name)


def operators(graph: Any) -> dict[str, int]:
    """Return how many nodes call each operator, in a graph module and in the graphs within it."""
    counts: collections.Counter[str] = collections.Counter()
    for module in _graph_modules(graph):
        counts.update(_name_of(node, module) for node in module.graph.nodes if node.op != "output")
    return dict(counts)


def _graph_modules(graph: Any) -> Iterator[Any]:
    import torch.fx

    return (module for module in graph.modules() if isinstance(module, torch.fx.GraphModule))


def _name_of(node: Any, module: Any) -> str:
    match node.op:
        case "call_function":
            return _function_name(node.target)
        case "call_method":
            return f"Tensor.{node.target}"
        case "call_module":
            kind = type(module.get_submodule(node.target))
            return f"{kind.__module__}.{kind.__qualname__}"
    return str(node.op)


def _function_name(target: Any) -> str:
    import torch._ops
    from torch.fx.node import _get_qualified_name

    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"higher_order.{target.name()}"
    if isinstance(target, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return str(target)
    try:
        name = str(_get_qualified_name(target))
    except (AttributeError, RuntimeError):  # an object that is called and has no name
        return f"{type(target).__module__}.{type(target).__qualname__}"
    return name.replace("_operator.", "operator.", 1) if name.startswith("_operator.") else name


def text_of(graph: Any) -> str:
    """Return a graph as torch prints it, with shapes, strides and devices."""
    return str(graph.print_readable(print_output=False, include_stride=True, include_device=True, colored=False))


WORDS = ("placeholder", "get_attr")
"""Kinds of nodes that are no operators."""


def is_known(name: str) -> bool:
    """Whether torch, or the code of the case, has an operator or a function of a name as ``operators`` writes it."""
    import torch

    from runner.worker.torch_compat import lookup

    if name in WORDS:
        return True
    if name.startswith("Tensor."):
        return hasattr(torch.Tensor, name.removeprefix("Tensor."))
    found: Any = torch.ops
    try:
        for part in name.split("."):
            found = getattr(found, part)
    except (AttributeError, RuntimeError):
        try:
            lookup.resolve(name)
        except (ImportError, AttributeError, ValueError):
            return False
    return "." in name
