"""The operators that ATen runs in a call: those that compute, without those that only move or
describe data. All of them by torch's profiler; by a mode, those outside of compiled graphs.
"""

import contextlib
import functools
import os
import re
import sys
import types
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch._ops import OpOverload
from torch.autograd.profiler_util import FunctionEvent
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree

from torch_conformance.vocabulary.expectations.additional_calls import CannotRepeat
from torch_conformance.worker.torch_compat.numerics import (
    Args,
    Function,
    Kwargs,
    OperatorMode,
    reads_only_shapes,
    storages_of,
    written_arguments,
)

NO_COMPUTATION: Mapping[str, str] = {
    **dict.fromkeys(
        "empty empty_like empty_permuted empty_strided new_empty new_empty_strided resize_ "
        "set_".split(),
        "allocates memory",
    ),
    **dict.fromkeys(
        "clone copy copy_ _foreach_copy_ _to_copy lift lift_fresh".split(),
        "copies data, or converts its type",
    ),
    **dict.fromkeys(
        (
            "alias as_strided as_strided_ _conj detach detach_ diagonal expand _neg_view permute "
            "_reinterpret_tensor _reshape_alias select slice split split_with_sizes squeeze "
            "squeeze_ t t_ transpose transpose_ unbind unfold unsqueeze unsqueeze_ view "
            "view_as_complex view_as_real _unsafe_view"
        ).split(),
        "describes the same data otherwise",
    ),
    **dict.fromkeys(
        "_local_scalar_dense is_same_size".split(),
        "reads a property or a number",
    ),
}
"""Operators that compute nothing, each with the reason; a compiler may leave them to ATen.

Composite operators need no entry: what they call counts.
"""

_MARK = "conformance: the call begins or ends"
"""An event of the runner's own, without which the profiler recorded nothing or was ended in
between.
"""

_SOURCE = torch._C._dispatch_dump("aten::mm").partition("\ndebug: ")[2].partition("build/")[0]
"""Where the dispatcher says that the operators of torch's own libraries were registered, in C++: in
the folder that torch was built in.
"""

_NO_KERNELS = ("torch/csrc/autograd/", "torch/csrc/distributed/")
"""Parts of torch's source whose operators record, or move data between processes."""

_NODE = "autograd::engine::evaluate_function: "

_KERNEL = re.compile(r"at::native::(?:\(anonymous namespace\)::)?(\w+)")
"""The name of a kernel of ATen for a GPU begins with the first match; the other matches name what
it computes, as ``CUDAFunctor_add``.
"""

_COPIES = re.compile(r"copy|FillFunctor", re.IGNORECASE)
"""In the names of kernels that move data or fill it."""

_OF_LOSS = ("SumBackward0", "MeanBackward0", "AddBackward0", "torch::autograd::AccumulateGrad")
"""Nodes of the loss that a backward step itself puts behind a result, and what stores gradients."""


class Operator(NamedTuple):
    """An operator that ATen ran."""

    name: str
    """Such as ``aten.mm``; that of a kernel of a GPU, such as ``at::native::CUDAFunctor_add``."""
    shapes: list[Any]
    """The shapes of its arguments, as the profiler reports them."""
    overload: str = ""
    """Such as ``default`` or ``Tensor``; empty for a kernel."""
    type: str = ""
    """The dtype of its first floating-point argument, else of its first tensor, if it has one."""
    is_of_device: bool = False
    """Whether a device that torch does not bring ran it by a kernel of its own."""


@dataclass
class Record:
    """What was recorded of a call."""

    operators: list[Operator] = field(default_factory=list)
    places: Callable[[Operator], str] = lambda operator: ""
    """Asked for each operator in their order, returns where the call has it."""
    compiles: list[Any] = field(default_factory=list)
    """One for each time that torch compiled in it."""


