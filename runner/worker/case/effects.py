"""Side effects of a call: what became of its arguments, parameters and buffers, on the compiled side and on the eager one.

Both sides begin with equal copies. What is compared after a call is what was equal, or near, before it: where a step that runs on one
side alone has set them apart, the call is not to blame, and the path is reported as ``apart``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from runner.vocabulary.expectations.close import describe_leaf
from runner.worker.case.copies import plain
from runner.worker.torch_compat import compiling

_DEPTH = 3
"""How deep attributes of objects are followed."""

MOST = 50
"""How many differing values are sent."""

Leaves = dict[str, Any]


@dataclass
class Effects:
    """What a call changed, compared; ``facts`` is what the runner judges."""

    tolerance: Mapping[str, Any]
    """``rtol`` and ``atol`` (both None for those of the dtype) and ``equal_nan``."""
    parameters: bool
    """Whether parameters and buffers are compared: a package compiled ahead of time has its own."""
    _apart: set[str] = field(default_factory=set)

    def before(self, compiled: Sequence[Any], eager: Sequence[Any]) -> None:
        """Note what differs already before the call. Both are the target and its arguments."""
        ours, theirs = self._leaves(compiled), self._leaves(eager)
        self._apart = {path for path in ours if path not in theirs or self._problem(path, ours[path], theirs[path]) is not None}

    def after(self, compiled: Sequence[Any], eager: Sequence[Any]) -> dict[str, Any]:
        """Return how many values were compared, which were not, and the facts of those that differ."""
        ours, theirs = self._leaves(compiled), self._leaves(eager)
        differing = []
        compared = [path for path in {**theirs, **ours} if path not in self._apart]
        for path in compared:
            facts = self._problem(path, ours.get(path, _ABSENT), theirs.get(path, _ABSENT))
            if facts is not None:
                differing.append({"path": path, **facts})
        return {"compared": len(compared), "apart": sorted(self._apart)[:MOST], "leaves": differing[:MOST]}

    def _leaves(self, called: Sequence[Any]) -> Leaves:
        """Return the values that a call can change, by their paths: tensors once each, and what containers hold."""
        found: Leaves = {}
        seen: set[int] = set()
        target, *arguments = called
        paths, _ = pytree.tree_flatten_with_path(list(arguments))
        for path, leaf in paths:
            self._add(found, seen, f"argument {pytree.keystr(path)}", leaf, 0)
        owner = getattr(target, "__self__", target)
        if isinstance(owner, torch.nn.Module):
            self._add_module(found, seen, "function", owner)
        return found

    def _add(self, found: Leaves, seen: set[int], name: str, leaf: Any, depth: int) -> None:
        """Add what a leaf of the arguments holds; attributes of objects too, a few levels deep."""
        if isinstance(leaf, torch.nn.Module):
            self._add_module(found, seen, name, leaf)
        elif isinstance(leaf, torch.Tensor) and leaf.is_nested:
            # its components have numbers for shapes
            found.update({f"{name}[{index}]": part for index, part in enumerate(leaf.unbind())})
        elif _is_value(leaf) or isinstance(leaf, set | frozenset):
            if not isinstance(leaf, torch.Tensor) or id(leaf) not in seen:
                found[name] = leaf
        elif type(leaf).__module__ == "numpy" and hasattr(leaf, "__array__"):
            found[name] = leaf.tolist()
        elif id(leaf) not in seen and depth < _DEPTH and type(getattr(leaf, "__dict__", None)) is dict and not callable(leaf):
            seen.add(id(leaf))
            for attribute, value in vars(leaf).items():
                for path, part in pytree.tree_flatten_with_path(value)[0]:
                    self._add(found, seen, f"{name}.{attribute}{pytree.keystr(path)}", part, depth + 1)
        seen.add(id(leaf))

    def _add_module(self, found: Leaves, seen: set[int], name: str, module: torch.nn.Module) -> None:
        if not self.parameters:
            return
        for path, tensor in [*module.named_parameters(), *module.named_buffers()]:
            if id(tensor) not in seen:
                seen.add(id(tensor))
                found[f"{name}.{path}"] = tensor

    def _problem(self, path: str, ours: Any, theirs: Any) -> dict[str, Any] | None:
        """Return the facts of two values that are not alike; None where they are, and for parameters that freezing has erased."""
        if compiling.is_erased(ours) or (ours is theirs and not isinstance(ours, torch.Tensor)):
            return None
        if isinstance(ours, torch.Tensor) and isinstance(theirs, torch.Tensor):
            ours, theirs = plain(ours), plain(theirs)
            if _equal(ours, theirs):
                # parameters may be laid out anew while compiling
                return _other_form(ours, theirs) if path.startswith("argument") else None
        facts: dict[str, Any] = describe_leaf(ours, theirs, self.tolerance)
        return None if _is_near(facts) else facts


class Absent:
    """Stands where one side has no such value."""

    def __repr__(self) -> str:
        return "absent"


_ABSENT = Absent()


def _is_value(leaf: Any) -> bool:
    return isinstance(leaf, bool | int | float | complex | str | bytes | Absent | torch.Tensor) or leaf is None


def _equal(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    described = (ours.shape, ours.dtype, ours.device, ours.layout, ours.is_nested)
    if described != (theirs.shape, theirs.dtype, theirs.device, theirs.layout, theirs.is_nested):
        return False
    try:
        return bool(torch.equal(ours, theirs))
    except (RuntimeError, NotImplementedError, AttributeError, TypeError):  # sparse, quantized and wrapper tensors: measured as close does
        return False


def _other_form(ours: torch.Tensor, theirs: torch.Tensor) -> dict[str, Any] | None:
    """Return the facts of two equal tensors that are laid out otherwise, or of which only one wants gradients."""
    if ours.layout is not torch.strided or ours.is_nested:
        return None
    forms = [f"strides {list(one.stride())}, requires_grad {one.requires_grad}" for one in (ours, theirs)]
    if forms[0] == forms[1]:
        return None
    facts = {"type": "form", "shape": None, "dtype": None, "device": None}
    return {
        **facts,
        **{f"reference_{name}": fact for name, fact in facts.items()},
        "equal": False,
        "value": forms[0],
        "reference_value": forms[1],
    }


def _is_near(facts: Mapping[str, Any]) -> bool:
    if facts["type"] != "tensor":
        return facts.get("equal") is True
    same = all(facts[name] == facts[f"reference_{name}"] for name in ("type", "shape", "dtype", "device"))
    return same and not any(facts[name] for name in ("mismatches", "nan_mismatches", "inf_mismatches"))
