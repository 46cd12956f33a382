"""Starts zygotes and workers that are not forked: their environment, their descriptors, the
messages to a zygote.
"""

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from torch_conformance.machine import cache_dirs, child_python, scratch
from torch_conformance.machine.capabilities import has_device_nodes
from torch_conformance.model.protocol import (
    SIMULATED,
    TARGET,
    THREADS,
    THREADS_OF_LIBRARIES,
    WARM,
)
from torch_conformance.plan import schedule
from torch_conformance.plan.schedule import Environment

_PACKAGES = {
    False: "torch_conformance.worker.process",
    True: "torch_conformance.tools.offline.worker",
}
"""The package of zygotes, and of workers that are new Pythons; of an environment with a target."""

_CLOSE_SECONDS = 6.0
"""How long a zygote may take to kill orphans of its workers; a zygote that is not warm is killed
with its only worker, which looks at the machine.
"""

_OF_TRITON = ("TRITON_", "AMDGCN_", "MLIR_", "LLVM_")
"""The beginnings of variables that change what Triton compiles, or replace it."""

_OF_INDUCTOR = ("TORCHINDUCTOR_", "TORCH_COMPILE_", "TORCHDYNAMO_", "PYTORCH_TUNABLEOP_")
"""The beginnings of variables that change what Inductor generates.

Options of a spec are its ``config``.
"""

_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37

_END_SECONDS = 5.0
"""How long to wait for killed processes to end."""


def environment_for(
    environment: Environment, threads: int, folder: Path, warm_folder: Path | None = None
) -> dict[str, str]:
    """Return the variables of a process that imports torch; its scratch files go to ``folder``."""
    variables: dict[str, str | None] = dict(os.environ)
    # a parent that asks CUDA how many devices there are makes every fork useless: NVML answers
    # without a context
    variables["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    # torch's profiler writes lines for tracers between those of the case; this is above the level
    # of all of its lines
    variables.setdefault("KINETO_LOG_LEVEL", "6")
    # libraries that start their threads when they are imported would make every fork unsafe; a
    # worker sets its own number
    variables[THREADS] = variables.get("OMP_NUM_THREADS") or str(threads)
    variables.update(dict.fromkeys(THREADS_OF_LIBRARIES, "1"))
    variables["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    variables["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "warm")
    variables["TRITON_CACHE_DIR"] = str(folder / "warm" / "triton")
    # torch keeps precompiled headers, and children their sockets, in the temporary folder: the
    # run's own, short and deleted
    temporary = folder / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    variables["TMPDIR"] = str(temporary)
    # neither the variables of the runner nor those of a spec name the folder of warm files
    variables.update(
        {**environment.variables, WARM: None if warm_folder is None else str(warm_folder)}
    )
    return child_python.variables(
        {name: value for name, value in variables.items() if value is not None}, folder
    )


def _start(
    module: str, descriptor: int, variables: Mapping[str, str], log: Path, *arguments: str
) -> "subprocess.Popen[bytes]":
    """Start a module of this package with a descriptor, in a session of its own, so that it can be
    killed as a group.
    """
    command = child_python.command(module, str(descriptor), str(os.getpid()), *arguments)
    with log.open("ab") as stream:
        return subprocess.Popen(
            command,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            pass_fds=[descriptor],
            start_new_session=True,
        )


class ZygoteProcess:
    """The runner's end of a zygote."""

    def __init__(self, variables: Mapping[str, str], log: Path, module: str) -> None:
        self.log = log
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.process = _start(module, theirs.fileno(), variables, log)
        theirs.close()
        self.begun = time.time()
        """In seconds since the epoch."""
        self.is_ready = False
        """Whether it can fork: it has imported torch."""
        self.is_warm = False
        self.is_asked = False
        """Whether its warm-up was requested."""
        self.warm_until = 0.0
        """The moment by which it must be warm."""
        self._kill_at: float | None = None

    def fork(self, number: int, control: int) -> bool:
        """Request a worker with a control socket; False when the zygote is gone."""
        try:
            socket.send_fds(self.control, [json.dumps({"fork": number}).encode()], [control])
        except OSError:
            return False
        return True

    def warm_up(self, words: Collection[str], *, few: bool) -> None:
        """Request the warm-up (``worker/process/zygote.warm``); it forks nothing until its end."""
        self.is_asked = True
        with contextlib.suppress(OSError):  # ``receive`` returns None when the zygote is gone
            self.control.send(json.dumps({"warm": sorted(words), "few": few}).encode())

    def receive(self) -> Mapping[str, Any] | None:
        """Return the next message (``worker/process/zygote``); None when the zygote is gone."""
        try:
            data = self.control.recv(1 << 16)
        except OSError:
            return None
        return dict(json.loads(data)) if data else None

    def last_words(self) -> str:
        """Return the end of the zygote's output."""
        return self.log.read_bytes()[-4000:].decode("utf-8", "replace").strip()

    def wake(self) -> None:
        """Send SIGCONT if a worker has stopped it."""
        with contextlib.suppress(ChildProcessError):
            if os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOHANG) is not None:
                self.process.send_signal(signal.SIGCONT)

    def hang_up(self) -> None:
        """Close its socket: it kills the orphans of its workers, and ends."""
        if self._kill_at is None:
            self._kill_at = time.monotonic() + (_CLOSE_SECONDS if self.is_warm else 0)
            self.control.close()
            self.wake()

    def has_left(self) -> bool:
        """Whether it has ended since ``hang_up``; a zygote that does not end in time is killed,
        with its compilers.
        """
        if (
            self.process.poll() is None
            and self._kill_at is not None
            and time.monotonic() >= self._kill_at
        ):
            with contextlib.suppress(OSError):
                os.killpg(self.process.pid, signal.SIGKILL)
        return self.process.poll() is not None

    def close(self) -> None:
        """Hang up and wait for its end, for a limited time."""
        self.hang_up()
        until = time.monotonic() + 2 * _CLOSE_SECONDS
        while not self.has_left() and time.monotonic() < until:
            time.sleep(0.005)


