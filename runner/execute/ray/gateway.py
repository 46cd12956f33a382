"""The process that speaks to Ray: one actor for each share of a node, and threads that pass bytes on.

It is a process of its own because Ray ends a driver whose head is gone, and the run and its journal must outlive that. Every call of Ray
has a time limit. Commands come as frames on standard input, and events go as frames to standard output.
"""

import contextlib
import os
import queue
import sys
import threading
import time
from pathlib import Path
from typing import Any, TypeAlias

from runner.execute.ray import bundle, relay
from runner.execute.ray.agent import Ended, Inlet
from runner.execute.ray.frames import Frame, Message, pack
from runner.execute.ray.labels import NAME, RESOURCE, SHARES

Ray: TypeAlias = Any
"""The module of Ray, and what it makes: it is an extra, and its types are not read."""

_POLL_SECONDS = 2.0
_ALIVE_SECONDS = 5.0
_LIST_EVERY = 5.0
"""How many seconds pass between two looks at the nodes of the cluster."""
_STOP_SECONDS = 40.0


class _Outlet:
    """Events to the runner, from several threads."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def put(self, message: Message, *blobs: bytes) -> None:
        """Write an event; end the process when its reader is gone."""
        with self._lock:
            data = memoryview(pack(message, blobs))
            try:
                while data:
                    data = data[os.write(self._descriptor, data) :]
            except BrokenPipeError:
                os._exit(1)


class _Peer:
    """The actor of one share, from its creation to its end."""

    def __init__(self, ray: Ray, relay_class: Ray, order: Message, source: bytes, outlet: _Outlet) -> None:
        self.key = str(order["key"])
        self._ray = ray
        self._class = relay_class
        self._order = order
        self._source = source
        self._outlet = outlet
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._actor: Any = None
        self._is_open = False
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()

    def send(self, data: bytes) -> None:
        """Queue bytes for the agent."""
        self._outgoing.put(data)

    def close(self) -> None:
        """Begin to end it."""
        self._is_closing.set()
        self._outgoing.put(None)

    def wait_for_end(self) -> None:
        """Wait for its end, within a time limit."""
        self._thread.join(_STOP_SECONDS)

    def _live(self) -> None:
        try:
            self._open()
            threading.Thread(target=self._send_all, daemon=True).start()
            self._receive_all()
        except Exception as error:  # what Ray and gRPC raise has no common class below Exception; each means that this node is lost
            self._lose(f"{type(error).__name__}: {error}")
        finally:
            self._end()

    def _open(self) -> None:
        """Create the actor and start its agent; raise ``TimeoutError`` where the share does not get free in time."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        order = self._order
        self._actor = self._class.options(
            num_cpus=0,
            resources={f"{RESOURCE}{order['share']}": 1},
            scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=order["node"], soft=False),
            max_restarts=0,
            max_task_retries=0,
            max_concurrency=4,
        ).remote()
        started = self._actor.start.remote(self._source, order["digest"], order["module"], order["variables"])
        until = time.monotonic() + float(order["lease_seconds"])
        while not self._is_closing.is_set():
            ready, _ = self._ray.wait([started], timeout=1.0)
            if ready:
                self._ray.get(started, timeout=float(order["silence"]))
                self._is_open = True
                self._outlet.put({"kind": "opened", "key": self.key})
                return
            if time.monotonic() > until:
                raise TimeoutError(f"another run held this node for {order['lease_seconds']:g} s, or the node does not answer")

    def _send_all(self) -> None:
        number = 0
        try:
            while (data := self._outgoing.get()) is not None:
                more = [data]
                while not self._outgoing.empty() and (next_one := self._outgoing.get()) is not None:
                    more.append(next_one)
                number += 1
                self._again("send", number, b"".join(more))
        except Exception as error:  # as in _live: exceptions of Ray and gRPC have no common class below Exception
            self._lose(f"{type(error).__name__}: {error}")

    def _receive_all(self) -> None:
        seen = 0
        while not self._is_closing.is_set():
            seen, data, ended = self._again("receive", seen, _POLL_SECONDS)
            if data:
                self._outlet.put({"kind": "data", "key": self.key}, data)
            if ended:
                self._lose(ended)
                return

    def _again(self, name: str, *arguments: Any) -> Any:
        """Make a numbered call until it answers; calls are repeated within the silence that is allowed, and have no second effect."""
        from ray.exceptions import ActorUnavailableError

        until = time.monotonic() + float(self._order["silence"])
        while True:
            try:
                return self._ray.get(getattr(self._actor, name).remote(*arguments), timeout=max(1.0, until - time.monotonic()))
            except ActorUnavailableError:
                if time.monotonic() > until:
                    raise
                time.sleep(1.0)

    def _lose(self, why: str) -> None:
        if not self._is_closing.is_set():
            self._outlet.put({"kind": "lost", "key": self.key, "why": why[:2000]})

    def _end(self) -> None:
        if self._actor is None:
            return
        if self._is_open:
            with contextlib.suppress(Exception):  # an actor that cannot be stopped is killed below, or its node is gone
                self._ray.get(self._actor.stop.remote(), timeout=_STOP_SECONDS / 2)
        with contextlib.suppress(Exception):  # it is gone already
            self._ray.kill(self._actor)


