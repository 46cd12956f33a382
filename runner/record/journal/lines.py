"""The lines of a journal: converts JSON to records and back, by the annotations of their dataclasses.

A new field of ``CaseResult`` is encoded and decoded automatically; add it to ``schemas/journal.schema.json`` too.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, NewType, NoReturn, TypeAlias, get_args, get_origin, get_type_hints

from runner.core.header import RunFooter, RunHeader
from runner.core.outcomes import Outcome
from runner.core.protocol import Json
from runner.core.results import CaseResult

FORMAT = 1
"""The journal's format; a reader refuses any other."""


class JournalError(Exception):
    """An invalid line of a journal."""

    def __init__(self, line: int, reason: str) -> None:
        self.line = line
        self.reason = reason
        super().__init__(f"line {line}: {reason}")


@dataclass(frozen=True, slots=True)
class AttemptLine:
    """A line with the result of one attempt of a case that has not ended."""

    result: CaseResult


Record: TypeAlias = RunHeader | AttemptLine | CaseResult | RunFooter

_KINDS: Mapping[str, type] = {"header": RunHeader, "attempt": CaseResult, "case": CaseResult, "footer": RunFooter}


def parse(line: bytes) -> Json:
    """Return the JSON of a line; raise ``ValueError`` for anything else."""
    return json.loads(line.decode("utf-8"), parse_constant=_refuse_constant)


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON number")


def decode(number: int, value: Json) -> Record:
    """Return the record of a line; raise ``JournalError`` if its kind is unknown, or if it is malformed."""
    if not isinstance(value, dict):
        raise JournalError(number, "not an object")
    kind = value.pop("kind", None)
    if not isinstance(kind, str) or kind not in _KINDS:
        raise JournalError(number, f"unknown kind {kind!r}")
    if kind == "header" and (found := value.pop("format", None)) != FORMAT:
        raise JournalError(number, f"format {found!r}; this program reads {FORMAT}")
    try:
        decoded = _decode(_KINDS[kind], value, kind)
    except _MalformedError as error:
        raise JournalError(number, str(error)) from error
    return AttemptLine(decoded) if kind == "attempt" else decoded


class _MalformedError(Exception):
    """A value that is not of its field's type."""


def encode(value: Any) -> Json:
    """Return a record as JSON."""
    match value:
        case Outcome():
            return value.label
        case Enum():
            return value.value
        case Mapping():
            return {str(key): encode(item) for key, item in value.items()}
        case tuple():
            return [encode(item) for item in value]
        case _ if is_dataclass(value):
            return {field.name: encode(getattr(value, field.name)) for field in fields(value)}
        case _:
            return value


def _decode(kind: Any, value: Json, where: str) -> Any:
    """Return ``value`` as the annotated type ``kind``; ``where`` names it in the message."""
    if isinstance(kind, NewType):
        return _decode(kind.__supertype__, value, where)
    if is_dataclass(kind):
        return _decode_object(kind, value, where)
    if get_origin(kind) is tuple:
        return tuple(_decode(get_args(kind)[0], item, f"{where}[{i}]") for i, item in enumerate(_expect(list, value, where)))
    if get_origin(kind) is Mapping:
        return {key: _decode(get_args(kind)[1], item, f"{where}.{key}") for key, item in _expect(dict, value, where).items()}
    if issubclass(kind, Enum):
        return _decode_member(kind, value, where)
    return _decode_number(value, where) if kind is float else _expect(kind, value, where)


def _decode_object(kind: Any, value: Json, where: str) -> Any:
    given = _expect(dict, value, where)
    if extra := given.keys() - _annotations(kind).keys():
        raise _MalformedError(f"{where} has an unknown key '{min(extra)}'")
    if missing := _required(kind) - given.keys():
        raise _MalformedError(f"{where} lacks '{min(missing)}'")
    return kind(**{name: _decode(_annotations(kind)[name], item, f"{where}.{name}") for name, item in given.items()})


@cache
def _annotations(kind: type) -> Mapping[str, Any]:
    return get_type_hints(kind)


@cache
def _required(kind: type[Any]) -> frozenset[str]:
    return frozenset(field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING)


def _decode_member(kind: type[Enum], value: Json, where: str) -> Enum:
    for member in kind:
        if encode(member) == value:
            return member
    raise _MalformedError(f"{where}: unknown word {value!r}")


def _decode_number(value: Json, where: str) -> float:
    try:
        number = math.nan if isinstance(value, bool) or not isinstance(value, int | float) else float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _MalformedError(f"{where} is not a finite number")
    return number


def _expect(kind: type[Any], value: Json, where: str) -> Any:
    # Python's bool is an int, but it is no count
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise _MalformedError(f"{where} is not {kind.__name__}")
    return value
