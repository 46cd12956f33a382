"""What every kind of step is: its arguments, its traits, what its checks may look at, and what it
shares with the worker that runs it.
"""

import ast
import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

from torch_conformance.model.conditions import Surroundings
from torch_conformance.model.diagnostics import Diagnostic
from torch_conformance.model.expectation import About
from torch_conformance.model.protocol import Json
from torch_conformance.model.values import frozen
from torch_conformance.vocabulary.backend import Backend
from torch_conformance.vocabulary.forms import Boolean, Keywords, Name, Word
from torch_conformance.vocabulary.worker_session import Function, Session

COMPILED = "compiled"
"""The name of the compiled function in a script."""

ONLY = "function"
"""The name of the function of a spec that has one."""


@frozen
class Traits:
    """The traits of a kind of step, for the stages. Each is off by default."""

    has_result: bool = False
    """It has a result: ``output``, which ``as`` may name."""
    claims: bool = False
    """An exception in it is a result of torch, and is judged; in any other kind, an exception is an
    ERROR.
    """
    compiles: bool = False
    """It calls a compiled function of the spec; it is invalid on a backend that compiles nothing.
    """
    enters_context: bool = False
    """It enters the ``context`` of the spec if it has no context of its own."""
    can_be_differentiated: bool = False
    """A ``backward`` without ``of`` runs on its result."""
    can_be_called_again: bool = False
    """Its call can be made again, for an expectation that needs additional calls."""
    gives_gradients: bool = False
    """It runs backward on a result. An optimizer step may follow it."""
    needs_own_graphs: bool = False
    """Only graphs that were compiled of its own function prove that the backend ran it; a helper's
    graphs do not.
    """
    may_have_no_graph: bool = False
    """What it compiles may hold no operation, as an operator that returns its argument does: dynamo
    then makes no graph.
    """
    is_proof: bool = True
    """The proof that the backend ran is judged for it."""
    is_optional: bool = False
    """It runs under ``--bench`` only."""
    is_last: bool = False
    """It must follow all steps of other kinds."""
    is_exclusive: bool = False
    """No other case runs at the same time as one with it."""
    tools: tuple[str, ...] = ()
    """The capabilities that it uses on each device, whatever its backend requires."""
    children: int = 0
    """How many processes that import torch it starts."""
    has_exit: bool = False
    """It has a child process whose exit can be judged."""
    has_reference: bool = False
    """It has an eager reference, which its result and its side effects are compared with."""
    why_once: str = ""
    """What to do instead of ``repeat``; empty if it can be repeated."""
    python: str = ""
    """The key of its arguments that holds Python; empty if none does."""


DataPath = tuple[str | int, ...]
"""Keys and indices that lead to a value of a spec."""


@frozen
class StepContext:
    """What the checks of a step may read of its spec. Paths begin at the root of the spec."""

    path: DataPath
    """The path of the step."""
    above: Sequence["StepKind"]
    """The steps before it."""
    expected: Sequence[tuple[str, DataPath]]
    """Kind and path of the expectations of the step."""
    functions: Collection[str]
    """The names of the spec's functions."""
    backends: Sequence[Backend]
    """The backends that the spec names, without unknown ones."""
    tree: ast.Module | None
    """The step's Python; None if it has none, or does not parse."""
    problem: Callable[..., Diagnostic]
    """Returns a diagnostic at a place of the spec: path, message, hint, and ``key`` for the place
    of its key.
    """
    name_problem: Callable[[str], tuple[str, str] | None]
    """Returns (message, hint) for a name that is not defined when the step begins."""
    input_problems: Callable[..., Iterator[Diagnostic]]
    """Yields why a function does not take these inputs at a path (None means the inputs of the
    spec), and names of arguments by keyword at another path.
    """

    def compiling_nothing(self, what: str, hint: str) -> Iterator[Diagnostic]:
        """Yield the backends on which ``what`` compiles nothing."""
        for backend in self.backends:
            if not backend.compiles:
                yield self.problem(
                    self.path, f"{what} on '{backend.name}', which compiles nothing", hint, key=True
                )


Inputs = list[Json]
"""The arguments of a call, written like ``inputs`` of a spec."""


@frozen
class Callee:
    """What a step calls, ``{call: NAME, args: [...], kwargs: {...}}``, and its path below the
    step.
    """

    call: Json
    args: Json = None
    kwargs: Json = None
    place: DataPath = ()


