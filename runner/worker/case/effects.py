"""Side effects of a call: compares arguments, parameters and buffers of the compiled side with those of the eager side.

Both sides begin with equal copies. A value is compared after a call only if it was equal, or close, before the call. A step that runs on
one side alone can make the two differ; then the call is not the cause, and the path is reported as ``apart``.
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
"""The maximum depth to which attributes of objects are followed."""

MOST = 50
"""The maximum number of differing values that are sent."""

Leaves = dict[str, Any]


@dataclass
class Effects:
    """Compares the side effects of one call: ``before`` and then ``after`` it."""

    tolerance: Mapping[str, Any]
    """``rtol``, ``atol`` (both None for the dtype's defaults) and ``equal_nan``."""
    parameters: bool
    """Whether parameters and buffers are compared: a package compiled ahead of time has its own."""
    _apart: set[str] = field(default_factory=set)

    def before(self, compiled: Sequence[Any], eager: Sequence[Any]) -> None:
        """Record the paths that differ before the call. Each sequence is the target followed by its arguments."""
        ours, theirs = self._leaves(compiled), self._leaves(eager)
        self._apart = {path for path in ours if path not in theirs or self._problem(path, ours[path], theirs[path]) is not None}

    def after(self, compiled: Sequence[Any], eager: Sequence[Any]) -> dict[str, Any]:
        """Return ``compared`` (a count), ``apart`` (paths) and ``leaves`` (facts of the values that differ)."""
        ours, theirs = self._leaves(compiled), self._leaves(eager)
        differing = []
        compared = [path for path in {**theirs, **ours} if path not in self._apart]
        for path in compared:
            facts = self._problem(path, ours.get(path, _ABSENT), theirs.get(path, _ABSENT))
            if facts is not None:
                differing.append({"path": path, **facts})
        return {"compared": len(compared), "apart": sorted(self._apart)[:MOST], "leaves": differing[:MOST]}

    def _leaves(self, called: Sequence[Any]) -> Leaves:
        """Return the values that a call can change, by path. Each tensor occurs once."""
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
        """Add the values of a leaf of the arguments, with attributes of objects down to ``_DEPTH``."""
        if isinstance(leaf, torch.nn.Module):
            self._add_module(found, seen, name, leaf)
        elif isinstance(leaf, torch.Tensor) and leaf.is_nested:
            # compared by component: a nested tensor has no regular shape
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
        """Return the facts of two values that differ; None for close values and for parameters that freezing has erased."""
        if compiling.is_erased(ours) or (ours is theirs and not isinstance(ours, torch.Tensor)):
            return None
        if isinstance(ours, torch.Tensor) and isinstance(theirs, torch.Tensor):
            ours, theirs = plain(ours), plain(theirs)
            if _equal(ours, theirs):
                # a compile may change the layout of parameters
                return _other_form(ours, theirs) if path.startswith("argument") else None
        facts: dict[str, Any] = describe_leaf(ours, theirs, self.tolerance)
        return None if _is_near(facts) else facts


class Absent:
    """The value of a path that one side does not have."""

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
    """Return the facts of two equal tensors that differ in strides or ``requires_grad``; None when they do not."""
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
