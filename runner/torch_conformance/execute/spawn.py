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
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from torch_conformance.machine import child_python
from torch_conformance.model.protocol import (
    MODULE,
    SIMULATED,
    TARGET,
    THREADS,
    THREADS_OF_LIBRARIES,
    WARM,
)
from torch_conformance.plan.schedule import Environment

_PACKAGES = {
    False: "torch_conformance.worker.process",
    True: "torch_conformance.tools.offline.worker",
}
"""The package of zygotes, and of workers that are new Pythons; of an environment with a target."""

_CLOSE_SECONDS = 6.0
"""How long a zygote may take to kill orphans of its workers; a zygote that is not ready has no
workers.
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
    environment: Environment, threads: int, scratch: Path, warm_folder: Path | None = None
) -> dict[str, str]:
    """Return the variables of a process that imports torch."""
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
    variables["TORCHINDUCTOR_CACHE_DIR"] = str(scratch / "warm")
    variables["TRITON_CACHE_DIR"] = str(scratch / "warm" / "triton")
    # torch keeps precompiled headers, and children their sockets, in the temporary folder: the
    # run's own, short and deleted
    temporary = scratch / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    variables["TMPDIR"] = str(temporary)
    # neither the variables of the runner nor those of a spec name the folder of warm files
    variables.update(
        {**environment.variables, WARM: None if warm_folder is None else str(warm_folder)}
    )
    return child_python.variables(
        {name: value for name, value in variables.items() if value is not None}, scratch
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

    def __init__(
        self,
        words: Collection[str],
        variables: Mapping[str, str],
        log: Path,
        module: str,
    ) -> None:
        self.log = log
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.process = _start(module, theirs.fileno(), variables, log, *sorted(words))
        theirs.close()
        self.is_ready = False
        self.warm_until = 0.0
        """The moment by which it must be ready."""
        self._kill_at: float | None = None

    def fork(self, number: int, control: int) -> bool:
        """Request a worker with a control socket; False when the zygote is gone."""
        try:
            socket.send_fds(self.control, [json.dumps({"fork": number}).encode()], [control])
        except OSError:
            return False
        return True

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
            self._kill_at = time.monotonic() + (_CLOSE_SECONDS if self.is_ready else 0)
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

    def __init__(self, threads: int, scratch: Path, warm_folder: Path | None = None) -> None:
        self._threads = threads
        self._scratch = scratch
        self._warm_folder = warm_folder
        self._count = 0

    def zygote(self, environment: Environment) -> ZygoteProcess:
        """Start a zygote; its temporary files lie in a folder of its own."""
        self._count += 1
        scratch = self._scratch / f"zygote-{self._count}"
        scratch.mkdir(parents=True, exist_ok=True)
        variables = self._variables(environment, scratch)
        words = {
            *environment.kinds,
            *([f"{MODULE}{environment.module}"] if environment.module else []),
        }
        return ZygoteProcess(
            words,
            variables,
            scratch / "zygote.log",
            f"{_PACKAGES[TARGET in environment.variables]}.zygote",
        )

    def worker(self, environment: Environment, control: int) -> "subprocess.Popen[bytes]":
        """Start a worker in a process of its own: slow, and never unsafe."""
        variables = self._variables(environment, self._scratch)
        return _start(
            f"{_PACKAGES[TARGET in environment.variables]}.entry",
            control,
            variables,
            self._scratch / "workers.log",
        )

    def _variables(self, environment: Environment, scratch: Path) -> dict[str, str]:
        if TARGET not in environment.variables:
            return environment_for(environment, self._threads, scratch, self._warm_folder)
        variables = environment_for(environment, self._threads, scratch)
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
                    SIMULATED: str(self._scratch / "simulated"),
                    "CUDA_VISIBLE_DEVICES": "",
                    "HIP_VISIBLE_DEVICES": "",
                    "TORCHINDUCTOR_CACHE_DIR": str(scratch / "inductor"),
                    "TORCHINDUCTOR_COMPILE_THREADS": "1",
                }
            )
        # Triton's cache and its dumps lie in the scratch folder; with line information the
        # instructions have the paths of this machine
        variables.update(
            TRITON_DISABLE_LINE_INFO="1",
            TRITON_CACHE_DIR=str(scratch / "triton"),
            TRITON_HOME=str(scratch),
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
