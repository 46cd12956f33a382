"""Tables whose values are imported when they are first used, so that a run loads only the kinds that it needs."""

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
