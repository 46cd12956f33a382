"""The process that a case's Redis client talks to: ``python -m runner.execute.services.serve``, fresh for each case, without torch.

It is a proxy for a server: fakeredis in this process, or a real one elsewhere. A client must send the password, sees only its own keys
(they get a prefix), and can send only the commands of a cache. The replies are counted here, out of reach of the worker.

The first line of standard input says how (``{"password": ..., "prefix": ..., "server": null or [HOST, PORT]}``); ``{"port": N}`` is
printed; when standard input ends, the case's keys are deleted from a server that is not ours, and the report is printed: ``{"answered":
{"GET": 4, "SET": 1}, "foreign": 0, "left": 0, "problem": ""}``. A runner that dies closes standard input too.
"""

import contextlib
import hmac
import json
import os
import re
import socket
import socketserver
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from runner.execute.services.resp import MAX_WORD, Broken, read_reply, read_request, request

_SECONDS = 30.0
"""How long a server may take for a reply."""

_DAY = 86_400
"""Seconds after which a server that is not ours forgets a key that was not deleted, because this process was killed."""

_KEY_OF_TORCH = re.compile(rb"pt2:[A-Za-z0-9_.-]+::.+:c[0-9]+", re.DOTALL)
"""The form of the keys of torch's remote caches (``RedisRemoteCache._get_key``, 2.11 to 2.13)."""

_STRANGERS_MOST = 4096
"""The most bytes of a word from a client that has not given the password."""

_DELETED_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class Link:
    """A connection to the server."""

    socket: socket.socket
    replies: BinaryIO

    def ask(self, *words: bytes) -> bytes:
        """Send a request and return the reply's bytes; raise OSError or ``Broken``."""
        self.socket.sendall(request(words))
        return read_reply(self.replies)

    def close(self) -> None:
        """Hang up."""
        with contextlib.suppress(OSError):
            self.replies.close()
            self.socket.close()


def _link(connected: socket.socket) -> Link:
    connected.settimeout(_SECONDS)
    return Link(connected, connected.makefile("rb"))


def real_server(host: str, port: int) -> Callable[[], Link]:
    """Return a function that connects to a remote server."""
    return lambda: _link(socket.create_connection((host, port), timeout=_SECONDS))


def embedded_server() -> Callable[[], Link]:
    """Return a function that connects to a fakeredis in this process by a socket pair; it has no port."""
    import fakeredis

    server = fakeredis.TcpFakeServer(("127.0.0.1", 0), bind_and_activate=False)
    server.daemon_threads = True
    kind: Any = server.RequestHandlerClass

    class Patient(kind):  # type: ignore[misc]  # the class is fakeredis's own, which it does not publish
        def setup(self) -> None:
            super().setup()
            # left as it is, the socket never waits, and an answer larger than its buffer is lost
            self.connection.settimeout(float(_DAY))

    server.RequestHandlerClass = Patient
    numbers = iter(range(1 << 62))

    def connect() -> Link:
        mine, theirs = socket.socketpair()
        server.process_request(theirs, ("case", next(numbers)))
        return _link(mine)

    return connect


class Front(socketserver.ThreadingTCPServer):
    """Accepts clients, and counts the replies to them."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, connect: Callable[[], Link], password: str, prefix: str, *, expires: bool) -> None:
        super().__init__(("127.0.0.1", 0), _Client)
        self.connect = connect
        self.password = password.encode()
        self.prefix = prefix.encode()
        self.more: tuple[bytes, ...] = (b"EX", b"%d" % _DAY) if expires else ()
        self.answered: Counter[str] = Counter()
        self.foreign = 0
        self.keys: set[bytes] = set()
        self.problem = ""
        self.lock = threading.Lock()

    def knows(self, password: bytes) -> bool:
        """Whether it is the password."""
        return hmac.compare_digest(password, self.password)

    def handle_error(self, request: object, client_address: object) -> None:
        """Record the error, unless the client hung up."""
        error = sys.exception()
        if not isinstance(error, OSError | Broken):
            self.problem = self.problem or f"{type(error).__name__}: {error}"

    def delete_keys(self) -> int:
        """Delete the case's keys, and no others; return how many are left."""
        keys = sorted(self.keys)
        try:
            with self._linked() as link:
                while keys:
                    some, keys = keys[:_DELETED_AT_ONCE], keys[_DELETED_AT_ONCE:]
                    if link.ask(b"DEL", *some).startswith(b"-"):
                        return len(some) + len(keys)
        except (OSError, Broken) as error:
            self.problem = self.problem or f"the case's keys were not deleted: {error}"
            return len(keys) or len(self.keys)
        return 0

    @contextlib.contextmanager
    def _linked(self) -> Iterator[Link]:
        link = self.connect()
        try:
            yield link
        finally:
            link.close()


