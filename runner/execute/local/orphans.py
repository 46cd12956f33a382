"""The last resort against what workers leave behind: whose parents have all ended comes to the runner, and is killed when the run ends.

A zygote ends what its workers leave. This is for workers that have no zygote, and for zygotes that were killed.
"""

import contextlib
import ctypes
import os
import signal
import time
from pathlib import Path
from types import TracebackType

_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37

_END_SECONDS = 5.0
"""How long what was killed may take to end; a process that the system holds is not waited for."""


class Orphans:
    """Adopts orphans while it is open; then kills every child that this process did not have before."""

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

    def close(self) -> None:
        """Kill them; whatever the runner started itself has ended by now."""
        until = time.monotonic() + _END_SECONDS
        # a killed child may leave children of its own, who come to us next
        while (found := set(children()) - self._before) and time.monotonic() < until:
            for pid in found:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, os.WNOHANG)
            time.sleep(0.001)
        self._library.prctl(_PR_SET_CHILD_SUBREAPER, self._was)


def children() -> list[int]:
    """Return the processes whose parent is this one, whichever of its threads started them; none where the system does not say."""
    found: list[int] = []
    for thread in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, thread.read_text("ascii").split())
    return found
