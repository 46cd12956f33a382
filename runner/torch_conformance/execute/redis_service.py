"""The Redis server that a case uses: a process for each case, fresh, without torch, which counts
its replies and ends with the runner.

The server (``python -m torch_conformance.execute.redis_service``) speaks as much of the Redis
protocol as the client of a cache does: the handshake, GET and SET. A client must send the password.
The replies are counted there, out of reach of the worker.

The first line of its standard input is the password; ``{"port": N}`` is printed; when standard
input ends, also because the runner died, the report is printed: ``{"answered": {"GET": 4, "SET":
1}, "foreign": 0, "problem": ""}``.
"""

import contextlib
import hmac
import json
import os
import re
import secrets
import select
import socketserver
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from io import BufferedIOBase
from pathlib import Path
from typing import Any

from torch_conformance.machine import child_python
from torch_conformance.machine.redaction import KNOWN
from torch_conformance.model.case_facts import ServiceReport
from torch_conformance.model.protocol import SERVICES_FILE

_START_SECONDS = 60.0
_STOP_SECONDS = 40.0


class Services:
    """The services of a run: one server for each case that uses one.

    A server lives as long as its standard input is open.
    """

    def __init__(self, scratch: Path) -> None:
        self._log = scratch / "redis.log"
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, case: str, folder: Path) -> None:
        """Start the server of a case, and write its address for the worker; a second call changes
        nothing.
        """
        if case in self.running:
            return
        password = secrets.token_urlsafe(24)
        KNOWN.learn(password)
        variables = child_python.variables(os.environ, self._log.parent)
        command = child_python.command("torch_conformance.execute.redis_service")
        # a session of its own: Ctrl-C is the runner's
        with self._log.open("ab") as stderr:
            server = subprocess.Popen(
                command,
                env=variables,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
            )
        self.running[case] = server
        assert server.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it ended already: the next read detects that
            server.stdin.write(password.encode() + b"\n")
            server.stdin.flush()
        if isinstance(port := _line_of(server, _START_SECONDS).get("port"), int):
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(
                folder / SERVICES_FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600
            )
            with os.fdopen(descriptor, "w", encoding="ascii") as stream:
                json.dump({"redis": {"url": f"redis://:{password}@127.0.0.1:{port}/0"}}, stream)

    def stop(self, case: str) -> ServiceReport:
        """End a case's server and return its report; the report of one that had ended before has a
        problem.
        """
        server = self.running.pop(case)
        assert server.stdin is not None
        assert server.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            server.stdin.close()
        answer = _line_of(server, _STOP_SECONDS)
        server.kill()
        server.stdout.close()
        server.wait()
        if "answered" in answer:
            return ServiceReport(name="redis", **answer)
        lines = self._log.read_bytes()[-2000:].decode("utf-8", "replace").strip().splitlines()
        return ServiceReport(
            name="redis",
            problem=f"its server ended before the case did{f': {lines[-1][:200]}' if lines else ''}",  # noqa: E501 - Python 3.11 breaks no line within a field
        )

    def close(self) -> None:
        """End every server, also those of cases that were stopped."""
        for case in list(self.running):
            self.stop(case)


def _line_of(server: "subprocess.Popen[bytes]", seconds: float) -> Mapping[str, Any]:
    """Return what a server printed: one line when it listens, and its report after its standard
    input is closed.
    """
    assert server.stdout is not None
    ready, _, _ = select.select([server.stdout], [], [], seconds)
    answer = json.loads(server.stdout.readline() or b"{}") if ready else {}
    return answer if isinstance(answer, dict) else {}


# -- the process of a server -----------------------------------------------------------------------

_KEY_OF_TORCH = re.compile(rb"pt2:[A-Za-z0-9_.-]+::.+:c[0-9]+", re.DOTALL)
"""The form of the keys of torch's remote caches (``RedisRemoteCache._get_key``, 2.11 to 2.13)."""

_MOST_BYTES = 512 << 20
"""The most bytes of a word; Redis has the same limit."""
_MOST_BYTES_OF_STRANGERS = 4096
"""The most bytes of a word from a client that has not given the password."""
_MOST_WORDS = 1024

_OK = b"+OK\r\n"
_WRONG = b"-WRONGPASS invalid username-password pair or user is disabled.\r\n"


class Broken(Exception):
    """The data violates the protocol, is too large, or was cut off."""


