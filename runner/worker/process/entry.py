"""The beginning of a worker's life, in a fork of the template or in a process of its own, and the cases that it is given.

It takes messages on a socket: ``{"plan": FILE, "last": true}`` with three descriptors, the case's pipe, its stdout and its stderr; with
``last`` the worker ends when the case does, else it says ``{"done": TEXT, "contaminated": TEXT, "word": WORD}``: what was odd afterwards,
what the case changed of what measures it, and the word that came with the case. ``{"warm": KINDS}`` is answered by ``{"warm": KINDS}``.
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
from typing import Any, NoReturn

from runner.worker.case import own_files

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
FAILED = 70
"""The exit code of a worker whose own code failed."""

_ORPHANED = 71


def follow(parent: int) -> None:
    """Be killed when the parent ends; end now when it has ended already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(_ORPHANED)


def follow_nobody() -> None:
    """Live on when the parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, 0)


def adopt_orphans() -> None:
    """Become the parent of what descendants leave behind, in whatever session, so that it can be counted and ended."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def begin(parent: int) -> None:
    """Leave the parent's session, die with the parent, and keep what descendants leave behind until then."""
    if os.getsid(0) != os.getpid():
        os.setsid()
    follow(parent)
    adopt_orphans()
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as stream:
        stream.write("1000")  # where memory ends, a case dies and the runner tells of it
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    faulthandler.enable()
    # the runner asks for the stack of a case that hangs before it kills it
    faulthandler.register(signal.SIGUSR1, all_threads=True)


def show_where_it_exits() -> None:
    """Let ``os._exit`` print the Python stack of the case that calls it in this process, as a fatal signal does."""
    exit_now, worker = os._exit, os.getpid()

    @functools.wraps(exit_now)
    def show_and_exit(status: int) -> NoReturn:
        if os.getpid() == worker:
            with contextlib.suppress(Exception):  # its stderr may be gone
                faulthandler.dump_traceback()
        exit_now(status)

    os._exit = show_and_exit


def serve(control: socket.socket) -> None:
    """Take cases until one is the last, or the runner hangs up; ends the process."""
    code = 0
    exit_now = os._exit
    show_where_it_exits()
    try:
        baseline: Any = None
        while True:
            data, descriptors, _, _ = socket.recv_fds(control, 1 << 16, 3)
            if not data:
                break
            message = json.loads(data)
            if "warm" in message:
                _warm(message["warm"])
                control.send(json.dumps({"warm": message["warm"]}).encode())
                continue
            pipe, *outputs = descriptors
            _print_to(*outputs)
            if message["last"]:
                control.close()
                _work(message["plan"], pipe, contextlib.ExitStack(), message["word"])
                break
            baseline = baseline or _baseline(message["plan"])
            with baseline.kept() as (undo, odd):
                _work(message["plan"], pipe, undo, message["word"])
            os.close(pipe)
            said = {"done": odd.text[:500], "contaminated": odd.contaminated, "word": message["word"]}
            control.send(json.dumps(said).encode())
    except BaseException:  # nothing may return into the template's loop; the exit code and stderr tell
        import traceback

        traceback.print_exc()
        code = FAILED
    finally:
        _flush()
        # no atexit handlers: torch's would wait for pools that belong to the template or to the case
        exit_now(code)


def _print_to(stdout: int, stderr: int) -> None:
    """Print into the case's own files."""
    _flush()
    for source, target in ((stdout, 1), (stderr, 2)):
        os.dup2(source, target)
        os.close(source)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # a case may have closed or replaced them
            stream.flush()


def _warm(kinds: list[str]) -> None:
    from runner.core import protocol
    from runner.worker.process import warming
    from runner.worker.torch_compat import math_library

    # after a fork torch replaces its pool of threads when it is first asked for; autograd's threads, asking at once, would abort
    math_library.set_threads(int(os.environ.get(protocol.THREADS, "1")))
    for kind in kinds:
        warming.compile_something(kind, with_gradients=True)


def _baseline(plan_file: str) -> Any:
    from runner.worker.process.reset import Baseline
    from runner.worker.toolchain import objects

    # what it wraps stays wrapped, and is nothing that a case has replaced
    with open(plan_file, "rb") as stream:
        objects.install(json.load(stream).get("objects"))
    return Baseline()


def _work(plan_file: str, descriptor: int, undo: contextlib.ExitStack, word: str) -> None:
    """Do what the plan file says. A plan named ``facts`` asks what the machine is."""
    from runner.core import protocol
    from runner.worker.case import case

    if plan_file == "facts":
        from runner.worker.torch_compat import facts

        os.write(descriptor, protocol.dumps({"observation": protocol.encode(facts.collect()), "word": word}))
    else:
        case.run(plan_file, descriptor, undo, word)


def main() -> None:
    """Take cases in a new process: ``python -m runner.worker.process.entry SOCKET PARENT``."""
    control, parent = map(int, sys.argv[1:])
    begin(parent)
    own_files.begin_in_scratch()
    _import()
    serve(socket.socket(fileno=control))


def _import() -> None:
    """Import what a template has imported: a case finds the same modules wherever it runs."""
    from runner.worker.torch_compat import imports

    imports.import_inductor()


if __name__ == "__main__":
    main()
