"""Calls of an operator of torch's database with one sample: compiled, in eager, and in eager from other inputs. Runs in the worker."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

Given = tuple[list[Any], dict[str, Any]]
"""The positional and the keyword arguments of a call."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Calls an operator with a sample, each time from the state of the case's seed."""

    operator: Callable[..., Any]
    """The operator, not compiled."""
    takes_out: bool
    reseed: Callable[[], None]

    def call(self, function: Callable[..., Any], given: Given, around: AbstractContextManager[Any] | None = None) -> dict[str, Any]:
        """Call the operator, or what was compiled of it; return its result, and the tensors of ``out=``. ``around`` is entered for it."""
        args, kwargs = given
        found: dict[str, Any] = {}
        if self.takes_out:
            self.reseed()
            kwargs = {**kwargs, "out": _outputs(self.operator(*args, **kwargs))}
            found["out"] = kwargs["out"]
        self.reseed()
        with around or nullcontext():
            found["result"] = function(*args, **kwargs)
        return found

    def again(self, changed: Sequence[str], called: Sequence[Any], around: AbstractContextManager[Any]) -> dict[str, Any]:
        """Return what eager computes from other inputs: arguments, and fixed gradients of the results, none where there is no backward.

        ``changed`` are the arguments that are compared after the call, by their numbers.
        """
        args, kwargs, fixed = called
        found = self.call(self.operator, (args, kwargs), around)
        if fixed:
            found["gradients"] = gradients(found["result"], (args, kwargs), fixed)
        if changed:
            leaves = _leaves((args, kwargs))
            found["arguments"] = {index: leaves[int(index)] for index in changed}
        return found


def _outputs(result: Any) -> Any:
    """Return tensors of ones for ``out=``, of the shapes and dtypes of a result. They are contiguous: dynamo compiles no other."""
    import torch
    from torch.utils import _pytree as pytree

    def ones(tensor: Any) -> Any:
        if tensor.layout is not torch.strided or tensor.is_nested:
            return torch.ones_like(tensor, requires_grad=False)
        return torch.ones(tensor.shape, dtype=tensor.dtype, device=tensor.device)

    return pytree.tree_map_only(torch.Tensor, ones, result)


def drawn(result: Any, given: Given) -> list[Any]:
    """Return a random gradient for each tensor of a result that has a history; none where no argument requires a gradient."""
    import torch

    return [torch.randn_like(one) for one in _differentiable(result)] if _differentiable(given) else []


def gradients(result: Any, given: Given, fixed: Sequence[Any]) -> list[Any]:
    """Return the gradients of the arguments for fixed gradients of the results, in the dtypes of the results."""
    import torch

    results = _differentiable(result)
    fixed = [gradient.to(one.dtype) for one, gradient in zip(results, fixed, strict=True)]
    return list(torch.autograd.grad(results, _differentiable(given), fixed, allow_unused=True))


def _differentiable(value: Any) -> list[Any]:
    import torch

    return [leaf for leaf in _leaves(value) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]


def _leaves(value: Any) -> list[Any]:
    from torch.utils import _pytree as pytree

    found: list[Any] = pytree.tree_leaves(value)
    return found


def tensors_by_number(*givens: Given) -> Mapping[str, tuple[Any, ...]]:
    """Return the tensors of several copies of the arguments, by their numbers."""
    import torch

    leaves = zip(*(_leaves(given) for given in givens), strict=True)
    return {str(index): copies for index, copies in enumerate(leaves) if isinstance(copies[0], torch.Tensor)}


def changed_arguments(own: Given, given: Given) -> Mapping[str, tuple[Any, ...]]:
    """Return the tensors among the arguments that differ after two calls, by their numbers."""
    return {index: pair for index, pair in tensors_by_number(own, given).items() if not _same(*pair)}


def _same(one: Any, other: Any) -> bool:
    import torch

    if one.layout is not torch.strided or one.is_nested:
        return True  # no operator of the database changes such an argument
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    with torch.no_grad():
        return bool(((one == other) | ((one != one) & (other != other))).all())
