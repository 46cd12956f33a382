"""``backward`` and ``optimizer``: gradients, and steps that use them."""

import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from runner.model.conditions import is_template
from runner.model.diagnostics import Diagnostic, did_you_mean
from runner.model.protocol import Json, encode
from runner.vocabulary.expectations.expectation_base import EAGER, OUTPUT
from runner.vocabulary.expectations.parts import opened
from runner.vocabulary.steps.call import Calling
from runner.vocabulary.steps.step_base import Around, Callee, StepKind, Traits
from runner.vocabulary.steps.step_session import Session, Side, needed, values_of

if TYPE_CHECKING:
    import torch

Differentiate = Callable[[Any], None]
"""Runs backward on a result."""


def gradient_leaves(called: Sequence[Any]) -> "list[torch.Tensor]":
    """Return the tensors that get gradients: arguments with ``requires_grad``, then parameters of modules, each once."""
    import torch
    from torch.utils import _pytree as pytree

    tensors = [leaf for leaf in pytree.tree_leaves(list(called)) if isinstance(leaf, torch.Tensor)]
    modules = [leaf for leaf in pytree.tree_leaves(list(called)) if isinstance(leaf, torch.nn.Module)]
    parameters = [parameter for module in modules for parameter in module.parameters()]
    leaves = [tensor for tensor in [*tensors, *parameters] if tensor.requires_grad and tensor.is_leaf]
    return list({id(tensor): tensor for tensor in leaves}.values())


def forget_gradients(called: Sequence[Any]) -> None:
    """Delete the gradients of a target and its arguments."""
    for leaf in gradient_leaves(called):
        leaf.grad = None


def differentiable(result: Any) -> "list[torch.Tensor]":
    """Return the tensors of a result, also those of objects in it, that require a gradient."""
    import torch
    from torch.utils import _pytree as pytree

    leaves = pytree.tree_leaves(opened(result, lambda tensor, _: tensor, []))
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]


def _tensors_of(result: Any) -> "list[torch.Tensor]":
    """Return the tensors of a result that require a gradient; raise ``RuntimeError`` if there is none."""
    tensors = differentiable(result)
    if not tensors:
        raise RuntimeError("nothing to run backward on: no tensor of the result requires a gradient")
    return tensors


LOSSES: Mapping[str, Callable[[Any], Any]] = {
    "sum": lambda result: sum(tensor.sum() for tensor in _tensors_of(result)),
    "mean": lambda result: sum(tensor.mean() for tensor in _tensors_of(result)),
}
"""The losses that the language has a word for: of each tensor of a result, then added."""

SUM = "sum"
"""The loss of a ``backward`` that names none."""


def differentiation(loss: str | None, gradient: str | None, scope: Any) -> Differentiate:
    """Return the function that runs backward: from a loss of the result, or with a named gradient of it."""
    import torch

    named = scope.named(gradient) if gradient is not None else None
    word = SUM if loss is None else loss
    function = None if gradient is not None else LOSSES[word] if word in LOSSES else scope.named(word)

    def differentiate(result: Any) -> None:
        if function is None:
            tensors = _tensors_of(result)
            gradients = list(named) if isinstance(named, list | tuple) else [named]
            if len(gradients) != len(tensors):
                counts = f"holds {len(gradients)} values, the result {len(tensors)} tensors that require a gradient"
                raise ValueError(f"the gradient '{gradient}' {counts}")
            torch.autograd.backward(tensors, [grad.detach() if isinstance(grad, torch.Tensor) else grad for grad in gradients])
            return
        number = function(result)
        if not isinstance(number, torch.Tensor) or number.numel() != 1:
            kind = f"a tensor of shape {list(number.shape)}" if isinstance(number, torch.Tensor) else f"a {type(number).__name__}"
            raise TypeError(f"the loss '{word}' returned {kind}, not a tensor of one number")
        number.backward()

    return differentiate


def gradients_of(result: Any, called: Sequence[Any], differentiate: Differentiate) -> "list[torch.Tensor | None]":
    """Run backward on the result of a call, and return a copy of each gradient in the order of ``gradient_leaves``."""
    differentiate(result)
    return [None if leaf.grad is None else leaf.grad.clone() for leaf in gradient_leaves(called)]


