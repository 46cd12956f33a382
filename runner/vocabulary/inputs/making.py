"""Makes the inputs that a spec describes. Only a worker imports this module."""

from collections.abc import Iterable, Mapping
from typing import Any

from runner.core.protocol import Json
from runner.vocabulary import inputs
from runner.vocabulary.inputs import InputKind, kind_of, times
from runner.vocabulary.inputs.base import Maker, finish

INPUTS: Mapping[str, type[InputKind]] = dict(inputs.INPUTS)
"""The kinds, all imported."""


def make(entry: Json, maker: Maker) -> Any:
    """Return the argument that an entry of ``inputs`` describes; a plain value is returned as it is."""
    import torch

    if not isinstance(entry, Mapping):
        return entry
    kind = INPUTS[next(word for word in INPUTS if word in entry)]
    made = kind.makes(entry, maker)
    return finish(made, entry, maker) if isinstance(made, torch.Tensor) and not kind.is_finished else made


def make_all(entries: Iterable[Json], maker: Maker) -> list[Any]:
    """Return the arguments that a list of inputs describes; an entry with ``repeat`` is made as often as it says."""
    return [make(entry, maker) for entry in entries for _ in range(times(entry))]


def value(entry: Json, maker: Maker) -> Any:
    """Return a value with every input description in it replaced, at any depth of maps and lists; other maps are data."""
    if isinstance(entry, Mapping):
        if kind_of(entry) is not None:
            return make(entry, maker)
        return {key: value(item, maker) for key, item in entry.items()}
    return [value(item, maker) for item in entry for _ in range(times(item))] if isinstance(entry, list) else entry
