"""The nodes of a fleet at work: each reports its facts, passes health checks, and gets cases; one
result of each case counts.

A job has a token for each node that it is given to. Only the execution that carries the token of
the node that has the job now is accepted, once; what a node sends that was lost meanwhile is
dropped. A crash of a worker is an execution like any other. Only where a node is lost, or
quarantined, before the result of a case counted, is the case given to another one.
"""

import bisect
import math
import os
import secrets
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from torch_conformance.execute.executor_protocol import Execution, Job
from torch_conformance.language.read.templates import TemplateError
from torch_conformance.machine.output import naming
from torch_conformance.model.case import Case
from torch_conformance.model.diagnostics import UsageError
from torch_conformance.model.events import Activity, RunningCase
from torch_conformance.model.results import CaseResult
from torch_conformance.tools.fleet import messages
from torch_conformance.tools.fleet.health import STATE, Entry, Health, problem_of_state
from torch_conformance.tools.fleet.link import LABEL, LEASE_SECONDS, Event, GatewayLink, Node
from torch_conformance.tools.fleet.messages import Message, as_bytes, is_name, pack
from torch_conformance.tools.fleet.nodes import Nodes

_WAIT_SECONDS = 1.0
_HELLO_SECONDS = 300.0
_STALLED_SECONDS = 900.0
"""Beyond twice the longest deadline of its jobs: starting torch from a slow disk takes minutes."""
_AHEAD_SECONDS = 1.0
"""A node has so much work waiting beside what it runs: more than a message takes to arrive, and
little enough that the end is even.
"""
_MOST_AHEAD = 32
"""For each parallel job of a node, the jobs that may wait there."""
_MOST_LOSSES = 2
"""How many nodes a case may be lost with.

A case that takes nodes with it must not take all of them.
"""
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class State(Enum):
    """The states of a node."""

    OPENING = "opening"
    ASKED = "asked"
    """It reports its facts."""
    READY = "ready"
    LOST = "lost"
    QUARANTINED = "quarantined"


@dataclass(frozen=True, slots=True)
class Dispatch:
    """A job that a node has: that of a case, of a canary, or one that reports facts."""

    job: Job
    sent: float
    entry: Entry | None = None
    canary: str = ""


