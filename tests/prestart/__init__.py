"""What the processes of one session of tests do once and not in each run: ``conftest`` calls
``begin``, and the processes that tests start inherit it by variables.

**A compiler that compiles nothing twice** (``compiler.py``). Most runs build the same header and
the same kernels: the first ``g++`` on PATH serves a command that another process of the session has
run already, and runs the real one for each other command. A test of the compiler itself names it by
its path.

**Zygotes that are forks of a process that has warmed up** (``server.py``), for tests in which torch
is not what is tested. Each run starts a zygote, which imports torch and compiles something small:
five seconds of a core, and four more. So does each worker of ``isolation: process``, and each new
process of a step. A run with the variable ``SERVER`` starts these as ever. In such a process
``site/sitecustomize.py`` sends its arguments, environment and descriptors to the server, waits, and
ends as the fork ended. Everything else of the run is real: its process, its
workers, its signals. The server refuses an environment in which torch would behave differently; the
zygote then imports torch itself, as in a run that plants faults or mutants.

Four things differ: what torch computes from variables when it is imported is the server's; each
zygote, and each worker that is a new process, is warmed up for the CPU, in the server's folders;
/proc shows the server's variables for them; they are no children of the run. Tests of any of these
use ``environment`` and not ``prestarted``.
"""

import atexit
import fcntl
import functools
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.prestart import compiler

SERVER = "PRESTARTED_ZYGOTES"
"""The variable that names the server's socket."""

UNREAD = "PRESTARTED_UNREAD"
"""The variable with names, separated by spaces, that torch does not read before its first case,
though they begin like its own.
"""

SITE = Path(__file__).with_name("site")

ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
)
AS_THE_RUNNER_STARTS_IT = {
    **ONE_THREAD,
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
}


def variables(given: Mapping[str, str], common: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a run whose zygotes are prestarted by a server with the common
    variables.
    """
    address = _address(common)
    return {
        **given,
        SERVER: address,
        "PYTHONPATH": os.pathsep.join([str(SITE), given["PYTHONPATH"]]),
    }


FOLDER = "PRESTARTED_FOLDER"
"""The variable with the folder of the server, which the processes of a test session share."""


def begin() -> Callable[[], None]:
    """Make what a session shares, where no process above has; return what removes it."""
    if FOLDER in os.environ:
        return lambda: None
    folder = os.environ[FOLDER] = tempfile.mkdtemp(prefix="pre-")
    torch = importlib.util.find_spec("torch")
    if torch is not None and torch.origin is not None:
        compiler.install(
            os.path.join(folder, "compiler"), [sys.base_prefix, str(Path(torch.origin).parent)]
        )
    return functools.partial(shutil.rmtree, folder, ignore_errors=True)


@functools.cache
def _folder() -> str:
    if FOLDER in os.environ:
        return os.environ[FOLDER]
    folder = tempfile.mkdtemp(prefix="pre-")  # outside of a test session
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


_servers: list["subprocess.Popen[bytes]"] = []


def _address(given: Mapping[str, str]) -> str:
    """Return the address of the session's server, which the first process that wants it starts, and
    which ends with that process.

    With xdist that process is a worker, and these end together, after the last test. A server holds
    a lock while it lives.
    """
    address = os.path.join(_folder(), "socket")
    alive = os.open(os.path.join(_folder(), "alive"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _start(address, given, alive)
    except BlockingIOError:
        # there is a server, or another process starts it: who asks it waits for it
        pass
    finally:
        os.close(alive)  # the lock is the server's now
    return address


def _start(address: str, given: Mapping[str, str], alive: int) -> None:
    Path(address).unlink(missing_ok=True)
    environment = {
        **given,
        **AS_THE_RUNNER_STARTS_IT,
        "TMPDIR": _folder(),
        "TORCHINDUCTOR_CACHE_DIR": os.path.join(_folder(), "warm"),
    }
    command = [sys.executable, "-m", "tests.prestart.server", address, str(os.getpid()), str(alive)]
    with open(os.path.join(_folder(), "log"), "ab") as log:
        options = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, "pass_fds": [alive]}
        _servers.append(subprocess.Popen(command, env=environment, **options))
    atexit.register(_end)


def log() -> str:
    """Return what the server wrote: a line for each request, ``forked:`` or ``refused:``."""
    return Path(_folder(), "log").read_text("utf-8")


def _end() -> None:
    for process in _servers:
        process.kill()
        process.wait(timeout=60)
    _servers.clear()