def run_backward(session: Session, arguments: "Backward") -> None:
    """Run backward on both sides; the results are the gradients of arguments, then of parameters."""
    of = arguments.of
    with needed("what backward runs on"):
        result = session.compiled.result if of is None else session.scope.named(of)
        differentiate = differentiation(arguments.loss, arguments.gradient, session.scope)
    compiled, eager = session.compiled.called, session.reference.side
    session.compiled.is_differentiated = True
    if eager is not None:
        eager.is_differentiated = True
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
    runs = staticmethod(run_backward)
    of: str | None = None
    loss: str | None = None
    gradient: str | None = None
    side_effects: bool | None = None
    as_: str | None = None

    @property
    def names(self) -> Iterator[str]:
        """Its loss and its gradient."""
        yield from (name for name in (self.loss, self.gradient) if name is not None and name not in LOSSES)

    @property
    def runs_graphs(self) -> bool:
        """Always: the differentiated result comes from a compiled call."""
        return True

    @property
    def differentiated(self) -> str | None:
        """The name of the differentiated result, without a path."""
        return None if self.of is None else self.of.split(".")[0]

    def why_no_reference(self, above: Sequence[StepKind]) -> tuple[str, str] | None:
        """A backward on a value that is no result of a call has no reference."""
        if self.of is None or is_template(self.of):
            return None
        first = self.of.split(".")[0]
        giving = next((step for step in reversed(above) if (first == OUTPUT and step.traits.has_result) or step.bound == first), None)
        if isinstance(giving, Calling):
            if giving.why_no_reference(()) is None:
                return None
            why = f"'{first}' is the result of an eager call"
        else:
            why = f"'{first}' is {'no result of a call' if giving is None else f'the result of the step {giving.kind!r}'}"
        hint = "give the call's result a name with 'as', and write backward: {of: NAME}; or compare with a named value"
        return f"this backward has no eager reference: {why}", hint

    def problems(self, around: Around) -> Iterator[Diagnostic]:
        """Yield a gradient beside a loss."""
        if self.loss is not None and self.gradient is not None:
            hint = "a loss is one number, whose gradient is 1: scale it in the loss, or leave one of the two out"
            yield around.problem((*around.path, "gradient"), "'gradient' beside 'loss'", hint, key=True)

    def name_problems(self, around: Around) -> Iterator[Diagnostic]:
        """Yield why there is no result to differentiate, and unknown names of a loss or a gradient."""
        name = OUTPUT if self.of is None else self.of
        path = (*around.path, "of")
        if name.split(".")[0] == OUTPUT and not any(step.traits.can_be_differentiated for step in around.above):
            yield around.problem(around.path, "backward before any call", "put a call step above it", key=True)
        elif not is_template(name) and name.split(".")[0] == EAGER:
            hint = "leave it out, or name a result: the eager side runs backward of its own"
            yield around.problem(path, "backward runs on what is compiled, not on its reference", hint)
        elif not is_template(name) and (problem := around.name_problem(name)) is not None:
            yield around.problem(path, *problem)
        for key, used in (("loss", self.loss), ("gradient", self.gradient)):
            if used is None or is_template(used) or (key == "loss" and used in LOSSES):
                continue
            if (problem := around.name_problem(used)) is not None:
                words = did_you_mean(used, LOSSES) if key == "loss" else ""
                yield around.problem((*around.path, key), problem[0], words or problem[1])


def run_optimizer(session: Session, arguments: "Optimizer") -> None:
    """Run the optimizer's step; the results are the parameters, in order.

    Equal arguments reuse the same optimizer object, so that its state persists between steps. Raises ``RuntimeError`` if no parameter
    has a gradient.
    """
    eager = session.reference.side
    if eager is None:
        session.reference.forget()
    else:
        session.effects.begin(session.compiled.called, eager.called)
        # a copy of the state of the optimizer before the step; None where the step makes the optimizer
        optimizer = _optimizers(session).get(_key(arguments, parameters_of(eager.called)))
        state = None if optimizer is None else copy.deepcopy(optimizer.state_dict())

        def again(called: Sequence[Any]) -> Any:
            """Make the step with another optimizer of the same state; return the parameters."""
            parameters = parameters_of(called)
            other = make_optimizer(session, arguments.call, arguments.kwargs, parameters)
            if state is not None:
                other.load_state_dict(copy.deepcopy(state))
            other.step()
            return session.copy(parameters)

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
    optimizers, key = _optimizers(session), _key(arguments, parameters)
    if key not in optimizers:
        optimizers[key] = make_optimizer(session, arguments.call, arguments.kwargs, parameters)
    optimizers[key].step()
    return session.copy(parameters)


def _optimizers(session: Session) -> dict[str, Any]:
    optimizers: dict[str, Any] = session.kept.setdefault(Optimizer.kind, {})
    return optimizers


def _key(arguments: "Optimizer", parameters: "Sequence[torch.Tensor]") -> str:
    return json.dumps([encode([arguments.call, arguments.kwargs or {}]), [id(parameter) for parameter in parameters]])


def make_optimizer(session: Session, call: Json, kwargs: Json, parameters: "Sequence[torch.Tensor]") -> Any:
    """Return the optimizer that a call makes for the parameters; raise ``NotCarriedOut`` if that fails."""
    _, values = values_of(session, None, kwargs)
    with needed("the optimizer"):
        return session.scope.callable(call)(list(parameters), **values)


def parameters_of(called: Sequence[Any]) -> "list[torch.nn.Parameter]":
    """Return the trainable parameters of every module in a call, each once."""
    import torch
    from torch.utils import _pytree as pytree

    modules = [leaf for leaf in pytree.tree_leaves(list(called)) if isinstance(leaf, torch.nn.Module)]
    parameters = [parameter for module in modules for parameter in module.parameters() if parameter.requires_grad]
    return list({id(parameter): parameter for parameter in parameters}.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer(StepKind):
    """``optimizer: {call: torch.optim.SGD, kwargs: {lr: 0.1}, as: NAME}``."""

    kind: ClassVar[str] = "optimizer"
    traits: ClassVar[Traits] = Traits(has_result=True, claims=True, has_reference=True)
    runs = staticmethod(run_optimizer)
    call: Json
    kwargs: Json = None
    side_effects: bool | None = None
    as_: str | None = None

    @property
    def callees(self) -> Iterator[Callee]:
        """The class of the optimizer."""
        yield Callee(call=self.call, kwargs=self.kwargs)

    def problems(self, around: Around) -> Iterator[Diagnostic]:
        """Yield a missing backward step."""
        if not any(step.traits.gives_gradients for step in around.above):
            yield around.problem(around.path, "an optimizer before any backward", "put a backward step above it", key=True)
