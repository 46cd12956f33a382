"""The table of the kinds of inputs. A new kind needs a class in a module here, an entry below, a schema entry and a test.

A worker makes them with ``making``.
"""

from collections.abc import Mapping

from runner.core.on_demand import OnDemand
from runner.core.protocol import Json
from runner.vocabulary.inputs.base import OF_CALLS, Entry, InputKind

_CLASSES: Mapping[str, str] = {
    "rand": "tensors:Rand",
    "randn": "tensors:Randn",
    "zeros": "tensors:Zeros",
    "ones": "tensors:Ones",
    "full": "tensors:Full",
    "randint": "tensors:Randint",
    "arange": "tensors:Arange",
    "values": "tensors:Values",
    "jagged": "tensors:Jagged",
    "module": "objects:Module",
    "call": "objects:Call",
    "ref": "objects:Ref",
    "value": "objects:Value",
}
"""The module and the class of each kind, by the word of the language. ``value`` is last: it is also a key of ``full``."""

INPUTS: Mapping[str, type[InputKind]] = OnDemand({word: f"{__name__}.{place}" for word, place in _CLASSES.items()})

REPEAT = "repeat"
"""The key of an entry of a list that stands for several inputs of one description."""


def kind_of(entry: Entry) -> str | None:
    """Return the kind of input that a map describes; None if it is data."""
    return next((word for word in INPUTS if word in entry), None)


def times(entry: Json) -> int:
    """Return how many arguments an entry of a list of inputs stands for."""
    return int(entry.get(REPEAT, 1)) if isinstance(entry, Mapping) and kind_of(entry) is not None else 1


__all__ = ["INPUTS", "OF_CALLS", "REPEAT", "Entry", "InputKind", "kind_of", "times"]
