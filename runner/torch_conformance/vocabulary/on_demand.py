"""Kinds that are imported only when a spec has them."""

import functools
import importlib
from collections import UserDict
from typing import Any


class OnDemand(UserDict[str, Any]):
    """A table of ``module:name``; looking a key up imports the module."""

    def __getitem__(self, key: str) -> Any:
        return _imported(self.data[key])


@functools.cache
def _imported(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)
