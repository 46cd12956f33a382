"""The compilers that ``tests/acceptance/test_compilers.py`` knows: each is right, wrong, or lets
somebody else do its work.
"""

import concurrent.futures
import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy
import torch
from torch._inductor.compile_fx import compile_fx

from tests.compilers import runtime
from tests.compilers.runtime import KERNELS, aten, compiled, register

Compiled = Callable[..., Any]


def of_aten(operator: Any) -> Compiled:
    """Return a kernel that lets ATen compute an operator."""
    return lambda *arrays: operator(
        *[torch.from_numpy(numpy.ascontiguousarray(array)) for array in arrays]
    ).numpy()


IN_EAGER = {
    **KERNELS,
    **{
        operator: of_aten(operator)
        for operator in (aten.exp.default, aten.tanh.default, aten.sub.Tensor)
    },
}
WRONG = {**KERNELS, aten.exp.default: lambda array: numpy.exp(array) * 1.01}
WRONG_BACKWARD = {**KERNELS, aten.tanh_backward.default: lambda grad, out: grad * (1 - out)}


def calls_inductor(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """Fail to compile, and let Inductor do it."""
    try:
        return compiled(graph, inputs, {})
    except KeyError:
        return compile_fx(graph, list(inputs))  # type: ignore[no-any-return, no-untyped-call]


def eager(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """Let eager compute."""
    return graph


def in_turn(
    calls: int, first: Compiled, later: Compiled, graph: torch.fx.GraphModule, inputs: Sequence[Any]
) -> Compiled:
    """Let one compiler compute some calls, and another one the others."""
    programs = [later(graph, inputs), *[first(graph, inputs)] * calls]
    return lambda *tensors: (programs.pop() if len(programs) > 1 else programs[0])(*tensors)


def stored(
    key: Callable[[torch.Tensor], Any], graph: torch.fx.GraphModule, inputs: Sequence[Any]
) -> Compiled:
    """Let eager compute what has no stored answer, by a key of each input."""
    answers: dict[Any, Any] = {}

    def call(*tensors: torch.Tensor) -> Any:
        of_call = tuple(map(key, tensors))
        answers[of_call] = answers.get(of_call) or graph(*tensors)
        return [value if value is None else value.clone() for value in answers[of_call]]

    return call


OF_ONEDNN = {
    **KERNELS,
    aten.mm.default: of_aten(
        lambda x, y: torch.ops.mkldnn._linear_pointwise(x, y.T, None, "none", [], "")
    ),
}

THREAD = concurrent.futures.ThreadPoolExecutor(1)


def own_thread(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """Let eager compute in a thread that lives longer than a call."""
    return lambda *tensors: THREAD.submit(graph, *tensors).result()


def calls_runtime_in_vain(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """Call the runtime, and let eager compute."""
    return lambda *tensors: (runtime.execute(lambda *arrays: [], ()), graph(*tensors))[1]


def ends_profiler(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """Return what eager computes, and end the record of the profiler before it: a measurement that
    trusts the record sees no operator.
    """

    def call(*tensors: torch.Tensor) -> Any:
        with contextlib.suppress(RuntimeError):
            torch.autograd._disable_profiler()  # type: ignore[attr-defined]
        return graph(*tensors)

    return call


register("honest", compiled)
register("returns_eager", eager, eager)
register("three_in_eager", lambda graph, inputs: compiled(graph, inputs, IN_EAGER))
register("wrong_for_one", lambda graph, inputs: compiled(graph, inputs, WRONG))
register("wrong_backward", compiled, lambda graph, inputs: compiled(graph, inputs, WRONG_BACKWARD))
torch._dynamo.register_backend(calls_inductor, name="calls_inductor")
register(
    "serves_once",
    functools.partial(in_turn, 1, compiled, eager),
    functools.partial(in_turn, 1, compiled, eager),
)
register("own_thread", own_thread, own_thread)
register("calls_runtime_in_vain", calls_runtime_in_vain, calls_runtime_in_vain)
register("ends_profiler", ends_profiler, ends_profiler)
register("backward_in_thread", compiled, own_thread)
register(
    "wrong_later", functools.partial(in_turn, 2, eager, functools.partial(compiled, kernels=WRONG))
)
register("stored_by_shape", functools.partial(stored, lambda tensor: tensor.shape))
register(
    "stored_by_value", functools.partial(stored, lambda tensor: tensor.detach().numpy().tobytes())
)
register("of_onednn", lambda graph, inputs: compiled(graph, inputs, OF_ONEDNN))
