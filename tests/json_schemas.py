"""Validators of ``jsonschema`` for the project's schemas: draft 2020-12, but ``4.0`` is no integer
and ``$`` matches only at the end.
"""

import functools
import re
from collections.abc import Iterator
from typing import Any

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend

from torch_conformance.language.read import spec_schema


def _pattern(validator: Any, written: str, instance: Any, part: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "string") and not re.search(
        written.replace("$", r"\Z"), instance
    ):
        yield ValidationError("does not match")


_WHOLE = Draft202012Validator.TYPE_CHECKER.redefine(
    "integer", lambda _, value: isinstance(value, int) and not isinstance(value, bool)
)
_STRICT: Any = extend(Draft202012Validator, {"pattern": _pattern}, type_checker=_WHOLE)


def validator_of(part: Any) -> Any:
    """Return the validator of a part of a schema without references."""
    return _STRICT(part)


@functools.cache
def validator(name: str) -> Any:
    """Return the validator of a schema."""
    return _STRICT(spec_schema.resolved(name))
