"""``python -m tests.prestart.server ADDRESS PARENT LOCK``: warms up as a zygote does, then forks
one for each process that asks.
"""

import contextlib
import functools
import importlib
import json
import os
import runpy
import selectors
import shutil
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from tests.prestart import ONE_THREAD, SITE, UNREAD
from torch_conformance.model import devices

_OF_TORCH = tuple(
    "TORCH PYTORCH TRITON OMP_ MKL_ OPENBLAS_ NUMEXPR_ CUDA HIP ROC CXX CC KMP_ LD_ INDUCTOR".split()  # noqa: E501 - a word without a break
)
"""How variables begin that torch, or a library that it loads, reads while it is imported."""

_OWN = ("TORCH_CONFORMANCE", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
"""How those begin that the runner alone reads, or torch each time anew."""


def refusal(wanted: Mapping[str, str], here: Mapping[str, str]) -> str:
    """Return why torch would be another one under these variables; empty when it would not."""
    from torch_conformance.worker.torch_compat.torch_state import ALWAYS, CACHES

    # a fork sets its own threads, and each case these folders
    unread = {*wanted.get(UNREAD, "").split(), *ONE_THREAD, *ALWAYS, *CACHES}
    for name in sorted((wanted.keys() | here.keys()) - unread):
        if (
            name.startswith(_OF_TORCH)
            and not name.startswith(_OWN)
            and wanted.get(name) != here.get(name)
        ):
            return f"{name} is {wanted.get(name)!r}, and {here.get(name)!r} in the server"
    ours = set(_folders(here))
    # the first folder names the package, which is the server's too
    if _compiler(wanted) != _compiler(here):
        return f"g++ is {_compiler(wanted)}, and {_compiler(here)} in the server"
    strange = [
        folder
        for folder in _folders(wanted)[1:]
        if folder not in {*ours, str(SITE)} and not _is_of_case(folder)
    ]
    return f"{strange[0]} is on PYTHONPATH" if strange else ""


def _is_of_case(folder: str) -> bool:
    """Whether it has the modules of a case, which its new processes import too."""
    return Path(folder).name == "modules" and Path(folder).with_name("plan.json").is_file()


def _compiler(variables: Mapping[str, str]) -> str | None:
    return shutil.which("g++", path=variables.get("PATH", ""))


def _folders(variables: Mapping[str, str]) -> list[str]:
    return [
        os.path.abspath(entry)
        for entry in variables.get("PYTHONPATH", "").split(os.pathsep)
        if entry
    ]


class Server:
    """The loop of the server."""

    def __init__(self, address: str) -> None:
        self.danger = ""
        """Why no zygote can be forked: the forks, which have one thread each, could not see it."""
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(address)
        self._listener.listen(64)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._forks: dict[int, socket.socket] = {}
        """The connection of the process in whose place each zygote stands, by the zygote's pid."""
        self._wake, waker = os.pipe()
        os.set_blocking(waker, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        self._selector.register(self._wake, selectors.EVENT_READ, self._tell_stops)

    def run(self) -> NoReturn:
        while True:
            for key, _ in self._selector.select():
                key.data()

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        data, descriptors, _, _ = socket.recv_fds(connection, 1 << 20, 3)
        request = json.loads(data) if data else {}
        why = (
            (self.danger or refusal(request["environment"], os.environ))
            if len(descriptors) == 3
            else "no request"
        )
        if why:
            print("refused:", why, flush=True)
            with contextlib.suppress(OSError):
                connection.send(json.dumps({"refused": why}).encode())
            connection.close()
        elif pid := os.fork():
            print("forked:", pid, flush=True)
            connection.send(json.dumps({"forked": pid}).encode())
            self._forks[pid] = connection
            self._watch(pid, connection)
        else:
            become(request, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)

    def _tell_stops(self) -> None:
        """Tell which zygotes were stopped: the processes that they stand for stop too, and continue
        them when they are continued.
        """
        os.read(self._wake, 1 << 12)
        for pid, connection in self._forks.items():
            if os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG) is not None:
                with contextlib.suppress(OSError):
                    connection.send(json.dumps({"stopped": pid}).encode())

    def _watch(self, pid: int, connection: socket.socket) -> None:
        """Tell how the fork ended; kill it when the process that it stands for is killed."""
        ended = os.pidfd_open(pid)

        def kill() -> None:
            self._selector.unregister(connection)
            with contextlib.suppress(ProcessLookupError):  # it has no session yet
                os.killpg(pid, signal.SIGKILL)
            os.kill(pid, signal.SIGKILL)

        def tell() -> None:
            self._selector.unregister(ended)
            os.close(ended)
            with contextlib.suppress(KeyError):
                self._selector.unregister(connection)
            del self._forks[pid]
            _, status, usage = os.wait4(pid, 0)
            with contextlib.suppress(ProcessLookupError):  # what a worker left
                os.killpg(pid, signal.SIGKILL)
            print(
                f"ended: {pid} with {status}, after {usage.ru_utime + usage.ru_stime:.2f} s "
                "of a core",
                flush=True,
            )
            with contextlib.suppress(OSError):
                connection.send(json.dumps({"status": status}).encode())
            connection.close()

        # who asked sends nothing more: the connection can be read when it has ended
        self._selector.register(ended, selectors.EVENT_READ, tell)
        self._selector.register(connection, selectors.EVENT_READ, kill)


def become(request: Mapping[str, Any], descriptors: list[int]) -> NoReturn:
    """Be the zygote that the request describes."""
    try:
        arguments = [str(argument) for argument in request["arguments"]]
        _take(descriptors, int(arguments[0]))
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        before = set(_folders(os.environ))
        os.environ.clear()
        os.environ.update(request["environment"])
        sys.path[:] = [
            *_folders(os.environ),
            *(entry for entry in sys.path if entry and os.path.abspath(entry) not in before),
        ]
        os.chdir(request["folder"])
        tempfile.tempdir = None
        if (threads := os.environ.get("OMP_NUM_THREADS", "1")) != "1":
            importlib.import_module("torch").set_num_threads(int(threads))
        runpy.run_path(str(SITE / "sitecustomize.py"))  # and what it stands in front of
        sys.argv = [request["module"], arguments[0], str(os.getppid()), *arguments[2:]]
        module = importlib.import_module(request["module"])
        if hasattr(module, "warm"):
            module.import_torch = functools.partial(_imported_already, module, module.import_torch)
            module.warm = functools.partial(_warm_already, module, module.warm)
        module.main()
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def _imported_already(module: Any, import_torch: Callable[[], object]) -> dict[str, float]:
    """Replace the imports of a zygote: the server has imported torch."""
    module.import_torch = import_torch  # the seal takes another one for a replaced measurement
    return {}


def _warm_already(
    module: Any, warm: Callable[..., dict[str, float]], words: list[str], *, few: bool
) -> dict[str, float]:
    """Stand for the warm-up of a zygote: the server has done that for the CPU, and its forks
    inherit it. What is left is the part of other devices, and the modules of compilers.
    """
    module.warm = warm  # the seal takes another one for a replaced measurement
    left = [word for word in words if word != devices.CPU]
    if any(map(devices.is_accelerator, left)) or len(words) > 1:
        return warm(left, few=few)
    return {}


def _take(descriptors: list[int], control: int) -> None:
    """Have these descriptors where a zygote has them, and no others."""
    highest = os.sysconf("SC_OPEN_MAX") if os.sysconf("SC_OPEN_MAX") < 1 << 16 else 1 << 16
    high = [
        os.dup2(descriptor, highest - 1 - number) for number, descriptor in enumerate(descriptors)
    ]
    os.closerange(3, min(high))
    os.dup2(high[0], 1)
    os.dup2(high[1], 2)
    os.dup2(high[2], control)
    for descriptor in high:
        os.close(descriptor)
    os.set_inheritable(control, False)


def main() -> None:
    """Bind at once, so that who asks can wait; then do what a zygote does before it forks, and
    serve.
    """
    from torch_conformance.worker.process import entry, zygote

    entry.follow(int(sys.argv[2]))
    os.set_inheritable(int(sys.argv[3]), False)  # the lock, which is held until this process ends
    server = Server(sys.argv[1])
    zygote.import_torch()
    zygote.warm([devices.CPU])
    server.danger = zygote.danger()
    server.run()


if __name__ == "__main__":
    main()
