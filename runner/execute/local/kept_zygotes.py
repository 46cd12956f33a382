"""Zygotes that outlive a run, for a program that runs cases again and again (``watch``).

A run that ends gives its zygote back to the store if the next run may use it: it is warm, every worker that it forked was reaped, no
process of a case is left, and no file of its scratch folder was changed. Any other zygote ends. Each case still gets a fork of its own.
"""

import contextlib
import dataclasses
import itertools
import os
import select
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from runner.execute.base import Execution, ExecutorSettings, Job
from runner.execute.local.executor import LocalExecutor
from runner.execute.local.spawn import Message, ProcessStarter, Starter, Zygote, ZygoteProcess
from runner.plan.resources import Capacity, Environment

_DRAIN_SECONDS = 5.0
"""How long the killed workers of a run may take to be reaped; a zygote that needs longer ends."""

_WAKE_SECONDS = 0.02

MOST_KEPT = 2
"""How many zygotes are kept: each uses some 300 MB. The one that was not used for longest ends first."""

Stamp = tuple[int, int, int]
"""The time of the last change, size and inode of a file."""


class KeptZygote:
    """A zygote that a run borrows from a store (``spawn.Zygote``)."""

    def __init__(self, process: ZygoteProcess, key: str, scratch: Path, store: "ZygoteStore") -> None:
        self.key = key
        self.scratch = scratch
        self.control: socket.socket = process.control
        self.process = process
        self._store = store
        self._forked: set[int] = set()
        """The workers whose ends were not reported yet."""
        self._files: Mapping[str, Stamp] = {}
        self._why_unfit = "it is not warm"
        """Why no other run may use it; empty if one may."""

    @property
    def is_ready(self) -> bool:
        """Whether it is warm."""
        return self.process.is_ready

    @is_ready.setter
    def is_ready(self, value: bool) -> None:
        if value and not self.process.is_ready:
            # it has forked no worker yet, so that these files are its own
            self._files, self._why_unfit = files_below(self.scratch, leave_out=self.process.log), ""
        self.process.is_ready = value

    def fork(self, number: int, control: int) -> bool:
        """Request a worker with a control socket; False when the zygote is gone."""
        sent = self.process.fork(number, control)
        if sent:
            self._forked.add(number)
        else:
            self._why_unfit = "it has ended"
        return sent

    def receive(self) -> Message | None:
        """Return the next message; None when the zygote is gone."""
        message = self.process.receive()
        if message is None:
            self._why_unfit = "it has ended"
        elif "refused" in message:
            self._forked.discard(int(message["refused"]))
            self._why_unfit = f"it did not fork: {message['why']}"
        elif "ended" in message:
            self._forked.discard(int(message["ended"]))
            if message.get("held"):
                self._why_unfit = "processes of a case are left"
        return message

    def last_words(self) -> str:
        """Return the end of the zygote's output."""
        return self.process.last_words()

    def wake(self) -> None:
        """Send SIGCONT if a worker has stopped it."""
        self.process.wake()

    def release(self) -> None:
        """Give it back to the store if another run may use it; else hang up."""
        if self._why_unfit or not self._is_drained() or not self._restores_files():
            self.hang_up()
        else:
            self._store.take_back(self)

    def hang_up(self) -> None:
        """Close its socket: it kills the orphans of its workers, and ends."""
        self._why_unfit = self._why_unfit or "it was given up"
        self.process.hang_up()

    def has_left(self) -> bool:
        """Whether it has ended since ``hang_up``."""
        return self.process.has_left()

    def close(self) -> None:
        """Wait for its end, unless the store has it."""
        if self._why_unfit:
            self.process.close()
            shutil.rmtree(self.scratch, ignore_errors=True)

    def end(self) -> None:
        """End it, and wait for its end."""
        self.hang_up()
        self.close()

    def is_usable(self) -> bool:
        """Whether it lives, and has sent nothing since it was given back."""
        return self.process.process.poll() is None and not select.select([self.control], [], [], 0)[0]

    def _is_drained(self) -> bool:
        """Wait until every worker that it forked was reaped; return False if that takes too long."""
        until = time.monotonic() + _DRAIN_SECONDS
        late: list[int] = []
        """Workers whose starts are reported now: the run could not kill them."""
        while self._forked and not self._why_unfit and time.monotonic() < until:
            self.wake()
            for pid in late:
                _kill(pid)
            if not select.select([self.control], [], [], _WAKE_SECONDS)[0]:
                continue
            message = self.receive()
            if message is not None and "started" in message:
                late.append(int(message["pid"]))
            elif message is not None and "ended" in message:
                late.clear()  # another process may get the number of a reaped one; a worker that is left ends at the time limit
        return not self._forked and not self._why_unfit

    def _restores_files(self) -> bool:
        """Remove the files that cases left in its scratch folder; return False if they changed one of its own."""
        now = files_below(self.scratch, leave_out=self.process.log)
        for name in now.keys() - self._files.keys():
            with contextlib.suppress(OSError):
                (self.scratch / name).unlink()
        return all(now.get(name) == stamp for name, stamp in self._files.items())


