"""The agent of a node: runs jobs with the executors of its machine, and talks in frames on its standard input and output.

It knows nothing of Ray. ``begin`` makes the executor and is answered by ``hello``: what files show of the machine, where the verdicts
come from, and the digest of this source. Each ``job`` is answered by ``ended`` with the execution and its files; ``check`` by
``checked``. The end of its input ends it, with all workers.
"""

import dataclasses
import os
import selectors
import shutil
import signal
import tempfile
from collections import deque
from collections.abc import Callable
from pathlib import Path

from runner.core.diagnostics import UsageError
from runner.execute.base import Execution, Executor, ExecutorSettings, Job
from runner.execute.executors import EXECUTORS
from runner.execute.ray import bundle, node_facts
from runner.execute.ray.frames import Frame, FrameReader, Message, pack
from runner.execute.ray.returned import files_of
from runner.execute.routing import RoutingExecutor
from runner.execute.services import Address
from runner.plan import schedule
from runner.plan.jobs import Environment, Isolation
from runner.plan.resources import Capacity
from runner.system import cache_dirs

_CHUNK = 1 << 20

_NO_JOB = Job(name="", plan=None, folder="", environment=Environment(), timeout=0)

MakeExecutor = Callable[[ExecutorSettings], Executor]


class Ended(Exception):
    """The runner hung up."""


class Inlet:
    """Frames from a descriptor."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._reader = FrameReader()
        self._selector = selectors.DefaultSelector()
        self._selector.register(descriptor, selectors.EVENT_READ)

    def frames(self, seconds: float | None) -> list[Frame]:
        """Return the frames that came; wait so long for one, with None without an end. Raise ``Ended`` at the end."""
        found: list[Frame] = []
        while self._selector.select(0 if found else seconds):
            data = os.read(self.descriptor, _CHUNK)
            if not data:
                raise Ended
            found += self._reader.feed(data)
        return found


class Agent:
    """Serves one runner."""

    def __init__(self, inlet: int, outlet: int, make: MakeExecutor | None = None) -> None:
        self._inlet = Inlet(inlet)
        self._outlet = outlet
        self._make: MakeExecutor = make or (lambda settings: RoutingExecutor(settings, EXECUTORS))
        self._folder = Path(tempfile.mkdtemp(prefix="torch-conformance-agent-"))
        self._executor: Executor | None = None
        self._capacity: Capacity | None = None
        self._memory_limit: int | None = None
        self._tokens: dict[str, str] = {}
        """The token of each job, by its name."""
        self._pending: deque[Job] = deque()
        self._running = ""
        """The name of the executor whose jobs run now: another one's wait for its end."""

    def serve(self) -> None:
        """Serve until the runner hangs up."""
        try:
            while True:
                self._take(None)
                while self._pending:
                    self._run()
        except Ended:
            pass
        finally:
            if self._executor is not None:
                self._executor.close()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self) -> None:
        """Run jobs of one executor until none of them waits; more of them may arrive meanwhile."""
        assert self._executor is not None
        assert self._capacity is not None
        self._running = self._pending[0].executor
        jobs = [job for job in self._pending if job.executor == self._running]
        self._pending = deque(job for job in self._pending if job.executor != self._running)
        for execution in self._executor.run(jobs, self._capacity):
            self._send_ended(execution)
        self._running = ""

    def _take(self, seconds: float | None) -> None:
        for frame in self._inlet.frames(seconds):
            match frame.kind:
                case "begin":
                    self._begin(frame.message)
                case "job":
                    self._take_job(frame.message)
                case "check":
                    self._send({"kind": "checked", "check": frame.message.get("check"), **node_facts.state(self._folder)})
                case "gpus" if self._capacity is not None:
                    found = frame.message
                    self._capacity = dataclasses.replace(self._capacity, gpus=int(found["gpus"]), gpu_memory=int(found["gpu_memory"]))
                case "retire" if self._executor is not None and self._running:
                    self._executor.retire(int(frame.message["worker"]))

    def _take_job(self, message: Message) -> None:
        assert self._executor is not None, "a job before 'begin'"
        job = Job.from_json(str(message["job"]))
        if message.get("limited"):
            job = dataclasses.replace(job, memory_limit=self._memory_limit)
        self._tokens[job.name] = str(message["token"])
        if job.executor == self._running:
            self._executor.again(job)
        else:
            self._pending.append(job)

    def _begin(self, message: Message) -> None:
        try:
            self._memory_limit = schedule.memory_limit(str(message["memory_limit"]))
            settings = self._settings(message)
        except UsageError as error:
            self._send({"kind": "refused", "why": str(error)})
            return
        machine = node_facts.machine(message)
        self._capacity = node_facts.share_of(schedule.capacity(settings.workers, machine), message)
        settings = dataclasses.replace(settings, torch_root=machine.torch_root, workers=self._capacity.jobs)
        self._executor = self._make(settings)
        self._executor.on_interrupt(self._inlet.descriptor, lambda: self._take(0))
        provenance = node_facts.provenance(message)
        source, state = bundle.digest(), node_facts.state(self._folder)
        hello = {"machine": node_facts.machine_as_json(machine), "provenance": provenance, "source": source, "jobs": self._capacity.jobs}
        self._send({"kind": "hello", **hello, **state})

    def _settings(self, message: Message) -> ExecutorSettings:
        workers = 1 if message["isolation"] == Isolation.NONE.value else schedule.workers(str(message["jobs"]))
        caches = bool(message["caches"])
        return ExecutorSettings(
            folder=self._folder,
            workers=workers,
            threads=schedule.threads(schedule.workers(str(message["jobs"]))),
            spares=schedule.spares(workers),
            zygotes=schedule.zygotes(),
            isolation=Isolation(message["isolation"]),
            timeout_factor=float(message["timeout_factor"]),
            servers={name: Address(host, int(port)) for name, (host, port) in message["servers"].items()},
            object_cache=cache_dirs.object_folder(Path()) if message["object_cache"] else None,
            probe_cache=cache_dirs.probe_cache_folder() if caches else None,
        )

    def _send_ended(self, execution: Execution) -> None:
        token = self._tokens.pop(execution.job.name, "")
        folder = self._folder / execution.job.folder if execution.job.folder else None
        files = files_of(folder, execution.files) if folder is not None else {}
        # the job itself stays at the runner
        sent = {**dataclasses.asdict(dataclasses.replace(execution, job=_NO_JOB)), "files": list(files)}
        del sent["job"]
        answer = {"kind": "ended", "token": token, "execution": sent}
        self._send(answer, list(files.values()))
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def _send(self, message: Message, blobs: list[bytes] | None = None) -> None:
        data = memoryview(pack(message, blobs or []))
        while data:
            data = data[os.write(self._outlet, data) :]


def main(make: MakeExecutor | None = None) -> None:
    """Serve on standard input and output; what libraries print goes to standard error."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])  # Ray blocks some, and cases have the usual ones
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL), (signal.SIGTERM, signal.SIG_DFL)):
        signal.signal(number, usual)
    inlet, outlet = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    Agent(inlet, outlet, make).serve()


if __name__ == "__main__":
    main()
