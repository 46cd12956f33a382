"""The worker's interface for steps. ``worker/case/session.py`` implements it.

Values of the case, modules and tensors are ``Any`` here: this module does not import torch.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from runner.core.protocol import Json
from runner.vocabulary.inputs.base import Maker, Scope


class NotCarriedOut(Exception):
    """The preparation of a step failed: its arguments, or the eager reference. The case is an ERROR."""


@contextlib.contextmanager
def needed(what: str) -> Iterator[None]:
    """Convert an exception to ``NotCarriedOut``: it comes from the preparation, not from compiled code."""
    try:
        yield
    except Exception as error:  # code of a spec may raise anything: the case is an ERROR
        raise NotCarriedOut(f"{what} raised {type(error).__name__}: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call of a function of the spec."""

    function: str
    inputs: list[Json] | None
    """None means the inputs of the spec."""
    context: list[Json] | None
    """None means the context of the spec."""
    target: Callable[[], Callable[..., Any]]
    """Returns the function to call; called after the reference has run."""
    phase: str = "trace"
    has_reference: bool = True
    """Whether the eager reference is called first, if the case has one."""
    is_package: bool = False
    """Whether the target is a package, with parameters and buffers of its own: their side effects are not compared."""


class Side(Protocol):
    """One of the two sides of a case: the compiled side, or the eager reference."""

    targets: dict[str, Any]
    """The functions by name."""
    arguments: list[Any]
    result: Any
    """The result of the last call."""
    called: list[Any]
    """Target and arguments of the last call."""


class Reference(Protocol):
    """The eager side and its result in a step."""

    @property
    def side(self) -> Side | None:
        """The eager side; None if no expectation compares with it."""
        ...

    is_there: bool
    """Whether the step has a reference result."""

    def forget(self) -> None:
        """Clear the reference result of the step."""
        ...

    def running(self) -> AbstractContextManager[None]:
        """Return a context in which the eager side runs: compilation is off, and counters and spies do not record."""
        ...

    def stepped(self, result: Any, again: Callable[[list[Any]], Any]) -> None:
        """Store the result of an optimizer's step; ``again`` makes the step on copies of what it was made on, in any dtype."""
        ...

    def keep(self, result: Any) -> None:
        """Store a copy of a result as the reference result."""
        ...

    def backward(self, of: str | None, differentiate: Callable[[Any], None]) -> None:
        """Run backward if the eager side has a result of this name, and store the gradients."""
        ...


class Changes(Protocol):
    """The comparison of side effects in a step, for kinds of steps that call both sides themselves."""

    facts: dict[str, Any] | None
    """The side effects of the current step; None where they were not compared."""

    def begin_step(self, step: Mapping[str, Any]) -> None:
        """Forget the last step; ``step`` is that of the plan."""
        ...

    def begin(self, compiled: list[Any], eager: list[Any], *, is_package: bool = False) -> None:
        """Record the state of both sides, each the target followed by its arguments, before the step."""
        ...

    def eager_done(self, eager: list[Any], result: Any = None) -> None:
        """Record what the eager side left, and restore the generators for the compiled side."""
        ...

    def finish(self, compiled: list[Any], eager: Side | None, result: Any = None) -> None:
        """Compare the two sides, where the step was begun."""
        ...

    def unwanted_write(self, ours: Any, theirs: Any, before: Any) -> dict[str, str] | None:
        """Return how the compiled side changed a tensor that eager did not write (``value``, ``reference``); None where it did not.

        ``before`` is a copy of the tensor from before both calls.
        """
        ...


class DeviceApi(Protocol):
    """Torch's functions for the device of the case: ``worker/torch_compat/devices.py``."""

    @property
    def name(self) -> str:
        """The device: ``cpu``, ``cuda``."""
        ...

    @property
    def activities(self) -> list[str]:
        """The names of the profiler's activities."""
        ...

    def synchronize(self) -> None:
        """Wait until the device has finished all work."""
        ...

    def timed(self, run: Callable[[], None]) -> float:
        """Return how many milliseconds a call took."""
        ...


