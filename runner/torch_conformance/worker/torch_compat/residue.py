"""The operators that ATen runs in a call, by torch's profiler: those that compute, without those
that only move or describe data.
"""

import contextlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from torch_conformance.vocabulary.expectations.additional_calls import CannotRepeat

NO_COMPUTATION: Mapping[str, str] = {
    **dict.fromkeys(
        "empty empty_like empty_permuted empty_strided new_empty new_empty_strided resize_ "
        "set_".split(),
        "allocates memory",
    ),
    **dict.fromkeys(
        "clone contiguous copy copy_ _foreach_copy_ to _to_copy type_as lift lift_fresh".split(),
        "copies data, or converts its type",
    ),
    **dict.fromkeys(
        (
            "adjoint alias as_strided as_strided_ broadcast_to chunk conj _conj detach "
            "detach_ diagonal dsplit expand expand_as flatten"
            " hsplit imag linalg_diagonal matrix_H mH mT moveaxis movedim narrow _neg_view "
            "numpy_T permute positive ravel real reshape"
            " _reshape_alias reshape_as resolve_conj resolve_neg select slice split "
            "split_with_sizes squeeze squeeze_ swapaxes swapdims t"
            " t_ tensor_split transpose transpose_ unbind unflatten unfold unsqueeze "
            "unsqueeze_ view view_as view_as_complex"
            " view_as_real _unsafe_view vsplit"
        ).split(),
        "describes the same data otherwise",
    ),
    **dict.fromkeys(
        "item _local_scalar_dense is_nonzero size stride numel is_same_size result_type".split(),
        "reads a property or a number",
    ),
    **dict.fromkeys(
        "_nnpack_available _has_compatible_shallow_copy_type requires_grad_ retain_grad".split(),
        "asks or marks",
    ),
}
"""Operators that compute nothing, each with the reason; a compiler may leave them to ATen."""

_MARK = "conformance: the call begins or ends"
"""An event of the runner's own, without which the profiler recorded nothing or was ended in
between.
"""

_OPERATOR = re.compile(r"(aten|mkl|mkldnn|onednn|_?quantized|sparse)::(\w+)")
"""The operators of ATen and of the libraries that torch brings beside it, which call no operator of
ATen.
"""

_NODE = "autograd::engine::evaluate_function: "

_KERNEL = re.compile(r"at::native::(?:\(anonymous namespace\)::)?(\w+)")
"""The name of a kernel of ATen for a GPU begins with the first match; the other matches name what
it computes, as ``CUDAFunctor_add``.
"""

_COPIES = re.compile(r"copy|FillFunctor", re.IGNORECASE)
"""In the names of kernels that move data or fill it."""

_OF_LOSS = ("SumBackward0", "MeanBackward0", "AddBackward0", "torch::autograd::AccumulateGrad")
"""Nodes of the loss that a backward step itself puts behind a result, and what stores gradients."""


@contextlib.contextmanager
def recorded(names: list[str], *, of_backward: bool = False) -> Iterator[None]:
    """Record ATen's operators; when the context ends, ``names`` has got those that compute
    something, such as ``aten.mm``.

    Of operators that call others the outermost counts. ``of_backward`` leaves out what no node of
    autograd runs in this thread. Threads that the compiler starts are recorded where torch can.
    Code that calls ATen's kernels below the dispatcher is seen on a GPU alone, where a CUDA graph
    too runs them without an operator: of these ``names`` gets the kernels, such as
    ``at::native::CUDAFunctor_add``.
    """
    config = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
    activities = [
        torch.profiler.ProfilerActivity.CPU,
        *[torch.profiler.ProfilerActivity.CUDA] * torch.cuda.is_initialized(),
    ]
    with _usable():  # there is one profiler in a process, and another one may run
        profiler = torch.profiler.profile(
            activities=activities, experimental_config=config, acc_events=True
        )
        profiler.__enter__()
    try:
        with torch.profiler.record_function(_MARK):
            pass
        yield
        with torch.profiler.record_function(_MARK):
            pass
    finally:
        with _usable():
            profiler.__exit__(None, None, None)
    with _usable():
        recorded_events = list(profiler.events() or ())
    events = [
        event for event in recorded_events if event.device_type == torch.autograd.DeviceType.CPU
    ]
    marks = [event for event in events if event.name == _MARK]
    if len(marks) != 2:
        raise CannotRepeat("torch's profiler did not record the whole call")
    for event in events:
        above = _above(event)
        # what dynamo runs while it compiles is not the call's
        if (name := _computing(event.name)) and not any(
            _computing(other) or other.endswith(" (dynamo_timed)") for other in above
        ):
            nodes = [other.removeprefix(_NODE) for other in above if other.startswith(_NODE)]
            # threads of the compiler have no nodes
            if not of_backward or (
                nodes[0] not in _OF_LOSS if nodes else event.thread != marks[0].thread
            ):
                names.append(name)
    names.extend(_kernels_without_operator(recorded_events))


def _computing(event: str) -> str:
    """Return the operator that an event is, such as ``aten.mm``, if it computes something;
    otherwise nothing.
    """
    operator = _OPERATOR.fullmatch(event)
    return (
        "" if operator is None or operator[2] in NO_COMPUTATION else f"{operator[1]}.{operator[2]}"
    )


def _kernels_without_operator(events: Sequence[Any]) -> Iterator[str]:
    """Yield ATen's kernels on a GPU that none of its operators started: a CUDA graph did, or code
    below the dispatcher.
    """
    kernels: Counter[str] = Counter()
    for event in events:
        if event.device_type != torch.autograd.DeviceType.CPU:
            kernels[event.name] += 1
        elif any(map(_OPERATOR.match, (event.name, *_above(event)))):
            kernels.subtract(kernel.name for kernel in event.kernels)
    for name in kernels.elements():
        if (parts := _KERNEL.findall(name)) and not _COPIES.search(name):
            yield f"at::native::{parts[min(1, len(parts) - 1)]}"


@contextlib.contextmanager
def _usable() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        # torch without Kineto, or whose profiler was ended, raises errors of several classes
        first = next(iter(str(error).splitlines()), type(error).__name__)
        raise CannotRepeat(f"torch's profiler cannot be used: {first}") from error


def _above(event: Any) -> list[str]:
    names = []
    while (event := event.cpu_parent) is not None:
        names.append(event.name)
    return names
