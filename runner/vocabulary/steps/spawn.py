"""``spawn``: calls a function in a child process that ``multiprocessing`` spawns, or runs a program."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from runner.core.diagnostics import Diagnostic
from runner.core.protocol import Json
from runner.vocabulary.steps import programs
from runner.vocabulary.steps.around import Around
from runner.vocabulary.steps.base import Callee, StepKind
from runner.vocabulary.steps.session import Session, callable_of, values_of
from runner.vocabulary.steps.traits import Traits


def run(session: Session, arguments: "Spawn") -> None:
    """Start the child and wait for it."""
    import multiprocessing

    if arguments.program is not None:
        session.exit = programs.run(session, arguments.program, arguments.argv)
        return
    function = callable_of(session, arguments.call)
    args, kwargs = values_of(session, arguments.args, arguments.kwargs)
    with session.phases("spawn"):
        child = multiprocessing.get_context("spawn").Process(target=function, args=args, kwargs=kwargs)
        child.start()
        child.join()
    session.exit = {"code": child.exitcode, "stderr": session.log_of_step()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawn(StepKind):
    """``spawn: {call: NAME, args: [...], kwargs: {...}}`` or ``spawn: {program: python, argv: [...]}``."""

    kind: ClassVar[str] = "spawn"
    traits: ClassVar[Traits] = Traits(has_exit=True, children=1)
    runs = staticmethod(run)
    call: Json = None
    args: Json = None
    kwargs: Json = None
    program: str | None = None
    argv: Json = None

    @property
    def callees(self) -> Iterator[Callee]:
        """The function that the child calls."""
        if self.call is not None:
            yield Callee(call=self.call, args=self.args, kwargs=self.kwargs)

    def name_problems(self, around: Around) -> Iterator[Diagnostic]:
        """Yield a missing ``exit`` expectation."""
        if not any(expected.kind == "exit" for expected in around.expected):
            yield around.problem(around.path, "nothing is expected of the child", "add expect: [{exit: {code: 0}}]", key=True)
