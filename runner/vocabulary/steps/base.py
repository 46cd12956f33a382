"""The base class of the kinds of steps: arguments, traits, checks, and the function that the worker runs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

from runner.core.conditions import Surroundings
from runner.core.diagnostics import Diagnostic
from runner.core.protocol import Json
from runner.vocabulary.steps.around import Around, DataPath, StepAbove
from runner.vocabulary.steps.session import Session
from runner.vocabulary.steps.traits import Traits

Inputs = list[Json]
"""The arguments of a call, written like ``inputs`` of a spec."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Callee:
    """What a step calls, ``{call: NAME, args: [...], kwargs: {...}}``, and its path below the step."""

    call: Json
    args: Json = None
    kwargs: Json = None
    place: DataPath = ()


@dataclass(frozen=True, slots=True)
class StepKind:
    """A kind of step. An instance holds the arguments of one step, as the spec has them or with their templates evaluated.

    The fields of a kind are the keys of its schema; ``as_`` is ``as``. ``runs`` is the module's function ``run``: it runs in the
    worker and imports torch within.
    """

    kind: ClassVar[str]
    traits: ClassVar[Traits] = Traits()

    @staticmethod
    def runs(session: Session, arguments: Any, /) -> None:
        """Run a step; the arguments are an instance of the kind. Each kind overrides it."""
        raise NotImplementedError

    @classmethod
    def parse(cls, body: Json) -> Self:
        """Read the arguments, which match the schema."""
        return cls(**{_FIELDS.get(key, key): value for key, value in body.items()})

    @classmethod
    def planned(cls, arguments: Mapping[str, Json], here: Surroundings) -> Mapping[str, Json]:
        """Return the arguments of a case as the worker gets them: with conditions decided, where a kind has some."""
        return arguments

    @property
    def bound(self) -> str | None:
        """The name of its result."""
        return getattr(self, "as_", None)

    @property
    def names(self) -> Iterator[str]:
        """The names of values in its arguments."""
        for field in fields(self):
            yield from _referenced(getattr(self, field.name))

    @property
    def runs_graphs(self) -> bool:
        """Whether it must run a compiled graph."""
        return False

    @property
    def compares_effects(self) -> bool:
        """Whether its side effects are compared with those of eager."""
        return False

    @property
    def clears_counters(self) -> bool:
        """Whether it sets counters to zero."""
        return False

    @property
    def differentiates(self) -> bool:
        """Whether it runs backward on a result."""
        return False

    @property
    def differentiated(self) -> str | None:
        """The name of the result that it differentiates; the eager side stores its own result of that name."""
        return None

    @property
    def input_lists(self) -> Iterator[tuple[DataPath, Inputs]]:
        """Its own lists of inputs, with their paths below the step."""
        return iter(())

    @property
    def callees(self) -> Iterator[Callee]:
        """The functions that it calls by name."""
        return iter(())

    def why_no_reference(self, above: Sequence[StepAbove]) -> tuple[str, str] | None:
        """Return why it has no eager reference, and a hint; None where it has one. ``above`` are the steps before it."""
        return f"the step '{self.kind}' has no eager reference", "compare with a named value"

    def problems(self, around: Around) -> Iterator[Diagnostic]:
        """Yield the problems of the step as written."""
        return iter(())

    def name_problems(self, around: Around) -> Iterator[Diagnostic]:
        """Yield the problems of the names that it uses; checked again at each point of the matrix, with templates evaluated."""
        return iter(())


_FIELDS: Mapping[str, str] = {"as": "as_"}
"""Keys that are Python keywords."""


def _referenced(value: Json) -> Iterator[str]:
    if isinstance(value, Mapping):
        if set(value) == {"ref"}:
            yield str(value["ref"])
        for item in value.values():
            yield from _referenced(item)
    elif isinstance(value, list):
        for item in value:
            yield from _referenced(item)
