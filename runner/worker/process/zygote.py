"""The template: a process with torch warm and one thread that forks workers, reaps them and says how they ended.

It takes messages on a socket, each with the worker's end of a socket on which that is given its cases.
``{"fork": 7}`` is answered by ``{"started": 7, "pid": PID}`` and later ``{"ended": 7, "status": WAITSTATUS}``, or at
once by ``{"refused": 7, "why": TEXT}`` when a fork would not be safe.
"""

import contextlib
import json
import os
import select
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from runner.core import devices, protocol
from runner.worker.case import own_files
from runner.worker.process import entry

_END_SECONDS = 5.0
"""How long what was killed may take to end when the template itself ends; a process that the system holds is not waited for."""

_ORPHANS_SECONDS = 1.0
"""How long what an ended worker left behind may take to end before the worker's own end is reported all the same."""

_POLL_SECONDS = 0.002
"""How often killed processes are looked for; meanwhile the template forks."""

_FORK_SECONDS = 10.0
"""How long the system may have no process for us."""


def end_children() -> None:
    """Kill our children, and those that they leave behind, who come to us next."""
    until = time.monotonic() + _END_SECONDS
    while (children := _children()) and time.monotonic() < until:
        kill(children)
        time.sleep(0.001)


def kill(children: Iterable[int]) -> set[int]:
    """Kill processes that are our children, and return those that have not ended yet."""
    left = set()
    for pid in children:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                left.add(pid)
    return left


def _children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as stream:
            return [int(pid) for pid in stream.read().split()]
    except OSError:
        return []


def warm(kinds: list[str]) -> float:
    """Import torch and do what every first compile of a process does once; return the seconds it took.

    Builds nothing and touches no device: a fork of a process with threads, an OpenMP region or a CUDA context can hang.
    """
    begin = time.perf_counter()
    import torch

    from runner.worker.process import warming
    from runner.worker.torch_compat import imports, math_library

    torch.set_num_threads(1)
    imports.import_inductor()
    math_library.settle_math()
    import runner.worker.case.case
    import runner.worker.case.session  # noqa: F401 - imported for its effect: a fork inherits it

    if devices.CPU in kinds:
        imports.pick_vector_isa()
        with imports.without_devices(), _served_to_itself():
            warming.compile_something(devices.CPU, with_gradients=not imports.is_built_for_gpus())
    if devices.any_accelerator(kinds):
        # what needs the device, each worker does before it has a case
        with imports.without_devices():
            imports.import_for_gpus()
            warming.trace_something()
    warming.freeze()
    return time.perf_counter() - begin


@contextlib.contextmanager
def _served_to_itself() -> Iterator[None]:
    """Let what the template builds for nobody but itself, and torch's precompiled header, come from where an earlier template left it."""
    from runner.worker.toolchain import objects

    folder = os.environ.get(protocol.KEPT)
    objects.install(os.path.join(folder, protocol.WARM) if folder else None, own=[tempfile.gettempdir()])
    try:
        yield
    finally:
        objects.install(None)


def danger() -> str:
    """Return why a fork would not be safe now; empty when it is."""
    from runner.worker.torch_compat import devices as of_torch

    threads = _threads()
    if len(threads) != 1:
        return f"the template has {len(threads)} threads ({', '.join(threads)})"
    if used := of_torch.used():
        return f"the template has a {used} context"
    if refused := of_torch.refused_to_forks():
        return f"the template cannot pass {refused} on to a fork"
    return ""


def _threads() -> list[str]:
    """Return the names of this process's threads; those of libraries are known to the system alone."""
    names = []
    for entry_ in os.scandir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"{entry_.path}/comm", encoding="utf-8", errors="replace") as stream:
            names.append(stream.read().strip())
    return sorted(names)


@dataclass(frozen=True)
class Ended:
    """A worker that has ended, and whose end is not reported yet."""

    number: int
    status: int
    until: float
    """The moment from which its orphans are not waited for."""