class _Client(socketserver.StreamRequestHandler):
    """One connection of a client: a request, its reply, and again."""

    server: Front

    def setup(self) -> None:
        super().setup()
        self.is_known = False
        self.link: Link | None = None

    def handle(self) -> None:
        while True:
            words = read_request(self.rfile, MAX_WORD if self.is_known else _STRANGERS_MOST)
            if not words:
                return
            self.wfile.write(self._answer(words[0].upper(), words))

    def finish(self) -> None:
        if self.link is not None:
            self.link.close()
        super().finish()

    def _answer(self, command: bytes, words: list[bytes]) -> bytes:
        if command == b"AUTH" and len(words) in (2, 3):
            self.is_known = self.server.knows(words[-1])
            return b"+OK\r\n" if self.is_known else _WRONG
        if command == b"HELLO" and len(words) >= 5 and words[2].upper() == b"AUTH":
            # the password is the front's: the server behind has its own, or none
            self.is_known = self.server.knows(words[4])
            words = [*words[:2], *words[5:]]
            if not self.is_known:
                return _WRONG
        if not self.is_known:
            return b"-NOAUTH Authentication required.\r\n"
        if command == b"GET" and len(words) == 2:
            return self._relay("GET", b"GET", self.server.prefix + words[1], key=words[1])
        if command == b"SET" and len(words) == 3:
            return self._set(words[1], words[2])
        if command in (b"HELLO", b"PING") or (command == b"CLIENT" and words[1:2] and words[1].upper() in (b"SETINFO", b"SETNAME")):
            return self._relay("", *words)
        return b"-ERR not let through: a cache needs GET key and SET key value\r\n"

    def _set(self, key: bytes, value: bytes) -> bytes:
        own = self.server.prefix + key
        with self.server.lock:
            self.server.keys.add(own)
        return self._relay("SET", b"SET", own, value, *self.server.more, key=key)

    def _relay(self, counted: str, *words: bytes, key: bytes = b"") -> bytes:
        try:
            if self.link is None:
                self.link = self.server.connect()
            reply = self.link.ask(*words)
        except (OSError, Broken) as error:
            self.server.problem = self.server.problem or f"the server did not answer: {error}"
            raise
        if counted and not reply.startswith(b"-"):
            with self.server.lock:
                if _KEY_OF_TORCH.fullmatch(key):
                    self.server.answered[counted] += 1
                else:
                    self.server.foreign += 1
        return reply


_WRONG = b"-WRONGPASS invalid username-password pair or user is disabled.\r\n"


def main() -> None:
    """Serve one case."""
    wanted = json.loads(sys.stdin.buffer.readline())
    server = wanted["server"]
    connect = real_server(*server) if server else embedded_server()
    front = Front(connect, wanted["password"], wanted["prefix"], expires=bool(server))
    threading.Thread(target=front.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    _say({"port": front.server_address[1]})
    sys.stdin.buffer.read()
    front.shutdown()
    left = front.delete_keys() if server else 0
    with contextlib.suppress(BrokenPipeError):  # the runner has died
        _say({"answered": dict(front.answered), "foreign": front.foreign, "left": left, "problem": front.problem})
    # connections of remaining clients are dropped
    os._exit(0)


def _say(message: object) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    main()
