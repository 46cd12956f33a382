"""The Redis server of one case: ``python -m runner.execute.services.serve``, fresh for each case, without torch.

It speaks as much of the Redis protocol as the client of a cache does: the handshake, GET and SET. A client must send the password. The
replies are counted here, out of reach of the worker.

The first line of standard input is the password; ``{"port": N}`` is printed; when standard input ends, also because the runner died, the
report is printed: ``{"answered": {"GET": 4, "SET": 1}, "foreign": 0, "problem": ""}``.
"""

import contextlib
import hmac
import json
import os
import re
import socketserver
import sys
import threading
from collections import Counter
from io import BufferedIOBase

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
    """Read the words of one request, each at most ``most`` bytes; none where the stream ends between two. Raise ``Broken``."""
    line = stream.readline(100)
    if not line:
        return []
    return [_word(stream, most) for _ in range(_number(line, b"*", _MOST_WORDS))]


def _word(stream: BufferedIOBase, most: int) -> bytes:
    size = _number(stream.readline(100), b"$", most)
    word = stream.read(size + 2)
    if len(word) != size + 2:
        raise Broken("cut off")
    return word[:-2]


def _number(line: bytes, kind: bytes, most: int) -> int:
    digits = line[1:-2]
    if line[:1] != kind or not line.endswith(b"\r\n") or not digits.isdigit() or len(digits) > 12 or int(digits) > most:
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
        while words := read_request(self.rfile, _MOST_BYTES if self.is_known else _MOST_BYTES_OF_STRANGERS):
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
                    return head + b"+server\r\n+redis\r\n+version\r\n+7.4.0\r\n+proto\r\n:%d\r\n" % self.protocol
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
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    print(json.dumps({"port": server.server_address[1]}), flush=True)
    sys.stdin.buffer.read()
    server.shutdown()
    with contextlib.suppress(BrokenPipeError):  # the runner has died
        print(json.dumps({"answered": dict(server.answered), "foreign": server.foreign, "problem": server.problem}), flush=True)
    # connections of remaining clients are dropped
    os._exit(0)


if __name__ == "__main__":
    main()
