"""The run of a session of pytest: a process of its own, whose journal is read line by line while it goes on."""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from runner.core.case import CaseId
from runner.core.results import CaseResult
from runner.report import plain
from runner.run.following import FollowedJournal
from runner.system import child_python

REQUEST, PLACE, LOCK, LOG = "request.json", "run.json", "running", "log.txt"
"""Files of the session's folder: what to run, where the run is, a file that is locked while it goes on, what it prints."""

_POLL_SECONDS = 0.05
_END_SECONDS = 20.0
"""How long a run may take to end its workers after SIGTERM."""

_SAID = 4_000


class RunEndedError(RuntimeError):
    """The run ended, and has no result of a case."""


class SessionRun:
    """One run, for all processes of a session: one of them starts it, each reads its journal."""

    def __init__(self, folder: Path, rootdir: Path) -> None:
        self._folder = folder
        self._rootdir = rootdir
        self._process: subprocess.Popen[bytes] | None = None
        self._journal: FollowedJournal | None = None

    @property
    def is_started(self) -> bool:
        """Whether this process has started the run."""
        return self._process is not None

    @property
    def folder(self) -> Path | None:
        """The folder of the run; None before it is open."""
        try:
            return Path(json.loads((self._folder / PLACE).read_text("utf-8"))["folder"])
        except (OSError, ValueError):
            return None

    def start(self, options: str, cases: Sequence[tuple[str, str, str]]) -> None:
        """Start the run of these cases: file, root and name of each."""
        request = {"options": options, "cases": [case for case in cases if case[0]]}
        (self._folder / REQUEST).write_text(json.dumps(request), "utf-8")
        with (self._folder / LOCK).open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # held by the run's process, until it ends in any way
            self._process = self._started(lock.fileno())

    def _started(self, lock: int) -> "subprocess.Popen[bytes]":
        with (self._folder / LOG).open("wb") as log:
            return subprocess.Popen(
                child_python.command("runner.cli.pytest_plugin.child", str(self._folder)),
                cwd=self._rootdir,
                env=child_python.variables(os.environ, self._folder),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[lock],
                start_new_session=True,  # Ctrl-C is for pytest, which ends the run
            )

    def result(self, case_id: str) -> CaseResult:
        """Return the result of a case as soon as the journal has it; raise ``RunEndedError`` when the run ended without it."""
        while True:
            is_over = self._is_over()
            self._read_journal()
            if self._journal is not None and (found := self._journal.results.get(CaseId(case_id))) is not None:
                return found
            if is_over:
                raise RunEndedError(f"the run ended without a result of this case; it printed:\n{self._said()}")
            time.sleep(_POLL_SECONDS)

    def end(self) -> None:
        """End the run, if it goes on: its workers first."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # the system may hold it
                self._process.wait(_END_SECONDS)

    def _is_over(self) -> bool:
        """Return whether the run has ended; False before it begins."""
        if self._process is not None:
            return self._process.poll() is not None
        with contextlib.suppress(OSError), (self._folder / LOCK).open("rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return os.path.exists(self._folder / LOG)  # the lock is taken before the log is made
        return False

    def _read_journal(self) -> None:
        if self._journal is None and (folder := self.folder) is not None:
            self._journal = FollowedJournal(folder)
        if self._journal is not None:
            self._journal.read()

    def _said(self) -> str:
        try:
            return plain((self._folder / LOG).read_bytes()[-_SAID:].decode("utf-8", "replace")).strip() or "nothing"
        except OSError:
            return "nothing"
