"""The zygote: a single-threaded process with torch imported and, when that is requested, warmed up.

It forks workers, reaps them and reports their exit status.

When its imports are done, the zygote sends ``{"ready": PID}``. Then it receives JSON messages on a
socket. ``{"warm": WORDS, "few": BOOL}`` requests the warm-up; the reply is ``{"warm": PHASES}``,
with the seconds of each phase of its start. ``{"fork": 7}`` carries one descriptor, the worker's
end of its control socket. The reply is ``{"started": 7, "pid": PID}`` and later ``{"ended": 7,
"status": WAITSTATUS, "held": PIDS}``, or ``{"refused": 7, "why": TEXT}`` when a fork is not safe or
fails.
"""

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, Protocol

from torch_conformance.model import devices, protocol
from torch_conformance.worker.process import entry
from torch_conformance.worker.process.seal import Seal
from torch_conformance.worker.torch_compat import imports, torch_state

_END_SECONDS = 5.0
"""Time limit for killed processes to exit when the zygote exits.

A process in uninterruptible sleep can take longer.
"""

_ORPHANS_SECONDS = 1.0
"""Time limit for the orphans of an ended worker to exit.

After it the worker's end is reported in any case.
"""

_POLL_SECONDS = 0.002
"""Interval of the checks whether killed processes have exited.

The zygote serves forks in between.
"""

_FORK_SECONDS = 10.0
"""Time limit for retries of a fork that fails, for example with EAGAIN."""

_CORES_OF_PROBES = 4
"""With fewer cores the probes of vector instructions would delay the imports at the same time."""

_helpers: set[int] = set()
"""Children that work for all workers: they are not orphans of a worker."""


def kill(children: Iterable[int]) -> set[int]:
    """Kill children of this process and reap them; return those that have not exited yet."""
    alive = set()
    for pid in children:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                alive.add(pid)
    return alive


def _children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as stream:
            return [int(pid) for pid in stream.read().split()]
    except OSError:
        return []


Phases = dict[str, float]
"""The seconds of the phases in which a zygote started, by name."""


class _Clock:
    """Measures phases that follow each other."""

    def __init__(self) -> None:
        self._begin = time.perf_counter()
        self.phases: Phases = {}

    def end(self, name: str) -> None:
        """End a phase, with which the next one begins."""
        end = time.perf_counter()
        self.phases[name] = round(end - self._begin, 2)
        self._begin = end


def import_torch() -> Phases:
    """Import the modules of a compile.

    No thread, OpenMP region or device context is created here and in ``warm``: a fork of such a
    process can hang.
    """
    clock = _Clock()
    # imports leave little garbage; to look for it takes a sixth of their time, and later searches
    # would look through it all
    gc.disable()
    import torch

    from torch_conformance.worker.process import warming

    torch.set_num_threads(1)
    imports.import_inductor()
    warming.freeze()
    gc.enable()
    imports.settle_math()
    clock.end("imports of torch")
    return clock.phases


def warm(words: list[str], *, few: bool = False) -> Phases:
    """Do the work that torch does once per process, after ``import_torch``.

    The words are kinds of device and, behind ``protocol.MODULE``, a module that registers a
    compiler. ``few``: do only what nearly every case needs.
    """
    from torch_conformance.worker.process import seal, warming

    clock = _Clock()
    kinds = [word for word in words if not word.startswith(protocol.MODULE)]
    files = warming.WarmFiles(os.environ.get(protocol.WARM))
    if probes := files.probes():
        imports.share_probes(probes)
        if devices.CPU not in kinds and len(os.sched_getaffinity(0)) >= _CORES_OF_PROBES:
            # the first case for a GPU with C++ code would probe then, for 30 s, and others would
            # wait for its answer
            _helpers.add(_fork(imports.pick_vector_isa))
    if devices.CPU in kinds:
        has_idle_core = len(os.sched_getaffinity(0)) > 1
        builder = _fork(warming.build_header) if not files.restore() and has_idle_core else None
        is_whole = False
        with contextlib.suppress(Exception):
            # torch's own, without a working compiler: the cases that need one report it
            is_whole = bool(imports.pick_vector_isa())
        clock.end("probes of vector instructions")
        with imports.without_devices():
            is_whole &= not warming.compile_something(
                devices.CPU, with_gradients=not imports.is_built_for_gpus(), few=few
            )
        clock.end("first compiles")
        if builder is not None:
            os.waitpid(builder, 0)  # what it built is whole, or will never be
            clock.end("precompiled header")
        if is_whole:
            files.keep()
    if any(map(devices.is_accelerator, kinds)):
        # the part that needs the device is done by each worker before its first case
        with imports.without_devices():
            imports.import_for_gpus()
            warming.trace_something(few=few)
        clock.end("first traces for GPUs")
    from torch_conformance.worker.case import run_case  # noqa: F401 - for the forks: each would take 0.4 s to import it

    seal.prepare()
    for word in words:
        if word not in kinds:
            _import_where_safe(word.removeprefix(protocol.MODULE), seal.take_seal())
    gc.collect()
    warming.freeze()
    clock.end("modules of cases and compilers")
    return clock.phases


