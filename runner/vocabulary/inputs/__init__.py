"""The table of the kinds of inputs. A new kind needs a class in a module here, an entry below, a schema entry and a test."""

from collections.abc import Iterable, Mapping
from typing import Any

from runner.core.protocol import Json
from runner.vocabulary.inputs.base import OF_CALLS, Entry, InputKind, Maker, finish
from runner.vocabulary.inputs.objects import Call, Module, Ref, Value
from runner.vocabulary.inputs.tensors import Arange, Full, Jagged, Ones, Rand, Randint, Randn, Values, Zeros

INPUTS: Mapping[str, type[InputKind]] = {
    "rand": Rand,
    "randn": Randn,
    "zeros": Zeros,
    "ones": Ones,
    "full": Full,
    "randint": Randint,
    "arange": Arange,
    "values": Values,
    "jagged": Jagged,
    "module": Module,
    "call": Call,
    "ref": Ref,
    "value": Value,
}
"""Maps the word of the language to the class of the kind. ``value`` is last: it is also a key of ``full``."""


REPEAT = "repeat"
"""The key of an entry of a list that stands for several inputs of one description."""


def kind_of(entry: Entry) -> str | None:
    """Return the kind of input that a map describes; None if it is data."""
    return next((word for word in INPUTS if word in entry), None)


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


def times(entry: Json) -> int:
    """Return how many arguments an entry of a list of inputs stands for."""
    return int(entry.get(REPEAT, 1)) if isinstance(entry, Mapping) and kind_of(entry) is not None else 1


def value(entry: Json, maker: Maker) -> Any:
    """Return a value with every input description in it replaced, at any depth of maps and lists; other maps are data."""
    if isinstance(entry, Mapping):
        if kind_of(entry) is not None:
            return make(entry, maker)
        return {key: value(item, maker) for key, item in entry.items()}
    return [value(item, maker) for item in entry for _ in range(times(item))] if isinstance(entry, list) else entry


__all__ = ["INPUTS", "OF_CALLS", "REPEAT", "Entry", "InputKind", "Maker", "kind_of", "make", "make_all", "times", "value"]
