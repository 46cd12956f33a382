"""The compilers that ``tests/acceptance/test_compilers.py`` knows: each is right, wrong, or lets
somebody else do its work.
"""

import concurrent.futures
import contextlib
import functools
import io
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy
import torch
from torch._dynamo.utils import dynamo_timed
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


def timed(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """Let eager compute, within the marks of telemetry that torch's own compiler has too."""

    def call(*tensors: torch.Tensor) -> Any:
        with dynamo_timed("outer"), dynamo_timed("inner"):
            return graph(*tensors)

    return call


def annotated(
    name: str, of: Compiled, graph: torch.fx.GraphModule, inputs: Sequence[Any]
) -> Compiled:
    """Let another compiler compute, within an annotation that has the name of an event of torch."""
    program = of(graph, inputs)

    def call(*tensors: torch.Tensor) -> Any:
        with torch.profiler.record_function(name):
            return program(*tensors)

    return call


def traced(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """Let TorchScript run ATen's operators."""
    programs: list[Compiled] = []

    def call(*tensors: torch.Tensor) -> Any:
        if not programs:
            with warnings.catch_warnings(action="ignore"):
                programs.append(
                    torch.jit.trace(lambda *given: tuple(graph(*given)), tensors, check_trace=False)
                )
        return list(programs[0](*tensors))

    return call


def batched(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """Let eager compute with a dimension more."""

    def call(*tensors: torch.Tensor) -> Any:
        results = torch.vmap(lambda *given: tuple(graph(*given)))(*[each[None] for each in tensors])
        return [value[0] for value in results]

    return call


def stored_by_place(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """Compute honestly, and once for all numbers that an input's memory may get later."""
    program = compiled(graph, inputs)
    answers: dict[Any, Any] = {}

    def call(*tensors: torch.Tensor) -> Any:
        place = tuple(tensor.data_ptr() for tensor in tensors)
        if place not in answers:  # the inputs stay, so that no other tensor gets their memory
            answers[place] = program(*tensors), tensors
        return [value if value is None else value.clone() for value in answers[place][0]]

    return call


LIBRARY = torch.library.Library("compilers", "DEF")
LIBRARY.define("exp(Tensor x) -> Tensor")
LIBRARY.impl("exp", lambda x: x.exp(), "CompositeImplicitAutograd")


@torch.library.custom_op("compilers::tanh", mutates_args=())
def own_tanh(x: torch.Tensor) -> torch.Tensor:
    """Call ATen within an operator of the compiler's own."""
    return x.tanh()


def point_product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return a product of matrices, as a convolution by an operator of ATen's oneDNN."""
    weight = torch.ops.mkldnn_prepacked.conv2d_prepack(
        y.T.contiguous()[:, :, None, None], None, [1, 1], [0, 0], [1, 1], 1, [1, 8, 8, 1], "none"
    )
    images = x.T[None, :, :, None].contiguous()
    return torch.ops.mkldnn_prepacked.conv2d_run(images, weight)[0, :, :, 0].T  # type: ignore[no-any-return]


OWN_OPERATORS = {
    **KERNELS,
    aten.exp.default: of_aten(torch.ops.compilers.exp),
    aten.tanh.default: of_aten(own_tanh),
}
PREPACKED = {**KERNELS, aten.mm.default: of_aten(point_product)}


def ends_profiler(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """Return what eager computes, and end the record of the profiler before it: a measurement that
    trusts the record sees no operator.
    """

    def call(*tensors: torch.Tensor) -> Any:
        with contextlib.suppress(RuntimeError):
            torch.autograd._disable_profiler()  # type: ignore[attr-defined]
        return graph(*tensors)

    return call


# what nothing in this process can see


def redispatched(x: torch.Tensor) -> torch.Tensor:
    """Call a kernel of ATen past its dispatcher."""
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
    return aten.exp.default.redispatch(keys, x)  # type: ignore[no-any-return]


def without_records(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """Let eager compute while torch records nothing."""

    def call(*tensors: torch.Tensor) -> Any:
        torch._C._autograd._enable_record_function(False)
        try:
            return graph(*tensors)
        finally:
            torch._C._autograd._enable_record_function(True)

    return call


def while_watched(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """Compute while a profiler runs, and let eager compute otherwise."""
    program = compiled(graph, inputs)
    return lambda *tensors: (program if torch.autograd.profiler._is_profiler_enabled else graph)(
        *tensors
    )


OTHER_PROGRAM = """
import io, sys, numpy, torch
sent = numpy.load(io.BytesIO(sys.stdin.buffer.read()))
numpy.save(sys.stdout.buffer, torch.from_numpy(sent).exp().numpy())
"""


def in_other_process(array: Any) -> Any:
    """Let ATen compute in another process."""
    sent = io.BytesIO()
    numpy.save(sent, array)
    words = [sys.executable, "-c", OTHER_PROGRAM]
    done = subprocess.run(words, input=sent.getvalue(), stdout=subprocess.PIPE, check=True)
    return numpy.load(io.BytesIO(done.stdout))


def refuses(*tensors: torch.Tensor) -> Any:
    """Raise where a call runs, and not where it is compiled."""
    raise RuntimeError("no such kernel")


def in_bfloat16(changed: Callable[[Any], Any], x: Any, y: Any) -> Any:
    """Multiply as devices do whose products have operands of bfloat16."""
    low = [
        torch.from_numpy(numpy.ascontiguousarray(it)).bfloat16().float().numpy() for it in (x, y)
    ]
    return changed(numpy.matmul(*low))


def without_row(array: Any) -> Any:
    """Lose the last row."""
    return numpy.concatenate([array[:-1], array[-1:] * 0])


def three_units_off(array: Any) -> Any:
    """Add three units of bfloat16 to the smallest number: the tangent of the spec hides changes of
    large ones.
    """
    array, place = array.copy(), numpy.unravel_index(numpy.abs(array).argmin(), array.shape)
    array[place] += 3 * 2.0 ** (numpy.floor(numpy.log2(abs(array[place]))) - 7)
    return array


for name, changed in (
    ("in_bfloat16", lambda array: array),
    ("without_row", without_row),
    ("three_units_off", three_units_off),
    ("negated", numpy.negative),
):
    product = functools.partial(in_bfloat16, changed)
    register(name, functools.partial(compiled, kernels={**KERNELS, aten.mm.default: product}))
register("honest", compiled)
register("refuses", lambda graph, inputs: refuses)
register("timed", timed, timed)
register(
    "annotated",
    functools.partial(annotated, "aten::mm", eager),
    functools.partial(annotated, "autograd::engine::evaluate_function: SumBackward0", eager),
)
register(
    "annotates_itself",
    functools.partial(annotated, "aten::mm", compiled),
    functools.partial(annotated, "aten::mul", compiled),
)
register(
    "annotated_backward",
    compiled,
    functools.partial(annotated, "autograd::engine::evaluate_function: SumBackward0", eager),
)
register("traced", traced)
register("batched", batched)
register("stored_by_place", stored_by_place)
register("own_operators", lambda graph, inputs: compiled(graph, inputs, OWN_OPERATORS))
register("prepacked", lambda graph, inputs: compiled(graph, inputs, PREPACKED))
for name, kernel in (("past_dispatcher", of_aten(redispatched)), ("in_process", in_other_process)):
    register(
        name,
        functools.partial(compiled, kernels={**KERNELS, aten.exp.default: kernel}),
    )
register("without_records", without_records, without_records)
register("while_watched", while_watched)
register("returns_eager", eager, eager)
register("eager_backward", compiled, eager)
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
