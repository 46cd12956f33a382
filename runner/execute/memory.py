"""Memory use of a worker's processes, including children that have left its session.

RSS is cheap to read, but counts shared pages in each process: sixteen forks of a process of 300 MiB have 4.8 GiB RSS and take
a few. So RSS is read first; PSS is read only for workers whose RSS is above their limit, because the kernel walks over
all its pages.

A scan of all processes of a machine takes milliseconds, a descent from a worker to its children microseconds. A worker adopts its
orphans, so only a process that escapes on purpose is missed by the descent; a scan once a second finds that too.
"""

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path

INTERVAL = 0.1
"""The minimum seconds between two measurements."""

SCAN_INTERVAL = 1.0
"""The minimum seconds between two scans of all processes."""

MOST_SHARE = 0.05
"""The maximum share of time for measurements: with many processes, they are less frequent."""

_PROC = Path("/proc")
_RESIDENT = (b"RssAnon:", b"RssShmem:", b"VmSwap:")
"""Memory that only the process can free; the kernel can drop pages of files."""

_PROPORTIONAL = (b"Pss_Anon:", b"Pss_Shmem:", b"SwapPss:")


class MemoryWatch:
    """Measures the memory use of workers periodically."""

    def __init__(self) -> None:
        self._shows_children = (_PROC / "self" / "task" / str(os.getpid()) / "children").exists()
        """Some kernels are built without the list of a process's children."""
        self._scan_due = 0.0
        self.due = 0.0
        """When the next measurement is due."""

    def look(self, limits: Mapping[int, int]) -> dict[int, int]:
        """Return the memory use of workers above their limit, by the leader of their session; empty if no measurement is due."""
        begun = time.monotonic()
        if not limits or begun < self.due:
            return {}
        scans = begun >= self._scan_due or not self._shows_children
        over = above(limits, scans=scans)
        ended = time.monotonic()
        if scans:
            self._scan_due = ended + SCAN_INTERVAL
        self.due = ended + max(INTERVAL, (ended - begun) / MOST_SHARE)
        return over


def above(limits: Mapping[int, int], proc: Path = _PROC, *, scans: bool = True) -> dict[int, int]:
    """Return the bytes of workers above their limit, by the leader of their session.

    A worker's processes are its session, their descendants, and the sessions that these started. Without ``scans`` only the leaders and
    their descendants are measured: no other process is read.
    """
    following: dict[int, list[int]] = {}
    for entry in os.listdir(proc) if scans and limits else ():
        if entry.isdecimal():
            # the name of a process is in parentheses and may contain parentheses
            fields = _read(f"{proc}/{entry}/stat").rpartition(b")")[2].split()
            if len(fields) > 3:
                following.setdefault(int(fields[1]), []).append(int(entry))  # its parent
                following.setdefault(int(fields[3]), []).append(int(entry))  # the leader of its session
    over: dict[int, int] = {}
    for leader, limit in limits.items():
        pids: set[int] = set()
        waiting = [leader]
        while waiting:
            pid = waiting.pop()
            if pid in pids:
                continue
            pids.add(pid)
            if scans:
                waiting += following.get(pid, ())
            else:
                with contextlib.suppress(OSError):  # it has ended
                    for thread in os.listdir(f"{proc}/{pid}/task"):
                        waiting += map(int, _read(f"{proc}/{pid}/task/{thread}/children").split())
        if sum(_amount(f"{proc}/{pid}/status", _RESIDENT) for pid in pids) > limit:
            # a process whose pages cannot be read counts with all of them
            used = sum(_amount(f"{proc}/{pid}/smaps_rollup", _PROPORTIONAL) or _amount(f"{proc}/{pid}/status", _RESIDENT) for pid in pids)
            if used > limit:
                over[leader] = used
    return over


def _amount(path: str, names: tuple[bytes, ...]) -> int:
    """Return the sum of these lines of a file in ``/proc``, in bytes."""
    return sum(int(line.split()[1]) << 10 for line in _read(path).splitlines() if line.startswith(names))


def _read(path: str) -> bytes:
    """Return the content of a file in ``/proc``; empty for a process that has ended, or without permission."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