@contextlib.contextmanager
def recorded(record: Record, *, of_backward: bool = False) -> Iterator[None]:
    """Record ATen's operators; when the context ends, ``record`` has got those that compute
    something.

    Of operators that call others the outermost counts; composite operators do not, but what they
    call. ``of_backward`` leaves out what no node of autograd runs in this thread. Threads that the
    compiler starts are recorded where torch can. Code that calls ATen's kernels below the
    dispatcher is seen only on a GPU, where a CUDA graph too runs them without an operator: of
    these ``record`` gets the kernels.
    """
    config = torch._C._profiler._ExperimentalConfig(
        profile_all_threads=True, capture_overload_names=True
    )
    activities = [
        torch.profiler.ProfilerActivity.CPU,
        *[torch.profiler.ProfilerActivity.CUDA] * torch.cuda.is_initialized(),
    ]
    with _usable():  # there is one profiler in a process, and another one may run
        profiler = torch.profiler.profile(
            activities=activities, experimental_config=config, acc_events=True, record_shapes=True
        )
        profiler.__enter__()
    callbacks = torch._dynamo.callback_handler
    noted = callbacks.register_start_callback(record.compiles.append)
    try:
        with torch.profiler.record_function(_MARK):
            pass
        yield
        with torch.profiler.record_function(_MARK):
            pass
    finally:
        with contextlib.suppress(ValueError):  # a reset of torch removes it
            callbacks.remove_start_callback(noted)
        with _usable():
            profiler.__exit__(None, None, None)
    with _usable():
        # not its list of events, which leaves out an only child that has the name of its parent
        autograd: Any = profiler.profiler
        recorded_events = torch.autograd.profiler_util.EventList(
            autograd._parse_kineto_results(autograd.kineto_results)
        )
        recorded_events._populate_cpu_children()
        tensors = _tensors_of(autograd.kineto_results.experimental_event_tree())
    events = [
        event for event in recorded_events if event.device_type == torch.autograd.DeviceType.CPU
    ]
    marks = [event for event in events if event.name == _MARK]
    if len(marks) != 2:
        raise CannotRepeat("torch's profiler did not record the whole call")
    counted = set[Any]()
    for event in events:  # in the order of their beginnings
        above = list(_above(event))
        if not (name := _computing(event)) or not counted.isdisjoint(above):
            continue
        is_own = _is_of_device(event, tensors.get(event.id, []))
        if not is_own:  # what a kernel of the device calls counts too
            counted.add(event)
        nodes = [
            other.name.removeprefix(_NODE)
            for other in above
            if other.name.startswith(_NODE) and not other.is_user_annotation
        ]
        # threads of the compiler have no nodes; what the compiler records lies within one
        if not of_backward or (
            nodes[-1] not in _OF_LOSS if nodes else event.thread != marks[0].thread
        ):
            of_event = tensors.get(event.id, [])
            dtypes = sorted(
                (tensor.dtype for tensor in of_event), key=lambda dtype: not dtype.is_floating_point
            )
            dtype = str(dtypes[0]).removeprefix("torch.") if dtypes else ""
            overload = event.overload_name or "default"
            record.operators.append(Operator(name, event.input_shapes, overload, dtype, is_own))
    kernels = _kernels_without_operator(recorded_events)
    record.operators.extend(Operator(name, []) for name in kernels)


