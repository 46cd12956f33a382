"""The interface for checks of a step to the spec around it. ``language/check/around.py`` implements it."""

import ast
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from runner.core.diagnostics import Diagnostic
from runner.core.protocol import Json
from runner.vocabulary.steps.traits import Traits

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


class StepAbove(Protocol):
    """A step before another one: of any kind."""

    kind: ClassVar[str]
    traits: ClassVar[Traits]

    @property
    def bound(self) -> str | None:
        """The name of its result."""
        ...


class Around(Protocol):
    """The spec around a step. Paths begin at the spec."""

    @property
    def path(self) -> DataPath:
        """The path of the step."""
        ...

    @property
    def above(self) -> Sequence[StepAbove]:
        """The steps before it."""
        ...

    @property
    def expected(self) -> Sequence[ExpectedOfStep]:
        """The expectations of the step."""
        ...

    @property
    def functions(self) -> Collection[str]:
        """The names of the spec's functions."""
        ...

    @property
    def backends(self) -> Sequence[BackendOfSpec]:
        """The backends that the spec names, without unknown ones."""
        ...

    @property
    def tree(self) -> ast.Module | None:
        """The step's Python; None if it has none, or does not parse."""
        ...

    def problem(self, path: DataPath, message: str, hint: str = "", *, key: bool = False) -> Diagnostic:
        """Return a diagnostic at a place of the spec (at its key when ``key``)."""
        ...

    def name_problem(self, name: str) -> tuple[str, str] | None:
        """Return (message, hint) for a name that is not defined when the step begins."""
        ...

    def input_problems(self, function: str, inputs: list[Json] | None, path: DataPath) -> Iterator[Diagnostic]:
        """Yield why a function does not take these inputs at ``path``; None means the inputs of the spec."""
        ...
