"""``script``: runs Python that calls torch; its parameters are named values."""

import ast
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from runner.core.diagnostics import Diagnostic, one_of
from runner.core.protocol import Json
from runner.vocabulary.steps.around import Around
from runner.vocabulary.steps.base import StepKind
from runner.vocabulary.steps.session import Session, needed
from runner.vocabulary.steps.traits import Traits

COMPILED = "compiled"
"""The name of the compiled function."""


def run(session: Session, arguments: "Script") -> None:
    """Call the def with the values that its parameters name."""
    function = session.function_of(arguments.code, arguments.entry)
    with needed("what the script names"):
        given = {name: session.scope.named(name) for name in inspect.signature(function).parameters}
    with session.phases("script"):
        session.output = function(**given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Script(StepKind):
    """``script: {code: PYTHON, as: NAME}``. In a case ``code`` is a block, and ``entry`` the name of its def."""

    kind: ClassVar[str] = "script"
    traits: ClassVar[Traits] = Traits(has_result=True, claims=True, needs_own_graphs=True, python="code")
    runs = staticmethod(run)
    code: Json
    entry: str = ""
    as_: str | None = None

    @property
    def names(self) -> Iterator[str]:
        """The parameters of its def, and of functions within it."""
        text = self.code if isinstance(self.code, str) else self.code["text"]
        return (node.arg for node in ast.walk(ast.parse(text)) if isinstance(node, ast.arg))

    @property
    def runs_graphs(self) -> bool:
        """If it has a parameter ``compiled``."""
        return COMPILED in self.names

    def name_problems(self, around: Around) -> Iterator[Diagnostic]:
        """Yield a number of defs other than one, and parameters that name no value."""
        path = (*around.path, "code")
        if around.tree is None:
            return
        # of two defs with one name, Python binds the last
        defs = list({node.name: node for node in around.tree.body if isinstance(node, ast.FunctionDef)}.values())
        if len(defs) != 1:
            names = one_of([node.name for node in defs]) if defs else "none"
            hint = "move the others to prelude" if defs else "write def NAME(...): ..., whose parameters are named values"
            yield around.problem(path, f"a script is one def, found {names}", hint)
            return
        arguments = defs[0].args
        for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            found = around.name_problem(argument.arg)
            if found is not None:
                yield around.problem(path, f"{found[0]}: a parameter of a script is a named value", found[1])
        if arguments.posonlyargs or arguments.vararg or arguments.kwarg:
            yield around.problem(path, "a script takes its values by name", "write plain parameters")
