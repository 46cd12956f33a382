"""What carries bytes between a run and the agents of its nodes, through Ray.

Ray ends a driver whose head is gone, and the run and its journal must outlive that, so a process of
its own speaks to Ray (``gateway.py``). No call waits without an end.
"""

import contextlib
import os
import re
import selectors
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torch_conformance.machine import child_python
from torch_conformance.machine.scratch import tail
from torch_conformance.model.diagnostics import UsageError
from torch_conformance.tools.fleet.messages import (
    CHUNK,
    BadFrame,
    FrameReader,
    Message,
    as_bytes,
    as_text,
    pack,
)

AGENT = "torch_conformance.tools.fleet.agent"

LABEL = "torch-conformance/"
"""What the labels of a node begin with."""
NAME = LABEL + "name"
RESOURCE = "torch_conformance_node"
"""The resource of each node: a run that holds it has the node alone."""

LEASE_SECONDS = 600.0
"""How long a node that another run holds is waited for."""
SILENCE_SECONDS = 60.0
"""A node that answers no call for so long is lost."""
_CONNECT_SECONDS = 120.0
"""How long the head of a cluster may take to answer."""
_ALIVE_SECONDS = 60.0
"""A gateway that reports nothing for so long is lost."""
_CLOSE_SECONDS = 60.0


def as_label(value: str) -> str:
    """Return a text as the value of a label: Ray allows 63 letters, digits, dots, dashes and
    underscores.
    """
    return re.sub(r"[^A-Za-z0-9._-]+", "-", value)[:63].strip("-._")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node of the cluster that joined a lab."""

    key: str
    """Unique in the cluster."""
    name: str
    """The name that it joined with, made unique."""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Event:
    """What came from a node: without a message, its agent started, so that no other run holds
    it.
    """

    key: str
    message: Message | None = None
    lost: str | None = None
    """Why it is gone, so that nothing comes any more."""


class GatewayLink:
    """Carries bytes through Ray."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._scratch = tempfile.TemporaryDirectory(prefix="torch-conformance-gateway-")
        self._process: subprocess.Popen[bytes] | None = None
        self._reader = FrameReader()
        self._readers: dict[str, FrameReader] = {}
        self._selector = selectors.DefaultSelector()
        self._heard = time.monotonic()

    def nodes(self) -> Sequence[Node]:
        """Start the gateway, and return the nodes that joined; raise ``UsageError`` where no
        cluster answers.
        """
        environ = child_python.variables(os.environ, Path(self._scratch.name))
        command = child_python.command("torch_conformance.tools.fleet.gateway", self._address)
        with (Path(self._scratch.name) / "printed.txt").open("wb") as stream:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
                env=environ,
                start_new_session=True,
            )
        self._heard = time.monotonic()
        assert self._process.stdout is not None
        self._selector.register(self._process.stdout, selectors.EVENT_READ)
        until = time.monotonic() + _CONNECT_SECONDS
        while time.monotonic() < until and self._process is not None:
            for message in self._messages(1.0, None):
                if message["kind"] == "joined":
                    return named(message["nodes"])
        raise UsageError(
            f"--address {self._address}: no Ray cluster answers "
            f"({self._last_words() or f'waited {_CONNECT_SECONDS:g} s'})"
        )

    def open(self, key: str) -> None:
        """Start the agent of a node, once no other run holds it. An event follows."""
        self._readers[key] = FrameReader()
        self._write({"kind": "open", "key": key})

    def send(self, key: str, data: bytes) -> None:
        """Send frames to a node. What a lost node was sent is dropped."""
        if key in self._readers:
            self._write({"kind": "send", "key": key, "data": as_text(data)})

    def wait(self, seconds: float, wake: int | None) -> Sequence[Event]:
        """Return what happened; wait so long for something, or until ``wake`` is readable.

        With a gateway that is gone, every node is lost.
        """
        events: list[Event] = []
        for message in self._messages(seconds, wake):
            key = str(message.get("key", ""))
            if key not in self._readers:
                continue
            if message["kind"] == "opened":
                events.append(Event(key))
            elif message["kind"] == "data":
                try:
                    events += [
                        Event(key, answer)
                        for answer in self._readers[key].feed(as_bytes(message["data"]))
                    ]
                except BadFrame as error:
                    self.close_node(key)
                    events.append(Event(key, lost=str(error)))
            elif message["kind"] == "lost":
                del self._readers[key]
                events.append(Event(key, lost=str(message["why"])))
        if self._process is None or time.monotonic() - self._heard > _ALIVE_SECONDS:
            self._kill()
            why = f"the connection to the head of the cluster was lost {self._last_words()}".strip()
            events += [Event(key, lost=why) for key in self._readers]
            self._readers.clear()
        return events

    def close_node(self, key: str) -> None:
        """End the agent of a node."""
        if self._readers.pop(key, None) is not None:
            self._write({"kind": "close", "key": key})

    def close(self) -> None:
        """Hang up: the gateway ends every agent."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_CLOSE_SECONDS)
        self._kill()
        self._selector.close()
        self._scratch.cleanup()

    def _messages(self, seconds: float, wake: int | None) -> list[Message]:
        messages: list[Message] = []
        if wake is not None and wake not in self._selector.get_map():
            self._selector.register(wake, selectors.EVENT_READ)
        for ready, _ in self._selector.select(seconds):
            if self._process is None or ready.fileobj is not self._process.stdout:
                continue
            data = os.read(ready.fd, CHUNK)
            self._heard = time.monotonic()
            try:
                messages += self._reader.feed(data)
            except BadFrame:
                data = b""
            if not data:
                self._kill()
        return messages

    def _write(self, message: Message) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):  # its end is read from its output
                self._process.stdin.write(pack(message))
                self._process.stdin.flush()

    def _kill(self) -> None:
        if self._process is None:
            return
        assert self._process.stdout is not None
        self._selector.unregister(self._process.stdout)
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        self._process = None

    def _last_words(self) -> str:
        lines = tail(Path(self._scratch.name) / "printed.txt", 4000).strip().splitlines()
        return lines[-1][:500] if lines else ""


def named(listed: Sequence[Message]) -> list[Node]:
    """Return the nodes of a cluster, each with the name that it joined with; a number follows where
    another node has this name.
    """
    nodes: dict[str, Node] = {}
    for node in sorted(listed, key=lambda node: str(node["node"])):
        label, number = str(node["labels"][NAME]), 1
        name = label
        while name in nodes:
            number += 1
            name = f"{label}-{number}"
        nodes[name] = Node(key=str(node["node"]), name=name, labels=node["labels"])
    return [nodes[name] for name in sorted(nodes)]
