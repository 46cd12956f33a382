"""Tables whose values are imported when they are first used, so that a run loads only the kinds that it needs."""

import importlib
from collections.abc import Iterator, Mapping
from typing import Any


class OnDemand(Mapping[str, Any]):
    """A table of ``module:name``; looking a key up imports the module."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places

    def __getitem__(self, key: str) -> Any:
        module, _, name = self._places[key].partition(":")
        return getattr(importlib.import_module(module), name)

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