class Origins(OperatorMode):
    """Records which operators that ran outside of compiled graphs each value comes from: a number
    with a bit for each.
    """

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Without this, dynamo runs no compiled code within a mode."""
        return True

    def __init__(self) -> None:
        super().__init__()
        self._names: list[str] = []
        self._numbers = self._depth = 0
        # a weak reference keeps the address of a storage that was freed from being used again
        self._of: dict[int, tuple[StorageWeakRef, int]] = {}

    def call(self, func: OpOverload, args: Args, kwargs: Kwargs) -> object:
        """Call the operator, and record it unless a compiled graph called it."""
        result = func(*args, **kwargs)
        operands = storages_of((args, kwargs))
        # a constant comes from no operator
        if self._depth or not operands or reads_only_shapes(func):
            return result
        origins, name = self._origins(operands), func._schema.name.replace("::", ".")
        if not func.is_view and name.partition(".")[2] not in NO_COMPUTATION:
            origins |= 1 << len(self._names)
            self._names.append(name)
        written = list(written_arguments(func, args, kwargs))
        self._add(storages_of((result, written)), origins)
        if name == "aten._local_scalar_dense":
            self._numbers |= origins
        return result

    def through(self, graph: Function, *inputs: object) -> object:
        """Call a compiled graph; its results inherit the origins of its inputs."""
        origins = self._origins(storages_of(inputs))  # inductor's graphs clear the list of inputs
        self._depth += 1
        try:
            result = graph(*inputs)
        finally:
            self._depth -= 1
        self._add(storages_of(result), origins)
        return result

    def of(self, answer: object, changed: Iterable[torch.Tensor]) -> list[str]:
        """Return the operators from which an answer and the changed tensors come."""
        origins = self._origins(storages_of((answer, list(changed))))
        if any(isinstance(leaf, int | float) for leaf in pytree.tree_leaves(answer)):
            origins |= self._numbers
        return [name for at, name in enumerate(self._names) if origins >> at & 1]

    def _origins(self, storages: Iterable[int]) -> int:
        origins = (self._of.get(address, (None, 0))[1] for address in storages)
        return functools.reduce(int.__or__, origins, 0)

    def _add(self, storages: Mapping[int, StorageWeakRef], origins: int) -> None:
        for address, storage in storages.items():
            self._of[address] = storage, origins | self._origins([address])


def facts(calls: Iterable[tuple[Record, Record]]) -> dict[str, Any]:
    """Return what was recorded of calls of eager and of the compiled function: the names of the
    operators, the positions of those of eager that each may have run in place of, and the overloads
    and the places of those of eager, each place with how many follow each other there.
    """
    eager, left, replaces = list[str](), list[str](), dict[str, set[int]]()
    overloads, places, kinds = list[str](), list[str](), list[str]()
    for of_eager, of_call in calls:
        matched, whole = set[int](), dict(enumerate(of_eager.operators, len(eager)))
        of_aten = [operator for operator in of_call.operators if not operator.is_of_device]
        for name, shapes, *_ in of_aten:
            alike = [at for at, own in whole.items() if own.name.rstrip("_") == name.rstrip("_")]
            # out= comes last
            same = [at for at in alike if (own := whole[at].shapes) == shapes[: len(own)]]
            place = [at for at in same if at not in matched][:1] or same[:1]
            matched.update(place)
            # one with other arguments may do the work of several, and another one that of any
            replaces.setdefault(name, set()).update(place or alike or whole)
        eager += [operator.name for operator in of_eager.operators]
        left += [operator.name for operator in of_aten]
        kinds += [operator.type for operator in of_aten]
        overloads += [operator.overload for operator in of_eager.operators]
        places += map(of_eager.places, of_eager.operators)
    return {
        "eager": eager,
        "residue": left,
        "types": kinds,
        "replaces": {name: sorted(positions) for name, positions in replaces.items()},
        "overloads": overloads,
        "places": [[place, len(list(same))] for place, same in groupby(places)],
    }


class Lines(OperatorMode):
    """Notes the lines of a spec that call each operator, in their order."""

    def __init__(self) -> None:
        super().__init__()
        self._lines = defaultdict[str, list[str]](list)

    def call(self, func: OpOverload, args: Args, kwargs: Kwargs) -> object:
        """Note the innermost line of a spec, and call the operator."""
        frame: types.FrameType | None = sys._getframe(1)
        while frame and not frame.f_code.co_filename.endswith((".yaml", ".yml")):
            frame = frame.f_back
        self._lines[str(func)].append(
            f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}" if frame else ""
        )
        return func(*args, **kwargs)

    def of(self, operator: Operator) -> str:
        """Return the next line that called an operator; nothing where none is known."""
        lines = self._lines[f"{operator.name}.{operator.overload}"]
        return lines.pop(0) if lines else ""


def _tensors_of(roots: Iterable[Any]) -> dict[int, list[Any]]:
    """Return the profiler's descriptions of the tensor arguments of each operator, by correlation
    id.
    """
    tensors, waiting = dict[int, list[Any]](), [*roots]
    while waiting:
        node = waiting.pop()
        waiting += node.children
        arguments = getattr(node.extra_fields, "inputs", ())
        lists = (part if isinstance(part, list) else [part] for part in arguments)
        tensors[node.correlation_id] = [
            part for parts in lists for part in parts if hasattr(part, "device")
        ]
    return tensors


def _is_of_device(event: FunctionEvent, tensors: Sequence[Any]) -> bool:
    """Whether an operator runs on a device that torch does not bring, by a kernel that is
    registered there: the vendor's, not the fallback that calls ATen's for the CPU.
    """
    vendor = torch._C._get_privateuse1_backend_name()
    operator = f"{event.name}.{event.overload_name}".rstrip(".")
    return any(
        tensor.device.type == vendor for tensor in tensors
    ) and torch._C._dispatch_has_kernel_for_dispatch_key(operator, "PrivateUse1")


def _computing(event: FunctionEvent) -> str:
    """Return the operator that an event is, such as ``aten.mm``, if it computes something;
    otherwise nothing.

    Only operators have arguments with shapes; annotations have none, whatever their name.
    """
    if event.is_user_annotation or not event.input_shapes:
        return ""
    calls_kernel = any(child.name.startswith("aten::empty") for child in event.cpu_children)
    return _name(f"{event.name}.{event.overload_name}".rstrip("."), calls_kernel=calls_kernel)


@functools.cache
def _name(operator: str, *, calls_kernel: bool) -> str:
    """Return the name of an operator of torch that computes something, without its overload.

    A composite one computes nothing itself, unless it fills memory that it allocates.
    """
    name = operator.partition(".")[0].replace("::", ".")
    try:
        registered = torch._C._dispatch_dump(operator).partition("\ndebug: ")[2]
    except RuntimeError:  # no name of an operator
        return ""
    source = registered.removeprefix(_SOURCE)
    has_kernel = functools.partial(torch._C._dispatch_has_kernel_for_dispatch_key, operator)
    return name * (
        source != registered
        and not source.startswith(_NO_KERNELS)
        and name.partition(".")[2] not in NO_COMPUTATION
        and (calls_kernel or has_kernel("CPU") or not has_kernel("CompositeImplicitAutograd"))
    )


def _kernels_without_operator(events: Sequence[Any]) -> Iterator[str]:
    """Yield ATen's kernels on a GPU that none of its operators started: a CUDA graph did, or code
    below the dispatcher.
    """
    kernels: Counter[str] = Counter()
    for event in events:
        if event.device_type != torch.autograd.DeviceType.CPU:
            kernels[event.name] += 1
        elif any(other.name.startswith("aten::") for other in (event, *_above(event))):
            kernels.subtract(kernel.name for kernel in event.kernels)
    for name in kernels.elements():
        if (parts := _KERNEL.findall(name)) and not _COPIES.search(name):
            yield f"at::native::{parts[min(1, len(parts) - 1)]}"


@contextlib.contextmanager
def _usable() -> Iterator[None]:
    """Raise ``CannotRepeat`` where torch's profiler fails in this context."""
    try:
        yield
    except Exception as error:
        # torch without Kineto, or whose profiler was ended, raises errors of several classes
        first = next(iter(str(error).splitlines()), type(error).__name__)
        raise CannotRepeat(f"torch's profiler cannot be used: {first}") from error


def _above(event: FunctionEvent) -> Iterator[FunctionEvent]:
    while (event := event.cpu_parent) is not None:
        yield event
