"""What a command and every process below it cost: wall and CPU seconds, and the peak of their
memory, read from ``/proc``.

Who measures makes itself the parent of orphans (``adopt_orphans``): what a command leaves behind is
counted, waited for and ended.
"""

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MEGABYTE = 1_000_000

_PR_SET_CHILD_SUBREAPER = 36
_TEMPLATE = b"torch_conformance.worker.process.zygote"
_LINGER_SECONDS = 5.0
"""How long what a command leaves behind has to end by itself."""


@dataclass
class Cost:
    """What one run of some commands cost. Memory is in bytes, and 0 where it was not sampled."""

    wall: float = 0.0
    cpu: float = 0.0
    """User and system seconds of every process, those included that nobody waited for."""
    peak: int = 0
    """The largest sum, over all processes at one moment, of proportional set sizes: a page that
    several share counts once.
    """
    first_peak: int = 0
    """The most that the command's own process had resident, by the system's count."""
    template_own: int = 0
    """The most that a template had resident of memory that is not of a file; 0 when there was none.
    """


def adopt_orphans() -> None:
    """Become the parent of what ended processes leave behind, so that its CPU seconds come to
    us.
    """
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def measure(
    commands: Sequence[Sequence[str]],
    *,
    environment: Mapping[str, str],
    cores: frozenset[int],
    interval: float,
    log: Path,
) -> Cost:
    """Run commands one after the other on ``cores`` and return what they cost together; one that
    fails is not a measurement.
    """
    cost, before = Cost(), resource.getrusage(resource.RUSAGE_CHILDREN)
    with _sampling(cost, interval), log.open("wb") as stream:
        begin = time.perf_counter()
        for command in commands:
            process = subprocess.Popen(
                command,
                env=environment,
                stdout=stream,
                stderr=stream,
                preexec_fn=lambda: os.sched_setaffinity(0, cores),
            ).wait(timeout=3600)
            if process != 0:
                words = log.read_text("utf-8", "replace")[-3000:]
                raise SystemExit(f"{' '.join(command)}\nended with {process}:\n{words}")
        cost.wall = time.perf_counter() - begin
        _end_leftovers()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cost.cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cost


@contextlib.contextmanager
def _sampling(cost: Cost, interval: float) -> Iterator[None]:
    """Sample all descendant processes every ``interval`` seconds, from a thread."""
    over = threading.Event()

    def sample() -> None:
        while not over.wait(interval or None):
            _look(cost)

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=60)


def _look(cost: Cost) -> None:
    parents, mine, total = _parents(), os.getpid(), 0
    for pid in _below(mine, parents):
        total += kilobytes(pid, "smaps_rollup", b"Pss:")
        if parents[pid] == mine:
            cost.first_peak = max(cost.first_peak, kilobytes(pid, "status", b"VmHWM:"))
        elif parents.get(parents[pid]) == mine and _TEMPLATE in _read(pid, "cmdline"):
            # a worker has its template's command line, and is one step further down
            cost.template_own = max(cost.template_own, kilobytes(pid, "status", b"RssAnon:"))
    cost.peak = max(cost.peak, total)


def _end_leftovers() -> None:
    """Wait for what a command left behind, kill what does not end, and reap all of it: only then
    are its CPU seconds known.
    """
    limit = time.monotonic() + _LINGER_SECONDS
    while left := list(_below(os.getpid(), _parents())):
        if time.monotonic() > limit:
            for pid in left:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.02)


def _parents() -> dict[int, int]:
    """Return the parent of every process."""
    parents = {}
    for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):
        # the command's name is in parentheses and may hold anything
        if words := _read(pid, "stat").rpartition(b")")[2].split():
            parents[pid] = int(words[1])
    return parents


def _below(root: int, parents: Mapping[int, int]) -> Iterator[int]:
    for pid, parent in parents.items():
        if parent == root:
            yield pid
            yield from _below(pid, parents)


def kilobytes(pid: int, name: str, key: bytes) -> int:
    """Return a size that ``/proc`` gives in kB, in bytes; 0 for a process that has ended."""
    lines = _read(pid, name).splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(key)), 0)


def _read(pid: int, name: str) -> bytes:
    try:
        return Path("/proc", str(pid), name).read_bytes()
    except OSError:
        return b""
