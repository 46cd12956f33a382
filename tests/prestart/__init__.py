"""Zygotes that begin as forks of a process that has imported torch already, for tests in which torch is not what is tested.

Importing torch takes five seconds of a core, the first compile two more, and each run starts a zygote that does both. A run with the
variable ``SERVER`` starts its zygote as ever. In that process ``site/sitecustomize.py`` sends its arguments, environment and descriptors
to the server of this test session, waits, and ends as the fork ended. Everything else of the run is real: its process, its workers, its
signals. The server refuses an environment in which torch would behave differently (``server.py``); the zygote then imports torch itself.
A folder that plants faults or mutants (``PLANTERS``) is used by the fork too.

Three things differ: what torch computes from variables when it is imported, or first compiles, is the server's; /proc shows the server's
variables for the zygote and its workers; the zygote is no child of the run. Tests of any of these use ``environment`` and not
``prestarted``.
"""

import atexit
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

SERVER = "PRESTARTED_ZYGOTES"
"""The variable that names the server's socket."""

SITE = Path(__file__).with_name("site")

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1")
AS_THE_RUNNER_STARTS_IT = {**ONE_THREAD, "PYTORCH_NVML_BASED_CUDA_CHECK": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}


def variables(given: Mapping[str, str], common: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a run whose zygotes are prestarted by a server with the common variables."""
    address = _address(common)
    return {**given, SERVER: address, "PYTHONPATH": os.pathsep.join([str(SITE), given["PYTHONPATH"]])}


@functools.cache
def _folder() -> str:
    folder = tempfile.mkdtemp(prefix="pre-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


_servers: list["subprocess.Popen[bytes]"] = []


def _address(given: Mapping[str, str]) -> str:
    """Return the address of this process's server, which is started when the first run wants it."""
    address = os.path.join(_folder(), "socket")
    if not _servers or _servers[0].poll() is not None:
        _servers.clear()
        Path(address).unlink(missing_ok=True)
        environment = {
            **given,
            **AS_THE_RUNNER_STARTS_IT,
            "TMPDIR": _folder(),
            "TORCHINDUCTOR_CACHE_DIR": os.path.join(_folder(), "warm"),
        }
        command = [sys.executable, "-m", "tests.prestart.server", address, str(os.getpid())]
        with open(os.path.join(_folder(), "log"), "ab") as log:
            _servers.append(subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        atexit.register(_end)
    return address


def log() -> str:
    """Return what the server wrote: a line for each request, ``forked:`` or ``refused:``."""
    return Path(_folder(), "log").read_text("utf-8")


def _end() -> None:
    for process in _servers:
        process.kill()
        process.wait(timeout=60)
    _servers.clear()
