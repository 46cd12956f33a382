"""The actor of a node: it runs jobs with the executor of its machine, as Ray calls its methods.

It imports nothing of Ray. Each method returns its answer, as JSON, and the files of a case, which
travel through the object store.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import TypeAlias

from torch_conformance.execute.engine import LocalExecutor
from torch_conformance.execute.executor_protocol import Execution, ExecutorSettings, Job
from torch_conformance.machine import capabilities, scratch
from torch_conformance.machine.installed_torch import facts_of_files, installed_torch
from torch_conformance.machine.scratch import open_untrusted
from torch_conformance.model import codec
from torch_conformance.model.protocol import MAX_MESSAGE, Json
from torch_conformance.plan import schedule
from torch_conformance.run.pipeline import informed

Answer: TypeAlias = tuple[Json, Mapping[str, bytes]]

IMAGE = "TORCH_CONFORMANCE_IMAGE"
"""The variable with the name of a node's image or virtual environment."""

_MOST_BYTES_OF_FILES = 256 << 20
_MOST_FILES = 2000
_END_SECONDS = 20.0


class Agent:
    """Serves one run."""

    def __init__(self) -> None:
        self._scratch = scratch.make()
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._futures: dict[str, Future[Answer]] = {}
        """The answers of the jobs that it has, by their names."""
        self._wake = os.eventfd(0, os.EFD_NONBLOCK)
        self._thread: threading.Thread | None = None

    async def hold(self) -> Answer:
        """Answer once the actor runs: no other run has the node then."""
        return None, {}

    async def begin(self, settings: Mapping[str, Json]) -> Answer:
        """Start the executor; return what files show of the machine, where the verdicts come from,
        and how many jobs run in parallel.
        """
        # cases see the variables of the node, and not what Ray added to them
        for name in [name for name in os.environ if name.startswith(("RAY_", "PYTHONBREAKPOINT"))]:
            del os.environ[name]
        self._memory_limit = schedule.memory_limit(str(settings["memory_limit"]))
        self._workers = schedule.workers(str(settings["jobs"]))
        machine = capabilities.inspect_files(installed_torch())
        self._machine = replace(
            machine,
            packages={name: machine.has_package(name) for name in map(str, settings["packages"])},
        )
        executor = LocalExecutor(
            ExecutorSettings.of(
                self._scratch.path,
                self._workers,
                float(settings["timeout_factor"]),
                machine.torch_root,
            )
        )
        self._thread = threading.Thread(target=self._work, args=(executor,), daemon=True)
        self._thread.start()
        provenance = {
            "host": socket.gethostname(),
            "image": os.environ.get(IMAGE, ""),
            "gpu_serial": ", ".join(_gpus()),
        }
        return {
            "machine": codec.encode(self._machine),
            "provenance": {name: value for name, value in provenance.items() if value},
            "files": facts_of_files(installed_torch()),
            "jobs": self._workers,
        }, {}

    async def run(self, text: str) -> Answer:
        """Run a job; return the fields of its execution without the job, and its files."""
        job = Job.from_json(text)
        if job.memory_limit is not None:
            job = replace(job, memory_limit=self._memory_limit)
        if job.name not in self._futures:  # Ray repeats a call that the network lost
            self._futures[job.name] = Future()
            self._give(job)
        return await asyncio.wrap_future(self._futures[job.name])

    async def state(self) -> Answer:
        """Return what a health check compares: the clock, free space, the used memory of each GPU
        in bytes.
        """
        free = shutil.disk_usage(self._scratch.path).free
        return {"clock": time.time(), "free": free, "gpus": _gpus()}, {}

    async def end(self) -> Answer:
        """End all workers, and remove all files."""
        if self._thread is not None:
            self._give(None)
            await asyncio.to_thread(self._thread.join, _END_SECONDS)
        self._scratch.close()
        return None, {}

    def _give(self, job: Job | None) -> None:
        self._jobs.put(job)
        os.eventfd_write(self._wake, 1)

    def _work(self, executor: LocalExecutor) -> None:
        """Run jobs until the end."""
        signal.pthread_sigmask(signal.SIG_SETMASK, [])  # Ray blocks some, and children inherit it

        def take() -> None:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._wake)
            while not self._jobs.empty():
                executor.enqueue(self._jobs.get() or sys.exit())

        executor.on_interrupt(self._wake, take)
        try:
            while job := self._jobs.get():
                for execution in executor.run(
                    [job], schedule.capacity(self._workers, self._machine)
                ):
                    self._futures.pop(execution.job.name).set_result(self._answer(execution))
                    if execution.job.plan is None:
                        self._machine = informed(self._machine, execution)
        except Exception as error:
            for future in list(self._futures.values()):
                future.set_exception(error)
            raise
        finally:
            executor.close()

    def _answer(self, execution: Execution) -> Answer:
        fields = codec.encode(execution)
        del fields["job"]
        if not execution.job.folder:
            return fields, {}
        folder = self._scratch.path / execution.job.folder
        files = _files(folder, execution)
        shutil.rmtree(folder, ignore_errors=True)
        return {**fields, "files": list(files)}, files


def _files(folder: Path, execution: Execution) -> dict[str, bytes]:
    """Return the regular files that a worker left; without those too large, or too many."""
    files: dict[str, bytes] = {}
    bytes_left = _MOST_BYTES_OF_FILES
    for name in execution.files[:_MOST_FILES]:
        with contextlib.suppress(OSError), open_untrusted(folder / name) as stream:
            size = stream.seek(0, os.SEEK_END)
            if size <= min(MAX_MESSAGE, bytes_left):
                stream.seek(0)
                files[name] = stream.read(size)
                bytes_left -= size
    return files


_QUERY_SECONDS = 20.0
_QUERY = (
    "nvidia-smi",
    "--query-gpu=serial,uuid,memory.used",
    "--format=csv,noheader,nounits",
)
"""Names the GPUs without a context on them.

A serial number that a driver does not have is ``[N/A]``: the UUID is used then.
"""


def _gpus() -> dict[str, int | None]:
    """Return the used bytes of each GPU that this process may use, by its serial number; empty
    where the driver's program names none.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    command = _QUERY if visible is None else (*_QUERY, f"--id={visible}")
    try:
        process = subprocess.run(
            command, capture_output=True, timeout=_QUERY_SECONDS, check=True, text=True
        )
    except (OSError, subprocess.SubprocessError, UnicodeError):
        return {}
    gpus: dict[str, int | None] = {}
    for line in process.stdout.splitlines():
        serial, uuid, used = map(str.strip, line.split(","))
        name = uuid if serial.startswith("[") or not serial else serial
        gpus[name] = int(used) << 20 if used.isdecimal() else None
    return gpus
