"""What the vocabulary uses of a case in the worker, and of a call that can be made again.

The classes and functions of ``worker/case`` and ``worker/torch_compat`` describe themselves; mypy
checks them against these, and the vocabulary imports nothing of the worker.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Protocol, TypeAlias

from torch_conformance.model.protocol import Json
from torch_conformance.vocabulary.worker_torch import Tensor

Context: TypeAlias = AbstractContextManager[object]

Facts: TypeAlias = Mapping[str, Any]
"""What was measured of a value, or what is to be measured: plain data by name."""

NewFacts: TypeAlias = dict[str, Any]
"""The same while they are made and completed."""

Function: TypeAlias = Callable[..., Any]

Lookup: TypeAlias = Callable[[str], Any]
"""Returns the value of a case that has a name."""


class Side(Protocol):
    """One of the two sides of a case, compiled or eager."""

    targets: dict[str, Any]
    arguments: list[Any]
    result: Any
    called: list[Any]
    is_differentiated: bool


class Reference(Protocol):
    """The result of the eager side in a step."""

    side: Side | None
    is_there: bool

    def backward(self, name: str | None, differentiate: Callable[[Any], None]) -> None: ...
    def forget(self) -> None: ...
    def running(self) -> Context: ...
    def stepped(self, result: object, update: Callable[[list[Any]], Any]) -> None: ...


class Effects(Protocol):
    """The comparison of side effects."""

    def begin(self, compiled: list[Any], eager: list[Any]) -> None: ...
    def eager_done(self, eager: list[Any]) -> None: ...
    def finish(self, compiled: list[Any], eager: Side | None) -> None: ...
    def shared_memory(self, *sides: tuple[Any, Sequence[Any]]) -> dict[str, tuple[Any, Any]]: ...
    def unwanted_write(
        self, ours: Tensor, theirs: Tensor, before: Tensor
    ) -> tuple[str, str] | None: ...


class Scope(Protocol):
    """Looks up names, and makes what a spec describes."""

    closing: ExitStack

    def callable(self, entry: Json) -> Function: ...
    def make_all(self, entries: Json) -> list[Any]: ...
    def named(self, name: str) -> Any: ...
    def value(self, entry: Json) -> Any: ...


class Watched(Protocol):
    """Whether a call ran compiled."""

    def end(self, what: str) -> None: ...
    @property
    def graphs(self) -> int: ...


class CompiledFunctions(Protocol):
    """``torch.compile`` of functions."""

    def differentiates(self, tensors: Sequence[Any]) -> None: ...
    def of(self, function: Function) -> Function: ...
    def target(self, side: Side, name: str) -> Function: ...
    def watched(self) -> Watched: ...


class Compiling(Protocol):
    """What is asked of torch.export."""

    def marks(self, leaves: Sequence[object]) -> object: ...
    def why_static(self, program: object, marked: Any) -> Iterator[str]: ...


class TorchState(Protocol):
    """Caches and counters of torch."""

    RESETS: Mapping[str, Callable[[], None]]

    def clear_counters(self) -> None: ...
    def clear_metrics(self) -> None: ...
    def delete_generated_files(self) -> int: ...
    def use_cache_dir(self, folder: str) -> None: ...


class Sample(Protocol):
    """One call of an operator."""

    @property
    def args(self) -> tuple[Any, ...]: ...
    @property
    def kwargs(self) -> dict[str, Any]: ...
    @property
    def is_further_call(self) -> bool: ...
    @property
    def text(self) -> str: ...


class DeviceApi(Protocol):
    """The device of a case."""

    @property
    def name(self) -> str: ...
    @property
    def activities(self) -> list[str]: ...
    def synchronize(self) -> None: ...
    def timed(self, run: Callable[[], None]) -> float: ...


class Operator(Protocol):
    """One operator of torch's database, for one dtype and one way to call it."""

    @property
    def function(self) -> Function: ...
    @property
    def takes_gradients(self) -> bool: ...
    @property
    def takes_out(self) -> bool: ...
    def samples(self, most: int | None) -> Sequence[Sample]: ...


class OpInfo(Protocol):
    """torch's database of operators."""

    def announce_sample(self, index: int, text: str) -> None: ...
    def find(
        self, name: str, variant: str, *, dtype: str, device: str, call: str, gradients: bool
    ) -> Operator: ...
    def in_forms(
        self, operator: Any, samples: Any, forms: Sequence[str]
    ) -> Iterator[tuple[int, Sample]]: ...
    def placed(self, copy: Tensor, tensor: Tensor) -> Tensor: ...


class Module(Protocol):
    """The module of the spec's Python."""

    def function(self, block: Json, entry: str) -> Function: ...


class Spy(Protocol):
    """What records calls."""

    def clear(self) -> None: ...


class Runtime(Protocol):
    """Counts calls of a vendor's runtime."""

    @property
    def spy(self) -> Spy | None: ...
    def counted(self) -> Context: ...


class Additional(Protocol):
    """The additional calls of a case."""

    records_operators: bool

    def operators_of_sample(self, sample: Any, compiled: Function, make_arguments: Any) -> Any: ...


class Session(Protocol):
    """A case while its steps run."""

    additional: Additional
    bench: dict[str, Any] | None
    cache: str
    compiled: Side
    compiled_functions: CompiledFunctions
    compiling: Compiling
    device_api: DeviceApi
    effects: Effects
    exit: dict[str, Any] | None
    folder: str
    kept: dict[str, Any]
    module: Module
    opinfo: OpInfo
    output: Any
    phases: Callable[[str], Context]
    reference: Reference
    runtime: Runtime
    scope: Scope
    spies: Mapping[str, Spy]
    torch_state: TorchState

    def call(
        self,
        function: str,
        arguments: Any,
        target_of: Callable[[], Function],
        *,
        phase: str = "trace",
        has_reference: bool = True,
        is_package: bool = False,
    ) -> None: ...
    def copy(self, value: Any) -> Any: ...
    def entered(self, context: Sequence[Any] | None) -> Callable[[], Context]: ...
    def has_drawn(self) -> bool: ...
    def log_of_step(self) -> str: ...
    def reseed(self) -> None: ...


class Again(Protocol):
    """The call of a step, which can be made again."""

    result: Any

    def arguments(self) -> list[Any]: ...
    def close(self, arguments: Mapping[str, Any], result: object) -> dict[str, Any]: ...
    def operators(self) -> dict[str, Any]: ...
    def peak_memory(self, *, eager: bool = False) -> int: ...
    def poisoned(self) -> AbstractContextManager[Any]: ...
    def run(self, arguments: list[Any] | None = None) -> Any: ...
    def varied(self, arguments: Mapping[str, Any]) -> dict[str, Any]: ...
    def with_candidate(self, number: int) -> AbstractContextManager[list[list[str]]]: ...
