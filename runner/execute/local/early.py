"""A zygote that imports torch while the specs are read."""

import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from runner.execute.base import ExecutorSettings
from runner.execute.local.executor import LocalExecutor
from runner.execute.local.spawn import ProcessStarter, Starter, Zygote, ZygoteProcess
from runner.plan.jobs import Environment
from runner.system import scratch


class EarlyZygote:
    """A zygote that starts before it is known which cases run; a context manager that ends it.

    Its scratch folder is its own: it is made before that of the run, and removed after it.
    """

    def __init__(self, environment: Environment, threads: int, probe_cache: Path | None) -> None:
        self._environment = environment
        self._threads = threads
        self._scratch = scratch.make()
        self._process = ProcessStarter(threads, self._scratch.path, probe_cache).zygote(environment)
        self._is_taken = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.close()
        self._scratch.close()

    def executor(self, settings: ExecutorSettings) -> LocalExecutor:
        """Return the executor of the run, which takes the zygote for the first environment that it serves."""
        return LocalExecutor(settings, make_starter=lambda folder: _TakingStarter(self, settings, folder))

    def take(self, wanted: Environment, threads: int) -> ZygoteProcess | None:
        """Return the zygote if it serves an environment, lives, and was not taken before."""
        serves = (wanted.key, threads) == (self._environment.key, self._threads) and wanted.kinds <= self._environment.kinds
        if self._is_taken or not serves or self._process.process.poll() is not None:
            return None
        self._is_taken = True
        return self._process


class _TakingStarter:
    """Starts the processes of one run (``spawn.Starter``)."""

    def __init__(self, early: EarlyZygote, settings: ExecutorSettings, folder: Path) -> None:
        self._early = early
        self._threads = settings.threads
        self._own: Starter = ProcessStarter(settings.threads, folder, settings.probe_cache)

    def zygote(self, wanted: Environment) -> Zygote:
        """Return the early zygote, or start one."""
        return self._early.take(wanted, self._threads) or self._own.zygote(wanted)

    def worker(self, wanted: Environment, control: int) -> "subprocess.Popen[bytes]":
        """Start a worker in a process of its own."""
        return self._own.worker(wanted, control)