class ProcessStarter:
    """Starts processes on this machine; their output goes to a log below the scratch folder.

    An environment with a target compiles for a GPU that the machine may lack, and executes nothing.
    Kernels are Python of a spec: each case runs in a fork of its own, and its cache is thrown away
    with it.
    """

    def __init__(self, threads: int, warm_folder: Path | None = None) -> None:
        self.threads = threads
        self.scratch = scratch.make()
        self._warm_folder = warm_folder
        self._count = 0
        self._early: list[ZygoteProcess] = []
        """Zygotes without variables of a case, which started before the cases were known."""

    @classmethod
    @contextlib.contextmanager
    def early(cls, jobs: str) -> Iterator[Self | None]:
        """Start the zygotes that most runs need, for a run of ``--jobs``: they import torch while
        the specs are read. What no executor has closed is closed at the end of this context.
        """
        starter = cls(schedule.threads(schedule.workers(jobs)), cache_dirs.cache_folder("warm"))
        try:
            # the CPU and a GPU have a zygote each, where there are cores to start both
            has_two = has_device_nodes() and schedule.zygotes(least=0) > 1
            starter._early = [starter.zygote(Environment()) for _ in range(1 + has_two)]
            yield starter
        finally:
            starter.close()

    def zygote(self, environment: Environment) -> ZygoteProcess:
        """Start a zygote, or return one that started early; its temporary files lie in a folder of
        its own.
        """
        if self._early and not environment.variables:
            return self._early.pop(0)
        self._count += 1
        folder = self.scratch.path / f"zygote-{self._count}"
        folder.mkdir(parents=True, exist_ok=True)
        return ZygoteProcess(
            self._variables(environment, folder),
            folder / "zygote.log",
            f"{_PACKAGES[TARGET in environment.variables]}.zygote",
        )

    def end_early_zygotes(self) -> None:
        """End those that no environment took."""
        for zygote in self._early:
            zygote.close()
        self._early.clear()

    def close(self) -> None:
        """Remove the scratch folder; a second call does nothing."""
        self.end_early_zygotes()
        if self.scratch.path.exists():
            self.scratch.close()

    def worker(self, environment: Environment, control: int) -> "subprocess.Popen[bytes]":
        """Start a worker in a process of its own: slow, and never unsafe."""
        variables = self._variables(environment, self.scratch.path)
        return _start(
            f"{_PACKAGES[TARGET in environment.variables]}.entry",
            control,
            variables,
            self.scratch.path / "workers.log",
        )

    def _variables(self, environment: Environment, folder: Path) -> dict[str, str]:
        if TARGET not in environment.variables:
            return environment_for(environment, self.threads, folder, self._warm_folder)
        variables = environment_for(environment, self.threads, folder)
        is_simulated = SIMULATED in environment.variables
        removed = (*_OF_TRITON, *_OF_INDUCTOR) if is_simulated else _OF_TRITON
        variables = {
            name: value for name, value in variables.items() if not name.startswith(removed)
        }
        if is_simulated:
            # one build of the C++ side for all targets of a run, and no device that torch could
            # find
            variables.update(
                {
                    SIMULATED: str(self.scratch.path / "simulated"),
                    "CUDA_VISIBLE_DEVICES": "",
                    "HIP_VISIBLE_DEVICES": "",
                    "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
                    "TORCHINDUCTOR_COMPILE_THREADS": "1",
                }
            )
        # Triton's cache and its dumps lie in the scratch folder; with line information the
        # instructions have the paths of this machine
        variables.update(
            TRITON_DISABLE_LINE_INFO="1",
            TRITON_CACHE_DIR=str(folder / "triton"),
            TRITON_HOME=str(folder),
        )
        return variables


class Orphans:
    """Orphans of workers: processes whose ancestors have ended become children of the runner, and
    ``close`` kills those.

    A zygote kills the orphans of its workers. This is for workers without a zygote, and for zygotes
    that were killed.
    """

    def __init__(self) -> None:
        self._before = set(children())
        self._library = ctypes.CDLL(None)
        was = ctypes.c_int(0)
        self._library.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(was))
        self._was = was.value
        self._library.prctl(_PR_SET_CHILD_SUBREAPER, 1)

    def close(self) -> None:
        """Kill the orphans; processes that the runner started itself have ended by now."""
        until = time.monotonic() + _END_SECONDS
        # children of a killed child are reparented to the runner next
        while (orphans := set(children()) - self._before) and time.monotonic() < until:
            for pid in orphans:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, os.WNOHANG)
            time.sleep(0.001)
        self._library.prctl(_PR_SET_CHILD_SUBREAPER, self._was)


def children() -> list[int]:
    """Return the child processes of all threads of this process; empty where the system has no
    list.
    """
    pids: list[int] = []
    for thread in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            pids += map(int, thread.read_text("ascii").split())
    return pids
