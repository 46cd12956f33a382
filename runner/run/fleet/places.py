"""Which nodes may have a case: all that can run it; with several attempts those that are like each other."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from runner.core.case import Case, CaseId
from runner.run.fleet.health import Entry
from runner.run.fleet.nodes import Nodes


@dataclass(frozen=True, slots=True)
class Places:
    """The nodes for cases."""

    nodes: Nodes
    earlier: Mapping[CaseId, Mapping[str, str]]
    """The machine of the first attempt of cases, by id."""
    repeat: int

    def of(self, case: Case) -> frozenset[str]:
        """Return the nodes for a case that begins to wait."""
        places = self.nodes.places(case)
        if case.id in self.earlier:
            return places & self.nodes.like(self.earlier[case.id])
        if self.repeat == 1 or not places:
            return places
        kinds = sorted({tuple(sorted(places & self.nodes.like(self.nodes.offers[name].environment))) for name in places})
        return frozenset(kinds[zlib.crc32(case.id.encode()) % len(kinds)])

    def with_newcomer(self, name: str, entry: Entry) -> frozenset[str]:
        """Return the nodes for a case that has waited, with one that joined meanwhile if it may run there too."""
        if name not in self.nodes.places(entry.case):
            return entry.places
        newcomer, earlier = self.nodes.offers[name], self.earlier.get(entry.case.id)
        if earlier is not None:
            may = newcomer.is_like_node(earlier)
        elif entry.retry_of or self.repeat != 1:
            may = any(newcomer.is_like_node(self.nodes.offers[place].environment) for place in entry.places)
        else:
            may = True
        return entry.places | {name} if may else entry.places
