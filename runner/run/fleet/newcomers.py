"""The nodes that join while a run goes on: each reports its facts, and is then a node of the run like the others, or is quarantined."""

from collections import deque
from dataclasses import dataclass, field

from runner.core.diagnostics import UsageError
from runner.execute.base import Execution, Job
from runner.run.fleet.nodes import Nodes, informed_by
from runner.run.fleet.offers import Offer
from runner.system.capabilities import Machine


@dataclass
class _Asked:
    """A node that reports its facts."""

    machine: Machine
    jobs: deque[Job]
    missing: int = field(init=False)
    """How many of its jobs did not end yet."""

    def __post_init__(self) -> None:
        self.missing = len(self.jobs)


class Newcomers:
    """The nodes that joined and are not admitted yet, by name."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._asked: dict[str, _Asked] = {}
        self.admitted: list[str] = []

    def take(self, node: str) -> Job | None:
        """Return the next job by which a node reports its facts; None when it has all of them."""
        if node not in self._asked:
            machine, jobs = self._nodes.facts_jobs(node)
            self._asked[node] = _Asked(machine, deque(jobs))
            if not jobs:
                self._nodes.executor.quarantine(node, "no case and no canary can run there")
        return self._asked[node].jobs.popleft() if node in self._asked and self._asked[node].jobs else None

    def lost(self, node: str) -> None:
        """Ask a node again, if it comes back."""
        self._asked.pop(node, None)

    def took(self, execution: Execution) -> Offer | None:
        """Take facts of a node; return its offer when it has reported all of them and can be used."""
        asked = self._asked.get(execution.node)
        if asked is None:
            return None
        try:
            asked.machine = informed_by(asked.machine, execution)
        except UsageError as error:
            self._nodes.executor.quarantine(execution.node, str(error))
            return None
        asked.missing -= 1
        if asked.missing:
            return None
        offer = self._nodes.admit(execution.node, asked.machine)
        if offer is not None:
            self.admitted.append(offer.name)
        return offer

    def notes(self) -> list[str]:
        """Say of each node that joined how many cases were UNAVAILABLE because it was not there when the run began."""
        late = frozenset(self.admitted)
        if not late:
            return []
        alone = [places for case in self._nodes.selected if (places := self._nodes.places(case)) and places <= late]
        found: list[str] = []
        for name in self.admitted:
            count = sum(name in places for places in alone)
            stay = f"; {count} cases that it can run stay UNAVAILABLE (begin a new run for them)" if count else ""
            found.append(f"node {name} joined while the run went on{stay}")
        return found
