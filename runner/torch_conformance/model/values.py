"""How the values of this program are declared."""

from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform

_Value = TypeVar("_Value")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def frozen(declared: type[_Value]) -> type[_Value]:
    """Make a dataclass of a class: frozen, with slots, its fields given by name."""
    return dataclass(frozen=True, slots=True, kw_only=True)(declared)


def values_of(value: Any, declared: Any = None) -> dict[str, Any]:
    """Return the fields of a dataclass value by name; only those that ``declared`` has, if given.

    A class that inherits from its class is made of them: the next state of the value.
    """
    return {field.name: getattr(value, field.name) for field in fields(declared or value)}