class Template:
    """The loop of the template."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._workers: dict[int, int] = {}
        self._ended: list[Ended] = []
        self._held: set[int] = set()
        """Processes that were killed and that the system holds."""
        self._wake, self._waker = os.pipe()
        os.set_blocking(self._waker, False)
        os.set_blocking(self._wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)

    def run(self) -> None:
        """Serve until the runner hangs up."""
        self._send({"ready": os.getpid()})
        while True:
            ready, _, _ = select.select([self._control.fileno(), self._wake], [], [], _POLL_SECONDS if self._ended else None)
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
        reason = danger()
        if reason:
            self._send({"refused": message["fork"], "why": reason})
        else:
            self._fork(message["fork"], descriptors[0])
        for descriptor in descriptors:
            os.close(descriptor)
        return True

    def _fork(self, number: int, control: int) -> None:
        parent = os.getpid()
        try:
            pid = self._new_process()
        except OSError as error:
            self._send({"refused": number, "why": f"the system has no process for a fork: {error.strerror}"})
            return
        if pid == 0:
            try:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                # nothing by which a worker could speak for the template, or keep it from hearing of an end
                self._control.close()
                os.close(self._wake)
                os.close(self._waker)
                entry.begin(parent)
                entry.serve(socket.socket(fileno=control))
            finally:  # whatever goes wrong, a worker never becomes a second template
                os._exit(entry.FAILED)
        self._workers[pid] = number
        self._send({"started": number, "pid": pid})

    def _new_process(self) -> int:
        """Fork; where the system has no process for us, wait for workers to end."""
        until = time.monotonic() + _FORK_SECONDS
        while True:
            try:
                return os.fork()
            except OSError:
                if time.monotonic() > until:
                    raise
            time.sleep(0.1)
            self._reap()

    def _reap(self) -> None:
        """Take the ends of workers, and report them when what they left behind has ended too. Nothing here waits."""
        while self._workers:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                break
            # its children go with it, and while it is not reaped its number can be nobody else's group
            with contextlib.suppress(OSError):
                os.killpg(ended.si_pid, signal.SIGKILL)
            pid, status = os.waitpid(ended.si_pid, 0)
            if pid in self._workers:
                self._ended.append(Ended(self._workers.pop(pid), status, time.monotonic() + _ORPHANS_SECONDS))
        self._report()

    def _report(self) -> None:
        """Report ended workers: all when nothing is left of any, else those whose orphans the system has held for long enough."""
        orphans = self._kill_orphans() if self._ended else set()
        now = time.monotonic()
        due = [one for one in self._ended if not orphans or now > one.until]
        if due and orphans:
            self._held |= orphans  # no later worker is kept waiting for them
        for one in due:
            self._ended.remove(one)
            self._send({"ended": one.number, "status": one.status, "held": sorted(orphans)})

    def _kill_orphans(self) -> set[int]:
        """Kill what ended workers left behind, and return what of it has not ended yet."""
        while True:
            children = set(_children())
            self._held &= children
            # a worker that goes on keeps its orphans: what has come to us was left behind by one that ended
            strangers = children - self._workers.keys() - self._held
            left = kill(strangers)
            if left or not strangers:
                return left
            # the children of what has ended come to us next

    def _send(self, message: dict[str, Any]) -> None:
        self._control.send(json.dumps(message).encode())


def main() -> None:
    """``python -m runner.worker.process.zygote SOCKET PARENT KIND...``: warm up, then serve."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the runner's to handle
    control = socket.socket(fileno=int(sys.argv[1]))
    entry.follow(int(sys.argv[2]))
    entry.adopt_orphans()
    own_files.begin_in_scratch()
    warm(sys.argv[3:])
    entry.follow_nobody()  # from here on it sees that the runner hung up, and may have something to clean up
    try:
        Template(control).run()
    finally:
        end_children()
    os._exit(0)


if __name__ == "__main__":
    main()
