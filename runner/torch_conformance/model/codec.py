"""Frozen dataclasses as JSON and back, by their annotations: the one codec of journals, of what
workers send, and of jobs for nodes.
"""

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, NewType, get_args, get_origin, get_type_hints

from torch_conformance.model.outcomes import Outcome
from torch_conformance.model.protocol import Json

COMPUTED = "computed"
"""Marks a field that follows from others: JSON never has it, and a reader computes it."""

REQUIRED = "required"
"""Marks a field that JSON must have, although it has a default."""

KEY = "key"
"""Marks a field with another name in JSON."""

# a record class may list properties in ``DERIVED``: JSON has them for other readers, and here they
# follow from the fields


def encode(value: object) -> Json:
    """Return a record as JSON."""
    match value:
        case Outcome():
            return value.label
        case Enum():
            return value.value
        case Mapping():
            return {str(key): encode(item) for key, item in value.items()}
        case list() | tuple():
            return [encode(item) for item in value]
        case set() | frozenset():
            return sorted(map(encode, value))
        case _ if is_dataclass(value):
            stored = {
                field.metadata.get(KEY, field.name): field.name
                for field in fields(value)
                if COMPUTED not in field.metadata
            }
            derived = {name: name for name in getattr(value, "DERIVED", ())}
            return {
                key: encode(getattr(value, name)) for key, name in {**stored, **derived}.items()
            }
        case _:
            return value


def decode(kind: object, value: Json, where: str) -> Json:
    """Return JSON as the annotated type ``kind``; raise ``ValueError`` with ``where`` for a value
    of another type.
    """
    if kind is Any:
        return value
    if isinstance(kind, NewType):
        return decode(kind.__supertype__, value, where)
    if isinstance(kind, type) and is_dataclass(kind):
        entries = _expect(dict, value, where)
        names, annotations, required = _fields(kind)
        derived = frozenset(getattr(kind, "DERIVED", ()))
        if extra := entries.keys() - names.keys() - derived:
            raise ValueError(f"{where} has an unknown key '{min(extra)}'")
        if missing := (required | derived) - entries.keys():
            raise ValueError(f"{where} lacks '{min(missing)}'")
        stored = {names[key]: (key, item) for key, item in entries.items() if key in names}
        record = kind(
            **{
                name: decode(annotations[name], item, f"{where}.{key}")
                for name, (key, item) in stored.items()
            }
        )
        if other := [name for name in derived if entries[name] != encode(getattr(record, name))]:
            raise ValueError(f"{where}.{min(other)} is not what the others give")
        return record
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is UnionType or NoneType in arguments:  # of one type and None
        return (
            None
            if value is None
            else decode(
                next(argument for argument in arguments if argument is not NoneType), value, where
            )
        )
    if origin in (tuple, frozenset):
        return origin(
            decode(arguments[0], item, f"{where}[{i}]")
            for i, item in enumerate(_expect(list, value, where))
        )
    if origin is Mapping:
        return {
            key: decode(arguments[1], item, f"{where}.{key}")
            for key, item in _expect(dict, value, where).items()
        }
    assert isinstance(kind, type), f"no codec of {kind}"
    if issubclass(kind, Enum):
        for member in kind:
            if encode(member) == value:
                return member
        raise ValueError(f"{where}: unknown word {value!r}")
    if kind is float:
        with suppress(OverflowError):
            if (
                isinstance(value, int | float)
                and not isinstance(value, bool)
                and math.isfinite(float(value))
            ):
                return value  # a whole number stays one: a count is shown as it was counted
        raise ValueError(f"{where} is not a finite number")
    return _expect(kind, value, where)


@cache
def _fields(kind: type[Any]) -> tuple[Mapping[str, str], Mapping[str, Any], frozenset[str]]:
    """Return the fields that JSON holds, by their keys there, their types by name, and the keys of
    those without a default.
    """
    stored = [field for field in fields(kind) if COMPUTED not in field.metadata]
    keys = {field.metadata.get(KEY, field.name): field.name for field in stored}
    required = [
        field
        for field in stored
        if REQUIRED in field.metadata
        or (field.default is MISSING and field.default_factory is MISSING)
    ]
    return (
        keys,
        get_type_hints(kind),
        frozenset(field.metadata.get(KEY, field.name) for field in required),
    )


def _expect(kind: type[Any], value: Json, where: str) -> Json:
    # Python's bool is an int, but it is not a count
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"{where} is not {kind.__name__}")
    return value
