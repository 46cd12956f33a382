"""A small compiler of its own: it runs captured graphs by numpy, operator by operator.

The compilers of this folder are made of it.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy
import torch
from torch._dynamo.backends.common import aot_autograd

aten: Any = torch.ops.aten

KERNELS: dict[Any, Callable[..., Any]] = {
    aten.add.Tensor: numpy.add,
    aten.mul.Tensor: numpy.multiply,
    aten.sub.Tensor: numpy.subtract,
    aten.mm.default: numpy.matmul,
    aten.tanh.default: numpy.tanh,
    aten.exp.default: numpy.exp,
    aten.t.default: numpy.transpose,
    aten.permute.default: numpy.transpose,
    aten.detach.default: lambda value: value,
    aten.tanh_backward.default: lambda grad, out: grad * (1 - out * out),
    operator.getitem: operator.getitem,
}

Run = Callable[..., list[Any]]


def execute(run: Run, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
    """Run a program of this runtime: all of its calls pass here."""
    results = run(*[tensor.detach().numpy() for tensor in inputs])
    return [
        None if value is None else torch.from_numpy(numpy.array(value, numpy.float32))
        for value in results
    ]


def program(graph: torch.fx.GraphModule, kernels: dict[Any, Callable[..., Any]]) -> Run:
    """Return a function of arrays that computes a graph of ATen's operators; raise ``KeyError`` for
    one that has no kernel.
    """
    for node in graph.graph.nodes:
        if node.op == "call_function":
            kernels[node.target]

    def run(*arrays: Any) -> list[Any]:
        given, values = iter(arrays), dict[Any, Any]()
        for node in graph.graph.nodes:
            if node.op == "placeholder":
                values[node] = next(given)
            elif node.op == "call_function":
                values[node] = kernels[node.target](
                    *torch.fx.node.map_arg(node.args, values.__getitem__)
                )
        return list(torch.fx.node.map_arg(list(graph.graph.nodes)[-1].args[0], values.__getitem__))

    return run


def compiled(
    graph: torch.fx.GraphModule,
    inputs: Sequence[Any],
    kernels: dict[Any, Callable[..., Any]] | None = None,
) -> Callable[..., Any]:
    """Return what computes a graph in this runtime, by its own kernels or by others."""
    run = program(graph, KERNELS if kernels is None else kernels)

    def call(*tensors: torch.Tensor) -> list[torch.Tensor | None]:
        return execute(run, tensors)

    return call


def register(
    name: str, forward: Callable[..., Any], backward: Callable[..., Any] | None = None
) -> None:
    """Register a compiler that torch traces forward and backward for."""
    torch._dynamo.register_backend(
        aot_autograd(fw_compiler=forward, bw_compiler=backward or compiled), name=name
    )  # type: ignore[no-untyped-call]
