"""The table of the kinds of inputs. A new kind needs a class in a module here, an entry below, a schema entry and a test."""

from collections.abc import Mapping
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


def value(entry: Json, maker: Maker) -> Any:
    """Return a value with every input description in it replaced, at any depth of maps and lists; other maps are data."""
    if isinstance(entry, Mapping):
        if kind_of(entry) is not None:
            return make(entry, maker)
        return {key: value(item, maker) for key, item in entry.items()}
    return [value(item, maker) for item in entry] if isinstance(entry, list) else entry


__all__ = ["INPUTS", "OF_CALLS", "Entry", "InputKind", "Maker", "kind_of", "make", "value"]
