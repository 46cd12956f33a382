"""What the checks of a step may ask about the spec that it stands in. ``language/check/around.py`` answers."""

import ast
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from runner.core.diagnostics import Diagnostic
from runner.core.model import Json

if TYPE_CHECKING:
    from runner.vocabulary.steps.base import StepKind

DataPath = tuple[str | int, ...]
"""Keys and indices that lead to a value of a spec."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendOfSpec:
    """A backend on which a spec runs."""

    name: str
    compiles: bool
    has_graphs: bool
    """Whether its proof allows a compiled graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedOfStep:
    """An expectation of a step, as written."""

    kind: str
    path: DataPath


class Around(Protocol):
    """The spec around a step. Paths begin at the spec."""

    @property
    def path(self) -> DataPath:
        """Where the step stands."""
        ...

    @property
    def above(self) -> Sequence["StepKind"]:
        """The steps before it."""
        ...

    @property
    def expected(self) -> Sequence[ExpectedOfStep]:
        """What is expected of it."""
        ...

    @property
    def functions(self) -> Collection[str]:
        """The names of the spec's functions."""
        ...

    @property
    def backends(self) -> Sequence[BackendOfSpec]:
        """The backends that the spec names, as far as there are such."""
        ...

    @property
    def tree(self) -> ast.Module | None:
        """The step's Python; None where it has none, or it does not parse."""
        ...

    def problem(self, path: DataPath, message: str, hint: str = "", *, key: bool = False) -> Diagnostic:
        """Return a diagnostic at a place of the spec (at its key when ``key``)."""
        ...

    def name_problem(self, name: str) -> tuple[str, str] | None:
        """Return (message, hint) for a name that is not there when the step begins."""
        ...

    def input_problems(self, function: str, inputs: list[Json] | None, path: DataPath) -> Iterator[Diagnostic]:
        """Yield why a function does not take these inputs, which stand at ``path``; None for those of the spec."""
        ...
