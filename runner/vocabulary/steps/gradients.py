"""Gradients of a call: which tensors get them, and how they are computed. Runs in the worker."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from runner.vocabulary.inputs.base import Scope

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
    wanted = [tensor for tensor in [*tensors, *parameters] if tensor.requires_grad and tensor.is_leaf]
    return list({id(tensor): tensor for tensor in wanted}.values())


def forget_gradients(called: Sequence[Any]) -> None:
    """Delete the gradients of a target and its arguments."""
    for leaf in gradient_leaves(called):
        leaf.grad = None


def _tensors_of(result: Any) -> "list[torch.Tensor]":
    """Return the tensors of a result that have a history; raise ``RuntimeError`` if there is none."""
    import torch
    from torch.utils import _pytree as pytree

    tensors = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
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


def differentiation(loss: str | None, gradient: str | None, scope: Scope) -> Differentiate:
    """Return the function that runs backward: from a loss of the result, or with a named gradient of it."""
    if gradient is not None:
        given = scope.named(gradient)
        return lambda result: _backward_with(result, given, gradient)
    word = SUM if loss is None else loss
    function = LOSSES[word] if word in LOSSES else scope.named(word)
    return lambda result: _scalar(function(result), word).backward()


def _backward_with(result: Any, given: Any, name: str) -> None:
    import torch

    tensors = _tensors_of(result)
    gradients = list(given) if isinstance(given, list | tuple) else [given]
    if len(gradients) != len(tensors):
        raise ValueError(f"the gradient '{name}' holds {len(gradients)} values, the result {len(tensors)} tensors that require a gradient")
    torch.autograd.backward(tensors, [one.detach() if isinstance(one, torch.Tensor) else one for one in gradients])


def _scalar(loss: Any, name: str) -> Any:
    import torch

    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        found = f"a tensor of shape {list(loss.shape)}" if isinstance(loss, torch.Tensor) else f"a {type(loss).__name__}"
        raise TypeError(f"the loss '{name}' returned {found}, not a tensor of one number")
    return loss


def gradients_of(result: Any, called: Sequence[Any], differentiate: Differentiate) -> "list[torch.Tensor | None]":
    """Run backward on the result of a call, and return a copy of each gradient in the order of ``gradient_leaves``."""
    differentiate(result)
    return [None if leaf.grad is None else leaf.grad.clone() for leaf in gradient_leaves(called)]
