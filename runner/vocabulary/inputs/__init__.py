"""Every kind of input, in one table. A new one is a class in a module here, an entry below, its schema entry and its test."""

from collections.abc import Mapping
from typing import Any

from runner.core.model import Json
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
"""The word of the language, and the class of its kind. ``value`` stands last: beside ``full`` it is the number to fill with."""


def kind_of(entry: Entry) -> str | None:
    """Return the kind of input that a map is; None where it is data."""
    return next((word for word in INPUTS if word in entry), None)


def make(entry: Json, maker: Maker) -> Any:
    """Return one argument as the spec's ``inputs`` describe it; a bare value stands for itself."""
    import torch

    if not isinstance(entry, Mapping):
        return entry
    kind = INPUTS[next(word for word in INPUTS if word in entry)]
    made = kind.makes(entry, maker)
    return finish(made, entry, maker) if isinstance(made, torch.Tensor) and not kind.is_finished else made


def value(entry: Json, maker: Maker) -> Any:
    """Return a value written as an input is, at any depth of maps and lists; other maps are data."""
    if isinstance(entry, Mapping):
        if kind_of(entry) is not None:
            return make(entry, maker)
        return {key: value(item, maker) for key, item in entry.items()}
    return [value(item, maker) for item in entry] if isinstance(entry, list) else entry


__all__ = ["INPUTS", "OF_CALLS", "Entry", "InputKind", "Maker", "kind_of", "make", "value"]
