"""Names of torch: options, counters and metrics of each supported version, and of the installed torch."""

import argparse
import difflib
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from runner.core.diagnostics import UsageError, did_you_mean, one_of, unknown
from runner.language.names.name_table import KINDS, fits, shown
from runner.system.installed_torch import InstalledTorch, release

if TYPE_CHECKING:
    from runner.language.names.torch_source import Source
from runner.language.names.name_table import CounterNames, Names


def counter_hint(name: str, counters: Mapping[str, CounterNames], metrics: Iterable[str]) -> str:
    """Return what was probably meant by a name that no table has as a counter."""
    space, _, bare = name.partition(".")
    if not bare and space in counters:
        return f"'{space}' is a namespace: write {space}.NAME"
    if not bare and name in metrics:
        return f"'{name}' is a metric"
    meant = _meant_counter(space, bare, counters) if bare else _meant_counter("", name, counters)
    if meant:
        return f"did you mean '{meant}'?"
    if space in counters:
        return f"known in {space}: {one_of(counters[space].names)}"
    return f"namespaces: {one_of(counters)}"


def likely_typo(name: str, counters: Mapping[str, CounterNames]) -> str:
    """Return a hint if a name that matches a pattern resembles a listed counter: ``batch_layernrm`` matches ``batch_.+``."""
    space, _, bare = name.partition(".")
    near = _nearest(bare, sorted(counters[space].names), cutoff=0.9) if space in counters else None
    return f"did you mean '{space}.{near}'?" if near else ""


def _meant_counter(space: str, bare: str, counters: Mapping[str, CounterNames]) -> str | None:
    """Return the counter that was probably meant: the namespace, the name, or both may be wrong."""
    homes = [f"{other}.{bare}" for other in counters if bare in counters[other].names]
    if homes:
        return _nearest(f"{space}.{bare}", homes, cutoff=0.0)
    other = space if space in counters else _nearest(space, counters)
    if other:
        if other != space and counters[other].matches(bare):
            return f"{other}.{bare}"
        near = _nearest(bare, sorted(counters[other].names))
        return f"{other}.{near}" if near else None
    by_name = {near: other for other in counters for near in counters[other].names}
    near = _nearest(bare, sorted(by_name))
    return f"{by_name[near]}.{near}" if near else None


