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

from runner.machine import child_python
from runner.machine.redaction import KNOWN
from runner.model.observation import ServiceReport
from runner.model.protocol import SERVICES_FILE

SERVICES = ("redis",)
"""The words of ``services``; each is a capability too."""

_START_SECONDS = 60.0
_STOP_SECONDS = 40.0


class Services:
    """The services of a run: one server for each case that uses one. A server lives as long as its standard input is open."""

    def __init__(self, scratch: Path) -> None:
        self._log = scratch / "redis.log"
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, case: str, folder: Path) -> None:
        """Start the server of a case, and write its address for the worker; a second call changes nothing."""
        if case in self.running:
            return
        password = secrets.token_urlsafe(24)
        KNOWN.learn(password)
        variables = child_python.variables(os.environ, self._log.parent)
        command = child_python.command("runner.execute.services.serve")
        # a session of its own: Ctrl-C is the runner's
        with self._log.open("ab") as stderr:
            server = subprocess.Popen(
                command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, start_new_session=True
            )
        self.running[case] = server
        assert server.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it ended already: the next read detects that
            server.stdin.write(password.encode() + b"\n")
            server.stdin.flush()
        if isinstance(port := _line_of(server, _START_SECONDS).get("port"), int):
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(folder / SERVICES_FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="ascii") as stream:
                json.dump({"redis": {"url": f"redis://:{password}@127.0.0.1:{port}/0"}}, stream)

    def stop(self, case: str) -> ServiceReport:
        """End a case's server and return its report; the report of one that had ended before has a problem."""
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
            return ServiceReport(name="redis", answered=answer["answered"], foreign=answer["foreign"], problem=answer["problem"])
        lines = self._log.read_bytes()[-2000:].decode("utf-8", "replace").strip().splitlines()
        return ServiceReport(name="redis", problem=f"its server ended before the case did{f': {lines[-1][:200]}' if lines else ''}")

    def close(self) -> None:
        """End every server, also those of cases that were stopped."""
        for case in list(self.running):
            self.stop(case)


def _line_of(server: "subprocess.Popen[bytes]", seconds: float) -> Mapping[str, Any]:
    """Return what a server printed: one line when it listens, and its report after its standard input is closed."""
    assert server.stdout is not None
    ready, _, _ = select.select([server.stdout], [], [], seconds)
    answer = json.loads(server.stdout.readline() or b"{}") if ready else {}
    return answer if isinstance(answer, dict) else {}
