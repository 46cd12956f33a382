"""Gradients of a call: which tensors get them, and how they are computed. Runs in the worker."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


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


def total_of(result: Any) -> Any:
    """Return the sum of all tensors of a result that have a history; raise ``RuntimeError`` if there is none."""
    import torch
    from torch.utils import _pytree as pytree

    tensors = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    if not tensors:
        raise RuntimeError("nothing to run backward on: no tensor of the result requires a gradient")
    return sum(tensor.sum() for tensor in tensors)


def gradients_of(result: Any, called: Sequence[Any]) -> "list[torch.Tensor | None]":
    """Sum the result of a call, run backward, and return a copy of each gradient in the order of ``gradient_leaves``."""
    total_of(result).backward()
    return [None if leaf.grad is None else leaf.grad.clone() for leaf in gradient_leaves(called)]