def read_request(stream: BufferedIOBase, most: int = _MOST_BYTES) -> list[bytes]:
    """Read the words of one request, each at most ``most`` bytes; none where the stream ends
    between two.

    Raise ``Broken``.
    """
    line = stream.readline(100)
    words = []
    for _ in range(_number(line, b"*", _MOST_WORDS) if line else 0):
        size = _number(stream.readline(100), b"$", most)
        word = stream.read(size + 2)
        if len(word) != size + 2:
            raise Broken("cut off")
        words.append(word[:-2])
    return words


def _number(line: bytes, kind: bytes, most: int) -> int:
    digits = line[1:-2]
    if (
        line[:1] != kind
        or not line.endswith(b"\r\n")
        or not digits.isdigit()
        or len(digits) > 12
        or int(digits) > most
    ):
        raise Broken(f"{line[:40]!r} in place of a length")
    return int(digits)


class Server(socketserver.ThreadingTCPServer):
    """Accepts clients, has the keys of the case, and counts the replies."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, password: bytes) -> None:
        super().__init__(("127.0.0.1", 0), _Client)
        self.password = password
        self.values: dict[bytes, bytes] = {}
        self.answered: Counter[str] = Counter()
        self.foreign = 0
        self.problem = ""
        self.lock = threading.Lock()

    def count(self, command: str, key: bytes) -> None:
        """Count a reply."""
        with self.lock:
            if _KEY_OF_TORCH.fullmatch(key):
                self.answered[command] += 1
            else:
                self.foreign += 1

    def handle_error(self, request: object, client_address: object) -> None:
        """Record the error, unless the client hung up."""
        error = sys.exception()
        if not isinstance(error, OSError | Broken):
            self.problem = self.problem or f"{type(error).__name__}: {error}"


class _Client(socketserver.StreamRequestHandler):
    """One connection of a client: a request, its reply, and again."""

    server: Server

    def setup(self) -> None:
        super().setup()
        self.is_known = False
        self.protocol = 2

    def handle(self) -> None:
        while words := read_request(
            self.rfile, _MOST_BYTES if self.is_known else _MOST_BYTES_OF_STRANGERS
        ):
            self.wfile.write(self._answer(words[0].upper(), words[1:]))

    def _answer(self, command: bytes, words: list[bytes]) -> bytes:
        match command, words:
            case (b"AUTH", [*_, password]):
                self.is_known = hmac.compare_digest(password, self.server.password)
                return _OK if self.is_known else _WRONG
            case (b"HELLO", [version, *rest]) if version in (b"2", b"3"):
                if rest[:1] and rest[0].upper() == b"AUTH" and len(rest) >= 3:
                    self.is_known = hmac.compare_digest(rest[2], self.server.password)
                    if not self.is_known:
                        return _WRONG
                if self.is_known:
                    self.protocol = int(version)
                    head = b"%3\r\n" if self.protocol == 3 else b"*6\r\n"
                    return (
                        head
                        + b"+server\r\n+redis\r\n+version\r\n+7.4.0\r\n+proto\r\n:%d\r\n"
                        % self.protocol
                    )
        if not self.is_known:
            return b"-NOAUTH Authentication required.\r\n"
        match command, words:
            case (b"GET", [key]):
                with self.server.lock:
                    value = self.server.values.get(key)
                self.server.count("GET", key)
                if value is None:
                    return b"_\r\n" if self.protocol == 3 else b"$-1\r\n"
                return b"$%d\r\n%s\r\n" % (len(value), value)
            case (b"SET", [key, value]):
                with self.server.lock:
                    self.server.values[key] = value
                self.server.count("SET", key)
                return _OK
            case (b"PING", []):
                return b"+PONG\r\n"
            case (b"CLIENT", [kind, *_]) if kind.upper() in (b"SETINFO", b"SETNAME"):
                return _OK
        return b"-ERR this server knows GET key and SET key value\r\n"


def main() -> None:
    """Serve one case."""
    server = Server(sys.stdin.buffer.readline().strip())
    threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    ).start()
    print(json.dumps({"port": server.server_address[1]}), flush=True)
    sys.stdin.buffer.read()
    server.shutdown()
    with contextlib.suppress(BrokenPipeError):  # the runner has died
        print(
            json.dumps(
                {
                    "answered": dict(server.answered),
                    "foreign": server.foreign,
                    "problem": server.problem,
                }
            ),
            flush=True,
        )
    # connections of remaining clients are dropped
    os._exit(0)


if __name__ == "__main__":
    main()
