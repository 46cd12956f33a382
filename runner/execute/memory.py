"""Memory use of a worker's processes, including children that have left its session.

RSS is cheap to read, but counts shared pages in each process: sixteen forks of a process of 300 MiB have 4.8 GiB RSS and take
a few. So RSS is read first; PSS is read only for workers whose RSS is above their limit, because the kernel walks over
all its pages. A scan of all processes of a machine takes milliseconds: with many processes, there are fewer scans.
"""

import os
import time
from collections.abc import Mapping
from pathlib import Path

INTERVAL = 0.1
"""The minimum seconds between two measurements."""

MOST_SHARE = 0.05
"""The maximum share of time for measurements."""

_PROC = Path("/proc")
_RESIDENT = (b"RssAnon:", b"RssShmem:", b"VmSwap:")
"""Memory that only the process can free; the kernel can drop pages of files."""

_PROPORTIONAL = (b"Pss_Anon:", b"Pss_Shmem:", b"SwapPss:")


class MemoryWatch:
    """Measures the memory use of workers periodically."""

    def __init__(self) -> None:
        self.due = 0.0
        """When the next measurement is due."""

    def look(self, limits: Mapping[int, int]) -> dict[int, int]:
        """Return the memory use of workers above their limit, by the leader of their session; empty if no measurement is due."""
        begun = time.monotonic()
        if not limits or begun < self.due:
            return {}
        over = above(limits)
        ended = time.monotonic()
        self.due = ended + max(INTERVAL, (ended - begun) / MOST_SHARE)
        return over


def above(limits: Mapping[int, int], proc: Path = _PROC) -> dict[int, int]:
    """Return the bytes of workers above their limit, by the leader of their session.

    A worker's processes are its session, their descendants, and the sessions that these started.
    """
    following: dict[int, list[int]] = {}
    for entry in filter(str.isdecimal, os.listdir(proc)):
        # the name of a process is in parentheses and may contain parentheses
        fields = _read(f"{proc}/{entry}/stat").rpartition(b")")[2].split()
        for other in (fields[1], fields[3]) if len(fields) > 3 else ():  # its parent, and the leader of its session
            following.setdefault(int(other), []).append(int(entry))
    over: dict[int, int] = {}
    for leader, limit in limits.items():
        pids: set[int] = set()
        waiting = [leader]
        while waiting:
            if (pid := waiting.pop()) not in pids:
                pids.add(pid)
                waiting += following.get(pid, ())
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
        with open(path, "rb", buffering=0) as stream:
            return stream.read(1 << 16)
    except OSError:
        return b""
