"""How the values of this program are declared."""

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

_Value = TypeVar("_Value")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def frozen(declared: type[_Value]) -> type[_Value]:
    """Make a dataclass of a class: frozen, with slots, its fields given by name."""
    return dataclass(frozen=True, slots=True, kw_only=True)(declared)
