"""The table of the kinds of inputs; ARCHITECTURE.md says what a new one touches."""

from collections.abc import Mapping
from typing import NamedTuple

from runner.model.protocol import Json

Entry = Mapping[str, Json]
"""A map of a spec that describes an input."""

OF_TENSORS = ("dtype", "device", "requires_grad", "strides", "memory_format", "on_device", "mark_dynamic")
"""The keys of most kinds that make a tensor."""

OF_CALLS = ("args", "kwargs")
"""The keys of an input that may contain other inputs."""


class InputKind(NamedTuple):
    """What the stages know of a kind of input."""

    keys: tuple[str, ...] = ()
    """The keys that are allowed beside the word of the kind."""
    names: bool = False
    """Whether the value of its word is the name of a class or a function."""
    is_finished: bool = False
    """Whether the made value is final: strides and device are not changed."""


INPUTS: Mapping[str, InputKind] = {
    "rand": InputKind(OF_TENSORS),
    "randn": InputKind(OF_TENSORS),
    "zeros": InputKind(OF_TENSORS),
    "ones": InputKind(OF_TENSORS),
    "full": InputKind(("value", *OF_TENSORS)),
    "randint": InputKind(("low", "high", *OF_TENSORS)),
    "arange": InputKind(OF_TENSORS),
    "values": InputKind(OF_TENSORS),
    "jagged": InputKind(("dtype", "device", "requires_grad", "on_device")),
    "module": InputKind((*OF_CALLS, "eval", "dtype", "device"), names=True),
    "call": InputKind((*OF_CALLS, "close"), names=True, is_finished=True),
    "ref": InputKind(is_finished=True),
    "value": InputKind(is_finished=True),
}
"""The kinds by the word of the language. ``value`` is last: it is also a key of ``full``."""

REPEAT = "repeat"
"""The key of an entry of a list that stands for several inputs of one description."""


def kind_of(entry: Entry) -> str | None:
    """Return the kind of input that a map describes; None if it is data."""
    return next((word for word in INPUTS if word in entry), None)


def times(entry: Json) -> int:
    """Return how many arguments an entry of a list of inputs stands for."""
    return int(entry.get(REPEAT, 1)) if isinstance(entry, Mapping) and kind_of(entry) is not None else 1
