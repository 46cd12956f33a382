"""A table of the names that one torch has, as it is committed and as it is looked up. How it is made is ``_scan``'s."""

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
    """The counters of one namespace: names, and anchored patterns for names that are made at run time."""

    names: frozenset[str] = frozenset()
    patterns: tuple[str, ...] = ()

    def matches(self, name: str) -> bool:
        """Whether a pattern allows the name (a graph break's name is a text of many lines)."""
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
    """Every name that one torch has."""

    version: str
    options: Mapping[str, frozenset[str]]
    """For each key of ``CONFIG_FILES`` its dotted options."""
    metrics: frozenset[str]
    counters: Mapping[str, CounterNames]
    """By namespace."""
    unresolved: tuple[str, ...] = field(default=(), compare=False)
    """Places whose namespace could not be read: the table may lack what they count."""

    def as_json(self) -> dict[str, Any]:
        """Return the committed form."""
        return {
            "torch": self.version,
            **{kind: sorted(self.options[kind]) for kind in CONFIG_FILES},
            "metric": sorted(self.metrics),
            "counter": {space: self.counters[space].as_json() for space in sorted(self.counters)},
        }

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> "Names":
        """Read the committed form."""
        return cls(
            version=table["torch"],
            options={kind: frozenset(table[kind]) for kind in CONFIG_FILES},
            metrics=frozenset(table["metric"]),
            counters={space: CounterNames.from_json(entry) for space, entry in table["counter"].items()},
        )
