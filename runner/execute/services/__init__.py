"""Servers that cases use: a process for each case that speaks the service's protocol, counts its traffic, and ends with the runner."""

import contextlib
import json
import os
import secrets
import select
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.core.observation import ServiceReport
from runner.core.protocol import SERVICES_FILE
from runner.system import child_python
from runner.system.redaction import KNOWN

SERVICES = ("redis",)
"""The words of ``services``; each is a capability too."""

_START_SECONDS = 60.0
_STOP_SECONDS = 40.0


class _Server:
    """A service's process: it lives as long as its standard input is open."""

    def __init__(self, log: Path) -> None:
        self._password = secrets.token_urlsafe(24)
        KNOWN.learn(self._password)
        self._log = log
        variables = child_python.variables(os.environ, log.parent)
        command = child_python.command("runner.execute.services.serve")
        # a session of its own: Ctrl-C is the runner's
        with log.open("ab") as stderr:
            self.process = subprocess.Popen(
                command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, start_new_session=True
            )
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it ended already: the next read detects that
            self.process.stdin.write(self._password.encode() + b"\n")
            self.process.stdin.flush()

    def url(self) -> str:
        """Wait until it listens and return its URL; empty if it ended."""
        answer = self._read_line(_START_SECONDS)
        return f"redis://:{self._password}@127.0.0.1:{answer['port']}/0" if isinstance(answer.get("port"), int) else ""

    def stop(self) -> ServiceReport:
        """End it and return its report; the report of one that had ended before has a problem."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        answer = self._read_line(_STOP_SECONDS)
        self.kill()
        if "answered" in answer:
            return ServiceReport(name="redis", answered=answer["answered"], foreign=answer["foreign"], problem=answer["problem"])
        lines = self._log.read_bytes()[-2000:].decode("utf-8", "replace").strip().splitlines()
        return ServiceReport(name="redis", problem=f"its server ended before the case did{f': {lines[-1][:200]}' if lines else ''}")

    def _read_line(self, seconds: float) -> Mapping[str, Any]:
        stdout = self.process.stdout
        assert stdout is not None
        # the server writes one line, and its report only after its standard input is closed
        ready, _, _ = select.select([stdout], [], [], seconds)
        answer = json.loads(stdout.readline() or b"{}") if ready else {}
        return answer if isinstance(answer, dict) else {}

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

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._waiting = 0
        self._spare: _Server | None = None
        self._running: dict[str, _Server] = {}

    def announce(self, cases: int) -> None:
        """Set how many cases will need a server, and start the next one's."""
        self._waiting = cases
        if self._waiting > 0 and self._spare is None:
            self._waiting -= 1
            self._spare = _Server(self._scratch / f"redis-{self._waiting}.log")

    def start(self, case: str, folder: Path) -> None:
        """Start the server of a case, and write its address for the worker; a second call changes nothing."""
        if case in self._running:
            return
        server, self._spare = self._spare, None
        if server is None or server.process.poll() is not None:
            if server is not None:  # another case may have killed the spare server
                server.kill()
            server = _Server(self._scratch / "redis.log")
        self._running[case] = server
        url = server.url()
        self.announce(self._waiting)
        if url:
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(folder / SERVICES_FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="ascii") as stream:
                json.dump({"redis": {"url": url}}, stream)

    def stop(self, case: str) -> ServiceReport:
        """End a case's server and return its report."""
        return self._running.pop(case).stop()

    def close(self) -> None:
        """End every server, also those of cases that were stopped."""
        for case in list(self._running):
            self.stop(case)
        if self._spare is not None:
            self._spare.kill()
            self._spare = None