class Torch(Protocol):
    """The functions that differ between versions of torch: ``worker/torch_compat/for_steps.py``."""

    RESETS: Mapping[str, Callable[[], None]]

    def clear_counters(self) -> None:
        """Set dynamo's and inductor's counters to zero."""
        ...

    def clear_metrics(self) -> None:
        """Set inductor's metrics to zero."""
        ...

    def delete_generated_files(self) -> int:
        """Delete the files of the generated modules; return how many there were."""
        ...

    def find_operator(self, name: str, variant: str, *, dtype: str, device: str, call: str, gradients: bool) -> Any:
        """Return an operator of torch's database; raise ``LookupError`` where this torch does not have it."""
        ...

    def announce_sample(self, index: int, text: str) -> None:
        """Write to standard error which sample begins."""
        ...

    def reset_inductor(self) -> None:
        """Clear inductor's in-memory caches."""
        ...

    def use_cache_dir(self, path: str) -> None:
        """Use a folder for inductor's caches."""
        ...


class WatchedCall(Protocol):
    """A call of something compiled, from the moment when this was made."""

    @property
    def graphs(self) -> int:
        """How many compiled graphs were called."""
        ...

    def end(self, what: str) -> None:
        """Record the call, under this name, where it ran eagerly though it had operations."""
        ...


class CompiledFunctions(Protocol):
    """What the case compiles with ``torch.compile``, with the options of its spec."""

    def of(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``torch.compile`` of a function that is not one of the spec."""
        ...

    def watched(self) -> WatchedCall:
        """Begin to watch a call of something compiled."""
        ...


class Compiling(Protocol):
    """The part of a session that compiles."""

    @property
    def compiled_functions(self) -> CompiledFunctions:
        """What the case compiles."""
        ...


class Session(Compiling, Protocol):
    """A case in the worker."""

    output: Any
    """The result of the last step that had one."""
    exit: dict[str, Any] | None
    """``code`` and ``stderr`` of the child of the current step."""
    bench: dict[str, Any] | None
    """The timings of the current step."""
    folder: str
    """The case's folder below the run's."""
    cache: str
    """Its scratch folder."""
    effects: Changes
    """The comparison of side effects."""
    kept: dict[str, Any]
    """The state of kinds of steps until the end of the case, by kind."""

    @property
    def device_api(self) -> DeviceApi:
        """The device of the case."""
        ...

    @property
    def torch(self) -> Torch:
        """The functions that differ between versions of torch."""
        ...

    @property
    def phases(self) -> Callable[[str], AbstractContextManager[Any]]:
        """Returns a context whose time is counted for a phase."""
        ...

    @property
    def scope(self) -> Scope:
        """Looks up names."""
        ...

    @property
    def maker(self) -> Maker:
        """Makes inputs."""
        ...

    @property
    def compiled(self) -> Side:
        """The compiled side."""
        ...

    @property
    def reference(self) -> Reference:
        """The eager reference."""
        ...

    @property
    def spies(self) -> Mapping[str, Any]:
        """The spies by name, with their recorded calls."""
        ...

    def call(self, wanted: Call) -> None:
        """Call a function: its reference first, from the same state of the generators. Its result is ``output``."""
        ...

    def compiled_target(self, name: str) -> Callable[..., Any]:
        """Return a function compiled by ``torch.compile``."""
        ...

    def entered(self, context: list[Json] | None) -> Callable[[], AbstractContextManager[None]]:
        """Return a function that enters these contexts; None means the context of the spec."""
        ...

    def function_of(self, block: Json, entry: str) -> Callable[..., Any]:
        """Return the function that a block of Python defines."""
        ...

    def copy(self, value: Any) -> Any:
        """Return a copy of a value's tensors that later steps cannot change."""
        ...

    def reseed(self) -> None:
        """Set every generator to the case's seed."""
        ...

    def log_of_step(self) -> str:
        """Return the end of what was written to standard error since the step began."""
        ...


def values_of(session: Session, args: Json, kwargs: Json) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a call, made like inputs."""
    from runner.vocabulary.inputs.making import value

    with needed("the arguments"):
        return value([] if args is None else args, session.maker), value({} if kwargs is None else kwargs, session.maker)


def callable_of(session: Session, call: Json) -> Callable[..., Any]:
    """Return the function that a step calls by name."""
    with needed("the name of what is called"):
        found: Callable[..., Any] = session.scope.callable(call)
        return found
