"""The spec around a step, for the checks of its kind."""

import ast
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from runner.core.diagnostics import Diagnostic
from runner.core.protocol import Json
from runner.language.backends import Backends
from runner.language.check.functions import arity_problems
from runner.language.check.scope import Scope, before
from runner.language.read.anatomy import Anatomy, RawStep
from runner.vocabulary.steps import BackendOfSpec, DataPath, ExpectedOfStep, StepKind


@dataclass(frozen=True, slots=True)
class StepInSpec:
    """One step with the spec that it stands in (``vocabulary.steps.Around``)."""

    anatomy: Anatomy
    known: Backends
    scope: Scope
    parsed: Sequence[StepKind]
    """The arguments of every step."""
    index: int

    @property
    def step(self) -> RawStep:
        """The step itself."""
        return self.anatomy.steps[self.index]

    @property
    def path(self) -> DataPath:
        """The path of the step."""
        return self.step.path

    @property
    def above(self) -> Sequence[StepKind]:
        """The steps before it."""
        return self.parsed[: self.index]

    @property
    def expected(self) -> Sequence[ExpectedOfStep]:
        """The expectations of the step."""
        return [ExpectedOfStep(kind=one.kind, path=one.path) for one in self.step.expectations]

    @property
    def functions(self) -> Collection[str]:
        """The names of the spec's functions."""
        return self.anatomy.functions

    @property
    def backends(self) -> Sequence[BackendOfSpec]:
        """The backends that the spec names, without unknown ones."""
        found = (self.known.by_name.get(name) for name in self.anatomy.data["backends"])
        return [
            BackendOfSpec(name=one.name, compiles=one.compiles, has_graphs=one.proof.graphs is None or one.proof.graphs.most != 0)
            for one in found
            if one is not None
        ]

    @property
    def tree(self) -> ast.Module | None:
        """The step's Python; None if it has none, or does not parse."""
        script = self.anatomy.scripts.get(self.step.path)
        return None if script is None else script.tree

    def problem(self, path: DataPath, message: str, hint: str = "", *, key: bool = False) -> Diagnostic:
        """Return a diagnostic at a place of the spec."""
        return self.anatomy.document.problem(path, message, hint, key=key)

    def name_problem(self, name: str) -> tuple[str, str] | None:
        """Return (message, hint) for a name that is not defined when the step begins."""
        return self.scope.problem(name, before(self.index))

    def input_problems(self, function: str, inputs: list[Json] | None, path: DataPath) -> Iterator[Diagnostic]:
        """Yield why a function does not take these inputs; None means the inputs of the spec."""
        given = self.anatomy.data.get("inputs", []) if inputs is None else inputs
        yield from arity_problems(self.anatomy, function, given, path)


def steps_in_spec(anatomy: Anatomy, backends: Backends) -> list[StepInSpec]:
    """Return every step of a spec with the spec around it."""
    scope = Scope(anatomy)
    parsed = [step.parsed for step in anatomy.steps]
    return [StepInSpec(anatomy, backends, scope, parsed, index) for index in range(len(anatomy.steps))]