class Gateway:
    """Serves one runner."""

    def __init__(self, inlet: int, outlet: int, address: str) -> None:
        self._inlet = Inlet(inlet)
        self._outlet = _Outlet(outlet)
        self._address = address
        self._peers: dict[str, _Peer] = {}
        self._source = bundle.bundle()

    def serve(self) -> None:
        """Connect, then serve until the runner hangs up."""
        import ray

        ray.init(address=self._address, log_to_driver=False, configure_logging=False, ignore_reinit_error=True)
        relay_class = ray.remote(_relay_class())
        threading.Thread(target=self._say_alive, daemon=True).start()
        threading.Thread(target=self._report_nodes, args=(ray,), daemon=True).start()
        try:
            while True:
                for frame in self._inlet.frames(None):
                    self._obey(ray, relay_class, frame)
        except Ended:
            pass
        for peer in self._peers.values():
            peer.close()
        for peer in self._peers.values():
            peer.wait_for_end()

    def _obey(self, ray: Ray, relay_class: Ray, frame: Frame) -> None:
        order, key = frame.message, str(frame.message.get("key", ""))
        match frame.kind:
            case "nodes":
                self._outlet.put({"kind": "nodes", "nodes": _nodes(ray)})
            case "open":
                order["digest"] = _sha256(self._source)
                self._peers[key] = _Peer(ray, relay_class, order, self._source, self._outlet)
            case "send" if key in self._peers:
                self._peers[key].send(frame.blobs[0])
            case "close" if key in self._peers:
                self._peers[key].close()

    def _report_nodes(self, ray: Ray) -> None:
        """Report the nodes of the cluster whenever one is among them that was not there before."""
        known: set[str] = set()
        while True:
            with contextlib.suppress(Exception):  # Ray ends this process where the head stays away
                found = _nodes(ray)
                if new := {str(node["node"]) for node in found} - known:
                    known |= new
                    self._outlet.put({"kind": "joined", "nodes": found})
            time.sleep(_LIST_EVERY)

    def _say_alive(self) -> None:
        while True:
            self._outlet.put({"kind": "alive"})
            time.sleep(_ALIVE_SECONDS)


def _relay_class() -> Any:
    """Return the class of the actor, made of its text: Ray sends it by value, so a node needs nothing of ours."""
    space: dict[str, Any] = {"__name__": "torch_conformance_relay"}
    exec(compile(Path(relay.__file__).read_text("utf-8"), "relay.py", "exec"), space)  # noqa: S102 - the text is a file of this package; Ray sends the class by value only if its module cannot be imported
    return space["Relay"]


def _nodes(ray: Ray) -> list[dict[str, Any]]:
    return [
        {"node": node["NodeID"], "labels": dict(node["Labels"]), "shares": int(node["Labels"][SHARES])}
        for node in ray.nodes()
        if node["Alive"] and NAME in node.get("Labels", {}) and str(node["Labels"].get(SHARES, "")).isdecimal()
    ]


def _sha256(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()


def main() -> None:
    """Serve on standard input and output; what Ray prints goes to standard error."""
    inlet, outlet = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    Gateway(inlet, outlet, sys.argv[1]).serve()


if __name__ == "__main__":
    main()
