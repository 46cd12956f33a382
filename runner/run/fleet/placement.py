"""Gives the cases of a run to nodes that can run them (``execute.ray.source.Source``): each case is planned for the node that takes it."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from runner.core.case import Case
from runner.core.results import CaseResult
from runner.execute.base import Execution, Job
from runner.execute.ray.frames import Message
from runner.execute.ray.source import MOST_LOSSES, Order
from runner.run.fleet.health import STATE, Entry, Health, problem_of_state
from runner.run.fleet.lines import Lines


@dataclass(frozen=True, slots=True)
class Unavailable:
    """A node lacks a fact that the plan of a case needs."""

    why: str


Make = Callable[[Entry, str], Job | Unavailable]


class Newcomers(Protocol):
    """The nodes that joined while the run went on, until they are admitted."""

    def take(self, node: str) -> Job | None:
        """Return the next job by which a node reports its facts."""

    def lost(self, node: str) -> None:
        """Record that a node is gone."""


class Placement:
    """The cases that wait, those that nodes have, and the results that wait for a health check."""

    def __init__(
        self,
        entries: Iterable[Entry],
        make: Make,
        canary: Callable[[str, str], Job],
        canaries: Mapping[str, tuple[str, ...]],
        health: dict[str, Health],
        condemn: Callable[[str, str], None],
        newcomers: Newcomers,
    ) -> None:
        """``canary`` makes the job of a canary for a node, ``canaries`` names those of each; ``condemn`` quarantines a node."""
        self._make = make
        self._make_canary = canary
        self._canaries = dict(canaries)
        self._newcomers = newcomers
        self._health = health
        self._condemn = condemn
        self.waiting = Lines()
        self._taken: dict[str, Entry] = {}
        """What nodes have, by the name of its job."""
        self._of_canary: dict[str, tuple[str, str]] = {}
        """The node and the canary of a job."""
        self._gone: dict[str, str] = {}
        """Why nodes are gone."""
        self.released: list[CaseResult] = []
        """Results that count: a check of their node passed after them."""
        self.unrun: dict[str, str] = {}
        """Why cases were not run, by id."""
        self.unavailable: list[tuple[Case, str]] = []
        for entry in entries:
            self.waiting.put(entry)

    # -- what the executor calls ------------------------------------------------------------------------------------

    def take(self, node: str, in_flight: int) -> Job | Order | None:
        """Return what a node gets next: a part of its health check, or a case."""
        if node not in self._health:
            return self._newcomers.take(node) if self.waiting else None
        health = self._health[node]
        if health.why_bad:
            return None
        if health.is_due() or (health.held and not in_flight and not health.is_checking and not self.waiting.has(node)):
            health.begin(self._canaries[node])
        if health.orders:
            part = health.orders.popleft()
            if part == STATE:
                return Order.CHECK
            job = self._make_canary(node, part)
            self._of_canary[job.name] = (node, part)
            return job
        return None if health.is_checking and not health.was_good else self._next(node)

    def put_back(self, job: Job, node: str, why: str) -> None:
        """Take back a job whose node is gone."""
        entry = self._taken.pop(job.name, None)
        self._of_canary.pop(job.name, None)
        if entry is None:
            return
        entry.losses.append(f"{node}: {why}")
        if len(entry.losses) >= MOST_LOSSES:
            self.unrun[entry.case.id] = f"the nodes that had it were lost before it ended ({'; '.join(entry.losses)})"
        else:
            self.waiting.put(entry, is_first=True)

    def lost(self, node: str, why: str) -> None:
        """Take back the results of a node that no check followed: their cases run on other nodes."""
        self._gone[node] = why
        self._newcomers.lost(node)
        for held in self._health[node].forget() if node in self._health else ():
            held.entry.losses.append(f"{node}: {why}")
            self.waiting.put(held.entry, is_first=True)

    def joined(self, node: str) -> None:
        """Begin with a health check again."""
        if node in self._health:
            self._health[node] = Health()

    def checked(self, node: str, state: Message, seconds: float) -> None:
        """Take the state that a node reported."""
        health = self._health[node]
        try:
            problem = problem_of_state(state, health.first, seconds, time.time())
        except (KeyError, TypeError, ValueError) as error:
            problem = f"its state cannot be read: {type(error).__name__}: {error}"
        health.first = health.first or dict(state)
        self.took(node, STATE, problem)

    def unrunnable(self, nodes: Collection[str]) -> Iterable[Execution]:
        """Record the cases that no node is left for, unless a node that joined may be one for them: its facts are not there yet."""
        if not self._health.keys() >= set(nodes):
            return ()
        for entry in self.waiting.without(nodes):
            gone = "; ".join(f"{node}: {self._gone.get(node, 'gone')}" for node in sorted(entry.places))
            why = f"no node is left that can run it ({gone})" if gone else "no node is like the one that its first attempt ran on"
            self.unrun[entry.case.id] = why
        return ()

    def is_done(self, busy: Collection[str]) -> bool:
        """Whether nothing waits, no result waits for a check, and no node is busy but those that joined and report their facts."""
        is_used = any(node in self._health for node in busy)
        return not self.waiting and not is_used and not any(health.held or health.is_checking for health in self._health.values())

    def cancel(self) -> None:
        """Drop the cases that wait; checks go on, because results wait for them."""
        self.waiting.close()

    # -- what the runner calls --------------------------------------------------------------------------------------

    def entry_of(self, job: str) -> Entry | None:
        """Remove and return the case of a job that ended; None for a canary."""
        return self._taken.pop(job, None)

    def case_of(self, job: str) -> Case | None:
        """Return the case of a job that a node has."""
        entry = self._taken.get(job)
        return entry.case if entry else None

    def canary_of(self, job: str) -> tuple[str, str] | None:
        """Remove and return the node and the name of a canary whose job ended."""
        return self._of_canary.pop(job, None)

    def took(self, node: str, part: str, problem: str) -> None:
        """Take one part of a health check; release results, or condemn the node."""
        health = self._health[node]
        health.took(part, problem)
        if health.why_bad:
            self._condemn(node, health.why_bad)
        elif not health.is_checking:
            self.released += [held.result for held in health.released()]

    def admit(self, node: str, canaries: tuple[str, ...], places: Callable[[Entry], frozenset[str]]) -> None:
        """Begin to use a node whose health has no check yet; ``places`` are the nodes for a case, with this one."""
        self._canaries[node] = canaries
        self.waiting.place(places)
        for entry in (*self._taken.values(), *(held.entry for health in self._health.values() for held in health.held)):
            entry.places = places(entry)

    # -- choosing -----------------------------------------------------------------------------------------------------

    def _next(self, node: str) -> Job | None:
        while (entry := self.waiting.take(node)) is not None:
            made = self._make(entry, node)
            if isinstance(made, Job):
                self._taken[made.name] = entry
                return made
            entry.places -= {node}
            if entry.places:
                self.waiting.put(entry, is_first=True)
            else:
                self.unavailable.append((entry.case, made.why))
        return None