def _kill(pid: int) -> None:
    """Kill a worker with its group; one that has only just been forked leads no group yet."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(OSError):
            kill(pid, signal.SIGKILL)


def files_below(folder: Path, leave_out: Path | None = None) -> dict[str, Stamp]:
    """Return the files and links below a folder; links are not followed."""
    return {os.path.relpath(entry, folder): _stamp(entry) for entry in _walk(folder) if leave_out is None or entry.path != str(leave_out)}


def _walk(folder: Path | str) -> Iterator["os.DirEntry[str]"]:
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(entry.path)
            else:
                yield entry


def _stamp(entry: "os.DirEntry[str]") -> Stamp:
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:
        return (0, 0, 0)
    return (found.st_mtime_ns, found.st_size, found.st_ino)


class ZygoteStore:
    """The zygotes that no run uses now; ``close`` ends them."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._kept: list[KeptZygote] = []
        """The one that was used last is the last."""
        self._numbers = itertools.count(1)
        self._state = ""
        self._facts: dict[str, Execution] = {}
        """What jobs for the facts of the machine reported in this state of it."""

    def executor(self, settings: ExecutorSettings) -> LocalExecutor:
        """Return the executor of a run that borrows the zygotes."""
        return _BorrowingExecutor(self, settings)

    def require(self, state: str) -> bool:
        """End all zygotes if they were started in another state of the machine; return whether any was ended."""
        is_stale = bool(self._kept) and state != self._state
        if is_stale:
            self.close()
        if state != self._state:
            self._facts.clear()
        self._state = state
        return is_stale

    def pids(self) -> list[int]:
        """Return the processes that outlive a run."""
        return [zygote.process.process.pid for zygote in self._kept]

    def lend(self, key: str) -> KeptZygote | None:
        """Return a warm zygote of an environment, if there is one."""
        for zygote in [one for one in self._kept if one.key == key]:
            self._kept.remove(zygote)
            if zygote.is_usable():
                return zygote
            zygote.end()
        return None

    def new(self, wanted: Environment, key: str, settings: ExecutorSettings) -> KeptZygote:
        """Start a zygote in a scratch folder that outlives the run."""
        scratch = self._scratch / str(next(self._numbers))
        process = ProcessStarter(settings.threads, scratch, settings.warm_folder).zygote(wanted)
        return KeptZygote(process, key, scratch, self)

    def facts(self, job: Job) -> Execution | None:
        """Return the answer to such a job for the facts of the machine, if an earlier run has it."""
        return self._facts.get(_question(job))

    def remember(self, execution: Execution) -> None:
        """Remember the facts of the machine, if a worker reported them."""
        if execution.job.plan is None and isinstance(execution.observation, dict) and not execution.problem:
            self._facts[_question(execution.job)] = execution

    def take_back(self, zygote: KeptZygote) -> None:
        """Keep a zygote for the next run."""
        self._kept.append(zygote)
        while len(self._kept) > MOST_KEPT:
            self._kept.pop(0).end()

    def close(self) -> None:
        """End all zygotes."""
        while self._kept:
            self._kept.pop().end()


def _question(job: Job) -> str:
    return repr((job.name, job.plan, job.questions, job.environment.key, sorted(job.environment.kinds)))


class _BorrowingExecutor(LocalExecutor):
    """The executor of one run. Facts of the machine that an earlier run of the store has are not collected again."""

    def __init__(self, store: ZygoteStore, settings: ExecutorSettings) -> None:
        super().__init__(settings, make_starter=lambda scratch: _BorrowingStarter(store, settings, scratch), kept=store.pids)
        self._store = store

    def run(self, jobs: Iterable[Job], capacity: Capacity) -> Iterator[Execution]:
        """Run every job whose answer is not known."""
        unknown: list[Job] = []
        for job in jobs:
            known = self._store.facts(job)
            if known is None:
                unknown.append(job)
            else:
                yield dataclasses.replace(known, job=job)
        for execution in super().run(unknown, capacity) if unknown else ():
            self._store.remember(execution)
            yield execution


class _BorrowingStarter:
    """Starts the processes of one run (``spawn.Starter``): zygotes from the store, workers without a zygote as any run does."""

    def __init__(self, store: ZygoteStore, settings: ExecutorSettings, scratch: Path) -> None:
        self._store = store
        self._settings = settings
        self._own: Starter = ProcessStarter(settings.threads, scratch, settings.warm_folder)

    def zygote(self, wanted: Environment) -> Zygote:
        """Return a warm zygote of this environment, or start one."""
        key = repr((wanted.key, sorted(wanted.kinds), self._settings.threads))
        return self._store.lend(key) or self._store.new(wanted, key, self._settings)

    def worker(self, wanted: Environment, control: int) -> "subprocess.Popen[bytes]":
        """Start a worker in a process of its own."""
        return self._own.worker(wanted, control)
