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
from collections.abc import Callable, Collection, Iterable, Mapping
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

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._shows_children = shows_children()
        self._scan_due = 0.0
        self.due = 0.0
        """When the next measurement is due."""

    def look(self, limits: Mapping[int, int]) -> dict[int, int]:
        """Return the memory use of workers above their limit, by the leader of their session; empty if no measurement is due."""
        begun = self._clock()
        if not limits or begun < self.due:
            return {}
        scans = begun >= self._scan_due or not self._shows_children
        found = above(limits) if scans else above_with_descendants(limits)
        ended = self._clock()
        if scans:
            self._scan_due = ended + SCAN_INTERVAL
        self.due = ended + max(INTERVAL, (ended - begun) / MOST_SHARE)
        return found


def above(limits: Mapping[int, int], proc: Path = _PROC) -> dict[int, int]:
    """Return the bytes of workers above their limit, by the leader of their session."""
    return _above(limits, _processes_of(limits, proc), proc)


def above_with_descendants(limits: Mapping[int, int], proc: Path = _PROC) -> dict[int, int]:
    """Return what ``above`` returns, but measure only the leaders and their descendants: no other process is read."""
    return _above(limits, {leader: _reached(leader, lambda pid: _children_of(pid, proc)) for leader in limits}, proc)


def shows_children(proc: Path = _PROC) -> bool:
    """Whether this kernel lists the children of a process; some are built without that."""
    return (proc / "self" / "task" / str(os.getpid()) / "children").exists()


def _children_of(pid: int, proc: Path) -> list[int]:
    with contextlib.suppress(OSError):  # it has ended
        return [
            int(child) for thread in os.listdir(f"{proc}/{pid}/task") for child in _read(f"{proc}/{pid}/task/{thread}/children").split()
        ]
    return []


def _above(limits: Mapping[int, int], processes: Mapping[int, Collection[int]], proc: Path) -> dict[int, int]:
    found: dict[int, int] = {}
    for leader, pids in processes.items():
        if sum(_resident(proc, pid) for pid in pids) > limits[leader]:
            used = sum(_proportional(proc, pid) for pid in pids)
            if used > limits[leader]:
                found[leader] = used
    return found


def _processes_of(leaders: Collection[int], proc: Path) -> dict[int, set[int]]:
    """Return the processes of each leader: its session, their descendants, and the sessions that these started."""
    members: dict[int, list[int]] = {}
    children: dict[int, list[int]] = {}
    if leaders:
        for entry in os.listdir(proc):
            if entry.isdecimal() and (found := _parent_and_session(proc, entry)) is not None:
                children.setdefault(found[0], []).append(int(entry))
                members.setdefault(found[1], []).append(int(entry))
    # a pid that leads no session has no members
    return {leader: _reached(leader, lambda pid: [*members.get(pid, ()), *children.get(pid, ())]) for leader in leaders}


def _reached(leader: int, following: Callable[[int], Iterable[int]]) -> set[int]:
    """Return a process and all that follow from it."""
    reached: set[int] = set()
    waiting = [leader]
    while waiting:
        pid = waiting.pop()
        if pid not in reached:
            reached.add(pid)
            waiting += following(pid)
    return reached


def _parent_and_session(proc: Path, pid: str) -> tuple[int, int] | None:
    # the name of a process is in parentheses and may contain parentheses
    fields = _read(f"{proc}/{pid}/stat").rpartition(b")")[2].split()
    return (int(fields[1]), int(fields[3])) if len(fields) > 3 else None


def _resident(proc: Path, pid: int) -> int:
    return sum(_amounts(_read(f"{proc}/{pid}/status"), _RESIDENT))


def _proportional(proc: Path, pid: int) -> int:
    """Return the PSS of a process; its RSS if the PSS cannot be read."""
    shares = _amounts(_read(f"{proc}/{pid}/smaps_rollup"), _PROPORTIONAL)
    return sum(shares) if shares else _resident(proc, pid)


def _amounts(text: bytes, names: Iterable[bytes]) -> list[int]:
    wanted = tuple(names)
    return [int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith(wanted)]


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