def _nearest(word: str, choices: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    return next(iter(difflib.get_close_matches(word, list(choices), n=1, cutoff=cutoff)), None)


# -- lookup -----------------------------------------------------------------------------------------------------------


TABLES = Path(__file__).parents[1] / "data"
_PREFIX = "names-"
_LONGEST_VALUE = 60
"""The maximum length of a value in a message, in characters."""


class NameKind(Enum):
    """The kind of a name. The values are keys of specs and of tables."""

    INDUCTOR_CONFIG = "config"
    DYNAMO_CONFIG = "dynamo_config"
    FUNCTORCH_CONFIG = "functorch_config"
    COUNTER = "counter"
    METRIC = "metric"


_OPTIONS = (NameKind.INDUCTOR_CONFIG, NameKind.DYNAMO_CONFIG, NameKind.FUNCTORCH_CONFIG)


class Fit(IntEnum):
    """How a table contains a name; greater is better."""

    NO = 0
    PATTERN = 1
    NAME = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """The result of a lookup."""

    known: bool
    """Whether a committed table or the installed source has the name."""
    here: bool
    """Whether the installed torch has the name. Without torch it equals ``known``."""
    versions: tuple[str, ...]
    """The minor versions whose tables have the name, oldest first."""
    hint: str = ""
    """What to type instead of an unknown name, or of a name that only matches a pattern and resembles a listed one."""
    by_pattern: bool = False
    """Whether the name is known only by a pattern of a counter with run-time names; such a counter may never be incremented."""


class NameTables:
    """The committed tables and the installed torch's source, each read at its first use."""

    def __init__(self, installed: InstalledTorch | None, folder: Path = TABLES) -> None:
        self._installed = installed
        self._folder = folder
        self._source = _InstalledSource(installed.root) if installed else None
        self._found: dict[tuple[NameKind, str], Lookup] = {}

    @classmethod
    def load(cls, installed: InstalledTorch | None) -> "NameTables":
        """Return the lookup for a torch; None means a machine without torch. What was read of a release is kept for the next call."""
        if installed is not None and not installed.is_release:
            return cls(installed)  # of a checkout: its files can change under the same version
        root = installed.root if installed is not None else None
        known, tables = _LOADED.get(root, (None, None))
        if tables is None or known != installed:
            tables = cls(installed)
            _LOADED[root] = (installed, tables)
        return tables

    def lookup(self, kind: NameKind, name: str) -> Lookup:
        """Look a name up; results are cached."""
        if (kind, name) not in self._found:
            self._found[kind, name] = self._look_up(kind, name)
        return self._found[kind, name]

    def _look_up(self, kind: NameKind, name: str) -> Lookup:
        fits = {minor: _fit(table, kind, name) for minor, table in self._tables.items()}
        versions = tuple(minor for minor, fit in fits.items() if fit is not Fit.NO)
        here = self._fit_here(kind, name, fits)
        best = max([here, *fits.values()])
        known = best is not Fit.NO
        return Lookup(
            known=known,
            here=here is not Fit.NO,
            versions=versions,
            hint=self._hint(kind, name, best),
            by_pattern=best is Fit.PATTERN,
        )

    def absence(self, kind: NameKind, name: str) -> str:
        """Return why a known name makes a case unavailable here; empty if the installed torch has it."""
        found = self.lookup(kind, name)
        if found.here or not found.known or self._installed is None:
            return ""
        return f"{kind.value} {name} is not in torch {self._installed.minor}, only in {', '.join(found.versions)}"

    def value_problem(self, kind: NameKind, name: str, value: object) -> tuple[str, str] | None:
        """Return (message, hint) for a value that no torch with known types allows for an option; None if it is allowed or unknown."""
        known = [table.types[kind.value][name] for table in self._tables.values() if name in table.types.get(kind.value, {})]
        if not known or any(fits(value, allowed) for allowed in known):
            return None
        written = json.dumps(value, default=str)
        found = written if len(written) <= _LONGEST_VALUE else f"{written[:_LONGEST_VALUE]}..."
        literals = [json.loads(word) for word in known[-1] if word not in KINDS]
        typo = did_you_mean(value, [word for word in literals if isinstance(word, str)]) if isinstance(value, str) else ""
        return f"{kind.value} {name} is {found}", typo or f"allowed: {shown(known[-1])}"

    def mode_problem(self, mode: object) -> tuple[str, str] | None:
        """Return (message, hint) for an unknown mode of torch.compile."""
        modes = [mode for table in self._tables.values() for mode in table.modes]
        return None if mode is None or mode in modes or not modes else unknown("mode", str(mode), list(dict.fromkeys(modes)))

    @property
    def minors(self) -> tuple[str, ...]:
        """The minor versions of torch that have a table, oldest first."""
        return tuple(self._tables)

    @cached_property
    def _tables(self) -> dict[str, Names]:
        """By minor, oldest first."""
        files = {file.stem.removeprefix(_PREFIX): file for file in self._folder.glob(f"{_PREFIX}*.json")}
        return {minor: read_table(files[minor]) for minor in sorted(files, key=release)}

    def _fit_here(self, kind: NameKind, name: str, fits: Mapping[str, Fit]) -> Fit:
        if self._installed is None or self._source is None:
            return max(fits.values(), default=Fit.NO)
        listed = self._installed.is_release and self._installed.minor in fits
        if listed and fits[self._installed.minor] is not Fit.NO:
            return fits[self._installed.minor]
        return self._source.fit(kind, name, patterns=not listed)

    def _hint(self, kind: NameKind, name: str, fit: Fit) -> str:
        if fit is Fit.NAME:
            return ""
        if fit is Fit.PATTERN:
            return likely_typo(name, self._every_counter())
        if kind is NameKind.COUNTER:
            return counter_hint(name, self._every_counter(), self._every_name(NameKind.METRIC))
        if kind is NameKind.METRIC:
            return did_you_mean(name, sorted(self._every_name(kind)))
        return _option_hint(kind, name, {other: self._every_name(other) for other in _OPTIONS})

    def _every_name(self, kind: NameKind) -> frozenset[str]:
        """Return the options or metrics of every table and of the installed torch."""
        here = [self._source.plain(kind)] if self._source else []
        return frozenset().union(*(_plain(table, kind) for table in self._tables.values()), *here)

    def _every_counter(self) -> dict[str, CounterNames]:
        """Return the counters of every table; without any table, those of the installed torch."""
        every = [table.counters for table in self._tables.values()]
        if not every and self._source:
            every = [self._source.counters()]
        spaces = {space for counters in every for space in counters}
        return {space: _united([counters[space] for counters in every if space in counters]) for space in sorted(spaces)}


_LOADED: dict[Path | None, tuple[InstalledTorch | None, NameTables]] = {}
"""By the folder of the torch: ``watch`` looks names up after each change of a spec, and a scan of torch takes seconds."""


class _InstalledSource:
    """The names in the source of the installed torch, cached."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: dict[NameKind, frozenset[str]] = {}
        self._every_counter: Mapping[str, CounterNames] | None = None

    @cached_property
    def _torch(self) -> "Source":
        # imported late: the scanners are needed only for names that are in no table
        from runner.language.names.torch_source import Source

        return Source(self._root)

    def fit(self, kind: NameKind, name: str, *, patterns: bool) -> Fit:
        """Look a name up. Without ``patterns`` a counter's name must be in the source literally, which is fast to check."""
        if kind is not NameKind.COUNTER:
            return Fit.NAME if name in self.plain(kind) else Fit.NO
        fit = _counter_fit(self._mentioning(name), name)
        return _counter_fit(self.counters(), name) if fit is not Fit.NAME and patterns else fit

    def plain(self, kind: NameKind) -> frozenset[str]:
        """Return the options of a config module, or the metrics."""
        if kind not in self._known:
            from runner.language.names.scan import scan_metrics, scan_options

            metric = kind is NameKind.METRIC
            self._known[kind] = scan_metrics(self._torch) if metric else scan_options(self._torch, kind.value)
        return self._known[kind]

    def counters(self) -> Mapping[str, CounterNames]:
        """Return all counters. This takes seconds."""
        if self._every_counter is None:
            from runner.language.names.scan import scan_counters

            self._every_counter, _ = scan_counters(self._torch)
        return self._every_counter

    def _mentioning(self, name: str) -> Mapping[str, CounterNames]:
        bare = name.partition(".")[2]
        if self._every_counter is not None or not bare:
            return self._every_counter or {}
        from runner.language.names.scan import scan_counters

        return scan_counters(self._torch, mention=bare)[0]


def read_table(file: Path) -> Names:
    """Read a committed table."""
    return Names.from_json(json.loads(file.read_text("utf-8")))


def table_text(names: Names) -> str:
    """Return the committed form: one name a line, sorted."""
    return json.dumps(names.as_json(), indent=1) + "\n"


def _plain(names: Names, kind: NameKind) -> frozenset[str]:
    return names.metrics if kind is NameKind.METRIC else names.options[kind.value]


def _fit(names: Names, kind: NameKind, name: str) -> Fit:
    if kind is NameKind.COUNTER:
        return _counter_fit(names.counters, name)
    return Fit.NAME if name in _plain(names, kind) else Fit.NO


def _counter_fit(counters: Mapping[str, CounterNames], name: str) -> Fit:
    space, _, bare = name.partition(".")
    if not bare or space not in counters:
        return Fit.NO
    if bare in counters[space].names:
        return Fit.NAME
    return Fit.PATTERN if counters[space].matches(bare) else Fit.NO


def _united(entries: Sequence[CounterNames]) -> CounterNames:
    names = frozenset(name for entry in entries for name in entry.names)
    return CounterNames(names, tuple(sorted({pattern for entry in entries for pattern in entry.patterns})))


def _option_hint(kind: NameKind, name: str, options: Mapping[NameKind, frozenset[str]]) -> str:
    own = options[kind]
    members = [option for option in own if option.startswith(f"{name}.")]
    if members:
        return f"'{name}' is a group of options: {one_of(members)}"
    homes = [other for other in options if name in options[other]]
    if homes:
        return f"'{name}' is an option of {homes[0].value}"
    tail = name.rpartition(".")[2]
    same = sorted(option for option in own if option.rpartition(".")[2] == tail)
    return did_you_mean(name, same, cutoff=0.0) or did_you_mean(name, sorted(own))


def main(arguments: Sequence[str] | None = None) -> int:
    """Generate the table of one torch."""
    parser = argparse.ArgumentParser(prog="python -m runner.language.names.tables", description="Generate the table of names of a torch.")
    parser.add_argument("source", type=Path, help="the folder of the package torch, or its parent")
    parser.add_argument("-o", "--output", type=Path, help="the file to write (default: standard output)")
    options = parser.parse_args(arguments)
    from runner.language.names.scan import scan

    try:
        names = scan(options.source)
        if options.output:
            options.output.write_text(table_text(names), "utf-8")
    except (UsageError, OSError) as problem:
        print(problem, file=sys.stderr)
        return 2
    for place in names.unresolved:
        print(f"{place}: the namespace is not constant; the table may lack its counters", file=sys.stderr)
    if not options.output:
        sys.stdout.write(table_text(names))
    return 0


if __name__ == "__main__":
    sys.exit(main())
