"""The cases that wait, by the nodes that can run them: one line for each set of nodes."""

from collections import deque
from collections.abc import Callable, Collection

from runner.run.fleet.health import Entry


class Lines:
    """The lines; within one, and among those of a node, the order of the run holds."""

    def __init__(self) -> None:
        self._lines: dict[frozenset[str], deque[Entry]] = {}
        self._is_closed = False

    def __bool__(self) -> bool:
        return bool(self._lines)

    def put(self, entry: Entry, *, is_first: bool = False) -> None:
        """Add a case; nothing is added after ``close``."""
        if self._is_closed:
            return
        line = self._lines.setdefault(entry.places, deque())
        if is_first:
            line.appendleft(entry)
        else:
            line.append(entry)

    def place(self, places: Callable[[Entry], frozenset[str]]) -> None:
        """Give each case that waits the nodes that can run it now."""
        waiting = sorted((entry for line in self._lines.values() for entry in line), key=lambda entry: entry.number)
        self._lines.clear()
        for entry in waiting:
            entry.places = places(entry)
            self.put(entry)

    def has(self, node: str) -> bool:
        """Whether a case waits that a node can run."""
        return any(node in places for places in self._lines)

    def take(self, node: str) -> Entry | None:
        """Remove and return the next case that a node can run."""
        lines = [line for places, line in self._lines.items() if node in places]
        line = min(lines, key=lambda line: line[0].number, default=None)
        if line is None:
            return None
        entry = line.popleft()
        if not line:
            del self._lines[entry.places]
        return entry

    def without(self, nodes: Collection[str]) -> list[Entry]:
        """Remove and return the cases that none of these nodes can run."""
        gone = [places for places in self._lines if places.isdisjoint(nodes)]
        return [entry for places in gone for entry in self._lines.pop(places)]

    def close(self) -> None:
        """Drop every case, and all later ones."""
        self._is_closed = True
        self._lines.clear()
