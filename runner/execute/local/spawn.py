"""Starting templates and single workers: the environment, the descriptors, the messages."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.core.protocol import THREADS
from runner.plan.jobs import Environment
from runner.system import child_python

_CLOSE_SECONDS = 6.0
"""How long a template may take to kill what its workers left behind; one that is not ready has had none."""


def environment_for(wanted: Environment, threads: int, scratch: Path) -> dict[str, str]:
    """Return the variables of a process that imports torch."""
    variables = dict(os.environ)
    # a parent that asks CUDA how many devices there are makes every fork useless: NVML answers without a context
    variables["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    # libraries that start their threads when they are imported would make every fork unsafe; a worker sets its own number
    variables[THREADS] = variables.get("OMP_NUM_THREADS") or str(threads)
    variables.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"))
    variables["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    variables["TORCHINDUCTOR_CACHE_DIR"] = str(scratch / "warm")
    variables["TRITON_CACHE_DIR"] = str(scratch / "warm" / "triton")
    # torch keeps precompiled headers, and children their sockets, in the temporary folder: the run's own, short and deleted
    temporary = scratch / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    variables["TMPDIR"] = str(temporary)
    for name, value in wanted.variables.items():
        if value is None:
            variables.pop(name, None)
        else:
            variables[name] = value
    return child_python.variables(variables, scratch)


class TemplateProcess:
    """The runner's end of a template."""

    def __init__(self, wanted: Environment, threads: int, scratch: Path) -> None:
        scratch.mkdir(parents=True, exist_ok=True)
        self.log = scratch / "template.log"
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = child_python.command("runner.worker.process.zygote", str(theirs.fileno()), str(os.getpid()), *sorted(wanted.kinds))
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                env=environment_for(wanted, threads, scratch),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        theirs.close()
        self.control = mine
        self.is_ready = False
        self._kill_at: float | None = None

    def fork(self, number: int, control: int) -> bool:
        """Ask for a worker with a control socket; False when the template is gone."""
        try:
            socket.send_fds(self.control, [json.dumps({"fork": number}).encode()], [control])
        except OSError:
            return False
        return True

    def receive(self) -> Mapping[str, Any] | None:
        """Return the next message; None when the template is gone."""
        try:
            data = self.control.recv(1 << 16)
        except OSError:
            return None
        return dict(json.loads(data)) if data else None

    def last_words(self) -> str:
        """Return the end of what the template printed."""
        return self.log.read_bytes()[-4000:].decode("utf-8", "replace").strip()

    def wake(self) -> None:
        """Let it go on where a worker has stopped it."""
        with contextlib.suppress(ChildProcessError):
            if os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOHANG) is not None:
                self.process.send_signal(signal.SIGCONT)

    def hang_up(self) -> None:
        """Let the template kill what its workers left behind, and end."""
        if self._kill_at is None:
            self._kill_at = time.monotonic() + (_CLOSE_SECONDS if self.is_ready else 0)
            self.control.close()
            self.wake()

    def has_left(self) -> bool:
        """Whether it has ended since it was hung up on; one that does not end is killed with the compilers that it has started."""
        if self.process.poll() is None and self._kill_at is not None and time.monotonic() >= self._kill_at:
            with contextlib.suppress(OSError):
                os.killpg(self.process.pid, signal.SIGKILL)
        return self.process.poll() is not None

    def close(self) -> None:
        """Hang up and wait for its end; what the system holds even then is not waited for."""
        self.hang_up()
        until = time.monotonic() + 2 * _CLOSE_SECONDS
        while not self.has_left() and time.monotonic() < until:
            time.sleep(0.005)


def start_process(wanted: Environment, control: int, threads: int, scratch: Path) -> subprocess.Popen[bytes]:
    """Start a worker in a process of its own: slow, and never unsafe."""
    command = child_python.command("runner.worker.process.entry", str(control), str(os.getpid()))
    environment = environment_for(wanted, threads, scratch)
    with (scratch / "workers.log").open("ab") as log:
        # a session of its own from the first moment: it can be killed as a group before it has run a line
        return subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[control], start_new_session=True
        )
