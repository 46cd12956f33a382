"""Lets the server of the test session fork the zygote, or the worker, that this process was started
to be; does nothing in any other process.
"""

import os
import re
import sys

SERVED = re.compile(r"torch_conformance\.worker\.process\.(zygote|entry)")
_CONNECT_SECONDS = 30.0


def served():
    """Return the module that this process was started to run, and its arguments; None where the
    server does not fork such a process.
    """
    words = sys.orig_argv
    place = words.index("-m") + 1 if "-m" in words else len(words)
    return (
        (words[place], words[place + 1 :])
        if place < len(words) and SERVED.fullmatch(words[place])
        else None
    )


def hand_over(address, module, arguments):
    """Return where there is no server, or it refuses; else end as the fork ends."""
    import json
    import signal
    import socket
    import time

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as the zygote does
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    until = time.monotonic() + _CONNECT_SECONDS
    while True:
        try:
            connection.connect(address)
            break
        except OSError:  # the server has only just been started
            if time.monotonic() > until:
                return
            time.sleep(0.02)
    control = int(arguments[0])
    request = {
        "module": module,
        "arguments": arguments,
        "environment": dict(os.environ),
        "folder": os.getcwd(),
    }
    socket.send_fds(connection, [json.dumps(request).encode()], [1, 2, control])
    pid = json.loads(connection.recv(1 << 16) or b"{}").get("forked")
    if not pid:
        connection.close()
        return
    # the runner asks a worker for its stack
    signal.signal(signal.SIGUSR1, lambda number, _: os.kill(pid, number))
    os.close(control)  # when the runner hangs up, and when the fork does, the other sees it
    while "stopped" in (told := json.loads(connection.recv(1 << 16) or b'{"status": 9}')):
        os.kill(os.getpid(), signal.SIGSTOP)  # the runner sees it, and continues this process
        os.kill(pid, signal.SIGCONT)
    status = told["status"]
    if os.WIFSIGNALED(status):
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL) if os.WTERMSIG(status) not in (
            signal.SIGKILL,
            signal.SIGSTOP,
        ) else None
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.WEXITSTATUS(status))


def run_the_next():
    """Execute the ``sitecustomize`` that Python would have found without this one: one that plants
    something in workers.
    """
    here = os.path.dirname(os.path.abspath(__file__))
    files = [
        os.path.join(folder, "sitecustomize.py")
        for folder in sys.path
        if os.path.abspath(folder) != here
    ]
    for file in [file for file in files if os.path.isfile(file)][:1]:
        import runpy

        runpy.run_path(file)


if os.environ.get("PRESTARTED_ZYGOTES") and (found := served()):
    hand_over(os.environ["PRESTARTED_ZYGOTES"], *found)
run_the_next()
