"""The nodes of a fleet at work: each is held, reports its facts, passes health checks, and gets
cases; one result of each case counts.

Each node has a coroutine. Its error, or that of one of its calls, gives the node up. A crash of a
worker is an execution like any other; only where a node is given up before the result of a case
counted, is the case given to another one.
"""

import asyncio
import bisect
import functools
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from torch_conformance.execute.executor_protocol import Execution, Job
from torch_conformance.language.read.templates import TemplateError
from torch_conformance.model.case import Case
from torch_conformance.model.diagnostics import UsageError
from torch_conformance.model.events import Activity, RunningCase
from torch_conformance.model.protocol import Json
from torch_conformance.model.results import Redacted
from torch_conformance.run.pipeline import exclusive
from torch_conformance.tools.fleet.health import problem_of_state
from torch_conformance.tools.fleet.link import GatewayLink, Lost, Node
from torch_conformance.tools.fleet.nodes import Nodes, reading

_HOLD = "the start of its agent, for which another run may hold the node"
_WAIT_SECONDS = 1.0
_LEASE_SECONDS = 600.0
"""How long a node that another run holds is waited for."""
_BEGIN_SECONDS = 300.0
_STALLED_SECONDS = 900.0
"""Beyond twice the deadline of a job: starting torch from a slow disk takes minutes."""
_CHECK_EVERY_SECONDS = 120.0
"""How old a check may be before the next one begins: what a failed check, or a lost node, can take
back is at most that.
"""
_CHECK_EVERY_RESULTS = 500
"""How many results may be held."""
_MOST_LOSSES = 2
"""How many nodes a case may be lost with.

A case that takes nodes with it must not take all of them.
"""


@dataclass(eq=False)
class Entry:
    """A case that waits for a node, or that one has."""

    case: Case
    alone: bool
    places: frozenset[str]
    """The nodes that may run it."""
    number: int
    """Its place in the order of the run."""
    losses: list[str] = field(default_factory=list)
    """The nodes that were lost before its result counted."""


@dataclass(eq=False)
class Peer:
    """One node."""

    node: Node
    is_checking: bool = False
    slots: int = 1
    """How many jobs run there in parallel."""
    calls: dict[RunningCase, float] = field(default_factory=dict)
    """What it has not answered, and in how many seconds it must answer something."""
    silent: float = 0.0
    """For how many seconds it answered nothing, without those in which this program was stopped."""
    checked: float = 0.0
    """When the last good check ended."""
    first: Json = None
    """The state at the first check."""
    in_flight: list[Entry] = field(default_factory=list)
    held: list[tuple[Entry, Redacted]] = field(default_factory=list)
    """The results that wait for the next check."""

    @property
    def name(self) -> str:
        """The name of the node."""
        return self.node.name


