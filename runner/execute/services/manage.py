"""The runner's side of services: addresses that a user names, a process for each case, and its report."""

import contextlib
import json
import os
import secrets
import select
import socket
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.core.diagnostics import UsageError, unknown
from runner.core.observation import ServiceReport
from runner.core.protocol import SERVICES_FILE
from runner.system import child_python
from runner.system.redaction import KNOWN

_NAMES = ("redis",)
_REACH_SECONDS = 5.0
_START_SECONDS = 60.0
_STOP_SECONDS = 40.0


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def named_servers(texts: Iterable[str]) -> dict[str, Address]:
    """Read the values of ``--service``: ``redis=HOST:PORT``, each service once. Raise ``UsageError``."""
    found: dict[str, Address] = {}
    for text in texts:
        name, sign, place = text.partition("=")
        if not sign:
            raise UsageError(f"--service {text[:60]}: no '=' in it (write redis=HOST:PORT)")
        if name not in _NAMES:
            message, hint = unknown("service", name, _NAMES)
            raise UsageError(f"--service: {message} ({hint})")
        if name in found:
            raise UsageError(f"--service {name} is given twice (a case talks to one server)")
        found[name] = _address(name, place)
    return found


def _address(name: str, place: str) -> Address:
    host, sign, port = place.rpartition(":")
    if "@" in place or "/" in place:
        # the value may contain a password, so it is not printed
        raise UsageError(f"--service {name}: a URL or a password (write {name}=HOST:PORT; a server with a password is not supported)")
    if not sign or not host:
        raise UsageError(f"--service {name}={place[:60]}: no host and port (write {name}=HOST:PORT, for example {name}=localhost:6379)")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65_536):
        raise UsageError(f"--service {name}={place[:60]}: '{port[:20]}' is no port (a number from 1 to 65535)")
    return Address(host.removeprefix("[").removesuffix("]"), int(port))


def reach(servers: Mapping[str, Address]) -> None:
    """Ping each server; raise ``UsageError`` for one that does not answer."""
    for name, address in servers.items():
        try:
            with socket.create_connection((address.host, address.port), timeout=_REACH_SECONDS) as connection:
                connection.settimeout(_REACH_SECONDS)
                connection.sendall(b"*1\r\n$4\r\nPING\r\n")
                answer = connection.recv(200)
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise UsageError(f"--service {name}={address}: cannot be reached: {why} (start it, or leave --service out)") from error
        if answer.startswith((b"-NOAUTH", b"-DENIED")):
            raise UsageError(f"--service {name}={address}: it requires a password (name one without, on this machine)")
        if answer != b"+PONG\r\n":
            raise UsageError(f"--service {name}={address}: what listens there is no Redis server")


class _Server:
    """A service's process: it lives as long as its standard input is open."""

    def __init__(self, address: Address | None, log: Path) -> None:
        self.password = secrets.token_urlsafe(24)
        KNOWN.learn(self.password)
        self.tag = f"torch-conformance:{secrets.token_hex(8)}"
        self._log = log
        variables = child_python.variables(os.environ, log.parent)
        command = child_python.command("runner.execute.services.serve")
        # a session of its own: Ctrl-C is the runner's
        with log.open("ab") as stderr:
            self.process = subprocess.Popen(
                command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, start_new_session=True
            )
        where = None if address is None else [address.host, address.port]
        self._tell({"password": self.password, "prefix": f"{self.tag}:", "server": where})

    def _tell(self, message: Mapping[str, object]) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it ended already: the next read detects that
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()

    def url(self) -> str:
        """Wait until it listens and return its URL; empty if it ended."""
        said = self._read_line(_START_SECONDS)
        return f"redis://:{self.password}@127.0.0.1:{said['port']}/0" if isinstance(said.get("port"), int) else ""

    def stop(self, name: str) -> ServiceReport:
        """End it and return its report; the report of one that had ended before has a problem."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        said = self._read_line(_STOP_SECONDS)
        self.kill()
        if "answered" not in said:
            return ServiceReport(name=name, problem=f"its server ended before the case did{self._last_words()}")
        return ServiceReport(name=name, answered=said["answered"], foreign=said["foreign"], left=said["left"], problem=said["problem"])

    def _read_line(self, seconds: float) -> Mapping[str, Any]:
        stdout = self.process.stdout
        assert stdout is not None
        # the server writes one line, and its report only after its standard input is closed
        ready, _, _ = select.select([stdout], [], [], seconds)
        said = json.loads(stdout.readline() or b"{}") if ready else {}
        return said if isinstance(said, dict) else {}

    def _last_words(self) -> str:
        lines = self._log.read_bytes()[-2000:].decode("utf-8", "replace").strip().splitlines()
        return f": {lines[-1][:200]}" if lines else ""

    def kill(self) -> None:
        """End it now."""
        self.process.kill()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        self.process.wait()


class Services:
    """The services of a run: one server for each case that uses one. The next server is started in advance, so no case waits."""

    def __init__(self, servers: Mapping[str, Address], scratch: Path) -> None:
        self._servers = servers
        self._scratch = scratch
        self._waiting = 0
        self._spare: _Server | None = None
        self._running: dict[str, _Server] = {}
        self.warnings: list[str] = []

    def announce(self, cases: int) -> None:
        """Set how many cases will need a server."""
        self._waiting = cases
        self._start_spare()

    def _start_spare(self) -> None:
        if self._waiting > 0 and self._spare is None:
            self._waiting -= 1
            self._spare = _Server(self._servers.get("redis"), self._scratch / f"redis-{self._waiting}.log")

    def _take_spare(self) -> _Server:
        spare, self._spare = self._spare, None
        if spare is not None and spare.process.poll() is None:
            return spare
        if spare is not None:  # another case may have killed the spare server: start a new one
            spare.kill()
        return _Server(self._servers.get("redis"), self._scratch / "redis.log")

    def start(self, case: str, folder: Path) -> None:
        """Start the server of a case, and write its address for the worker; a second call changes nothing."""
        if case in self._running:
            return
        server = self._running[case] = self._take_spare()
        url = server.url()
        self._start_spare()
        if url:
            folder.mkdir(parents=True, exist_ok=True)
            _write_private(folder / SERVICES_FILE, {"redis": {"url": url, "tag": server.tag}})

    def stop(self, case: str) -> ServiceReport:
        """End a case's server and return its report."""
        report = self._running.pop(case).stop("redis")
        if report.left:
            address = self._servers["redis"]
            self.warnings.append(f"keys that {case} left on {address}: {report.left} (they expire after a day)")
        return report

    def close(self) -> None:
        """End every server, also those of cases that were stopped: each deletes its keys."""
        for case in list(self._running):
            self.stop(case)
        if self._spare is not None:
            self._spare.kill()
            self._spare = None


def _write_private(path: Path, value: Mapping[str, object]) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as stream:
        json.dump(value, stream)
