"""The names of the nodes of a cluster: as they joined, made unique, and not used again for a node that joins later."""

import itertools
from collections.abc import Iterator, Sequence

from runner.execute.ray.frames import Message
from runner.execute.ray.labels import NAME
from runner.execute.ray.link import Node


class NodeNames:
    """The names of all nodes that were listed, by the id that Ray gives them."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def of_cluster(self, found: Sequence[Message]) -> list[Node]:
        """Return the shares of the nodes of a cluster that may have been started again: then ids are new, and names tell nodes apart."""
        if not any(str(node["node"]) in self._names for node in found):
            self._names.clear()
        return self.nodes_of(found)

    def nodes_of(self, found: Sequence[Message]) -> list[Node]:
        """Return the shares of nodes, each with a name of its own."""
        self._name(found)
        ordered = sorted(found, key=lambda node: self._names[str(node["node"])])
        return [share for node in ordered for share in _shares(node, self._names[str(node["node"])])]

    def _name(self, found: Sequence[Message]) -> None:
        """Name the nodes without a name; with a number where several joined with one name, now or earlier."""
        by_label: dict[str, list[str]] = {}
        for node in sorted(found, key=lambda node: str(node["node"])):
            by_label.setdefault(str(node["labels"][NAME]), []).append(str(node["node"]))
        for label, ids in sorted(by_label.items()):
            free = (f"{label}-{number}" for number in itertools.count(1 + (label in self._names.values())))
            for one in (one for one in ids if one not in self._names):
                taken = set(self._names.values())
                self._names[one] = label if len(ids) == 1 and label not in taken else next(name for name in free if name not in taken)


def _shares(node: Message, name: str) -> Iterator[Node]:
    count = max(1, int(node["shares"]))
    for share in range(count):
        own = name if count == 1 else f"{name}.{share}"
        yield Node(key=f"{node['node']}.{share}", name=own, labels=node["labels"], share=share, shares=count)
