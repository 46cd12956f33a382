"""The executors, by name. A new executor is a package beside ``local/`` and a row here."""

from collections.abc import Callable

from runner.execute import base
from runner.execute.base import Executor, ExecutorSettings
from runner.execute.local.executor import LocalExecutor

LOCAL = base.LOCAL
"""Workers on this machine: what a run uses."""

OFFLINE = "offline"
"""Compiles for GPUs that the machine may lack; it executes nothing."""

RAY = "ray"
"""The nodes of a lab (``ray/``). It has no row: a run starts it with the file of its lab, and its nodes have the executors below."""


def _offline(settings: ExecutorSettings) -> Executor:
    from runner.execute.offline import OfflineExecutor  # a run without targets does not need it

    return OfflineExecutor(settings)


EXECUTORS: dict[str, Callable[[ExecutorSettings], Executor]] = {LOCAL: LocalExecutor, OFFLINE: _offline}
