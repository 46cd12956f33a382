"""The executors, by name. A new executor is a package beside ``local/`` and a row here."""

from collections.abc import Callable

from runner.execute.base import Executor, ExecutorSettings
from runner.execute.local.executor import LocalExecutor

LOCAL = "local"
"""Workers on this machine: what a run uses."""

EXECUTORS: dict[str, Callable[[ExecutorSettings], Executor]] = {LOCAL: LocalExecutor}
