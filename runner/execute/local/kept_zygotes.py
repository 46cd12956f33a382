"""Zygotes that outlive a run, for a program that runs cases again and again (``watch``).

A run that ends gives its zygote back to the store if the next run may use it: it is warm, every worker that it forked was reaped, and no
process of a case is left. Any other zygote ends. Each case still gets a fork of its own.
"""

import contextlib
import itertools
import os
import select
import shutil
import signal
import time
from pathlib import Path
from typing import Any

from runner.execute.base import ExecutorSettings
from runner.execute.local.executor import LocalExecutor
from runner.execute.local.spawn import Message, ProcessStarter, ZygoteProcess
from runner.plan.resources import Environment

_DRAIN_SECONDS = 5.0
"""How long the killed workers of a run may take to be reaped; a zygote that needs longer ends."""

_WAKE_SECONDS = 0.02

MOST_KEPT = 2
"""How many zygotes are kept: each uses some 300 MB. The one that was not used for longest ends first."""


class KeptZygote(ZygoteProcess):
    """A zygote that a run borrows from a store."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.key = ""
        self.store: ZygoteStore | None = None
        self._forked: set[int] = set()
        """The workers whose ends were not reported yet."""
        self._is_fit = True
        self._is_kept = False

    def fork(self, number: int, control: int) -> bool:
        """Request a worker with a control socket; False when the zygote is gone."""
        sent = super().fork(number, control)
        self._is_fit &= sent
        if sent:
            self._forked.add(number)
        return sent

    def receive(self) -> Message | None:
        """Return the next message; None when the zygote is gone."""
        message = super().receive()
        if message is None or "refused" in message or message.get("held"):
            self._is_fit = False
        elif "ended" in message:
            self._forked.discard(int(message["ended"]))
        return message

    def release(self) -> None:
        """Give it back to the store if another run may use it; else hang up."""
        self._is_kept = self.is_ready and self._is_drained()
        if self._is_kept and self.store is not None:
            self.store.take_back(self)
        else:
            self.hang_up()

    def close(self) -> None:
        """Wait for its end, unless the store has it."""
        if not self._is_kept:
            super().close()
            shutil.rmtree(self.log.parent, ignore_errors=True)

    def end(self) -> None:
        """End it, and wait for its end."""
        self._is_kept = False
        self.close()

    def is_usable(self) -> bool:
        """Whether it lives, and has sent nothing since it was given back."""
        return self.process.poll() is None and not select.select([self.control], [], [], 0)[0]

    def _is_drained(self) -> bool:
        """Wait until every worker that it forked was reaped; return False if that takes too long."""
        until = time.monotonic() + _DRAIN_SECONDS
        late: list[int] = []
        """Workers whose starts are reported now: the run could not kill them."""
        while self._forked and self._is_fit and time.monotonic() < until:
            self.wake()
            for pid in late:
                for kill in (os.killpg, os.kill):  # one that has only just been forked leads no group yet
                    with contextlib.suppress(OSError):
                        kill(pid, signal.SIGKILL)
            if not select.select([self.control], [], [], _WAKE_SECONDS)[0]:
                continue
            message = self.receive()
            if message is not None and "started" in message:
                late.append(int(message["pid"]))
            elif message is not None and "ended" in message:
                late.clear()  # another process may get the number of a reaped one; a worker that is left ends at the time limit
        return self._is_fit and not self._forked


class ZygoteStore:
    """The zygotes that no run uses now; ``close`` ends them."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._kept: list[KeptZygote] = []
        """The one that was used last is the last."""
        self._numbers = itertools.count(1)
        self._state = ""

    def executor(self, settings: ExecutorSettings) -> LocalExecutor:
        """Return the executor of a run that borrows the zygotes."""
        return LocalExecutor(settings, make_starter=lambda scratch: _BorrowingStarter(self, settings, scratch), kept=self.pids)

    def require(self, state: str) -> bool:
        """End all zygotes if they were started in another state of the machine; return whether any was ended."""
        is_stale = bool(self._kept) and state != self._state
        if is_stale:
            self.close()
        self._state = state
        return is_stale

    def pids(self) -> list[int]:
        """Return the processes that outlive a run."""
        return [zygote.process.pid for zygote in self._kept]

    def lend(self, key: str) -> KeptZygote | None:
        """Return a warm zygote of an environment, if there is one."""
        for zygote in [zygote for zygote in self._kept if zygote.key == key]:
            self._kept.remove(zygote)
            if zygote.is_usable():
                return zygote
            zygote.end()
        return None

    def new(self, wanted: Environment, key: str, settings: ExecutorSettings) -> KeptZygote:
        """Start a zygote in a scratch folder that outlives the run."""
        starter = ProcessStarter(settings.threads, self._scratch / str(next(self._numbers)), settings.warm_folder, KeptZygote)
        zygote = starter.zygote(wanted)
        assert isinstance(zygote, KeptZygote)
        zygote.key, zygote.store = key, self
        return zygote

    def take_back(self, zygote: KeptZygote) -> None:
        """Keep a zygote for the next run."""
        self._kept.append(zygote)
        while len(self._kept) > MOST_KEPT:
            self._kept.pop(0).end()

    def close(self) -> None:
        """End all zygotes."""
        while self._kept:
            self._kept.pop().end()


class _BorrowingStarter(ProcessStarter):
    """Starts the processes of one run: zygotes from the store, workers without a zygote as any run does."""

    def __init__(self, store: ZygoteStore, settings: ExecutorSettings, scratch: Path) -> None:
        super().__init__(settings.threads, scratch, settings.warm_folder)
        self._store = store
        self._settings = settings

    def zygote(self, wanted: Environment) -> ZygoteProcess:
        """Return a warm zygote of this environment, or start one."""
        key = repr((wanted.key, sorted(wanted.kinds), self._settings.threads))
        return self._store.lend(key) or self._store.new(wanted, key, self._settings)
