"""What a result has beside its values: which of its tensors share memory with tensors of the call, and which require a gradient."""

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from runner.vocabulary.expectations.close_measure import fields_of
from runner.worker.case.changeable import GRAD
from runner.worker.case.copies import storage_of

NEW = "memory of its own"
"""The relation of a tensor that shares no memory with a tensor of the call."""


def aliases(result: Any, given: Mapping[str, Any]) -> dict[str, str]:
    """Return for each tensor of a result, by its path, how it relates to the tensors of the call.

    ``given`` are the values that the call could change, by path. Empty tensors share nothing.
    """
    tensors = {path: value for path, value in given.items() if isinstance(value, torch.Tensor) and not path.endswith(GRAD)}
    identities = {id(tensor): path for path, tensor in tensors.items()}
    storages: dict[int, str] = {}
    for path, tensor in tensors.items():
        if (storage := storage_of(tensor)) is not None:
            storages.setdefault(storage, path)
    found = {}
    for path, leaf in pytree.tree_flatten_with_path(_opened(result))[0]:
        if isinstance(leaf, torch.Tensor):
            found[f"output{pytree.keystr(path)}"] = _relation(leaf, identities, storages)
    return found


def histories(result: Any) -> dict[str, str]:
    """Return for each tensor of a result, by its path, whether it requires a gradient."""
    tensors = ((path, leaf) for path, leaf in pytree.tree_flatten_with_path(_opened(result))[0] if isinstance(leaf, torch.Tensor))
    return {f"output{pytree.keystr(path)}": f"requires_grad {leaf.requires_grad}" for path, leaf in tensors}


def _opened(value: Any) -> Any:
    """Return a value with each dataclass as a map of its fields."""

    def opened(leaf: Any) -> Any:
        fields = fields_of(leaf)
        return leaf if fields is None else _opened(fields)

    return pytree.tree_map(opened, value)


def _relation(leaf: torch.Tensor, identities: Mapping[int, str], storages: Mapping[int, str]) -> str:
    if id(leaf) in identities:
        return f"the tensor {identities[id(leaf)]}"
    owner = storages.get(storage_of(leaf) or 0)
    return NEW if owner is None else f"a view of the memory of {owner}"
