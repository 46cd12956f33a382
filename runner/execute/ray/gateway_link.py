"""The link through Ray: a gateway process, which may be lost with the head of the cluster and is started again."""

import contextlib
import os
import selectors
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from runner.core.diagnostics import UsageError
from runner.core.protocol import Json
from runner.execute.ray.frames import BadFrame, Frame, FrameReader, Message, pack
from runner.execute.ray.link import AGENT, Came, Event, Joined, Lost, Node, Opened
from runner.execute.ray.node_names import NodeNames
from runner.system import child_python
from runner.system.safe_open import tail

_CHUNK = 1 << 20
CONNECT_SECONDS = 120.0
"""How long the head of a cluster may take to answer."""
_ALIVE_SECONDS = 60.0
"""A gateway that reports nothing for so long is lost."""
_CLOSE_SECONDS = 60.0


class GatewayLink:
    """Carries bytes through Ray."""

    def __init__(self, address: str, *, lease_seconds: float, silence: float, module: str = AGENT) -> None:
        self._address = address
        self.lease_seconds = lease_seconds
        self._order: dict[str, Json] = {"lease_seconds": lease_seconds, "silence": silence, "module": module}
        self._scratch = tempfile.TemporaryDirectory(prefix="torch-conformance-gateway-")
        self._process: subprocess.Popen[bytes] | None = None
        self._reader = FrameReader()
        self._readers: dict[str, FrameReader] = {}
        self._selector = selectors.DefaultSelector()
        self._heard = time.monotonic()
        self._was_started = False
        self._names = NodeNames()
        self._joined: list[Event] = []

    def nodes(self) -> Sequence[Node]:
        """Return the nodes that joined; start the gateway, or a new one for one that was lost."""
        if self._process is None:
            self._start()
        self._write({"kind": "nodes"})
        until, joined = time.monotonic() + CONNECT_SECONDS, []
        while time.monotonic() < until and self._process is not None:
            for frame in self._frames(1.0, None):
                if frame.kind == "joined":
                    joined.append(frame.message["nodes"])
                if frame.kind == "nodes":
                    found = self._names.of_cluster(frame.message["nodes"])
                    self._joined = [Joined(tuple(self._names.nodes_of(nodes))) for nodes in joined]
                    return found
        raise UsageError(f"--address {self._address}: no Ray cluster answers ({self._last_words() or f'waited {CONNECT_SECONDS:g} s'})")

    def open(self, node: Node, variables: Mapping[str, str]) -> None:
        """Start the agent of a share."""
        self._readers[node.key] = FrameReader()
        where = {"key": node.key, "node": node.key.rpartition(".")[0], "share": node.share, "variables": dict(variables)}
        self._write({"kind": "open", **self._order, **where})

    def send(self, key: str, data: bytes) -> None:
        """Send a frame to a node."""
        if key in self._readers:
            self._write({"kind": "send", "key": key}, data)

    def wait(self, seconds: float, wake: int | None) -> Sequence[Event]:
        """Return what happened; with a gateway that is gone, the loss of every node."""
        found, self._joined = self._joined, []
        for frame in self._frames(0.0 if found else seconds, wake):
            key = str(frame.message.get("key", ""))
            if frame.kind == "joined":
                found.append(Joined(tuple(self._names.nodes_of(frame.message["nodes"]))))
            if key not in self._readers:
                continue
            if frame.kind == "opened":
                found.append(Opened(key))
            elif frame.kind == "data":
                found += self._came(key, frame.blobs[0])
            elif frame.kind == "lost":
                found.append(self._lose(key, str(frame.message["why"])))
        if self._process is None or time.monotonic() - self._heard > _ALIVE_SECONDS:
            why = f"the connection to the head of the cluster was lost {self._last_words()}".strip()
            self._kill()
            found += [self._lose(key, why) for key in list(self._readers)]
        return found

    @property
    def is_lost(self) -> bool:
        """Whether the gateway is gone, with every node; ``nodes`` starts another."""
        return self._process is None and self._was_started

    def close_node(self, key: str) -> None:
        """End the agent of a share."""
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

    def _start(self) -> None:
        printed = Path(self._scratch.name) / "printed.txt"
        environ = child_python.variables(os.environ, Path(self._scratch.name))
        command = child_python.command("runner.execute.ray.gateway", self._address)
        with printed.open("wb") as stream:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stream, env=environ, start_new_session=True
            )
        self._reader, self._heard, self._was_started = FrameReader(), time.monotonic(), True
        self._joined = []
        assert self._process.stdout is not None
        self._selector.register(self._process.stdout, selectors.EVENT_READ)

    def _frames(self, seconds: float, wake: int | None) -> list[Frame]:
        found: list[Frame] = []
        if wake is not None and wake not in self._selector.get_map():
            self._selector.register(wake, selectors.EVENT_READ)
        for ready, _ in self._selector.select(seconds):
            if self._process is None or ready.fileobj is not self._process.stdout:
                continue
            data = os.read(ready.fd, _CHUNK)
            self._heard = time.monotonic()
            try:
                found += self._reader.feed(data)
            except BadFrame:
                data = b""
            if not data:
                self._kill()
        return found

    def _came(self, key: str, data: bytes) -> list[Event]:
        try:
            return [Came(key, frame) for frame in self._readers[key].feed(data)]
        except BadFrame as error:
            self._write({"kind": "close", "key": key})
            return [self._lose(key, str(error))]

    def _lose(self, key: str, why: str) -> Lost:
        self._readers.pop(key, None)
        return Lost(key, why)

    def _write(self, message: Message, *blobs: bytes) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):  # its end is read from its output
                self._process.stdin.write(pack(message, blobs))
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
