"""Entry of a worker: start it in a fork of the zygote or in a new process, then run one case.

A worker receives JSON messages on a socket.

- ``{"plan": FILE, "word": WORD, "gpus": NUMBERS}`` runs the case, after which the worker exits. It
  carries three descriptors: the case's
  pipe, its stdout, its stderr.
- ``{"warm": KINDS, "gpus": NUMBERS}`` warms the worker up for these kinds of devices. The reply is
  ``{"warm": KINDS, "problem": TEXT,
  "context": SECONDS}``: torch's exception, if there was one, and how long it took until the process
  had a context on its device.

``gpus`` are the GPUs that the worker sees, by number among those that its parent sees; all of them
where none is named.
"""

import contextlib
import ctypes
import faulthandler
import functools
import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import NoReturn

from torch_conformance.model import devices, protocol
from torch_conformance.worker.torch_compat import imports, torch_state

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
FAILED = 70
"""The exit code of a worker whose own code failed."""

_ORPHANED = 71

_seen: list[int] = []
"""The GPUs to which this process is pinned."""


def follow(parent: int) -> None:
    """Let the kernel kill this process when the parent exits; exit now if the parent has exited
    already.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(_ORPHANED)


def unfollow() -> None:
    """Undo ``follow``: this process survives its parent."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, 0)


def adopt_orphans() -> None:
    """Become the subreaper: orphans of any descendant become children of this process, in any
    session, so that it can kill them.
    """
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def begin(parent: int) -> None:
    """Start a session, exit with the parent, adopt orphans, and enable stack dumps by SIGUSR1."""
    if os.getsid(0) != os.getpid():
        os.setsid()
    follow(parent)
    adopt_orphans()
    with (
        contextlib.suppress(OSError),
        open("/proc/self/oom_score_adj", "w", encoding="ascii") as stream,
    ):
        # out of memory, the kernel kills the case and not the runner, which reports it
        stream.write("1000")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    faulthandler.enable()
    # the runner requests the stack of a hanging case before it kills the worker
    faulthandler.register(signal.SIGUSR1, all_threads=True)


Work = Callable[[str, int, str], None]
"""Runs the case of a plan file and sends what it observed."""


def serve(control: socket.socket, work: Work) -> None:
    """Warm up when asked, run a case, and exit the process; exit when the socket is closed too.

    This function does not return.
    """
    code, exit_now, worker = 0, os._exit, os.getpid()

    @functools.wraps(exit_now)
    def show_and_exit(status: int) -> NoReturn:
        """Print the Python stack, as a fatal signal does: code of the case exits this process."""
        if os.getpid() == worker:
            with contextlib.suppress(Exception):  # stderr may be closed
                faulthandler.dump_traceback()
        exit_now(status)

    os._exit = show_and_exit
    try:
        while True:
            data, descriptors, _, _ = socket.recv_fds(control, 1 << 16, 3)
            if not data:
                break
            message = json.loads(data)
            _see(message["gpus"])
            if "warm" in message:
                control.send(
                    json.dumps({"warm": message["warm"], **_warm(message["warm"])}).encode()
                )
                continue
            pipe, *outputs = descriptors
            _flush()
            for source, target in zip(outputs, (1, 2), strict=True):
                # stdout and stderr are the case's files
                os.dup2(source, target)
                os.close(source)
            control.close()
            work(message["plan"], pipe, message["word"])
            break
    except BaseException:
        # nothing may return into the zygote's loop; the exit code and stderr report it
        traceback.print_exc()
        code = FAILED
    finally:
        _flush()
        # no atexit handlers: torch's would wait for pools that belong to the zygote or to the case
        exit_now(code)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            # a case may have closed or replaced them
            stream.flush()


def _see(gpus: list[int]) -> None:
    """Hide all GPUs but these from this process, whose driver is not initialized yet; none named:
    it sees what its parent saw.
    """
    if gpus and gpus != _seen:
        import torch

        for build in devices.builds():
            if getattr(torch.version, build.version, None) is not None:
                os.environ[build.visible] = devices.visible_to(gpus, os.environ.get(build.visible))
        _seen[:] = gpus  # the name is sealed


def _warm(kinds: list[str]) -> dict[str, object]:
    """Make a context on each kind of device; return what the reply has of it: torch's exception,
    and the seconds that it took.
    """
    import torch

    begin, problem = time.monotonic(), ""
    try:
        for kind in kinds:
            torch.empty(1, device=kind)
    except Exception as error:
        # a driver's, of any class: the runner reports it, and the case meets it again
        problem = f"{type(error).__name__}: {error}"[:1000]
    context = time.monotonic() - begin
    # after a fork, the first use of torch's thread pool replaces it; concurrent first uses by
    # autograd's threads would abort
    imports.set_threads(int(os.environ.get(protocol.THREADS, "1")))
    return {"problem": problem, "context": context}


def work(plan_file: str, descriptor: int, word: str) -> None:
    """Run the case of a plan file.

    The word ``facts`` requests the facts of the machine instead; predicates to call may follow it.
    """
    word_of_facts, *questions = plan_file.split(" ")
    if word_of_facts == "facts":
        from torch_conformance.worker.process.channel import Channel
        from torch_conformance.worker.torch_compat import device_modules

        Channel(descriptor, word).observation(device_modules.collect(questions))
    else:
        from torch_conformance.worker.case import run_case

        run_case.run(plan_file, descriptor, word)


def work_until_end(make: Callable[[], Work]) -> None:
    """Run cases in a new process, whose arguments are a socket and its parent, by the work that
    ``make`` returns.
    """
    control, parent = map(int, sys.argv[1:])
    begin(parent)
    serve(socket.socket(fileno=control), make())


def main() -> None:
    """Run cases in a new process: ``python -m torch_conformance.worker.process.entry SOCKET
    PARENT``.
    """

    def prepared() -> Work:
        torch_state.begin_in_scratch()
        # as in a zygote, so that a case finds the same modules in every worker
        imports.import_inductor()
        return work

    work_until_end(prepared)


if __name__ == "__main__":
    main()
