"""The nodes of a fleet: opening them, their loss and quarantine, and the head of the cluster that comes back."""

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from runner.core.diagnostics import UsageError
from runner.execute.base import Job
from runner.execute.ray import bundle
from runner.execute.ray.frames import Frame, Message, pack
from runner.execute.ray.labels import NAME
from runner.execute.ray.link import Link, Node
from runner.execute.ray.peers import FleetSettings, Peer, State

_HELLO_SECONDS = 300.0
_RECONNECT_EVERY = 5.0
_GONE = (State.LOST, State.QUARANTINED)

_MOST_GONE = 5
"""How many nodes that joined with one name may be lost or quarantined in a run before a further one with that name is not used."""


class LossListener(Protocol):
    """The source of the jobs, which is notified when a node is lost or opened."""

    def put_back(self, job: Job, node: str, why: str) -> None:
        """Take back a job."""

    def lost(self, node: str, why: str) -> None:
        """Record that a node is gone."""

    def joined(self, node: str) -> None:
        """Record that a node is there again."""


class Roster:
    """The nodes, by name and by key."""

    def __init__(self, fleet: FleetSettings, link: Link) -> None:
        self._fleet = fleet
        self._link = link
        self._peers: dict[str, Peer] = {}
        self._by_key: dict[str, Peer] = {}
        self._unopened: list[Peer] = []
        """The nodes that are opened when the first one is: two runs that each hold a part of a lab would wait for each other."""
        self.warnings: list[str] = []
        self._lost_at = 0.0
        self._tried_at = 0.0

    def __getitem__(self, name: str) -> Peer:
        return self._peers[name]

    def __iter__(self) -> Iterator[Peer]:
        return iter(list(self._peers.values()))

    def at(self, key: str) -> Peer | None:
        """Return the node with a key, unless it is given up."""
        return self._by_key.get(key)

    def open(self) -> None:
        """Open every node that joined; raise ``UsageError`` where there is none."""
        nodes = self._link.nodes()
        if not nodes:
            raise UsageError("no node joined this cluster (start 'torch-conformance node join' on each node)")
        for number, node in enumerate(nodes):
            self._peers[node.name] = Peer(node=node, number=number)
        self._unopened = sorted(self._peers.values(), key=lambda peer: peer.node.key)
        self._open(self._unopened.pop(0))

    def join(self, nodes: Sequence[Node]) -> None:
        """Open the nodes that joined since the run began; with the others, where the run does not have its first node yet."""
        keys = {peer.node.key for peer in self}
        for node in nodes:
            if node.key in keys or node.name in self._peers or _gone_like(node, self) >= _MOST_GONE:
                continue
            peer = self._peers[node.name] = Peer(node=node, number=len(self._peers), is_late=True)
            if self._unopened:
                self._unopened.append(peer)
            else:
                self._open(peer)

    def send(self, peer: Peer, message: Message) -> None:
        """Send one message to a node."""
        self._link.send(peer.node.key, pack(message))

    def begin(self, peer: Peer) -> None:
        """Tell the agent of a node that started what to do; with the first one, this run has the lab, and opens the others."""
        peer.is_open = True
        unopened, self._unopened = self._unopened, []
        for other in unopened:
            self._open(other)
        self.send(peer, self._fleet.begin(peer.node, peer.node.labels.get("torch-conformance/image", "")))

    def greet(self, peer: Peer, frame: Frame, loss_listener: LossListener) -> None:
        """Take the first answer of a node: it is ready, or it is not the node that it should be."""
        found, before = frame.message, peer.hello
        if found.get("source") != bundle.digest():
            self.give_up(peer, State.QUARANTINED, "it runs another source of this program than the runner", loss_listener)
        elif before and (found["machine"], found["provenance"]) != (before["machine"], before["provenance"]):
            self.give_up(peer, State.QUARANTINED, "it came back as another machine than it was before", loss_listener)
        else:
            peer.hello, peer.jobs, peer.state = found, max(1, int(found["jobs"])), State.READY
            if before:
                loss_listener.joined(peer.name)

    def give_up(self, peer: Peer, state: State, why: str, loss_listener: LossListener) -> None:
        """Give up a node: its agent ends, and its jobs go to others."""
        if peer.state in _GONE:
            return
        self._link.close_node(peer.node.key)
        self._by_key.pop(peer.node.key, None)
        peer.state, peer.why, peer.check_sent = state, why, 0.0
        if self._unopened:  # it was the first one
            self._open(self._unopened.pop(0))
        jobs = [dispatch.job for dispatch in peer.in_flight.values()]
        peer.in_flight.clear()
        for job in jobs:
            loss_listener.put_back(job, peer.name, why)
        loss_listener.lost(peer.name, why)
        given = f"; its {len(jobs)} unfinished jobs were taken back" if jobs else ""
        self.warnings.append(f"node {peer.name} {'was lost' if state is State.LOST else 'is quarantined'}: {why}{given}")

    def give_up_on_stalled(self, loss_listener: LossListener) -> None:
        """Give up the nodes that are connected, and have not answered for longer than they may take."""
        for peer in (peer for peer in self if peer not in self._unopened):
            why = peer.stalled(self._fleet.timeout_factor) if peer.state is State.READY else ""
            # the link bounds how long a node that another run holds is waited for
            if peer.state is State.OPENING and time.monotonic() - peer.heard > _HELLO_SECONDS + self._link.lease_seconds:
                why = f"its agent did not answer for {_HELLO_SECONDS:g} s"
            if why:
                self.give_up(peer, State.LOST, why, loss_listener)

    @property
    def possible(self) -> set[str]:
        """The nodes that run jobs now, or may later."""
        returning = self._may_return()
        return {peer.name for peer in self if peer.state not in _GONE or (returning and peer.state is State.LOST and peer.hello)}

    def reconnect(self) -> None:
        """Look for the cluster again, after its head was lost; nodes that come back are opened again."""
        if not self._may_return() or time.monotonic() - self._tried_at < _RECONNECT_EVERY:
            return
        self._tried_at = time.monotonic()
        try:
            nodes: Sequence[Node] = self._link.nodes()
        except UsageError:
            return
        for node in nodes:
            peer = self._peers.get(node.name)
            if peer is not None and peer.state is State.LOST and peer.hello:
                peer.node, peer.state = node, State.OPENING
                self._open(peer)

    def _may_return(self) -> bool:
        """Whether the head of the cluster was lost, and nodes may still come back."""
        if self._link.is_lost:
            self._lost_at = self._lost_at or time.monotonic()
        return self._lost_at > 0 and time.monotonic() - self._lost_at < self._fleet.reconnect_seconds

    def _open(self, peer: Peer) -> None:
        peer.heard, peer.is_open = time.monotonic(), False
        self._by_key[peer.node.key] = peer
        self._link.open(peer.node, _variables(peer.node.labels.get("torch-conformance/split", ""), peer.node.share))


def _gone_like(node: Node, peers: Iterable[Peer]) -> int:
    """Return how many nodes are gone that joined with the name of this one: a node that comes back again and again ends no run."""
    name = node.labels.get(NAME, node.name)
    return sum(peer.state in _GONE and peer.node.labels.get(NAME, peer.name) == name for peer in peers)


def _variables(split: str, share: int) -> dict[str, str]:
    """Return the variables by which a share sees its own GPU alone."""
    return {name: str(share) for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")} if split == "gpu" else {}
