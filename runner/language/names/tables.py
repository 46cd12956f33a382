"""Names of torch: options, counters and metrics of each supported version, and of the installed torch."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from runner.language.names.scan import CONFIG_FILES, COUNTER, KINDS, METRIC, Allowed, Names, scan_kind
from runner.machine.installed_torch import InstalledTorch, release
from runner.model.diagnostics import Diagnostic, nearest, one_of, unknown_word
from runner.model.problem_texts import shown_types

TABLES = Path(__file__).parents[1] / "data"
_PREFIX = "names-"


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


def committed_tables() -> dict[str, Names]:
    """Return the committed tables by the minor version of torch, oldest first."""
    files = {file.stem.removeprefix(_PREFIX): file for file in TABLES.glob(f"{_PREFIX}*.json")}
    return {minor: read_table(files[minor]) for minor in sorted(files, key=release)}


# -- values of options: kinds of JSON values, and literals ------------------------------------------------------------


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


# -- look-ups ---------------------------------------------------------------------------------------------------------

_LONGEST_VALUE = 60
"""The maximum length of a value in a message, in characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """The result of a lookup."""

    known: bool
    """Whether a committed table or the installed source has the name."""
    is_installed: bool
    """Whether the installed torch has the name. Without torch it equals ``known``."""
    versions: tuple[str, ...]
    """The minor versions whose tables have the name, oldest first."""
    hints: Mapping[str, str]
    """What is meant by an unknown name, or by one that only matches a pattern and resembles a listed one: arguments of its problem."""
    by_pattern: bool = False
    """Whether the name is known only by a pattern of a counter with run-time names; such a counter may never be incremented."""


