"""The seam between the executor of a fleet and what carries its bytes: a few calls, none of which waits without an end.

``GatewayLink`` (``gateway_link.py``) speaks to Ray through a process of its own. ``ProcessLink`` starts agents as processes of this
machine: tests and benchmarks use it, and nothing of the executor differs.
"""

import contextlib
import os
import queue
import selectors
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from runner.execute.ray.frames import BadFrame, Frame, FrameReader
from runner.system import child_python

AGENT = "runner.execute.ray.agent"
_CHUNK = 1 << 20
_HANG_UP_SECONDS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node of the cluster that joined a lab, or one of several shares of it."""

    key: str
    """Unique in the cluster."""
    name: str
    """The name that it joined with, made unique."""
    labels: Mapping[str, str] = field(default_factory=dict)
    share: int = 0
    shares: int = 1
    """Into how many shares the node is divided; each has an actor of its own."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The agent of a node started: its lease is this run's."""

    key: str


@dataclass(frozen=True, slots=True)
class Came:
    """A frame of a node."""

    key: str
    frame: Frame


@dataclass(frozen=True, slots=True)
class Lost:
    """A node is gone, and nothing of it comes any more."""

    key: str
    why: str


@dataclass(frozen=True, slots=True)
class Joined:
    """A node joined the cluster since it was listed; ``nodes`` are all that are there."""

    nodes: tuple[Node, ...]


Event = Opened | Came | Lost | Joined


class Link(Protocol):
    """Carries bytes between the runner and the agents of nodes."""

    @property
    def lease_seconds(self) -> float:
        """How long a node that another run holds is waited for."""

    @property
    def is_lost(self) -> bool:
        """Whether all nodes are lost because the head of the cluster is; ``nodes`` connects again."""

    def nodes(self) -> Sequence[Node]:
        """Return the nodes that joined; raise ``UsageError`` where no cluster answers."""

    def open(self, node: Node, variables: Mapping[str, str]) -> None:
        """Start the agent of a node, once no other run holds it. ``Opened`` or ``Lost`` follows."""

    def send(self, key: str, data: bytes) -> None:
        """Send a frame to a node. What a lost node was sent is dropped."""

    def wait(self, seconds: float, wake: int | None) -> Sequence[Event]:
        """Return what happened; wait so long for something, or until ``wake`` is readable."""

    def close_node(self, key: str) -> None:
        """End the agent of a node."""

    def close(self) -> None:
        """End every agent."""


class ProcessLink:
    """Agents that are processes of this machine; ``python`` is the interpreter of each node by its name."""

    lease_seconds = 0.0
    is_lost = False

    def __init__(self, nodes: Sequence[Node], python: Mapping[str, str] | None = None, module: str = AGENT) -> None:
        self._nodes = tuple(nodes)
        self._python = dict(python or {})
        self._module = module
        self._scratch = tempfile.TemporaryDirectory(prefix="torch-conformance-link-")
        self._selector = selectors.DefaultSelector()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._readers: dict[str, FrameReader] = {}
        self._outgoing: dict[str, queue.SimpleQueue[bytes | None]] = {}
        self._events: list[Event] = []

    def nodes(self) -> Sequence[Node]:
        """Return the nodes."""
        return self._nodes

    def open(self, node: Node, variables: Mapping[str, str]) -> None:
        """Start an agent."""
        environ = {**child_python.variables(os.environ, Path(self._scratch.name)), **variables}
        command = [self._python.get(node.name, sys.executable), "-P", "-m", self._module]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ, start_new_session=True)
        self._processes[node.key] = process
        self._readers[node.key] = FrameReader()
        assert process.stdout is not None
        self._selector.register(process.stdout, selectors.EVENT_READ, node.key)
        # a thread, because an agent that writes a large answer reads nothing meanwhile
        outgoing = self._outgoing[node.key] = queue.SimpleQueue()
        threading.Thread(target=_write_all, args=(process, outgoing), daemon=True).start()
        self._events.append(Opened(node.key))

    def send(self, key: str, data: bytes) -> None:
        """Write to an agent."""
        if key in self._outgoing:
            self._outgoing[key].put(data)

    def wait(self, seconds: float, wake: int | None) -> Sequence[Event]:
        """Return what happened."""
        if wake is not None and wake not in self._selector.get_map():
            self._selector.register(wake, selectors.EVENT_READ, None)
        for found, _ in self._selector.select(0 if self._events else seconds):
            if found.data is not None:
                self._read(str(found.data), found.fd)
        events, self._events = self._events, []
        return events

    def pid(self, key: str) -> int:
        """Return the process of an agent."""
        return self._processes[key].pid

    def close_node(self, key: str) -> None:
        """Hang up on an agent, and kill one that does not end."""
        process = self._processes.pop(key, None)
        if process is None:
            return
        assert process.stdout is not None
        self._selector.unregister(process.stdout)
        self._outgoing.pop(key).put(None)
        try:
            process.wait(_HANG_UP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def close(self) -> None:
        """End every agent."""
        for key in list(self._processes):
            self.close_node(key)
        self._selector.close()
        self._scratch.cleanup()

    def _read(self, key: str, descriptor: int) -> None:
        data = os.read(descriptor, _CHUNK)
        try:
            self._events += [Came(key, frame) for frame in self._readers[key].feed(data)]
            why = "" if data else "its agent ended"
        except BadFrame as error:
            why = str(error)
        if why:
            self.close_node(key)
            self._events.append(Lost(key, why))


def _write_all(process: "subprocess.Popen[bytes]", outgoing: "queue.SimpleQueue[bytes | None]") -> None:
    """Write what is queued for an agent, and hang up at the end."""
    assert process.stdin is not None
    with contextlib.suppress(OSError), process.stdin:  # the end of an agent is read from its output
        while (data := outgoing.get()) is not None:
            process.stdin.write(data)
            process.stdin.flush()
