"""The table of names of one torch version, for lookup and as a committed file; and the values that options may have."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

CONFIG_FILES = {
    "config": "_inductor/config.py",
    "dynamo_config": "_dynamo/config.py",
    "functorch_config": "_functorch/config.py",
}
"""The files of the options, by the sections of a spec that set them."""
COUNTER = "counter"
METRIC = "metric"


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """All names of one torch version."""

    version: str
    names: Mapping[str, frozenset[str]]
    """The dotted options of each key of ``CONFIG_FILES``, the metrics, and the counters as ``NAMESPACE.NAME``."""
    patterns: Mapping[str, tuple[str, ...]]
    """For each namespace of counters the anchored patterns of names that are made at run time."""
    types: Mapping[str, Mapping[str, tuple[str, ...]]]
    """For each key of ``CONFIG_FILES`` the options with known values, and these values (``allowed_values``)."""
    modes: tuple[str, ...]
    """The modes of ``torch.compile``; empty if the table has none."""
    unresolved: tuple[str, ...] = field(default=(), compare=False)
    """Source positions with an unknown namespace: the table may lack their counters."""


def matches(patterns: Mapping[str, tuple[str, ...]], counter: str) -> bool:
    """Whether a pattern matches the counter. The name of a graph break is a text of many lines."""
    space, _, name = counter.partition(".")
    return bool(name) and any(re.fullmatch(pattern, name, re.DOTALL) for pattern in patterns.get(space, ()))


def read_table(file: Path) -> Names:
    """Read a committed table."""
    table = json.loads(file.read_text("utf-8"))
    counters = frozenset(f"{space}.{name}" for space, entry in table[COUNTER].items() for name in entry["names"])
    types = {kind: {name: tuple(text.split(" | ")) for name, text in table["types"][kind].items()} for kind in table.get("types", ())}
    return Names(
        version=table["torch"],
        names={**{kind: frozenset(table[kind]) for kind in (*CONFIG_FILES, METRIC)}, COUNTER: counters},
        patterns={space: tuple(entry["patterns"]) for space, entry in table[COUNTER].items()},
        types=types,
        modes=tuple(table.get("modes", ())),
    )


def table_text(table: Names) -> str:
    """Return the committed form: one name a line, sorted."""
    counters: dict[str, dict[str, list[str]]] = {
        space: {"names": [], "patterns": [*table.patterns[space]]} for space in sorted(table.patterns)
    }
    for counter in sorted(table.names[COUNTER]):
        space, _, name = counter.partition(".")
        counters[space]["names"].append(name)
    types = {kind: {name: " | ".join(table.types[kind][name]) for name in sorted(table.types[kind])} for kind in table.types}
    form = {
        "torch": table.version,
        **{kind: sorted(table.names[kind]) for kind in (*CONFIG_FILES, METRIC)},
        COUNTER: counters,
        **({"types": types} if types else {}),
        **({"modes": list(table.modes)} if table.modes else {}),
    }
    return json.dumps(form, indent=1) + "\n"


# -- values of options: kinds of JSON values, and literals ------------------------------------------------------------


Allowed = tuple[str, ...]
"""Words of ``KINDS``, and literals in JSON notation; empty if the source does not show the values."""

KINDS = ("bool", "int", "float", "str", "null", "list", "map")


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
