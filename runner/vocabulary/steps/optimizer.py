"""``optimizer``: runs an optimizer's step on the parameters of the last call's function, compiled and eager."""

import copy
import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from runner.core.diagnostics import Diagnostic
from runner.core.protocol import Json, encode
from runner.vocabulary.steps.around import Around, StepAbove
from runner.vocabulary.steps.base import Callee, StepKind
from runner.vocabulary.steps.session import Session, Side, needed, values_of
from runner.vocabulary.steps.traits import Traits

if TYPE_CHECKING:
    import torch


def run(session: Session, arguments: "Optimizer") -> None:
    """Run the optimizer's step; the results are the parameters, in order.

    Equal arguments reuse the same optimizer object, so that its state persists between steps. Raises ``RuntimeError`` if no parameter
    has a gradient.
    """
    eager = session.reference.side
    if eager is None:
        session.reference.forget()
    else:
        session.effects.begin(session.compiled.called, eager.called)
        again = functools.partial(_step_again, session, _made(arguments), _state_before(session, eager, arguments))
        with session.phases("eager"), session.reference.running():
            session.reference.stepped(_step(session, eager, arguments), again)
        session.effects.eager_done(eager.called)
    with session.phases("optimizer"):
        session.output = _step(session, session.compiled, arguments)
        session.device_api.synchronize()
    session.effects.finish(session.compiled.called, eager)


def _step(session: Session, side: Side, arguments: "Optimizer") -> Any:
    parameters = parameters_of(side.called)
    if all(parameter.grad is None for parameter in parameters):
        raise RuntimeError("nothing to optimize: no parameter of the last call's function has a gradient")
    optimizers, key = session.kept.setdefault(Optimizer.kind, {}), _key(arguments, parameters)
    if key not in optimizers:
        optimizers[key] = make_optimizer(session, _made(arguments), parameters)
    optimizers[key].step()
    return session.copy(parameters)


def _made(arguments: "Optimizer") -> dict[str, Json]:
    return {"call": arguments.call, "kwargs": {} if arguments.kwargs is None else arguments.kwargs}


def _key(arguments: "Optimizer", parameters: "Sequence[torch.Tensor]") -> str:
    return json.dumps([encode(_made(arguments)), [id(parameter) for parameter in parameters]])


def _state_before(session: Session, side: Side, arguments: "Optimizer") -> Any:
    """Return a copy of the state of the optimizer before the step; None where the step makes the optimizer."""
    optimizer = session.kept.get(Optimizer.kind, {}).get(_key(arguments, parameters_of(side.called)))
    return None if optimizer is None else copy.deepcopy(optimizer.state_dict())


def _step_again(session: Session, made: Mapping[str, Json], state: Any, called: Sequence[Any]) -> Any:
    """Make the step with another optimizer of the same state; return the parameters."""
    parameters = parameters_of(called)
    optimizer = make_optimizer(session, made, parameters)
    if state is not None:
        optimizer.load_state_dict(copy.deepcopy(state))
    optimizer.step()
    return session.copy(parameters)


def make_optimizer(session: Session, wanted: Mapping[str, Json], parameters: "Sequence[torch.Tensor]") -> Any:
    """Return the optimizer that ``{call: ..., kwargs: ...}`` makes for the parameters; raise ``NotCarriedOut`` if that fails."""
    _, kwargs = values_of(session, None, wanted.get("kwargs"))
    with needed("the optimizer"):
        return session.scope.callable(wanted["call"])(list(parameters), **kwargs)


def parameters_of(called: Sequence[Any]) -> "list[torch.nn.Parameter]":
    """Return the trainable parameters of every module in a call, each once."""
    import torch
    from torch.utils import _pytree as pytree

    modules = [leaf for leaf in pytree.tree_leaves(list(called)) if isinstance(leaf, torch.nn.Module)]
    found = [parameter for module in modules for parameter in module.parameters() if parameter.requires_grad]
    return list({id(parameter): parameter for parameter in found}.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer(StepKind):
    """``optimizer: {call: torch.optim.SGD, kwargs: {lr: 0.1}, as: NAME}``."""

    kind: ClassVar[str] = "optimizer"
    traits: ClassVar[Traits] = Traits(has_result=True, claims=True)
    runs = staticmethod(run)
    call: Json
    kwargs: Json = None
    side_effects: bool | None = None
    as_: str | None = None

    @property
    def compares_effects(self) -> bool:
        """Unless ``side_effects`` is false."""
        return self.side_effects is not False

    @property
    def callees(self) -> Iterator[Callee]:
        """The class of the optimizer."""
        yield Callee(call=self.call, kwargs=self.kwargs)

    def why_no_reference(self, above: Sequence[StepAbove]) -> tuple[str, str] | None:
        """It always has a reference."""
        return None

    def problems(self, around: Around) -> Iterator[Diagnostic]:
        """Yield a missing backward step."""
        if not any(step.traits.gives_gradients for step in around.above):
            yield around.problem(around.path, "an optimizer before any backward", "put a backward step above it", key=True)
