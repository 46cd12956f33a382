"""torch for what the vocabulary does in the worker. The runner imports these modules too, and never torch: there, each use is an error."""

import sys
from typing import TYPE_CHECKING, Any

__all__ = ["pytree", "torch"]

if TYPE_CHECKING:
    import torch
    from torch.utils import _pytree as pytree
else:

    class _Torch:
        """Has the attributes of torch in a process that has imported it, and none of its own, which code of a spec could replace."""

        __slots__ = ()

        def __getattr__(self, name: str) -> Any:
            return getattr(sys.modules.get("torch"), name)  # None has no name of torch: an AttributeError

    class _Pytree:
        """Has those of ``torch.utils._pytree``."""

        __slots__ = ()

        def __getattr__(self, name: str) -> Any:
            return getattr(sys.modules.get("torch.utils._pytree"), name)

    torch, pytree = _Torch(), _Pytree()
