"""Kills orphaned processes of workers: processes whose ancestors have ended are reparented to the runner, and killed at the end of the run.

A zygote kills the orphans of its workers. This module is for workers without a zygote, and for zygotes that were killed.
"""

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Collection
from pathlib import Path
from types import TracebackType

_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37

_END_SECONDS = 5.0
"""How long to wait for killed processes to end."""


class Orphans:
    """Adopts orphans while it is open; ``close`` kills every child process that did not exist before."""

    def __init__(self) -> None:
        self._before = set(children())
        self._library = ctypes.CDLL(None)
        was = ctypes.c_int(0)
        self._library.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(was))
        self._was = was.value
        self._library.prctl(_PR_SET_CHILD_SUBREAPER, 1)

    def __enter__(self) -> "Orphans":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self, spared: Collection[int] = ()) -> None:
        """Kill the orphans; processes that the runner started itself have ended by now, but for the zygotes that it keeps: ``spared``."""
        until = time.monotonic() + _END_SECONDS
        # children of a killed child are reparented to the runner next
        while (found := set(children()) - self._before - set(spared)) and time.monotonic() < until:
            for pid in found:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, os.WNOHANG)
            time.sleep(0.001)
        self._library.prctl(_PR_SET_CHILD_SUBREAPER, self._was)


def children() -> list[int]:
    """Return the child processes of all threads of this process; empty where the system has no list."""
    found: list[int] = []
    for thread in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, thread.read_text("ascii").split())
    return found
