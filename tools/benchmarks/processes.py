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
from dataclasses import dataclass, field
from pathlib import Path

MEGABYTE = 1_000_000

_PR_SET_CHILD_SUBREAPER = 36
_TEMPLATE = b"torch_conformance.worker.process.zygote"
_LINGER_SECONDS = 5.0
"""How long what a command leaves behind has to end by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one run of some commands cost. Memory is in bytes, and 0 where it was not sampled."""

    wall: float
    cpu: float
    """User and system seconds of every process, those included that nobody waited for."""
    peak: int
    """The largest sum, over all processes at one moment, of proportional set sizes: a page that
    several share counts once.
    """
    first_peak: int
    """The most that the command's own process had resident, by the system's count."""
    template_own: int
    """The most that a template had resident of memory that is no file's; 0 when there was none."""
    template_peak: int
    """The most that a template had resident, mapped files and all."""


@dataclass
class _Peaks:
    total: int = 0
    first: int = 0
    template: int = 0
    template_own: int = 0


@dataclass
class Sampler:
    """Looks at all processes below this one again and again, from a thread; a context manager."""

    interval: float
    peaks: _Peaks = field(default_factory=_Peaks)

    def __enter__(self) -> "Sampler":
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(timeout=60)

    def _sample(self) -> None:
        while not self._over.wait(self.interval or None):
            self._look()

    def _look(self) -> None:
        parents = _parents()
        mine = os.getpid()
        total = 0
        for pid in _below(mine, parents):
            size = _kilobytes(pid, "smaps_rollup", b"Pss:")
            total += size
            if parents[pid] == mine:
                self.peaks.first = max(self.peaks.first, _kilobytes(pid, "status", b"VmHWM:"))
            elif parents.get(parents[pid]) == mine and _TEMPLATE in _command_line(pid):
                # a worker has its template's command line, and is one step further down
                self.peaks.template = max(self.peaks.template, _kilobytes(pid, "status", b"VmHWM:"))
                self.peaks.template_own = max(
                    self.peaks.template_own, _kilobytes(pid, "status", b"RssAnon:")
                )
        self.peaks.total = max(self.peaks.total, total)


def adopt_orphans() -> None:
    """Become the parent of what ended processes leave behind, so that its CPU seconds come to
    us.
    """
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def measure(
    commands: Sequence[Sequence[str]],
    *,
    cwd: Path,
    environment: Mapping[str, str],
    cores: frozenset[int],
    interval: float,
    log: Path,
) -> Cost:
    """Run commands one after the other on ``cores`` and return what they cost together; one that
    fails is no measurement.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with Sampler(interval) as sampler, log.open("wb") as stream:
        begin = time.perf_counter()
        for command in commands:
            done = subprocess.Popen(
                command,
                cwd=cwd,
                env=environment,
                stdout=stream,
                stderr=stream,
                preexec_fn=_pin(cores),
            ).wait(timeout=3600)
            if done != 0:
                words = log.read_text("utf-8", "replace")[-3000:]
                raise SystemExit(f"{' '.join(command)}\nended with {done}:\n{words}")
        wall = time.perf_counter() - begin
        _end_leftovers()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    peaks = sampler.peaks
    return Cost(
        wall=wall,
        cpu=after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        peak=peaks.total,
        first_peak=peaks.first,
        template_peak=peaks.template,
        template_own=peaks.template_own,
    )


def resident(command: Sequence[str], *, environment: Mapping[str, str]) -> tuple[int, int]:
    """Return what a process has resident that has printed a line and waits for its input to end:
    all, and what is no file's.
    """
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        return _kilobytes(process.pid, "status", b"VmHWM:"), _kilobytes(
            process.pid, "status", b"RssAnon:"
        )


def _pin(cores: frozenset[int]) -> "object":
    return lambda: os.sched_setaffinity(0, cores)


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
    found = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError, IndexError):
                # the command's name stands in parentheses and may hold anything
                found[int(name)] = int(
                    Path("/proc", name, "stat").read_bytes().rpartition(b")")[2].split()[1]
                )
    return found


def _below(root: int, parents: Mapping[int, int]) -> Iterator[int]:
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    waiting = list(children.get(root, []))
    while waiting:
        pid = waiting.pop()
        yield pid
        waiting.extend(children.get(pid, []))


def _kilobytes(pid: int, name: str, key: bytes) -> int:
    """Return a size that ``/proc`` gives in kB, in bytes; 0 for a process that has ended."""
    try:
        lines = Path("/proc", str(pid), name).read_bytes().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(key)), 0)


def _command_line(pid: int) -> bytes:
    try:
        return Path("/proc", str(pid), "cmdline").read_bytes()
    except OSError:
        return b""
