"""``backward``: differentiates a loss of a result, compiled and eager."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from runner.core.diagnostics import Diagnostic, did_you_mean
from runner.core.template_form import is_template
from runner.vocabulary.expectations.base import EAGER, OUTPUT
from runner.vocabulary.steps.around import Around, StepAbove
from runner.vocabulary.steps.base import StepKind
from runner.vocabulary.steps.call import Calling
from runner.vocabulary.steps.gradients import LOSSES, differentiation, gradients_of
from runner.vocabulary.steps.session import Session, needed
from runner.vocabulary.steps.traits import Traits


def run(session: Session, arguments: "Backward") -> None:
    """Run backward on both sides; the results are the gradients of arguments, then of parameters."""
    of = arguments.of
    with needed("what backward runs on"):
        result = session.compiled.result if of is None else session.scope.named(of)
        differentiate = differentiation(arguments.loss, arguments.gradient, session.scope)
    compiled, eager = session.compiled.called, session.reference.side
    if eager is not None:
        session.effects.begin(compiled, eager.called)
    session.reference.backward(of, differentiate)
    if eager is not None:
        session.effects.eager_done(eager.called)
    with session.phases("trace"):  # the backward graph is compiled when it is first run
        session.output = gradients_of(result, compiled, differentiate)
        session.device_api.synchronize()
    session.effects.finish(compiled, eager if session.reference.is_there else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backward(StepKind):
    """``backward: {of: NAME, loss: NAME, gradient: NAME, as: NAME}``."""

    kind: ClassVar[str] = "backward"
    traits: ClassVar[Traits] = Traits(
        has_result=True,
        claims=True,
        can_be_called_again=True,
        gives_gradients=True,
        needs_own_graphs=True,
        why_once="a result is differentiated once: write call and backward as often as needed",
    )
    runs = staticmethod(run)
    of: str | None = None
    loss: str | None = None
    gradient: str | None = None
    side_effects: bool | None = None
    as_: str | None = None

    @property
    def compares_effects(self) -> bool:
        """Unless ``side_effects`` is false."""
        return self.side_effects is not False

    @property
    def names(self) -> Iterator[str]:
        """Its loss and its gradient."""
        yield from (name for name in (self.loss, self.gradient) if name is not None and name not in LOSSES)

    @property
    def runs_graphs(self) -> bool:
        """Always: the differentiated result comes from a compiled call."""
        return True

    @property
    def differentiates(self) -> bool:
        """Always."""
        return True

    @property
    def differentiated(self) -> str | None:
        """The name of the differentiated result, without a path."""
        return None if self.of is None else self.of.split(".")[0]

    def why_no_reference(self, above: Sequence[StepAbove]) -> tuple[str, str] | None:
        """A backward on a value that is no result of a call has no reference."""
        why = "" if self.of is None else _why_not_of_a_call(str(self.of), above)
        if not why:
            return None
        hint = "give the call's result a name with 'as', and write backward: {of: NAME}; or compare with a named value"
        return f"this backward has no eager reference: {why}", hint

    def problems(self, around: Around) -> Iterator[Diagnostic]:
        """Yield a gradient beside a loss."""
        if self.loss is not None and self.gradient is not None:
            hint = "a loss is one number, whose gradient is 1: scale it in the loss, or leave one of the two out"
            yield around.problem((*around.path, "gradient"), "'gradient' beside 'loss'", hint, key=True)

    def name_problems(self, around: Around) -> Iterator[Diagnostic]:
        """Yield why there is no result to differentiate, and unknown names of a loss or a gradient."""
        yield from self._result_problems(around)
        for key, name in (("loss", self.loss), ("gradient", self.gradient)):
            if name is None or is_template(name) or (key == "loss" and name in LOSSES):
                continue
            if (found := around.name_problem(name)) is not None:
                words = did_you_mean(name, LOSSES) if key == "loss" else ""
                yield around.problem((*around.path, key), found[0], words or found[1])

    def _result_problems(self, around: Around) -> Iterator[Diagnostic]:
        name = OUTPUT if self.of is None else self.of
        path = (*around.path, "of")
        if name.split(".")[0] == OUTPUT and not any(step.traits.can_be_differentiated for step in around.above):
            yield around.problem(around.path, "backward before any call", "put a call step above it", key=True)
        elif is_template(name):
            return
        elif name.split(".")[0] == EAGER:
            hint = "leave it out, or name a result: the eager side runs backward of its own"
            yield around.problem(path, "backward runs on what is compiled, not on its reference", hint)
        elif (found := around.name_problem(name)) is not None:
            yield around.problem(path, *found)


def _why_not_of_a_call(name: str, above: Sequence[StepAbove]) -> str:
    """Return why the eager side has no result of this name; empty if it has one."""
    first = name.split(".")[0]
    giving = next((step for step in reversed(above) if (first == OUTPUT and step.traits.has_result) or step.bound == first), None)
    if is_template(name) or (isinstance(giving, Calling) and giving.why_no_reference(()) is None):
        return ""
    if giving is None:
        return f"'{first}' is no result of a call"
    return f"'{first}' is the result of {'an eager call' if isinstance(giving, Calling) else f'the step {giving.kind!r}'}"