@dataclass(eq=False)
class Fleet:
    """Runs cases on the nodes of a lab.

    It does what ``LocalExecutor`` does, with cases in place of jobs.
    """

    link: GatewayLink
    nodes: Nodes
    folder: Path
    settings: Json
    """What each agent begins with."""
    result_of: Callable[[Execution], Redacted]
    problem_of_canary: Callable[[Execution], str]
    unavailable: Callable[[Case, str], Redacted]
    """Makes the result of a case that lacks a fact of every node."""
    peers: dict[str, Peer] = field(default_factory=dict)
    unrun: dict[str, str] = field(default_factory=dict)
    """Why cases were not run, by id."""
    warnings: list[str] = field(default_factory=list)
    start_up: None = None
    """Each node starts torch for itself."""
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    """Set where a turn ends early."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set, and replaced, when cases begin to wait."""
    _tasks: "list[asyncio.Task[None]]" = field(default_factory=list)
    """Each serves a node; it ends when the node is given up."""
    _first_node: asyncio.Lock = field(default_factory=asyncio.Lock)
    _holds_first: bool = False
    _waiting: list[Entry] = field(default_factory=list)
    """In the order of the run."""
    _released: list[Redacted] = field(default_factory=list)
    """Results that count, and were not yielded yet."""
    _is_cancelled: bool = False
    _workers: dict[tuple[str, int], int] = field(default_factory=dict)
    """The numbers of workers in this run, by node and number there."""
    _check: Callable[[], None] = lambda: None
    _gone: dict[str, str] = field(default_factory=dict)
    """Why nodes are gone."""

    def connect(self) -> None:
        """Hold every node that joined, and let each report its facts; raise ``UsageError`` where
        none can be used.
        """
        nodes = self._loop.run_until_complete(self.link.nodes())
        if not nodes:
            raise UsageError(
                "no node joined this cluster (start 'python -m "
                "torch_conformance.tools.fleet.node' on each node)"
            )
        self.peers = {node.name: Peer(node) for node in nodes}
        self._tasks = [self._loop.create_task(self._serve(peer)) for peer in self.peers.values()]
        while self.peers.keys() - self.nodes.offers.keys() - self._gone.keys():
            self._turn()
        if not self.nodes.offers:
            raise UsageError(f"no node of the lab can be used: {'; '.join(self.warnings)}")

    def run(self, entries: Iterable[Entry]) -> Iterator[Redacted]:
        """Run every case on a node that may run it, and yield each result when a health check of
        its node passed after it.
        """
        self._wait(*entries)
        while True:
            self._drop_unrunnable()
            released, self._released = self._released, []
            yield from released
            if not self._waiting and not any(
                peer.in_flight or peer.held for peer in self.peers.values()
            ):
                return
            self._turn()

    def cancel_waiting(self) -> int:
        """Drop the cases that wait, and return the number of jobs that nodes have.

        Checks go on, because results wait for them.
        """
        self._is_cancelled = True
        self._waiting.clear()
        return sum(len(peer.in_flight) for peer in self.peers.values())

    def on_interrupt(self, wake: int, check: Callable[[], None]) -> None:
        """Call ``check`` in each turn, also when ``wake`` is readable."""
        self._check = check
        self._loop.add_reader(wake, self._news.set)

    @property
    def activity(self) -> Activity:
        """What nodes have not answered."""
        calls = tuple(call for peer in self.peers.values() for call in peer.calls)
        since = [call.since for call in calls if call.name == _HOLD]
        return Activity(held=min(since, default=None), running=calls)

    def close(self) -> None:
        """End every agent, with its workers."""

        async def end() -> None:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self.link.close()

        self._loop.run_until_complete(end())
        self._loop.close()

    def _turn(self) -> None:
        """Let all nodes work until there is news."""
        self._news.clear()
        self._check()
        with suppress(TimeoutError):
            self._loop.run_until_complete(asyncio.wait_for(self._news.wait(), _WAIT_SECONDS))
        for task in self._tasks:
            if task.done() and (error := task.exception()):  # of this machine, or this program
                raise error.exceptions[0] if isinstance(error, ExceptionGroup) else error

    # -- cases that wait ---------------------------------------------------------------------------

    def _wait(self, *entries: Entry) -> None:
        if not self._is_cancelled:
            for entry in entries:
                bisect.insort(self._waiting, entry, key=lambda entry: entry.number)
        self._changed.set()
        self._changed = asyncio.Event()

    def _next(self, peer: Peer) -> Entry | None:
        """Return the first case that waits for a node."""
        return next((entry for entry in self._waiting if peer.name in entry.places), None)

    def _drop_unrunnable(self) -> None:
        """Record the cases that no node is left for."""
        for entry in [entry for entry in self._waiting if entry.places <= self._gone.keys()]:
            self._waiting.remove(entry)
            why = "no node is like the one that its first attempt ran on"
            if entry.places:
                gone = "; ".join(f"{node}: {self._gone[node]}" for node in sorted(entry.places))
                why = f"no node is left that can run it ({gone})"
            self.unrun[entry.case.id] = why

    # -- one node ----------------------------------------------------------------------------------

    async def _serve(self, peer: Peer) -> None:
        """Hold a node and give it work, until the run ends or the node is given up."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._watch(peer))
                await self._hold(peer)
                await self._admit(peer)
                await self._check_health(peer)
                # a few more than run at a time: a message takes a while to arrive
                for _ in range(peer.slots + peer.slots // 2 + 1):
                    group.create_task(self._work(peer))
        except* (Lost, UsageError) as errors:
            self._give_up(peer, errors.exceptions[0])

    async def _watch(self, peer: Peer) -> None:
        """Raise ``Lost`` where a node is silent although its connection is there."""
        while True:
            await asyncio.sleep(_WAIT_SECONDS)
            peer.silent = peer.silent + _WAIT_SECONDS if peer.calls else 0.0
            if peer.silent > max(peer.calls.values(), default=0.0):
                names = ", ".join(call.name for call in list(peer.calls)[:3])
                raise Lost(f"it answered nothing for {peer.silent:g} s, and was asked for {names}")

    async def _hold(self, peer: Peer) -> None:
        """Hold a node; one before all others, since two runs that each held a part of a lab would
        wait for each other.
        """
        hold = functools.partial(self._call, peer, "hold", limit=_LEASE_SECONDS, name=_HOLD)
        async with self._first_node:
            if not self._holds_first:
                await hold()
                self._holds_first = True
                return
        await hold()

    async def _admit(self, peer: Peer) -> None:
        """Ask a node for its facts; raise ``UsageError`` for one that cannot be used."""
        began = await self._call(peer, "begin", self.settings, limit=_BEGIN_SECONDS)
        with reading("its facts"):
            peer.slots = max(1, int(began["jobs"]))
            offer = self.nodes.offer_of(peer.node, began)
        questions = offer.jobs.for_facts()
        if not questions:
            raise UsageError("no case and no canary can run there")
        for execution in await asyncio.gather(*(self._execute(peer, job) for job in questions)):
            offer.take_facts(execution)
        self.nodes.admit(offer)
        self._news.set()

    async def _work(self, peer: Peer) -> None:
        """Give a node one case after the other, and the checks that are due between them."""
        while True:
            entry = self._next(peer)
            is_old = time.monotonic() - peer.checked > _CHECK_EVERY_SECONDS
            is_last = entry is None and not peer.in_flight
            is_due = is_old or is_last or len(peer.held) >= _CHECK_EVERY_RESULTS
            if peer.held and is_due and not peer.is_checking:
                await self._check_health(peer)
            elif entry is None:
                await self._changed.wait()
            else:
                self._waiting.remove(entry)
                peer.in_flight.append(entry)
                if (job := self._job(peer, entry)) is not None:
                    execution = await self._execute(peer, job)
                    peer.held.append((entry, self.result_of(execution)))
                peer.in_flight.remove(entry)
            self._news.set()

    def _job(self, peer: Peer, entry: Entry) -> Job | None:
        """Return the job of a case for a node; None where the node lacks a fact, so that the case
        waits for another one.
        """
        try:
            job = self.nodes.job_of(entry.case, peer.name)
        except TemplateError as error:
            entry.places -= {peer.name}
            if entry.places:
                self._wait(entry)
            else:
                why = f"node {peer.name} lacks a fact: {error}"
                self._released.append(self.unavailable(entry.case, why))
            return None
        return exclusive(job) if entry.alone else job

    async def _check_health(self, peer: Peer) -> None:
        """Check a node, and release the results that it had before; raise ``UsageError``."""
        peer.is_checking, covered, begun = True, len(peer.held), time.monotonic()
        state = await self._call(peer, "state", limit=self._stalled)
        with reading("its state"):
            problem = problem_of_state(
                state, peer.first or state, time.monotonic() - begun, time.time()
            )
        for canary in () if problem else self.nodes.offers[peer.name].canaries:
            execution = await self._execute(peer, self.nodes.job_of(canary, peer.name))
            problem = problem or self.problem_of_canary(execution)
        if problem:
            raise UsageError(f"health check: {problem}")
        peer.is_checking, peer.first, peer.checked = False, peer.first or state, time.monotonic()
        self._released += [result for _, result in peer.held[:covered]]
        del peer.held[:covered]

    @property
    def _stalled(self) -> float:
        return _STALLED_SECONDS * float(self.settings["timeout_factor"])

    async def _execute(self, peer: Peer, job: Job) -> Execution:
        """Return the execution of a job; raise ``UsageError`` where it cannot be read."""
        folder = str(self.folder / job.folder) if job.folder else ""
        limit = 2 * job.timeout + self._stalled
        fields = await self._call(
            peer, "run", job.to_json(), limit=limit, name=job.name, folder=folder
        )
        with reading("its answer"):
            if number := int(fields["worker"]):
                number = self._workers.setdefault((peer.name, number), len(self._workers) + 1)
            return Execution.of_job(job, {**fields, "node": peer.name, "worker": number})

    async def _call(
        self,
        peer: Peer,
        method: str,
        *arguments: Json,
        limit: float,
        name: str = "",
        folder: str = "",
    ) -> Json:
        call = RunningCase(name=name or method, since=time.monotonic(), phase="")
        peer.calls[call] = limit
        answer = await self.link.call(peer.node.key, method, *arguments, folder=folder)
        del peer.calls[call]
        peer.silent = 0.0
        return answer

    def _give_up(self, peer: Peer, error: Exception) -> None:
        """Give up a node: its agent ends, and its cases go to others, with those whose results no
        check followed.
        """
        self.link.drop(peer.node.key)
        self._gone[peer.name] = why = str(error)
        count = len(peer.in_flight)
        taken_back = f"; its {count} unfinished cases were taken back" if count else ""
        for entry in (*peer.in_flight, *(entry for entry, _ in peer.held)):
            entry.losses.append(f"{peer.name}: {why}")
            if entry in peer.in_flight and len(entry.losses) >= _MOST_LOSSES:
                self.unrun[entry.case.id] = (
                    f"the nodes that had it were lost before it ended ({'; '.join(entry.losses)})"
                )
            else:
                self._wait(entry)
        peer.calls, peer.in_flight, peer.held = {}, [], []
        self.warnings.append(
            f"node {peer.name} {'was lost' if isinstance(error, Lost) else 'is quarantined'}: "
            f"{why}{taken_back}"
        )
        self._news.set()
