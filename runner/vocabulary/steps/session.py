"""What the worker gives a step: a case while its steps run. ``worker/case/session.py`` is it.

Values of the case, modules and tensors are ``Any`` here: this side of the border knows no torch.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from runner.core.model import Json
from runner.vocabulary.inputs.base import Maker, Scope


class NotCarriedOut(Exception):
    """What a step needs could not be had: its arguments, or the eager reference. The case claims nothing here."""


@contextlib.contextmanager
def needed(what: str) -> Iterator[None]:
    """Turn an exception into ``NotCarriedOut``: it says nothing of what is compiled."""
    try:
        yield
    except Exception as error:  # code of a spec may raise anything: the case is an ERROR
        raise NotCarriedOut(f"{what} raised {type(error).__name__}: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call of a function of the spec."""

    function: str
    inputs: list[Json] | None
    """None for those of the spec."""
    context: list[Json] | None
    """None for that of the spec."""
    target: Callable[[], Callable[..., Any]]
    """Returns what is called; asked when the reference has run."""
    phase: str = "trace"
    has_reference: bool = True
    """Whether the eager reference is called first, where the case has one."""
    compares_parameters: bool = True
    """Whether side effects on parameters and buffers are compared."""


class Side(Protocol):
    """One of the two worlds of a case: what is compiled, or its eager reference."""

    targets: dict[str, Any]
    """The functions by name."""
    arguments: list[Any]
    result: Any
    """What the last call gave."""
    called: list[Any]
    """Target and arguments of the last call."""


class Reference(Protocol):
    """The eager side and its answer in a step."""

    @property
    def side(self) -> Side | None:
        """The eager side; None where nothing compares with it."""
        ...

    def forget(self) -> None:
        """Let the step have no answer until it is given one."""
        ...

    def running(self) -> AbstractContextManager[None]:
        """Return a context in which the eager side runs: compilation is off, and neither counters nor spies see it."""
        ...

    def keep(self, result: Any) -> None:
        """Take a copy of a result for the answer."""
        ...

    def backward(self, of: str | None) -> None:
        """Run backward where the eager side has a result of this name, and keep the gradients."""
        ...


class DeviceApi(Protocol):
    """What torch is asked about the device of the case: ``worker/torch_compat/devices.py``."""

    @property
    def activities(self) -> list[str]:
        """The names of what a profiler records."""
        ...

    def synchronize(self) -> None:
        """Wait until the device has done all it was given."""
        ...

    def timed(self, run: Callable[[], None]) -> float:
        """Return how many milliseconds a call took."""
        ...


class Torch(Protocol):
    """What differs between versions of torch: ``worker/torch_compat/for_steps.py``."""

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

    def reset_inductor(self) -> None:
        """Forget what inductor keeps in memory."""
        ...

    def use_cache_dir(self, path: str) -> None:
        """Use a folder for inductor's caches."""
        ...


class Session(Protocol):
    """A case in the worker."""

    output: Any
    """The result of the last step that had one."""
    exit: dict[str, Any] | None
    """``code`` and ``stderr`` of the child of the current step."""
    bench: dict[str, Any] | None
    """What the current step timed."""
    folder: str
    """The case's folder below the run's."""
    cache: str
    """Its scratch folder."""
    kept: dict[str, Any]
    """What kinds of steps keep until the case ends, by their names."""

    @property
    def device_api(self) -> DeviceApi:
        """The device of the case."""
        ...

    @property
    def torch(self) -> Torch:
        """What differs between versions of torch."""
        ...

    @property
    def phases(self) -> Callable[[str], AbstractContextManager[Any]]:
        """Returns a context within which time counts for a phase."""
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
        """The side that is compiled."""
        ...

    @property
    def reference(self) -> Reference:
        """The eager side's answer."""
        ...

    @property
    def spies(self) -> Mapping[str, Any]:
        """What the spies saw."""
        ...

    def call(self, wanted: Call) -> None:
        """Call a function: its reference first, from the same state of the generators. Its result is ``output``."""
        ...

    def compiled_target(self, name: str) -> Callable[..., Any]:
        """Return a function as ``torch.compile`` gives it."""
        ...

    def entered(self, context: list[Json] | None) -> Callable[[], AbstractContextManager[None]]:
        """Return what enters these contexts; the spec's for None."""
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
    """Return the arguments of what a step calls, made as inputs are."""
    from runner.vocabulary.inputs import value

    with needed("the arguments"):
        return value([] if args is None else args, session.maker), value({} if kwargs is None else kwargs, session.maker)


def callable_of(session: Session, call: Json) -> Callable[..., Any]:
    """Return what a step calls by name."""
    with needed("the name of what is called"):
        found: Callable[..., Any] = session.scope.callable(call)
        return found
