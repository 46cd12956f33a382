"""``when:`` and version ranges. Conditions are data and are never evaluated as code."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from operator import eq, ge, gt, le, lt, ne
from typing import Any

from torch_conformance.model.devices import kind_of
from torch_conformance.model.values import frozen

_COMPARATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    ">=": ge,
    "<=": le,
    "==": eq,
    "!=": ne,
    ">": gt,
    "<": lt,
}
_CLAUSE = re.compile(r"\s*(>=|<=|==|!=|>|<)\s*v?([0-9]{1,9}(?:\.[0-9]{1,9})*)\s*\Z")


class BadRange(ValueError):
    """A version range that cannot be read."""


@dataclass(frozen=True, slots=True)
class VersionRange:
    """A version range such as ``>=2.12,<2.14``.

    All clauses must hold. Only release numbers count; missing numbers are 0.
    """

    text: str
    clauses: tuple[tuple[str, tuple[int, ...]], ...]

    @classmethod
    def parse(cls, text: str) -> "VersionRange":
        """Parse a range; raise ``BadRange`` that quotes the invalid clause."""
        clauses = []
        for piece in str(text).split(","):
            if (match := _CLAUSE.match(piece)) is None:
                raise BadRange(
                    f"'{piece.strip()[:60]}' is not a version range: write for example "
                    '">=2.12" or ">=2.11,<2.13"'
                )
            clauses.append((match[1], tuple(int(number) for number in match[2].split("."))))
        return cls(str(text), tuple(clauses))

    def holds(self, release: tuple[int, ...]) -> bool:
        """Whether the release lies in the range."""
        return all(
            _COMPARATORS[sign](*zip(*zip_longest(release, required, fillvalue=0), strict=True))
            for sign, required in self.clauses
        )


@frozen
class Surroundings:
    """The facts that conditions test: the case's backend and the machine."""

    backends: frozenset[str]
    """The backend's name and the names of all backends that it joins."""
    device: str
    torch: tuple[int, ...] | None = None
    python: tuple[int, ...] | None = None
    vendor: str | None = None
    arch: str | None = None
    code: str | None = None
    """The code that the judged step generated; None where no step is judged."""


def _holds_of_code(required: Mapping[str, object], surroundings: Surroundings) -> bool:
    if surroundings.code is None:
        return False
    contained, lacked = as_list(required.get("contains", [])), as_list(required.get("lacks", []))
    return all(text in surroundings.code for text in contained) and not any(
        text in surroundings.code for text in lacked
    )


MATRIX = "matrix"
"""The condition on the point of the matrix; in a case it is whether the point fulfils it."""
CODE = "code"
"""The condition on generated code, which only expectations have."""

CONDITIONS: Mapping[str, Callable[[Any, Surroundings], bool]] = {
    "torch": lambda required, surroundings: (
        surroundings.torch is not None and VersionRange.parse(required).holds(surroundings.torch)
    ),
    "python": lambda required, surroundings: (
        surroundings.python is not None and VersionRange.parse(required).holds(surroundings.python)
    ),
    "device": lambda required, surroundings: kind_of(surroundings.device) in as_list(required),
    "vendor": lambda required, surroundings: surroundings.vendor in as_list(required),
    "backend": lambda required, surroundings: bool(surroundings.backends & set(as_list(required))),
    "arch": lambda required, surroundings: (
        surroundings.arch is not None
        and any(surroundings.arch.startswith(name) for name in as_list(required))
    ),
    MATRIX: lambda required, surroundings: required is True,
    CODE: _holds_of_code,
}
"""The keys of ``when:``. All given keys must hold; a list holds if one of its values does."""


def holds(when: Mapping[str, Any] | None, surroundings: Surroundings) -> bool:
    """Whether the condition holds here; a missing condition always holds."""
    return all(CONDITIONS[word](required, surroundings) for word, required in (when or {}).items())


def without_code(when: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the part of a condition that is known before a step has run."""
    return {word: required for word, required in (when or {}).items() if word != CODE}


def asks_for_code(value: object) -> bool:
    """Whether a condition at any depth of an expectation's arguments is one on generated code."""
    if isinstance(value, Mapping):
        when = value.get("when")
        return (isinstance(when, Mapping) and CODE in when) or any(
            map(asks_for_code, value.values())
        )
    return isinstance(value, list) and any(map(asks_for_code, value))


def as_list(value: object) -> list[Any]:
    """Return the entries of a list or tuple; anything else is the only entry."""
    return list(value) if isinstance(value, list | tuple) else [value]


def choose(value: object, surroundings: Surroundings) -> tuple[bool, Any]:
    """Return (applies, value) of a value that may be conditional.

    A conditional value is a list of ``{when: ..., value: ...}``; the first entry whose condition
    holds applies. Any other value always applies.
    """
    if not isinstance(value, list) or not is_conditional(value):
        return True, value
    for entry in value:
        if holds(entry.get("when"), surroundings):
            return True, entry["value"]
    return False, None


def is_conditional(value: object) -> bool:
    """Whether ``value`` is a list of conditional entries."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(entry, dict) and "value" in entry for entry in value)
    )


def is_template(value: object) -> bool:
    """Whether a value of a spec is a template."""
    return isinstance(value, str) and "{{" in value