class NameTables:
    """The committed tables and the installed torch's source, each read at its first use.

    The kind of a name is the key of specs and tables that it stands below: one of ``CONFIG_FILES``, ``COUNTER`` or ``METRIC``.
    """

    def __init__(self, installed: InstalledTorch | None) -> None:
        self.installed = installed
        self._lookups: dict[tuple[str, str], Lookup] = {}
        self._in_source: dict[str, tuple[frozenset[str], Mapping[str, tuple[str, ...]]]] = {}

    @classmethod
    def load(cls, installed: InstalledTorch | None) -> "NameTables":
        """Return the lookup for a torch; None means a machine without torch. What was read of a release is kept for the next call."""
        if installed is not None and not installed.is_release:
            return cls(installed)  # of a checkout: its files can change under the same version
        root = installed.root if installed is not None else None
        if root not in _LOADED or _LOADED[root].installed != installed:
            _LOADED[root] = cls(installed)
        return _LOADED[root]

    def lookup(self, kind: str, name: str) -> Lookup:
        """Look a name up; results are cached."""
        if (kind, name) in self._lookups:
            return self._lookups[kind, name]
        with_name = [minor for minor, table in self._tables.items() if name in table.names[kind]]
        with_pattern = [minor for minor, table in self._tables.items() if kind == COUNTER and matches(table.patterns, name)]
        versions = tuple(minor for minor in self._tables if minor in with_name or minor in with_pattern)
        is_installed, by_name = bool(versions), bool(with_name)
        if self.installed is not None:
            is_listed = self.installed.is_release and self.installed.minor in self._tables
            is_installed = is_listed and self.installed.minor in versions
            if not is_installed:
                names, patterns = self._names_in_source(kind)
                by_name = by_name or name in names
                # the table of a release has every pattern; its source is read for names that a patch adds
                is_installed = name in names or (not is_listed and matches(patterns, name))
        known = is_installed or bool(versions)
        hints = {} if by_name else self._hints(kind, name, known=known)
        self._lookups[kind, name] = Lookup(
            known=known, is_installed=is_installed, versions=versions, hints=hints, by_pattern=known and not by_name
        )
        return self._lookups[kind, name]

    def absence(self, kind: str, name: str) -> str:
        """Return why a known name makes a case unavailable here; empty if the installed torch has it."""
        lookup = self.lookup(kind, name)
        if lookup.is_installed or not lookup.known or self.installed is None:
            return ""
        return f"{kind} {name} is not in torch {self.installed.minor}, only in {', '.join(lookup.versions)}"

    def absent_argument(self, name: str) -> str:
        """Return why an argument of ``torch.compile`` makes a case unavailable here; empty if the installed torch has it."""
        if self.installed is None or name in self._compile_arguments:
            return ""
        return f"torch.compile of torch {self.installed.minor} has no argument {name}"

    def value_problem(self, kind: str, name: str, value: object) -> Diagnostic | None:
        """Return the problem of a value that no torch with known types allows for an option; None if it is allowed or unknown."""
        known = [table.types[kind][name] for table in self._tables.values() if name in table.types.get(kind, {})]
        if not known or any(fits(value, allowed) for allowed in known):
            return None
        written = json.dumps(value, default=str)
        shortened = written if len(written) <= _LONGEST_VALUE else f"{written[:_LONGEST_VALUE]}..."
        literals = [json.loads(word) for word in known[-1] if word not in KINDS]
        near = nearest(value, [word for word in literals if isinstance(word, str)]) if isinstance(value, str) else ""
        return Diagnostic.of("option-value", kind=kind, name=name, value=shortened, near=near, types=shown_types(known[-1]))

    def mode_problem(self, mode: object) -> Diagnostic | None:
        """Return the problem of an unknown mode of torch.compile."""
        modes = [mode for table in self._tables.values() for mode in table.modes]
        return None if mode is None or mode in modes or not modes else unknown_word("mode", str(mode), list(dict.fromkeys(modes)))

    @property
    def minors(self) -> tuple[str, ...]:
        """The minor versions of torch that have a table, oldest first."""
        return tuple(self._tables)

    @cached_property
    def _tables(self) -> dict[str, Names]:
        """By minor, oldest first."""
        return committed_tables()

    @cached_property
    def _compile_arguments(self) -> frozenset[str]:
        """The keyword arguments of ``torch.compile`` in the installed torch: of the last definition, which the overloads precede."""
        assert self.installed is not None
        definitions = re.findall(
            r"^def compile\(\n(.*?)^\)", (self.installed.root / "__init__.py").read_text("utf-8"), re.DOTALL | re.MULTILINE
        )
        return frozenset(re.findall(r"^    (\w+):", definitions[-1] if definitions else "", re.MULTILINE))

    def _names_in_source(self, kind: str) -> tuple[frozenset[str], Mapping[str, tuple[str, ...]]]:
        """Return the names of a kind in the source of the installed torch, and the patterns of counters, whose scan takes seconds."""
        if kind not in self._in_source and self.installed is not None:
            self._in_source[kind] = scan_kind(self.installed.root, kind)
        return self._in_source.get(kind, (frozenset(), {}))

    def names(self, kind: str) -> list[str]:
        """Return the names of every table, and of what was read of the installed torch."""
        read = self._in_source.get(kind, (frozenset[str](), {}))[0]
        return sorted(read.union(*(table.names[kind] for table in self._tables.values())))

    def _hints(self, kind: str, name: str, *, known: bool) -> dict[str, str]:
        """Return what was probably meant by an unknown name. Of a counter, the namespace, the name, or both may be wrong."""
        names = self.names(kind)
        if kind == METRIC:
            return {"near": nearest(name, names)}
        if kind != COUNTER:
            members = [option for option in names if option.startswith(f"{name}.")]
            homes = [other for other in CONFIG_FILES if other != kind and name in self.names(other)]
            same = [option for option in names if option.rpartition(".")[2] == name.rpartition(".")[2]]
            if members or homes:
                return {"word": name, "members": one_of(members) if members else "", "home": "" if members else homes[0]}
            return {"near": nearest(name, same, cutoff=0.0) or nearest(name, names)}
        patterns: dict[str, tuple[str, ...]] = {}
        for table in self._tables.values():
            patterns |= {space: (*patterns.get(space, ()), *own) for space, own in table.patterns.items()}
        space, _, bare = name.partition(".")
        names_of_space = {counter.partition(".")[2]: counter for counter in names if counter.startswith(f"{space}.")}
        if known:  # by a pattern, as ``batch_layernrm`` by ``batch_.+``
            return {"near": names_of_space.get(nearest(bare, names_of_space, cutoff=0.9), "")}
        if not bare and space in patterns:
            return {"space": space}
        if not bare and name in self.names(METRIC):
            return {"metric": name}
        near_space = nearest(space, patterns) if bare else ""
        if near_space != space and matches(patterns, f"{near_space}.{bare}"):
            return {"near": f"{near_space}.{bare}"}
        same = [counter for counter in names if counter.partition(".")[2] == (bare or name)]
        choices = names_of_space if space in patterns and not same else {counter.partition(".")[2]: counter for counter in same or names}
        if near := nearest(bare or name, choices):
            return {"near": choices[near]}
        return {"in_space": space, "known": one_of(names_of_space)} if space in patterns else {"spaces": one_of(patterns)}


_LOADED: dict[Path | None, NameTables] = {}
"""By the folder of the torch: ``watch`` looks names up after each change of a spec, and a scan of torch takes seconds."""
