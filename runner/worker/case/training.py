"""What follows a backward: an optimizer's step, on both sides of a case."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from runner.core.protocol import encode
from runner.worker.case.copies import snapshot
from runner.worker.case.session import Session, Side, needed, synchronize


def take_step(session: Session, arguments: Mapping[str, Any]) -> None:
    """Let the optimizer change the parameters of the last call's function; the results are those parameters, in order.

    The same words stand for the same optimizer, so that what it keeps between steps is kept. Raises ``RuntimeError`` where no parameter
    has a gradient.
    """
    session.has_eager_output = False
    session.asked = None  # what other inputs would make of the parameters is not known
    if session.eager is not None:
        with session.phases("eager"), session.reference():
            session.eager_output = _step(session, session.eager, arguments)
            session.has_eager_output = True
    with session.phases("optimizer"):
        session.output = _step(session, session.compiled, arguments)
        synchronize(session.device)


def _step(session: Session, side: Side, arguments: Mapping[str, Any]) -> list[torch.Tensor]:
    parameters = parameters_of(side.called)
    if all(parameter.grad is None for parameter in parameters):
        raise RuntimeError("nothing to optimize: no parameter of the last call's function has a gradient")
    made = {"call": arguments["call"], "kwargs": arguments.get("kwargs", {})}
    key = json.dumps([encode(made), [id(parameter) for parameter in parameters]])
    if key not in side.optimizers:
        side.optimizers[key] = make_optimizer(session, made, parameters)
    side.optimizers[key].step()
    changed: list[torch.Tensor] = snapshot(parameters)
    return changed


def make_optimizer(session: Session, arguments: Mapping[str, Any], parameters: Sequence[torch.Tensor]) -> Any:
    """Return what ``{call: ..., kwargs: ...}`` makes of the parameters; raise ``NotCarriedOut`` where it makes nothing."""
    _, kwargs = session.arguments(arguments)
    with needed("the optimizer"):
        return session.scope.callable(arguments["call"])(list(parameters), **kwargs)


def parameters_of(called: Sequence[Any]) -> list[torch.nn.Parameter]:
    """Return the parameters that may change of every module in a call, each once."""
    modules = [leaf for leaf in pytree.tree_leaves(list(called)) if isinstance(leaf, torch.nn.Module)]
    found = [parameter for module in modules for parameter in module.parameters() if parameter.requires_grad]
    return list({id(parameter): parameter for parameter in found}.values())