def _fork(work: Callable[[], object]) -> int:
    """Fork a child that does some work, without its output; return the pid of the child.

    The child exits with 0 if the work returned a false value (None, an empty text), else with 1.
    """
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            # a vendor's module may raise anything; what fails here fails again where it is needed
            imports.be_silent()
            os._exit(bool(work()))
        os._exit(1)
    return child


def _import_where_safe(module: str, seal: Seal) -> None:
    """Import the module of a compiler, where a fork of this process shows that it replaces nothing
    that is sealed and forks are safe after that; else each worker imports it.
    """

    def imported() -> str:
        os.setsid()
        importlib.import_module(module)
        seal.check()
        return danger()

    child = _fork(imported)
    if not imports.ends(child, end := os.pidfd_open(child)):
        imports.HANGING.add(module)
        os.killpg(child, signal.SIGKILL)
    os.close(end)
    if os.waitpid(child, 0)[1] == 0:
        importlib.import_module(module)
        seal.check()


def danger() -> str:
    """Return why a fork is not safe now; empty when it is safe."""
    from torch_conformance.worker.torch_compat import device_modules

    return danger_of_threads() or device_modules.danger_of_fork()


def danger_of_threads() -> str:
    """Return why a fork is not safe because of threads, native ones of libraries too; empty when
    there is one thread.
    """
    names = []
    for task in os.scandir("/proc/self/task"):
        with (
            contextlib.suppress(OSError),
            open(f"{task.path}/comm", encoding="utf-8", errors="replace") as stream,
        ):
            names.append(stream.read().strip())
    return (
        ""
        if len(names) == 1
        else f"the zygote has {len(names)} threads ({', '.join(sorted(names))})"
    )


class WarmUp(Protocol):
    """What a zygote does when its warm-up is requested."""

    def __call__(self, words: list[str], *, few: bool) -> Phases:
        """Warm this process up."""


def _nothing(words: list[str], *, few: bool) -> Phases:
    return {}


