"""The agent of a node: runs jobs with the executor of its machine, and talks in messages on its
standard input and output.

It knows nothing of Ray. ``begin`` makes the executor and is answered by ``hello``: what files show
of the machine, where the verdicts come from, and the digest of this source. Each ``job`` is
answered by ``ended`` with the execution and its files; ``check`` by ``checked``: the state of the
node. The end of its input ends it, with all workers.
"""

import contextlib
import dataclasses
import os
import platform
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from torch_conformance.execute.engine import LocalExecutor
from torch_conformance.execute.executor_protocol import ExecutorSettings, Job
from torch_conformance.machine import capabilities
from torch_conformance.machine.capabilities import Machine
from torch_conformance.machine.installed_torch import installed_torch
from torch_conformance.machine.scratch import open_untrusted
from torch_conformance.model import codec
from torch_conformance.model.diagnostics import UsageError
from torch_conformance.model.protocol import MAX_MESSAGE, Json
from torch_conformance.plan import schedule
from torch_conformance.plan.schedule import Capacity, Environment
from torch_conformance.tools.fleet import messages
from torch_conformance.tools.fleet.messages import (
    IMAGE,
    Ended,
    Inlet,
    Message,
    as_text,
    is_name,
    pack,
    write,
)

_MOST_BYTES_OF_FILES = 256 << 20
_MOST_FILES = 2000
_NO_JOB = Job(name="", plan=None, folder="", environment=Environment(), timeout=0)


class Agent:
    """Serves one runner."""

    def __init__(self, inlet: int, outlet: int) -> None:
        self._inlet = Inlet(inlet)
        self._outlet = outlet
        self._folder = Path(tempfile.mkdtemp(prefix="torch-conformance-agent-"))
        self._executor: LocalExecutor | None = None
        self._capacity: Capacity | None = None
        self._memory_limit: int | None = None
        self._tokens: dict[str, str] = {}
        """The token of each job, by its name."""
        self._pending: list[Job] = []
        """Jobs that came while none runs."""
        self._is_running = False

    def serve(self) -> None:
        """Serve until the runner hangs up."""
        try:
            while True:
                self._take(None)
                jobs, self._pending = self._pending, []
                if jobs:
                    assert self._executor is not None
                    assert self._capacity is not None
                    self._is_running = True
                    for execution in self._executor.run(jobs, self._capacity):
                        token = self._tokens.pop(execution.job.name, "")
                        folder = (
                            self._folder / execution.job.folder if execution.job.folder else None
                        )
                        files = _files(folder, execution.files) if folder is not None else {}
                        # the job itself stays at the runner
                        fields = {
                            **dataclasses.asdict(dataclasses.replace(execution, job=_NO_JOB)),
                            "files": list(files),
                        }
                        del fields["job"]
                        self._send(
                            {"kind": "ended", "token": token, "execution": fields, "files": files}
                        )
                        if folder is not None:
                            shutil.rmtree(folder, ignore_errors=True)
                    self._is_running = False
        except Ended:
            pass
        finally:
            if self._executor is not None:
                self._executor.close()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _take(self, seconds: float | None) -> None:
        for message in self._inlet.messages(seconds):
            match message["kind"]:
                case "begin":
                    self._begin(message)
                case "job":
                    assert self._executor is not None, "a job before 'begin'"
                    job = Job.from_json(str(message["job"]))
                    if message.get("limited"):
                        job = dataclasses.replace(job, memory_limit=self._memory_limit)
                    self._tokens[job.name] = str(message["token"])
                    if self._is_running:
                        self._executor.again(job)
                    else:
                        self._pending.append(job)
                case "check":
                    self._send({"kind": "checked", **state(self._folder)})
                case "gpus" if self._capacity is not None:
                    gpus, memory = int(message["gpus"]), int(message["gpu_memory"])
                    self._capacity = dataclasses.replace(
                        self._capacity, gpus=gpus, gpu_memory=memory
                    )

    def _begin(self, message: Message) -> None:
        try:
            self._memory_limit = schedule.memory_limit(str(message["memory_limit"]))
            workers = schedule.workers(str(message["jobs"]))
        except UsageError as error:
            self._send({"kind": "refused", "why": str(error)})
            return
        machine = machine_of(message)
        self._capacity = schedule.capacity(workers, machine)
        settings = ExecutorSettings.of(
            self._folder, workers, float(message["timeout_factor"]), machine.torch_root
        )
        self._executor = LocalExecutor(settings)
        self._executor.on_interrupt(self._inlet.descriptor, lambda: self._take(0))
        about = {
            "machine": codec.encode(machine),
            "provenance": provenance(message),
            "source": messages.digest(),
        }
        self._send({"kind": "hello", **about, "jobs": workers})

    def _send(self, message: Message) -> None:
        write(self._outlet, pack(message))


