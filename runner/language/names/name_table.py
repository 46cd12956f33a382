"""The table of names of one torch version, for lookup and as a committed file; and the values that options may have."""

import ast
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

CONFIG_FILES = {
    "config": "_inductor/config.py",
    "dynamo_config": "_dynamo/config.py",
    "functorch_config": "_functorch/config.py",
}


@dataclass(frozen=True, slots=True)
class CounterNames:
    """The counters of one namespace: names, and anchored patterns for names made at run time."""

    names: frozenset[str] = frozenset()
    patterns: tuple[str, ...] = ()

    def matches(self, name: str) -> bool:
        """Whether a pattern matches the name. The name of a graph break is a text of many lines."""
        return any(re.fullmatch(pattern, name, re.DOTALL) for pattern in self.patterns)

    def as_json(self) -> dict[str, list[str]]:
        """Return the committed form."""
        return {"names": sorted(self.names), "patterns": sorted(self.patterns)}

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> "CounterNames":
        """Read the committed form."""
        return cls(frozenset(entry["names"]), tuple(entry["patterns"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """All names of one torch version."""

    version: str
    options: Mapping[str, frozenset[str]]
    """The dotted options of each key of ``CONFIG_FILES``."""
    types: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    """For each key of ``CONFIG_FILES`` the options with known values, and these values (``_scan_types``)."""
    modes: tuple[str, ...] = ()
    """The modes of ``torch.compile``; empty if the table has none."""
    metrics: frozenset[str]
    counters: Mapping[str, CounterNames]
    """By namespace."""
    unresolved: tuple[str, ...] = field(default=(), compare=False)
    """Source positions with an unknown namespace: the table may lack their counters."""

    def as_json(self) -> dict[str, Any]:
        """Return the committed form."""
        types = {kind: {name: " | ".join(self.types[kind][name]) for name in sorted(self.types[kind])} for kind in self.types}
        return {
            "torch": self.version,
            **{kind: sorted(self.options[kind]) for kind in CONFIG_FILES},
            "metric": sorted(self.metrics),
            "counter": {space: self.counters[space].as_json() for space in sorted(self.counters)},
            **({"types": types} if types else {}),
            **({"modes": list(self.modes)} if self.modes else {}),
        }

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> "Names":
        """Read the committed form."""
        return cls(
            version=table["torch"],
            options={kind: frozenset(table[kind]) for kind in CONFIG_FILES},
            types={
                kind: {name: tuple(text.split(" | ")) for name, text in entries.items()} for kind, entries in table.get("types", {}).items()
            },
            modes=tuple(table.get("modes", ())),
            metrics=frozenset(table["metric"]),
            counters={space: CounterNames.from_json(entry) for space, entry in table["counter"].items()},
        )


# -- values of options: kinds of JSON values, and literals ------------------------------------------------------------


Allowed = tuple[str, ...]
"""Words of ``KINDS``, and literals in JSON notation; empty if the source does not show the values."""

KINDS = ("bool", "int", "float", "str", "null", "list", "map")

_NAMES = {"bool": "bool", "int": "int", "float": "float", "str": "str", "None": "null", "dict": "map", "Dict": "map", "Mapping": "map"}
_NAMES |= dict.fromkeys(("list", "List", "tuple", "Tuple", "set", "Set", "frozenset", "Sequence"), "list")
_UNKNOWN = "?"


def allowed_values(annotation: ast.expr | None, default: ast.expr | None) -> Allowed:
    """Return the allowed values of an option, from its annotation and its default."""
    of_default = _kind_of(default)
    found = [*_annotated(annotation), *of_default] if annotation is not None else of_default
    if not found or _UNKNOWN in found or (annotation is None and "null" in found):
        return ()
    literals = [text for text in found if text not in KINDS]
    kinds = [kind for kind in KINDS if kind in found]
    if literals and annotation is not None:
        # the default is one of the literals and does not allow its whole kind
        kinds = [kind for kind in KINDS if kind in _annotated(annotation)]
    return (*sorted(set(literals)), *kinds)


def _annotated(annotation: ast.expr | None) -> list[str]:
    match annotation:
        case ast.Constant(value=None):
            return ["null"]
        case ast.Constant(value=str(text)):
            return _annotated(ast.parse(text, mode="eval").body)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return [_NAMES.get(name, _UNKNOWN)]
        case ast.BinOp(op=ast.BitOr(), left=left, right=right):
            return [*_annotated(left), *_annotated(right)]
        case ast.Subscript(value=ast.Name(id=name) | ast.Attribute(attr=name), slice=inner):
            return _subscripted(name, inner)
    return [_UNKNOWN]


def _subscripted(name: str, inner: ast.expr) -> list[str]:
    parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    match name:
        case "Optional":
            return [*_annotated(inner), "null"]
        case "Union":
            return _joined(_annotated(part) for part in parts)
        case "ClassVar" | "Final":
            return _annotated(inner)
        case "Literal":
            return [json.dumps(part.value) if isinstance(part, ast.Constant) else _UNKNOWN for part in parts]
    return [_NAMES.get(name, _UNKNOWN)]


def _joined(lists: Iterable[list[str]]) -> list[str]:
    return [word for words in lists for word in words]


def _kind_of(value: ast.expr | None) -> list[str]:
    """Return the kind of a default if its expression shows it, else nothing."""
    match value:
        case ast.Constant(value=None):
            return ["null"]
        case ast.Constant(value=bool()) | ast.Compare() | ast.UnaryOp(op=ast.Not()) | ast.Call(func=ast.Name(id="bool")):
            return ["bool"]
        case ast.Constant(value=int()) | ast.Call(func=ast.Name(id="int")) | ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int())):
            return ["int"]
        case ast.Constant(value=float()) | ast.Call(func=ast.Name(id="float")):
            return ["float"]
        case ast.Constant(value=str()) | ast.JoinedStr() | ast.Call(func=ast.Attribute(attr="upper" | "lower" | "strip")):
            return ["str"]
        case ast.Call(func=ast.Attribute(attr="get", value=ast.Attribute(attr="environ")), args=[_, ast.Constant(value=str())]):
            return ["str"]
        case ast.List() | ast.Tuple() | ast.Set():
            return ["list"]
        case ast.Dict():
            return ["map"]
    return []


def fits(value: object, allowed: Allowed) -> bool:
    """Whether a value of a spec is allowed for an option."""
    kinds = _KINDS_OF.get(type(value))
    if kinds is None or any(kind in allowed for kind in kinds):
        return True
    return isinstance(value, str | int | float) and json.dumps(value) in allowed


_KINDS_OF: Mapping[type, tuple[str, ...]] = {
    type(None): ("null",),
    bool: ("bool",),
    str: ("str",),
    int: ("int", "float"),
    float: ("float",),
    list: ("list",),
    dict: ("map",),
}


def shown(allowed: Allowed) -> str:
    """Return the allowed values as text."""
    words = {"null": "null", "str": "a text", "int": "a whole number", "float": "a number", "list": "a list", "map": "a map"}
    words["bool"] = "true or false"
    return " or ".join(words.get(word, word) for word in allowed)