class Zygote:
    """The event loop of the zygote."""

    def __init__(
        self,
        control: socket.socket,
        work: entry.Work = entry.work,
        danger: Callable[[], str] = danger,
        warm: WarmUp = _nothing,
        phases: Phases | None = None,
    ) -> None:
        self._control = control
        self._work = work
        self._danger = danger
        self._warm = warm
        self._phases = phases or {}
        self._workers: dict[int, int] = {}
        self._ended: list[tuple[dict[str, Any], float]] = []
        """Reports of reaped workers that are not sent yet, and the deadline for orphans of each in
        ``time.monotonic`` seconds.
        """
        self._held: set[int] = set()
        """Orphans that were killed and have not exited within the limit."""
        self._wake, self._waker = os.pipe()
        os.set_blocking(self._waker, False)
        os.set_blocking(self._wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)

    def run(self) -> None:
        """Serve until the runner closes the socket."""
        self._send({"ready": os.getpid()})
        while True:
            ready, _, _ = select.select(
                [self._control.fileno(), self._wake], [], [], _POLL_SECONDS if self._ended else None
            )
            if self._wake in ready:
                os.read(self._wake, 4096)
            if self._wake in ready or self._ended:
                self._reap()
            if self._control.fileno() in ready and not self._serve():
                return

    def _serve(self) -> bool:
        data, descriptors, _, _ = socket.recv_fds(self._control, 1 << 16, 1)
        if not data:
            return False
        message = json.loads(data)
        if "warm" in message:
            before = signal.signal(signal.SIGCHLD, self._report_while_warming)
            self._report_while_warming()
            phases = self._warm(message["warm"], few=message["few"])
            signal.signal(signal.SIGCHLD, before)
            self._send({"warm": {**self._phases, **phases}})
        elif reason := self._danger():
            self._send({"refused": message["fork"], "why": reason})
        else:
            self._fork(message["fork"], descriptors[0])
        for descriptor in descriptors:
            os.close(descriptor)
        return True

    def _fork(self, number: int, control: int) -> None:
        parent, until = os.getpid(), time.monotonic() + _FORK_SECONDS
        while True:
            try:
                pid = os.fork()
                break
            except OSError as error:
                if time.monotonic() > until:
                    self._send({"refused": number, "why": f"fork failed: {error.strerror}"})
                    return
            time.sleep(0.1)
            self._reap()
        if pid == 0:
            try:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                # a worker must not write to the zygote's socket or pipe, nor hold them open
                self._control.close()
                os.close(self._wake)
                os.close(self._waker)
                entry.begin(parent)
                entry.serve(socket.socket(fileno=control), self._work)
            finally:  # a worker never returns into the loop, even after an error
                os._exit(entry.FAILED)
        self._workers[pid] = number
        self._send({"started": number, "pid": pid})

    def _reap(self) -> None:
        """Reap ended workers, and report those whose orphans have exited too.

        This method does not block.
        """
        while self._workers:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                break
            if report := self._reaped(ended.si_pid):
                self._ended.append((report, time.monotonic() + _ORPHANS_SECONDS))
        # report ended workers: all when no orphan is left, else those whose deadline has passed
        orphans = self._kill_orphans() if self._ended else set()
        now = time.monotonic()
        due = [worker for worker in self._ended if not orphans or now > worker[1]]
        if due and orphans:
            self._held |= orphans  # the report of a later worker does not wait for these
        for worker in due:
            self._ended.remove(worker)
            self._send({**worker[0], "held": sorted(orphans)})

    def _report_while_warming(self, *_: object) -> None:
        """Reap and report workers during a warm-up, whose children are not orphans; a
        signal calls it, in children of the warm-up too.
        """
        for pid in list(self._workers):
            with contextlib.suppress(ChildProcessError):
                if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                    self._send({**self._reaped(pid), "held": []})

    def _reaped(self, pid: int) -> dict[str, Any]:
        """Reap an ended child, and return the report of it; empty when it was no worker."""
        # kill its process group before it is reaped: until then its pid cannot be reused as another
        # group
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
        _, status, usage = os.wait4(pid, 0)
        _helpers.discard(pid)
        if pid not in self._workers:
            return {}
        cpu = usage.ru_utime + usage.ru_stime
        return {"ended": self._workers.pop(pid), "status": status, "cpu": cpu}

    def _kill_orphans(self) -> set[int]:
        """Kill the orphans of ended workers; return those that have not exited yet."""
        while True:
            children = set(_children())
            self._held &= children
            # a running worker is the subreaper of its own orphans, so these belong to workers that
            # have ended
            strangers = children - self._workers.keys() - self._held - _helpers
            alive = kill(strangers)
            if alive or not strangers:
                return alive
            # the children of the killed processes become children of this process now

    def _send(self, message: dict[str, Any]) -> None:
        self._control.send(json.dumps(message).encode())


def main() -> None:
    """``python -m torch_conformance.worker.process.zygote SOCKET PARENT``: import torch, then
    serve.
    """
    control = begin()
    phases = import_torch()
    serve(Zygote(control, warm=warm, phases=phases))


def begin() -> socket.socket:
    """Prepare a process that ``SOCKET PARENT`` of its command line make a zygote; return its socket
    to the runner.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the runner handles Ctrl-C
    control = socket.socket(fileno=int(sys.argv[1]))
    entry.follow(int(sys.argv[2]))
    entry.adopt_orphans()
    torch_state.begin_in_scratch()
    return control


def serve(zygote: Zygote) -> NoReturn:
    """Serve until the runner closes the socket, then end this process with its children."""
    # from here on the closed socket ends the loop, so that children are killed first
    entry.unfollow()
    try:
        zygote.run()
    finally:  # kill all children, and the orphans that become children of this process after that
        until = time.monotonic() + _END_SECONDS
        while (children := _children()) and time.monotonic() < until:
            kill(children)
            time.sleep(0.001)
    os._exit(0)


if __name__ == "__main__":
    main()
