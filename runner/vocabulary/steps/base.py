"""What every kind of step is made of: its arguments, its traits, its checks, and what the worker does."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

from runner.core.diagnostics import Diagnostic
from runner.core.model import Json
from runner.vocabulary.steps.around import Around, DataPath
from runner.vocabulary.steps.session import Session

Inputs = list[Json]
"""The arguments of a call, each as ``inputs`` of a spec has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What the stages ask about a kind of step. Each is off unless the kind says otherwise."""

    has_result: bool = False
    """It has a result: ``output``, which ``as`` may name."""
    claims: bool = False
    """An exception in it is torch's answer; in any other kind an exception means that the case could not be carried out."""
    compiles: bool = False
    """It calls a function of the spec as it was compiled: a backend that compiles nothing refuses it."""
    enters_context: bool = False
    """It enters the ``context`` of the spec where it has none of its own."""
    can_be_differentiated: bool = False
    """A ``backward`` without ``of`` runs on its result."""
    gives_gradients: bool = False
    """An optimizer may stand below it."""
    needs_own_graphs: bool = False
    """Only graphs that were compiled of its own function prove that the backend ran it; a helper's graphs do not."""
    is_proof: bool = True
    """The proof that the backend ran is judged for it."""
    is_optional: bool = False
    """It runs under ``--bench`` only."""
    is_last: bool = False
    """It stands below every step of another kind."""
    is_exclusive: bool = False
    """Nothing runs beside a case that has it."""
    own_process: str = ""
    """Why a case that has it shares no worker with other cases; empty where it may."""
    children: int = 0
    """How many processes that import torch it starts."""
    has_exit: bool = False
    """It has a child whose exit can be judged."""
    python: str = ""
    """The key of its arguments that holds Python; empty where none does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Callee:
    """What a step calls, ``{call: NAME, args: [...], kwargs: {...}}``, and where that stands below the step."""

    call: Json
    args: Json = None
    kwargs: Json = None
    place: DataPath = ()


@dataclass(frozen=True, slots=True)
class StepKind:
    """A kind of step. An instance holds the arguments of one step, as the spec has them or with their templates evaluated.

    The fields of a kind are the keys of its schema; ``as_`` is ``as``. ``runs`` is the function ``run`` beside the class: it runs in the
    worker and imports torch within.
    """

    kind: ClassVar[str]
    traits: ClassVar[Traits] = Traits()

    @staticmethod
    def runs(session: Session, arguments: Any, /) -> None:
        """Do a step; the arguments are an instance of the kind. Each kind has its own."""
        raise NotImplementedError

    @classmethod
    def parse(cls, body: Json) -> Self:
        """Read the arguments that the schema let through."""
        return cls(**{_FIELDS.get(key, key): value for key, value in body.items()})

    @property
    def bound(self) -> str | None:
        """The name that it gives its result."""
        return getattr(self, "as_", None)

    @property
    def names(self) -> Iterator[str]:
        """The values that its arguments name."""
        for field in fields(self):
            yield from _referenced(getattr(self, field.name))

    @property
    def runs_graphs(self) -> bool:
        """Whether it must run a compiled graph."""
        return False

    @property
    def compares_effects(self) -> bool:
        """Whether what it changes is compared with what eager changes."""
        return False

    @property
    def clears_counters(self) -> bool:
        """Whether counters begin anew with it."""
        return False

    @property
    def differentiated(self) -> str | None:
        """The name of the result that it runs backward on, for which the eager side keeps its own."""
        return None

    @property
    def input_lists(self) -> Iterator[tuple[DataPath, Inputs]]:
        """The lists of inputs that it has of its own, and where each stands below it."""
        return iter(())

    @property
    def callees(self) -> Iterator[Callee]:
        """What it calls by name."""
        return iter(())

    def why_no_reference(self, above: Sequence["StepKind"]) -> tuple[str, str] | None:
        """Return why it has no eager reference, and a hint; None where it has one. ``above`` are the steps before it."""
        return f"the step '{self.kind}' has no eager reference", "compare with a named value"

    def problems(self, around: Around) -> Iterator[Diagnostic]:
        """Yield what is wrong with it as it is written."""
        return iter(())

    def name_problems(self, around: Around) -> Iterator[Diagnostic]:
        """Yield what is wrong with the names that it uses; also asked at each point of the matrix, with templates evaluated."""
        return iter(())


_FIELDS: Mapping[str, str] = {"as": "as_"}
"""Keys that are no names of Python."""


def is_template(value: object) -> bool:
    """Whether a value of a spec is a template, so that only a point of the matrix says what it is."""
    return isinstance(value, str) and "{{" in value


def _referenced(value: Json) -> Iterator[str]:
    if isinstance(value, Mapping):
        if set(value) == {"ref"}:
            yield str(value["ref"])
        for item in value.values():
            yield from _referenced(item)
    elif isinstance(value, list):
        for item in value:
            yield from _referenced(item)
