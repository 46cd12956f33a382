"""What runs in a Ray actor: it unpacks the runner's source, starts the agent with the node's
Python, and passes bytes on.

The gateway sends this text to the node, and nothing of it imports this package or torch. Sends and
receives are numbered, so a call that Ray lost and that is made again has no second effect.
"""

import collections
import hashlib
import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

_CHUNK = 1 << 20
_MOST_WAITING = 256 << 20
_PRINTED = 8000


class Relay:
    """One agent, and the bytes that come from it."""

    def __init__(self) -> None:
        self._folder = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._sent = 0
        self._first = 0
        self._chunks: collections.deque[bytes] = collections.deque()
        self._waiting = 0
        self._is_at_end = False
        self._news = threading.Condition()
        self._sending = threading.Lock()

    def start(self, source: bytes, digest: str, module: str) -> None:
        """Unpack the source, which must have this sha256, and start the agent."""
        if hashlib.sha256(source).hexdigest() != digest:
            raise RuntimeError(
                "the source that arrived has another digest than the one that was sent"
            )
        self._folder = tempfile.mkdtemp(prefix="torch-conformance-node-")
        with tarfile.open(fileobj=io.BytesIO(source)) as archive:
            archive.extractall(self._folder, filter="data")
        search = os.pathsep.join([self._folder, *filter(None, [os.environ.get("PYTHONPATH", "")])])
        environ = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "OMP_NUM_THREADS"):
            if os.environ.get("TORCH_CONFORMANCE_NODE_" + name) is None:
                environ.pop(
                    name, None
                )  # set by Ray for an actor without accelerators of Ray's own counting
            else:
                environ[name] = os.environ["TORCH_CONFORMANCE_NODE_" + name]
        environ.update({"PYTHONPATH": search, "PYTHONSAFEPATH": "1"})
        with open(os.path.join(self._folder, "printed.txt"), "wb") as printed:
            command = [sys.executable, "-P", "-m", module]
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=printed,
                env=environ,
                start_new_session=True,
                cwd=self._folder,
            )
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, number: int, data: bytes) -> int:
        """Write bytes to the agent; a number that was seen is ignored."""
        with self._sending:
            if number <= self._sent:
                return self._sent
            pipe = self._agent().stdin
            assert pipe is not None
            pipe.write(data)
            pipe.flush()
            self._sent = number
            return number

    def receive(self, seen: int, seconds: float) -> "tuple[int, bytes, str]":
        """Return (number of the last chunk, bytes, how the agent ended) of what follows the chunk
        ``seen``; wait for it so long.
        """
        until = time.monotonic() + seconds
        with self._news:
            while self._first < seen and self._chunks:
                self._waiting -= len(self._chunks.popleft())
                self._first += 1
            self._news.notify_all()
            while not self._chunks and not self._is_at_end and time.monotonic() < until:
                self._news.wait(max(0.0, until - time.monotonic()))
            ended = ""
            if self._is_at_end:
                code = self._agent().wait()
                with open(os.path.join(self._folder, "printed.txt"), "rb") as stream:
                    stream.seek(max(0, stream.seek(0, os.SEEK_END) - _PRINTED))
                    words = stream.read().decode("utf-8", "backslashreplace").strip()
                ended = f"the agent ended with {code}: {words or 'it printed nothing'}"
            return self._first + len(self._chunks), b"".join(self._chunks), ended

    def stop(self) -> None:
        """Hang up, and kill an agent that does not end by itself."""
        process = self._process
        if process is not None:
            try:
                if process.stdin is not None:
                    process.stdin.close()
                process.wait(20)
            except (OSError, subprocess.TimeoutExpired):
                pass
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _agent(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            raise RuntimeError("no agent was started")
        return self._process

    def _read(self) -> None:
        pipe = self._agent().stdout
        assert pipe is not None
        while True:
            data = os.read(pipe.fileno(), _CHUNK)
            with self._news:
                while data and self._waiting > _MOST_WAITING:
                    self._news.wait(1.0)
                if data:
                    self._chunks.append(data)
                    self._waiting += len(data)
                else:
                    self._is_at_end = True
                self._news.notify_all()
            if not data:
                return