@dataclass(eq=False)
class Peer:
    """One node."""

    node: Node
    state: State = State.OPENING
    is_open: bool = False
    """Whether its agent started: then no other run holds it."""
    slots: int = 1
    """How many jobs run there in parallel."""
    provenance: Message = field(default_factory=dict)
    questions: deque[Job] = field(default_factory=deque)
    """The jobs by which it reports its facts, which it did not get yet."""
    in_flight: dict[str, Dispatch] = field(default_factory=dict)
    """By token."""
    heard: float = field(default_factory=time.monotonic)
    check_sent: float = 0.0
    mean_seconds: float = 1.0
    health: Health = field(default_factory=Health)
    canaries: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the node."""
        return self.node.name

    @property
    def has_room(self) -> bool:
        """Whether it gets a further job: so that it has a second of work waiting, and no more."""
        ahead = math.ceil(self.slots * _AHEAD_SECONDS / max(self.mean_seconds, 1e-3))
        return not self.check_sent and len(self.in_flight) < self.slots + min(
            max(1, ahead), _MOST_AHEAD * self.slots
        )

    def stalled(self, factor: float) -> str:
        """Return why it must be considered lost although its connection is there; empty while it
        may only be slow.
        """
        now = time.monotonic()
        silent = now - self.heard
        if self.state is State.OPENING and silent > _HELLO_SECONDS + LEASE_SECONDS:
            return f"its agent did not answer for {silent:.0f} s"
        if self.check_sent and now - self.check_sent > _STALLED_SECONDS * factor:
            return f"it did not answer a health check for {silent:.0f} s"
        longest = max((dispatch.job.timeout for dispatch in self.in_flight.values()), default=None)
        if longest is not None and silent > 2 * longest + _STALLED_SECONDS * factor:
            return f"it has {len(self.in_flight)} jobs, and none ended for {silent:.0f} s"
        return ""


@dataclass(eq=False)
class Fleet:
    """Runs cases on the nodes of a lab.

    It does what ``LocalExecutor`` does, with cases in place of jobs.
    """

    link: GatewayLink
    nodes: Nodes
    folder: Path
    begin: Message
    """The first message to each agent."""
    result_of: Callable[[Case, Execution], CaseResult]
    problem_of_canary: Callable[[str, Execution], str]
    unavailable: Callable[[Case, str], CaseResult]
    """Makes the result of a case that lacks a fact of every node."""
    peers: dict[str, Peer] = field(default_factory=dict)
    unrun: dict[str, str] = field(default_factory=dict)
    """Why cases were not run, by id."""
    warnings: list[str] = field(default_factory=list)
    _by_key: dict[str, Peer] = field(default_factory=dict)
    """The nodes that are not given up."""
    _unopened: list[Peer] = field(default_factory=list)
    """The nodes that are opened when the first one is: two runs that each hold a part of a lab
    would wait for each other.
    """
    _waiting: list[Entry] = field(default_factory=list)
    """In the order of the run."""
    _released: list[CaseResult] = field(default_factory=list)
    """Results that count, and were not yielded yet."""
    _is_connected: bool = False
    _is_cancelled: bool = False
    _places_changed: bool = False
    _workers: dict[tuple[str, int], int] = field(default_factory=dict)
    """The numbers of workers in this run, by node and number there."""
    _check: Callable[[], None] = lambda: None
    _wake: int | None = None
    _gone: dict[str, str] = field(default_factory=dict)
    """Why nodes are gone."""

    def connect(self) -> None:
        """Open every node that joined, and let each report its facts; raise ``UsageError`` where
        none can be used.
        """
        nodes = self.link.nodes()
        if not nodes:
            raise UsageError(
                "no node joined this cluster (start 'python -m "
                "torch_conformance.tools.fleet.node' on each node)"
            )
        self.peers = {node.name: Peer(node) for node in nodes}
        self._unopened = sorted(self.peers.values(), key=lambda peer: peer.node.key)
        self._open(self._unopened.pop(0))
        while any(peer.state in (State.OPENING, State.ASKED) for peer in self.peers.values()):
            self._turn()
        if not self.nodes.offers:
            raise UsageError("no node of the lab can be used: " + "; ".join(self.warnings))
        self._is_connected = True

    def run(self, entries: Iterable[Entry]) -> Iterator[CaseResult]:
        """Run every case on a node that may run it, and yield each result when a health check of
        its node passed after it.
        """
        self._waiting, self._places_changed = list(entries), True
        while True:
            self._feed()
            self._drop_unrunnable()
            released, self._released = self._released, []
            yield from released
            # done: nothing waits, no result waits for a check, and no node is busy
            peers = self.peers.values()
            if not self._waiting and not any(
                peer.in_flight or peer.health.held or peer.health.waits_for for peer in peers
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
        """Call ``check`` before jobs are given, and when ``wake`` is readable."""
        self._wake, self._check = wake, check

    @property
    def activity(self) -> Activity:
        """The jobs that nodes have."""
        peers = self.peers.values()
        opening = [peer for peer in peers if peer.state is State.OPENING]
        dispatches = [dispatch for peer in peers for dispatch in peer.in_flight.values()]
        return Activity(
            starting=min((peer.heard for peer in opening if peer.is_open), default=None),
            held=min((peer.heard for peer in opening if not peer.is_open), default=None),
            running=tuple(
                RunningCase(name=dispatch.job.name, since=dispatch.sent, phase="")
                for dispatch in dispatches
            ),
        )

    def close(self) -> None:
        """End every agent, with its workers."""
        self.link.close()

    # -- giving work -------------------------------------------------------------------------------

    def _feed(self) -> None:
        """Give jobs to the nodes with room, one to each in turn."""
        self._check()
        waiting = [peer for peer in self.peers.values() if peer.state in (State.ASKED, State.READY)]
        batches: dict[str, list[bytes]] = {}
        while waiting:
            for peer in list(waiting):
                message = self._next(peer) if peer.has_room else None
                if message is None:
                    waiting.remove(peer)
                else:
                    batches.setdefault(peer.node.key, []).append(pack(message))
        for key, batch in batches.items():
            self.link.send(key, b"".join(batch))

    def _next(self, peer: Peer) -> Message | None:
        """Return what a node gets next: a question about its facts, a part of its health check, or
        a case.
        """
        if peer.state is State.ASKED:
            return _given(peer, peer.questions.popleft()) if peer.questions else None
        health = peer.health
        if not self._is_connected or health.why_bad:
            return None
        has_cases = any(peer.name in entry.places for entry in self._waiting)
        is_last = (
            bool(health.held) and not has_cases and not peer.in_flight and not health.waits_for
        )
        if is_last or (health.is_due() and (has_cases or health.was_good)):
            health.begin(peer.canaries)
        if health.orders:
            part = health.orders.popleft()
            if part != STATE:
                return _given(peer, self.nodes.canary(part, peer.name), canary=part)
            peer.check_sent = time.monotonic()
            return {"kind": "check"}
        if health.waits_for and not health.was_good:
            return None
        while (
            index := next(
                (i for i, entry in enumerate(self._waiting) if peer.name in entry.places), None
            )
        ) is not None:
            entry = self._waiting.pop(index)
            try:
                return _given(
                    peer, self.nodes.job_of(entry.case, peer.name, alone=entry.alone), entry=entry
                )
            except TemplateError as error:
                entry.places -= {peer.name}
                if entry.places:
                    self._wait_again(entry)
                else:
                    self._released.append(
                        self.unavailable(entry.case, f"node {peer.name} lacks a fact: {error}")
                    )
        return None

    def _wait_again(self, entry: Entry) -> None:
        if not self._is_cancelled:
            bisect.insort(self._waiting, entry, key=lambda entry: entry.number)

    def _drop_unrunnable(self) -> None:
        """Record the cases that no node is left for."""
        if not self._places_changed:
            return
        self._places_changed = False
        names = {
            peer.name
            for peer in self.peers.values()
            if peer.state not in (State.LOST, State.QUARANTINED)
        }
        stuck = [entry for entry in self._waiting if entry.places.isdisjoint(names)]
        self._waiting = [entry for entry in self._waiting if not entry.places.isdisjoint(names)]
        for entry in stuck:
            gone = "; ".join(
                f"{node}: {self._gone.get(node, 'gone')}" for node in sorted(entry.places)
            )
            why = (
                f"no node is left that can run it ({gone})"
                if gone
                else "no node is like the one that its first attempt ran on"
            )
            self.unrun[entry.case.id] = why

    # -- taking answers ----------------------------------------------------------------------------

    def _turn(self) -> None:
        """Wait for events, and take them."""
        for event in self.link.wait(_WAIT_SECONDS, self._wake):
            if (sender := self._by_key.get(event.key)) is not None:
                sender.heard = time.monotonic()
                self._take(sender, event)
        for peer in list(self._by_key.values()):
            if why := peer.stalled(float(self.begin["timeout_factor"])):
                self._give_up(peer, State.LOST, why)
        if not self._is_connected:
            self._feed()

    def _take(self, peer: Peer, event: Event) -> None:
        if event.lost is not None:
            self._give_up(peer, State.LOST, event.lost)
        elif event.message is None:
            # tell the agent what to do; with the first node that started, this run has the lab, and
            # opens the others
            peer.is_open = True
            unopened, self._unopened = self._unopened, []
            for other in unopened:
                self._open(other)
            image = peer.node.labels.get(f"{LABEL}image", "")
            self.link.send(peer.node.key, pack({**self.begin, "kind": "begin", "image": image}))
        else:
            try:
                self._came(peer, event.message)
            except UsageError as error:
                self._give_up(peer, State.QUARANTINED, str(error))

    def _came(self, peer: Peer, message: Message) -> None:
        """Take an answer; raise ``UsageError`` for a node that cannot be used."""
        match message["kind"]:
            case "hello" if peer.state is State.OPENING:
                if message.get("source") != messages.digest():
                    raise UsageError("it runs another source of this program than the runner")
                try:
                    peer.provenance, peer.slots = (
                        dict(message["provenance"]),
                        max(1, int(message["jobs"])),
                    )
                    peer.questions = deque(self.nodes.questions(peer.name, message))
                except (AttributeError, KeyError, TypeError, ValueError) as error:
                    raise UsageError(
                        f"its facts cannot be read: {type(error).__name__}: {error}"
                    ) from error
                peer.state = State.ASKED
            case "refused" if peer.state is State.OPENING:
                raise UsageError(str(message.get("why", ""))[:500])
            case "checked" if peer.check_sent:
                seconds, peer.check_sent = time.monotonic() - peer.check_sent, 0.0
                problem = problem_of_state(message, peer.health.first, seconds, time.time())
                peer.health.first = peer.health.first or dict(message)
                self._take_check(peer, STATE, problem)
            case "ended" if dispatch := peer.in_flight.get(str(message.get("token", ""))):
                execution = self._accepted(peer, dispatch, message)
                del peer.in_flight[str(message["token"])]
                if dispatch.entry is not None:
                    peer.health.held.append(
                        (dispatch.entry, self.result_of(dispatch.entry.case, execution))
                    )
                elif dispatch.canary:
                    self._take_check(
                        peer, dispatch.canary, self.problem_of_canary(dispatch.canary, execution)
                    )
                else:
                    self.nodes.take_facts(peer.name, execution)
                    if not peer.questions and not peer.in_flight:
                        # its facts are complete: a health check is the first that it gets
                        machine = self.nodes.admit(peer.node, peer.provenance)
                        peer.canaries, peer.state, peer.health = (
                            self.nodes.canaries.of(machine),
                            State.READY,
                            Health(),
                        )
                        memory = {"gpus": machine.gpus or 0, "gpu_memory": machine.gpu_memory or 0}
                        self.link.send(peer.node.key, pack({"kind": "gpus", **memory}))
            case kind:  # a second answer: what of it is true cannot be decided
                raise UsageError(f"it sent {kind[:50]!r} and was not asked for it")

    def _accepted(self, peer: Peer, dispatch: Dispatch, message: Message) -> Execution:
        """Return the execution, with its files in the folder of the run; raise ``UsageError`` where
        it cannot be read.
        """
        try:
            fields = dict(message["execution"])
            files = {str(name): as_bytes(text) for name, text in message["files"].items()}
            local = int(fields["worker"])
            number = (
                self._workers.setdefault((peer.name, local), len(self._workers) + 1) if local else 0
            )
            execution = Execution.of_job(
                dispatch.job, {**fields, "node": peer.name, "worker": number}
            )
            peer.mean_seconds += 0.2 * (float(execution.seconds) - peer.mean_seconds)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UsageError(
                f"an answer of it cannot be read: {type(error).__name__}: {error}"
            ) from error
        if dispatch.job.folder:
            folder = self.folder / dispatch.job.folder
            shutil.rmtree(folder, ignore_errors=True)  # an earlier node may have left files
            folder.mkdir(parents=True)
            for name in filter(is_name, files):
                with (
                    naming(folder / name),
                    os.fdopen(os.open(folder / name, _FLAGS, 0o644), "wb") as stream,
                ):
                    stream.write(files[name])
        return execution

    def _take_check(self, peer: Peer, part: str, problem: str) -> None:
        """Take one part of a health check: results are released, or the node is quarantined."""
        self._released += peer.health.took(part, problem)
        if peer.health.why_bad:
            raise UsageError(peer.health.why_bad)

    # -- nodes that come and go --------------------------------------------------------------------

    def _open(self, peer: Peer) -> None:
        peer.heard = time.monotonic()
        self._by_key[peer.node.key] = peer
        self.link.open(peer.node.key)

    def _give_up(self, peer: Peer, state: State, why: str) -> None:
        """Give up a node: its agent ends, and its cases go to others, with those whose results no
        check followed.
        """
        self.link.close_node(peer.node.key)
        self._by_key.pop(peer.node.key, None)
        self._gone[peer.name] = why
        peer.state, peer.check_sent, self._places_changed = state, 0.0, True
        if self._unopened:  # it was the first one
            self._open(self._unopened.pop(0))
        unfinished = [
            dispatch.entry for dispatch in peer.in_flight.values() if dispatch.entry is not None
        ]
        count = len(peer.in_flight)
        peer.in_flight.clear()
        for entry in unfinished:
            entry.losses.append(f"{peer.name}: {why}")
            if len(entry.losses) >= _MOST_LOSSES:
                self.unrun[entry.case.id] = (
                    f"the nodes that had it were lost before it ended ({'; '.join(entry.losses)})"
                )
            else:
                self._wait_again(entry)
        for entry, _ in peer.health.held:
            entry.losses.append(f"{peer.name}: {why}")
            self._wait_again(entry)
        peer.health = Health()
        taken_back = f"; its {count} unfinished jobs were taken back" if count else ""
        self.warnings.append(
            f"node {peer.name} {'was lost' if state is State.LOST else 'is quarantined'}: "
            f"{why}{taken_back}"
        )


def _given(peer: Peer, job: Job, *, entry: Entry | None = None, canary: str = "") -> Message:
    """Return the message with a job for a node, and record that it has it."""
    now, token = time.monotonic(), secrets.token_hex(8)
    if not peer.in_flight:
        peer.heard = now
    peer.in_flight[token] = Dispatch(job, now, entry, canary)
    return {
        "kind": "job",
        "token": token,
        "job": job.to_json(),
        "limited": job.memory_limit is not None,
    }
