"""torch for what the vocabulary does in the worker.

The runner imports these modules too, and never torch: there, each use is an error.
"""

import sys
from typing import TYPE_CHECKING

__all__ = ["Tensor", "pytree", "torch"]

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch.utils import _pytree as pytree
else:
    Tensor = object  # for annotations
    # each has the attributes of a module that its process has imported, and none of its own, which
    # code of a spec could replace; without the module each is an AttributeError, as None has none
    # of its names
    _OF_TORCH = {
        "__slots__": (),
        "__getattr__": lambda self, name: getattr(sys.modules.get("torch"), name),
    }
    _OF_PYTREE = {
        "__slots__": (),
        "__getattr__": lambda self, name: getattr(sys.modules.get("torch.utils._pytree"), name),
    }
    torch, pytree = type("Torch", (), _OF_TORCH)(), type("Pytree", (), _OF_PYTREE)()
