"""``call``: calls a function of the spec, compiled by ``torch.compile`` or eagerly."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from runner.core.diagnostics import Diagnostic, unknown
from runner.core.protocol import Json
from runner.vocabulary.steps.around import Around, DataPath, StepAbove
from runner.vocabulary.steps.base import Inputs, StepKind
from runner.vocabulary.steps.session import Call as Wanted
from runner.vocabulary.steps.session import Session
from runner.vocabulary.steps.traits import Traits

ONLY = "function"
"""The name of the function of a spec that has just one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calling(StepKind):
    """The common arguments and checks of ``call`` and ``aot``, which call a function of the spec with inputs."""

    function: str | None = None
    inputs: Inputs | None = None
    context: list[Json] | None = None
    side_effects: bool | None = None
    as_: str | None = None

    @property
    def runs_graphs(self) -> bool:
        """Always: the function is compiled."""
        return True

    @property
    def compares_effects(self) -> bool:
        """Unless ``side_effects`` is false."""
        return self.side_effects is not False

    @property
    def input_lists(self) -> Iterator[tuple[DataPath, Inputs]]:
        """Its own inputs."""
        if self.inputs is not None:
            yield ("inputs",), self.inputs

    def why_no_reference(self, above: Sequence[StepAbove]) -> tuple[str, str] | None:
        """It always has a reference."""
        return None

    def problems(self, around: Around) -> Iterator[Diagnostic]:
        """Yield an unknown function, inputs that do not fit, and backends that compile nothing."""
        yield from self._backend_problems(around)
        if not around.functions:
            yield around.problem((), "spec needs the key 'function'", "the function to compile; a spec with only api steps needs none")
        name = self.function if self.function is not None else ONLY if ONLY in around.functions else None
        if name is None:
            if len(around.functions) != 1:
                if around.functions:
                    hint = f"write {self.kind}: {{function: {next(iter(around.functions))}}}"
                    yield around.problem(around.path, "which of the functions?", hint, key=True)
                return
            name = next(iter(around.functions))
        if name not in around.functions:
            yield around.problem((*around.path, "function"), *unknown("function", name, around.functions))
            return
        yield from around.input_problems(name, self.inputs, (*around.path, "inputs") if self.inputs is not None else ("inputs",))

    def _backend_problems(self, around: Around) -> Iterator[Diagnostic]:
        if any(isinstance(step, Calling) for step in around.above):
            return  # the first is enough
        for backend in around.backends:
            if not backend.compiles:
                message = f"the step '{self.kind}' on '{backend.name}', which compiles nothing"
                yield around.problem(around.path, message, "use api steps, or another backend", key=True)


def run(session: Session, arguments: "Call") -> None:
    """Call the function; its reference first, unless the call is eager."""
    name = arguments.function or next(iter(session.compiled.targets))
    is_eager = bool(arguments.eager)
    wanted = Wanted(
        function=name,
        inputs=arguments.inputs,
        context=arguments.context,
        target=lambda: session.compiled.targets[name] if is_eager else session.compiled_target(name),
        phase="eager" if is_eager else "trace",
        has_reference=not is_eager,
    )
    session.call(wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Calling):
    """``call: {function: NAME, inputs: [...], context: [...], eager: false, as: NAME}``."""

    kind: ClassVar[str] = "call"
    traits: ClassVar[Traits] = Traits(
        has_result=True,
        claims=True,
        compiles=True,
        enters_context=True,
        can_be_differentiated=True,
        can_be_called_again=True,
        needs_own_graphs=True,
    )
    runs = staticmethod(run)
    eager: bool = False

    @property
    def runs_graphs(self) -> bool:
        """Unless it is eager."""
        return not self.eager

    @property
    def compares_effects(self) -> bool:
        """Unless it is eager, or ``side_effects`` is false."""
        return not self.eager and self.side_effects is not False

    def why_no_reference(self, above: Sequence[StepAbove]) -> tuple[str, str] | None:
        """An eager call has no reference."""
        return ("an eager call compared with eager cannot differ", "compare with a named value") if self.eager is True else None
