"""``python -m tests.prestart.server ADDRESS PARENT``: imports torch and warms up once, then forks a zygote for each that asks for one."""

import contextlib
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from tests.prestart import SITE

_OF_TORCH = (
    "TORCH",
    "PYTORCH",
    "TRITON",
    "OMP_",
    "MKL_",
    "OPENBLAS_",
    "NUMEXPR_",
    "CUDA",
    "HIP",
    "ROC",
    "CXX",
    "CC",
    "KMP_",
    "LD_",
    "INDUCTOR",
)
"""How variables begin that torch, or a library that it loads, reads while it is imported."""

_OWN = ("TORCH_CONFORMANCE", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
"""How those begin that the runner alone reads, or torch each time anew."""


PLANTERS = tuple(str(SITE.parents[1] / name / "site") for name in ("faults", "mutants"))
"""Folders whose ``sitecustomize`` plants something before a worker's case, which needs no other torch."""


def refusal(wanted: Mapping[str, str], here: Mapping[str, str]) -> str:
    """Return why torch would be another one under these variables; empty when it would not."""
    for name in sorted(wanted.keys() | here.keys()):
        if name.startswith(_OF_TORCH) and not name.startswith(_OWN) and wanted.get(name) != here.get(name):
            return f"{name} is {wanted.get(name)!r}, and {here.get(name)!r} in the server"
    ours = set(_folders(here))
    # the first folder names the package, which is the server's too
    strange = [folder for folder in _folders(wanted)[1:] if folder not in {*ours, str(SITE), *PLANTERS}]
    return f"{strange[0]} is on PYTHONPATH" if strange else ""


def _folders(variables: Mapping[str, str]) -> list[str]:
    return [os.path.abspath(entry) for entry in variables.get("PYTHONPATH", "").split(os.pathsep) if entry]


@dataclass
class Fork:
    """A zygote, and the connection of the process in whose place it stands."""

    pid: int
    connection: socket.socket


class Server:
    """The loop of the server."""

    def __init__(self, address: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(address)
        self._listener.listen(64)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def run(self) -> NoReturn:
        while True:
            for key, _ in self._selector.select():
                key.data()

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        data, descriptors, _, _ = socket.recv_fds(connection, 1 << 20, 3)
        request = json.loads(data) if data else {}
        why = refusal(request["environment"], os.environ) if len(descriptors) == 3 else "no request"
        if why:
            print("refused:", why, flush=True)
            with contextlib.suppress(OSError):
                connection.send(json.dumps({"refused": why}).encode())
            connection.close()
        elif pid := os.fork():
            print("forked:", pid, flush=True)
            connection.send(json.dumps({"forked": pid}).encode())
            self._watch(Fork(pid, connection))
        else:
            become(request, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)

    def _watch(self, fork: Fork) -> None:
        """Tell how the fork ended; kill it when the process that it stands for is killed."""
        ended = os.pidfd_open(fork.pid)

        def kill() -> None:
            self._selector.unregister(fork.connection)
            os.kill(fork.pid, signal.SIGKILL)

        def tell() -> None:
            self._selector.unregister(ended)
            os.close(ended)
            with contextlib.suppress(KeyError):
                self._selector.unregister(fork.connection)
            _, status, usage = os.wait4(fork.pid, 0)
            print(f"ended: {fork.pid} with {status}, after {usage.ru_utime + usage.ru_stime:.2f} s of a core", flush=True)
            with contextlib.suppress(OSError):
                fork.connection.send(json.dumps({"status": status}).encode())
            fork.connection.close()

        # who asked sends nothing more: the connection can be read when it has ended
        self._selector.register(ended, selectors.EVENT_READ, tell)
        self._selector.register(fork.connection, selectors.EVENT_READ, kill)


def become(request: Mapping[str, Any], descriptors: list[int]) -> NoReturn:
    """Be the zygote that the request describes."""
    try:
        arguments = [str(argument) for argument in request["arguments"]]
        _take(descriptors, int(arguments[0]))
        os.setsid()
        signal.set_wakeup_fd(-1)
        before = set(_folders(os.environ))
        os.environ.clear()
        os.environ.update(request["environment"])
        sys.path[:] = [*_folders(os.environ), *(entry for entry in sys.path if entry and os.path.abspath(entry) not in before)]
        os.chdir(request["folder"])
        tempfile.tempdir = None
        runpy.run_path(str(SITE / "sitecustomize.py"))  # and what it stands in front of
        sys.argv = [request["module"], arguments[0], str(os.getppid()), *arguments[2:]]
        importlib.import_module(request["module"]).main()
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def _take(descriptors: list[int], control: int) -> None:
    """Have these descriptors where a zygote has them, and no others."""
    highest = os.sysconf("SC_OPEN_MAX") if os.sysconf("SC_OPEN_MAX") < 1 << 16 else 1 << 16
    high = [os.dup2(descriptor, highest - 1 - number) for number, descriptor in enumerate(descriptors)]
    os.closerange(3, min(high))
    os.dup2(high[0], 1)
    os.dup2(high[1], 2)
    os.dup2(high[2], control)
    for descriptor in high:
        os.close(descriptor)
    os.set_inheritable(control, False)


def main() -> None:
    """Bind at once, so that who asks can wait; then import what a zygote imports, warm up, and serve."""
    from runner.worker.process import entry

    entry.follow(int(sys.argv[2]))
    server = Server(sys.argv[1])
    import torch

    from runner.worker.process import warming
    from runner.worker.torch_compat import imports

    torch.set_num_threads(1)
    imports.import_inductor()
    # the warm-up of each fork then takes a quarter of the time; where it fails, that of the fork says why
    with imports.without_devices():
        warming.compile_something("cpu", with_gradients=not imports.is_built_for_gpus())
    # a fork imports what runs cases itself: something that plants faults is called then
    assert "runner.worker.case.case" not in sys.modules
    warming.freeze()
    server.run()


if __name__ == "__main__":
    main()
