"""Zygotes that outlive a run, for a program that runs cases again and again (``watch``).

A run that ends gives its zygote back to the store if the next run may use it: it is warm, every worker that it forked was reaped, and no
process of a case is left. Any other zygote ends. Each case still gets a fork of its own.
"""

import itertools
import select
import shutil
import time
from pathlib import Path
from typing import Any

from runner.core.protocol import TARGET
from runner.execute.base import ExecutorSettings
from runner.execute.local.executor import LocalExecutor
from runner.execute.local.spawn import Message, ProcessStarter, ZygoteProcess, environment_for
from runner.plan.resources import Environment

_DRAIN_SECONDS = 5.0
"""How long the killed workers of a run may take to be reaped; a zygote that needs longer ends."""

_WAKE_SECONDS = 0.02

MOST_KEPT = 2
"""How many zygotes are kept: each uses some 300 MB. The one that was not used for longest ends first."""


class KeptZygote(ZygoteProcess):
    """A zygote that a run borrows from a store."""

    def __init__(self, store: "ZygoteStore", key: str, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.key = key
        self._store = store
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
        until = time.monotonic() + _DRAIN_SECONDS
        while self._forked and self._is_fit and time.monotonic() < until:
            self.wake()
            if select.select([self.control], [], [], _WAKE_SECONDS)[0]:
                message = self.receive()
                self._is_fit &= message is not None and "started" not in message  # the run could not kill a worker that starts now
        self._is_kept = self.is_ready and self._is_fit and not self._forked
        if self._is_kept:
            self._store.take_back(self)
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


class ZygoteStore:
    """The zygotes that no run uses now; ``close`` ends them."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._numbers = itertools.count(1)
        self._kept: list[KeptZygote] = []
        """The one that was used last is the last."""
        self._state = ""

    def executor(self, settings: ExecutorSettings) -> LocalExecutor:
        """Return the executor of a run that borrows the zygotes."""
        return LocalExecutor(settings, make_starter=lambda scratch: BorrowingStarter(self, settings, scratch), kept=self.pids)

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

    def new_folder(self) -> Path:
        """Make the scratch folder of a zygote, which outlives the run."""
        folder = self._scratch / str(next(self._numbers))
        folder.mkdir(parents=True)
        return folder

    def take_back(self, zygote: KeptZygote) -> None:
        """Keep a zygote for the next run."""
        self._kept.append(zygote)
        while len(self._kept) > MOST_KEPT:
            self._kept.pop(0).end()

    def close(self) -> None:
        """End all zygotes."""
        while self._kept:
            self._kept.pop().end()


class BorrowingStarter(ProcessStarter):
    """Starts the processes of one run: zygotes from the store, workers without a zygote and zygotes of targets as any run does."""

    module = "runner.worker.process.zygote"

    def __init__(self, store: ZygoteStore, settings: ExecutorSettings, scratch: Path) -> None:
        super().__init__(settings.threads, scratch, settings.warm_folder)
        self._store = store
        self._settings = settings

    def zygote(self, wanted: Environment) -> ZygoteProcess:
        """Return a warm zygote of this environment, or start one."""
        if TARGET in wanted.variables:
            return super().zygote(wanted)
        key = repr((wanted.key, sorted(wanted.kinds), self._settings.threads))
        if (warm := self._store.lend(key)) is not None:
            return warm
        folder = self._store.new_folder()
        variables = environment_for(wanted, self._settings.threads, folder, self._settings.warm_folder)
        return KeptZygote(self._store, key, wanted.kinds, variables, folder / "zygote.log", self.module)