@dataclass(frozen=True, slots=True)
class StepKind(Word):
    """A kind of step.

    An instance holds the arguments of one step, as the spec has them or with their templates
    evaluated.

    The schema is made of the classes (``tools/generate_schemas``): of their docstrings, fields, the
    docstrings below these, and ``form``.
    """

    traits: ClassVar[Traits] = Traits()
    about: ClassVar[About] = About.ANYTHING
    """What it does something to."""
    form: ClassVar[Keywords] = {}
    """What the schema says of the arguments in addition to their keys; with ``type`` they are no
    map of keys.
    """

    def run(self, session: Session) -> None:
        """Carry out the step, in the worker, which imports torch."""
        raise NotImplementedError

    @classmethod
    def parse(cls, body: Json) -> Self:
        """Read the arguments, which match the schema."""
        return cls(**{_FIELDS.get(key, key): value for key, value in body.items()})

    @classmethod
    def planned(
        cls, arguments: Mapping[str, Json], surroundings: Surroundings
    ) -> Mapping[str, Json]:
        """Return the arguments of a case as the worker gets them: with conditions decided, where a
        kind has some.
        """
        return arguments

    @property
    def bound(self) -> str | None:
        """The name of its result."""
        return getattr(self, "as_", None)

    @property
    def names(self) -> Iterator[str]:
        """The names of values in its arguments."""
        for field in fields(self):
            yield from referenced(getattr(self, field.name))

    @property
    def children(self) -> int:
        """How many processes that import torch it starts."""
        return self.traits.children

    @property
    def runs_graphs(self) -> bool:
        """Whether it must run a compiled graph."""
        return self.traits.compiles

    @property
    def compares_effects(self) -> bool:
        """Whether its side effects are compared with those of eager: where it has the key
        ``side_effects``, and this is not false.
        """
        return getattr(self, "side_effects", False) is not False

    @property
    def clears_counters(self) -> bool:
        """Whether it sets counters to zero."""
        return False

    @property
    def differentiated(self) -> str | None:
        """The name of the result that it differentiates; the eager side stores its own result of
        that name.
        """
        return None

    @property
    def input_lists(self) -> Iterator[tuple[DataPath, Json]]:
        """Its own inputs, a list or by keyword, with their paths below the step."""
        return iter(())

    @property
    def callees(self) -> Iterator[Callee]:
        """The functions that it calls by name."""
        return iter(())

    def why_no_reference(self, above: Sequence["StepKind"]) -> tuple[str, str] | None:
        """Return why it has no eager reference, and a hint; None where it has one.

        ``above`` are the steps before it.
        """
        return (
            None
            if self.traits.has_reference
            else (f"the step '{self.kind}' has no eager reference", "compare with a named value")
        )

    def problems(self, context: StepContext) -> Iterator[Diagnostic]:
        """Yield the problems of the step as written."""
        return iter(())

    def name_problems(self, context: StepContext) -> Iterator[Diagnostic]:
        """Yield the problems of the names that it uses; checked again at each point of the matrix,
        with templates evaluated.
        """
        return iter(())


_FIELDS: Mapping[str, str] = {"as": "as_"}
"""Keys that are Python keywords."""


@frozen
class WithResult(StepKind):
    """A kind with a result."""

    as_: Name | None = None
    """A name for the result."""


@frozen
class Compared(WithResult):
    """A kind whose side effects are compared with those of eager."""

    side_effects: Boolean | None = None
    """Whether arguments, parameters, buffers, attributes of modules, .grad, version counters,
    random generators, modes of torch and aliases after the step are compared with those of eager.
    By default they are, when an expectation compares with eager; false where a difference is
    intended."""


def referenced(value: Json) -> Iterator[str]:
    """Yield the names of values, ``{ref: NAME}``, in an argument or an option."""
    if isinstance(value, Mapping):
        if set(value) == {"ref"}:
            yield str(value["ref"])
        for item in value.values():
            yield from referenced(item)
    elif isinstance(value, list):
        for item in value:
            yield from referenced(item)


# -- in the worker ---------------------------------------------------------------------------------


class NotCarriedOut(Exception):
    """The preparation of a step failed: its arguments, or the eager reference.

    The case is an ERROR.
    """


@contextlib.contextmanager
def needed(what: str) -> Iterator[None]:
    """Convert an exception to ``NotCarriedOut``: it comes from the preparation, not from compiled
    code.
    """
    try:
        yield
    except Exception as error:  # code of a spec may raise anything: the case is an ERROR
        raise NotCarriedOut(f"{what} raised {type(error).__name__}: {error}") from error


def values_of(session: Session, args: Json, kwargs: Json) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a call, made like inputs."""
    with needed("the arguments"):
        return session.scope.value([] if args is None else args), session.scope.value(
            {} if kwargs is None else kwargs
        )


def callable_of(session: Session, call: Json) -> Function:
    """Return the function that a step calls by name."""
    with needed("the name of what is called"):
        function: Function = session.scope.callable(call)
        return function
