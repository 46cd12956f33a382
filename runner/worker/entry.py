"""The beginning of a worker's life, in a fork of the template or in a process of its own."""

import contextlib
import ctypes
import faulthandler
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
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


def begin(stdout: int, stderr: int, parent: int) -> None:
    """Leave the parent's session, die with the parent, and print into the case's own files."""
    if os.getsid(0) != os.getpid():
        os.setsid()
    follow(parent)
    for source, target in ((stdout, 1), (stderr, 2)):
        os.dup2(source, target)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    faulthandler.enable()
    # the runner asks for the stack of a case that hangs before it kills it
    faulthandler.register(signal.SIGUSR1, all_threads=True)


def work(plan_file: str, descriptor: int) -> None:
    """Do what the plan file says and end the process. A plan named ``facts`` asks what the machine is."""
    from runner import protocol
    from runner.worker import case

    code = 0
    try:
        if plan_file == "facts":
            from runner.worker import facts

            os.write(descriptor, protocol.dumps({"observation": protocol.encode(facts.collect())}))
        else:
            case.run(plan_file, descriptor)
    except BaseException:  # nothing may return into the template's loop; the exit code and stderr tell
        import traceback

        traceback.print_exc()
        code = FAILED
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):  # a case may have closed or replaced them
                stream.flush()
        # no atexit handlers: torch's would wait for pools that belong to the template or to the case
        os._exit(code)


def main() -> None:
    """Run one case in a new process: ``python -m runner.worker.entry PLAN PIPE STDOUT STDERR PARENT``."""
    plan_file, *numbers = sys.argv[1:]
    pipe, stdout, stderr, parent = map(int, numbers)
    begin(stdout, stderr, parent)
    work(plan_file, pipe)


if __name__ == "__main__":
    main()
