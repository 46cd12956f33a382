"""Other inputs of the same shapes, for a result that ``close`` must reject."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from runner.worker.case import copies

MOST_BYTES = 64 << 20
"""The maximum size of modules and arguments of one copy, in bytes."""

MOST_BYTES_OF_CASE = 256 << 20
"""The maximum size of the copies of all steps, in bytes. They are alive until the case has ended."""


def drawn(called: Sequence[Any], plan: Mapping[str, Any]) -> list[Any]:
    """Return copies of a target and its arguments, with new random numbers in every floating-point tensor of the arguments.

    The numbers are uniform in the range of those that they replace, so that the function's domain is respected. Raise ``LookupError`` where
    the case could observe the additional call, where the copies are too large, and where no argument is a floating-point tensor.
    """
    body = plan["body"]
    if why := why_observed(plan):
        raise LookupError(why)
    if any(isinstance(entry, Mapping) and entry.get("on_device") for entry in body["inputs"]):
        raise LookupError("the inputs are made on the device")
    if bytes_of(called) > MOST_BYTES:
        raise LookupError(f"modules and arguments are larger than {MOST_BYTES >> 20} MiB")
    if not any(_may_be_drawn(leaf) for leaf in pytree.tree_leaves(list(called[1:]))):
        raise LookupError("no argument is a floating tensor")
    target, *arguments = copies.deep(list(called))
    # another seed than the case's: the same numbers would give the same result
    generator = torch.Generator().manual_seed(plan["seed"] ^ 0x5DEECE66D)
    return [target, *pytree.tree_map(lambda leaf: _redrawn(leaf, generator) if _may_be_drawn(leaf) else leaf, arguments)]


def why_observed(plan: Mapping[str, Any]) -> str:
    """Return why the case could observe an additional call; empty where it could not."""
    if any(plan["body"].get(word) for word in ("spies", "handlers", "dead")) or "log" in _measured_kinds(plan):
        return "the case observes calls (spies, handlers, dead, log): it would observe an additional one"
    return ""


def _measured_kinds(plan: Mapping[str, Any]) -> set[str]:
    return {wanted["kind"] for step in plan["steps"] for wanted in step["measure"]}


def bytes_of(called: Sequence[Any]) -> int:
    """Return the size of the tensors of modules and arguments."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors_of(called))


def tensors_of(called: Sequence[Any]) -> list[torch.Tensor]:
    """Return the tensors of modules and arguments."""
    leaves = pytree.tree_leaves(list(called))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    for module in leaves:
        if isinstance(module, torch.nn.Module):
            tensors.extend([*module.parameters(), *module.buffers()])
    return tensors


def _may_be_drawn(leaf: Any) -> bool:
    plain = type(leaf) in (torch.Tensor, torch.nn.Parameter) and leaf.layout is torch.strided and not leaf.is_nested
    return plain and leaf.is_floating_point() and leaf.numel() > 0


def _redrawn(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    numbers = tensor.detach().to("cpu", torch.float64)
    numbers = numbers[numbers.isfinite()]
    low, high = (float(numbers.min()), float(numbers.max())) if numbers.numel() else (0.0, 1.0)
    if low == high:
        high = low + 1
    fresh = torch.rand(tensor.shape, generator=generator, dtype=torch.float64) * (high - low) + low
    made = torch.empty_like(tensor, requires_grad=False)
    if 0 not in tensor.stride():
        made = torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    return made.copy_(fresh).requires_grad_(tensor.requires_grad)