def _files(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the content, as text, of the regular files among ``names``, which a worker left;
    without those too large, or too many.
    """
    files: dict[str, str] = {}
    left = _MOST_BYTES_OF_FILES
    for name in filter(is_name, list(names)[:_MOST_FILES]):
        with contextlib.suppress(OSError), open_untrusted(folder / name) as stream:
            size = stream.seek(0, os.SEEK_END)
            if size <= min(MAX_MESSAGE, left):
                stream.seek(0)
                files[name] = as_text(stream.read(size))
                left -= size
    return files


_QUERY_SECONDS = 20.0
_QUERY = (
    "nvidia-smi",
    "--query-gpu=serial,uuid,driver_version,memory.used",
    "--format=csv,noheader,nounits",
)
"""Names the GPUs without a context on them.

A serial number that a driver does not have is ``[N/A]``: the UUID is used then.
"""


def machine_of(message: Message) -> Machine:
    """Return what files show of this machine, with which of the packages that cases need are
    installed.
    """
    machine = capabilities.inspect_files(installed_torch())
    return dataclasses.replace(
        machine,
        packages={name: machine.has_package(name) for name in map(str, message["packages"])},
    )


def provenance(message: Message) -> dict[str, str]:
    """Return where the verdicts of this node come from: host, image, GPUs."""
    gpus = _gpus()
    facts = {
        "host": socket.gethostname(),
        "image": os.environ.get(IMAGE, "") or str(message.get("image", "")),
        "python": platform.python_version(),
        "gpu_serial": ", ".join(str(gpu["serial"]) for gpu in gpus),
        "driver": ", ".join(dict.fromkeys(str(gpu["driver"]) for gpu in gpus)),
    }
    return {name: value[:300] for name, value in facts.items() if value}


def state(folder: Path) -> dict[str, Json]:
    """Return what a health check compares: the clock, free space, the memory that is used of each
    GPU.
    """
    return {"clock": time.time(), "free": shutil.disk_usage(folder).free, "gpus": _gpus()}


def _gpus() -> list[dict[str, Json]]:
    """Return the GPUs that this process may use, as their driver's program names them; empty where
    there is none.
    """
    if shutil.which(_QUERY[0]) is None:
        return []
    try:
        done = subprocess.run(_QUERY, capture_output=True, timeout=_QUERY_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    gpus: list[dict[str, Json]] = []
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == 4:
            serial, uuid, driver, used = cells
            name = uuid if serial.startswith("[") or not serial else serial
            gpus.append(
                {
                    "serial": name,
                    "driver": driver,
                    "used": int(used) << 20 if used.isdecimal() else None,
                }
            )
    visible = [
        index.strip()
        for index in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        if index.strip()
    ]
    if "CUDA_VISIBLE_DEVICES" not in os.environ or not all(map(str.isdecimal, visible)):
        return gpus
    return [gpus[index] for index in map(int, visible) if index < len(gpus)]


def main() -> None:
    """Serve on standard input and output; what libraries print goes to standard error."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])  # Ray blocks some, and cases have the usual ones
    for number, usual in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGQUIT, signal.SIG_DFL),
        (signal.SIGTERM, signal.SIG_DFL),
    ):
        signal.signal(number, usual)
    inlet, outlet = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    Agent(inlet, outlet).serve()


if __name__ == "__main__":
    main()
