"""The process that speaks to Ray: one actor for each node that a run opens, and threads that pass
bytes on.

Every call of Ray has a time limit. Commands come as frames on standard input, and events go as
frames to standard output.
"""

import contextlib
import hashlib
import os
import queue
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from torch_conformance.tools.fleet import messages, relay
from torch_conformance.tools.fleet.link import AGENT, LEASE_SECONDS, NAME, RESOURCE, SILENCE_SECONDS
from torch_conformance.tools.fleet.messages import (
    Ended,
    Inlet,
    Message,
    as_bytes,
    as_text,
    pack,
    write,
)

Ray: TypeAlias = Any
"""The module of Ray, and what it makes: it is an extra, and its types are not read."""

_POLL_SECONDS = 2.0
_ALIVE_EVERY = 5.0
_STOP_SECONDS = 40.0


class _Outlet:
    """Events to the runner, from several threads."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def put(self, message: Message) -> None:
        """Write an event; end the process when its reader is gone."""
        with self._lock:
            try:
                write(self._descriptor, pack(message))
            except BrokenPipeError:
                os._exit(1)


@dataclass(eq=False)
class _Peer:
    """The actor of one node, from its creation to its end."""

    _ray: Ray
    _class: Ray
    _key: str
    _bundle: bytes
    _outlet: _Outlet
    _outgoing: queue.SimpleQueue[bytes | None] = field(default_factory=queue.SimpleQueue)
    _actor: Any = None
    _is_open: bool = False
    _is_closing: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._live, daemon=True)
        self.thread.start()

    def send(self, data: bytes) -> None:
        """Queue bytes for the agent."""
        self._outgoing.put(data)

    def close(self) -> None:
        """Begin to end it."""
        self._is_closing.set()
        self._outgoing.put(None)

    def _live(self) -> None:
        try:
            self._open()
            threading.Thread(target=self._send_all, daemon=True).start()
            seen = 0
            while not self._is_closing.is_set():
                seen, data, ended = self._call("receive", seen, _POLL_SECONDS)
                if data:
                    self._outlet.put({"kind": "data", "key": self._key, "data": as_text(data)})
                if ended:
                    self._lose(ended)
                    break
        except Exception as error:
            # what Ray and gRPC raise has no common class below Exception; each means that this node
            # is lost
            self._lose(f"{type(error).__name__}: {error}")
        finally:
            if self._is_open:
                with contextlib.suppress(Exception):
                    # an actor that cannot be stopped is killed below, or its node is gone
                    self._ray.get(self._actor.stop.remote(), timeout=_STOP_SECONDS / 2)
            if self._actor is not None:
                with contextlib.suppress(Exception):  # it is gone already
                    self._ray.kill(self._actor)

    def _open(self) -> None:
        """Create the actor and start its agent; raise ``TimeoutError`` where the node does not get
        free in time.
        """
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self._actor = self._class.options(
            num_cpus=0,
            resources={RESOURCE: 1},
            scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=self._key, soft=False),
            max_restarts=0,
            max_task_retries=0,
            max_concurrency=4,
        ).remote()
        started = self._actor.start.remote(
            self._bundle, hashlib.sha256(self._bundle).hexdigest(), AGENT
        )
        until = time.monotonic() + LEASE_SECONDS
        while not self._is_closing.is_set():
            ready, _ = self._ray.wait([started], timeout=1.0)
            if ready:
                self._ray.get(started, timeout=SILENCE_SECONDS)
                self._is_open = True
                self._outlet.put({"kind": "opened", "key": self._key})
                return
            if time.monotonic() > until:
                raise TimeoutError(
                    f"another run held this node for {LEASE_SECONDS:g} s, or the node does "
                    "not answer"
                )

    def _send_all(self) -> None:
        number = 0
        try:
            while (data := self._outgoing.get()) is not None:
                number += 1
                self._call("send", number, data)
        except Exception as error:
            # as in _live: exceptions of Ray and gRPC have no common class below Exception
            self._lose(f"{type(error).__name__}: {error}")

    def _call(self, name: str, *arguments: Any) -> Any:
        """Make a numbered call until it answers; calls are repeated within the silence that is
        allowed, and have no second effect.
        """
        from ray.exceptions import ActorUnavailableError

        until = time.monotonic() + SILENCE_SECONDS
        while True:
            try:
                return self._ray.get(
                    getattr(self._actor, name).remote(*arguments),
                    timeout=max(1.0, until - time.monotonic()),
                )
            except ActorUnavailableError:
                if time.monotonic() > until:
                    raise
                time.sleep(1.0)

    def _lose(self, why: str) -> None:
        if not self._is_closing.is_set():
            self._outlet.put({"kind": "lost", "key": self._key, "why": why[:2000]})


def serve(inlet: int, outlet: int, address: str) -> None:
    """Connect, then serve one runner until it hangs up."""
    import ray

    ray.init(
        address=address, log_to_driver=False, configure_logging=False, ignore_reinit_error=True
    )
    # Ray sends a class by value only if its module cannot be imported, and a node needs nothing of
    # ours
    space: dict[str, Any] = {"__name__": "torch_conformance_relay"}
    # the text is a file of this package
    exec(compile(Path(relay.__file__).read_text("utf-8"), "relay.py", "exec"), space)  # noqa: S102
    relay_class = ray.remote(space["Relay"])
    bundle, events = messages.bundle(), _Outlet(outlet)
    peers: dict[str, _Peer] = {}

    def say_alive() -> None:
        while True:
            events.put({"kind": "alive"})
            time.sleep(_ALIVE_EVERY)

    threading.Thread(target=say_alive, daemon=True).start()
    alive = [node for node in ray.nodes() if node["Alive"] and NAME in node.get("Labels", {})]
    events.put(
        {
            "kind": "joined",
            "nodes": [{"node": node["NodeID"], "labels": dict(node["Labels"])} for node in alive],
        }
    )
    commands = Inlet(inlet)
    with contextlib.suppress(Ended):
        while True:
            for message in commands.messages(None):
                key = str(message["key"])
                match message["kind"]:
                    case "open":
                        peers[key] = _Peer(ray, relay_class, key, bundle, events)
                    case "send":
                        peers[key].send(as_bytes(message["data"]))
                    case "close":
                        peers[key].close()
    for peer in peers.values():
        peer.close()
    for peer in peers.values():
        peer.thread.join(_STOP_SECONDS)


def main() -> None:
    """Serve on standard input and output; what Ray prints goes to standard error."""
    inlet, outlet = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    serve(inlet, outlet, sys.argv[1])


if __name__ == "__main__":
    main()
