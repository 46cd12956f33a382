"""The table of names of one torch version, for lookup and as a committed file. ``_scan`` makes it."""

import re
from collections.abc import Mapping
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
