"""Real Ray clusters of several nodes on this machine, and runs on them: what the tests of a fleet
with Ray share.
"""

import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.fakes import environment
from torch_conformance.model.results import CaseResult
from torch_conformance.record.journal import Run, read_run

LONGEST = 1500.0
"""How many seconds a step of a test may take: these machines do other work, and a node imports
torch.
"""

SPEC = """\
summary: A product is right at every point, and one false claim is refuted
backends: [cpu]
matrix: {size: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], graphs: [1, 2]}
exclude: [{graphs: 2, size: [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], reason: "one false claim is enough"}]
function: |
  def fn(x, y):
      return x @ y
inputs: [{rand: [4, "{{ size }}"]}, {rand: ["{{ size }}", 4]}]
expect:
  - close: {to: eager}
  - counter: {stats.unique_graphs: "{{ graphs }}"}
"""  # noqa: E501 - text that is read by its lines
ON_RAY = [
    pytest.mark.timeout(2 * LONGEST),  # four runs, and a cluster that starts for each test
    pytest.mark.torch,
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None, reason="Ray is not installed (the extra 'ray')"
    ),
    pytest.mark.nightly(
        reason="a Ray cluster takes a minute to start; tests/unit/tools/fleet/test_fleet.py "
        "has the same faults with nodes that are fakes"
    ),
]
"""The marks of tests with a cluster."""
EXPECTED = ["FAIL"] + 12 * ["PASS"]
_TRIES = 4
_RAY = "from ray.scripts.scripts import main; main()"

_OF_RAY = {"RAY_worker_niceness": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
"""Without a mode, a head requires the token of a user who has one, and nothing that is given an
address sends it.
"""


class _TooSlow(Exception):
    """Ray ended a part of a cluster that took longer to start than Ray allows."""


class Cluster:
    """A head, and nodes that joined with the command; each is a process group of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._short = tempfile.TemporaryDirectory(
            prefix="ray-", ignore_cleanup_errors=True
        )  # the path of a socket has 107 bytes at most
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def head(self) -> None:
        words = [
            "--head",
            "--port",
            str(self.port),
            "--num-cpus",
            "0",
            "--include-dashboard",
            "false",
            "--disable-usage-stats",
            "--block",
        ]
        words += ["--temp-dir", self._short.name]
        self._start("head", [sys.executable, "-P", "-c", _RAY, "start", *words])

    def join(self, name: str, *more: str, python: str = sys.executable, **variables: str) -> None:
        words = ["--address", self.address, "--as", name, "--once", *more]
        self._start(name, [python, "-m", "torch_conformance.tools.fleet.node", *words], **variables)

    def group(self, name: str) -> int:
        return self._processes[name].pid

    def raylet(self, name: str) -> int:
        """Return the process of the node's raylet, a child of what 'ray start' is."""
        (found,) = [
            pid
            for pid in below(self.group(name))
            if Path(f"/proc/{pid}/comm").read_text("utf-8").startswith("raylet")
        ]
        return found

    def kill(self, name: str) -> None:
        """Kill everything of a node at once, as a power cut does."""
        for pid in below(self.group(name)):
            send_signal(pid, signal.SIGKILL)

    def close(self) -> None:
        for name in reversed(list(self._processes)):
            process = self._processes.pop(name)
            for pid in below(process.pid):
                send_signal(pid, signal.SIGKILL)
            process.wait(60)
        self._short.cleanup()

    def _start(self, name: str, command: Sequence[str], **variables: str) -> None:
        """Start a part of the cluster; again where Ray gave up after its 30 s, which a busy machine
        exceeds.
        """
        for _ in range(_TRIES - 1):
            try:
                return self._start_once(name, command, **variables)
            except _TooSlow:
                continue
        return self._start_once(name, command, **variables)

    def _start_once(self, name: str, command: Sequence[str], **variables: str) -> None:
        log = self._folder / f"{name}-{len(list(self._folder.glob('*.log')))}.log"
        with log.open("wb") as stream:
            environ = environment(**_OF_RAY, **variables)
            process = subprocess.Popen(
                command,
                stdout=stream,
                stderr=stream,
                env=environ,
                start_new_session=True,
                cwd=self._folder,
            )
        self._processes[name] = process
        until = time.monotonic() + LONGEST
        while "Ray runtime started" not in log.read_text("utf-8", "replace"):
            if process.poll() is not None and "timed out during startup" in log.read_text(
                "utf-8", "replace"
            ):
                raise _TooSlow(log.read_text("utf-8", "replace"))
            assert process.poll() is None, log.read_text("utf-8", "replace")
            assert time.monotonic() < until, log.read_text("utf-8", "replace")
            time.sleep(0.2)


@contextmanager
def cluster_in(folder: Path) -> Iterator[Cluster]:
    """Start a head, which is ended with all nodes; the spec lies in the folder."""
    (folder / "spec.yaml").write_text(SPEC)
    (folder / "c").mkdir()
    with ExitStack() as stack:
        found = Cluster(folder / "c")
        stack.callback(found.close)
        found.head()
        yield found


def below(root: int) -> list[int]:
    """Return a process and its descendants, the youngest first."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parent = int(
                    (entry / "stat").read_text("ascii", "replace").rpartition(")")[2].split()[1]
                )
            except OSError:
                continue
            parents.setdefault(parent, []).append(int(entry.name))
    found = [root]
    for pid in found:
        found += parents.get(pid, [])
    return found[::-1]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text("utf-8", "replace")
    except OSError:  # it has ended
        return ""


def send_signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it ended by itself
        os.kill(pid, number)


# -- runs ------------------------------------------------------------------------------------------


def start_run(
    cluster: Cluster, folder: Path, *more: str, specs: Sequence[str] = ("spec.yaml",)
) -> "subprocess.Popen[str]":
    words = ["run", *specs, "--executor", "ray", "--address", cluster.address, *more]
    command = [sys.executable, "-m", "torch_conformance", *words]
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment(**_OF_RAY),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def printed_by(process: "subprocess.Popen[str]") -> str:
    """Wait for the end of a run that has a FAIL, and return what it printed."""
    printed, _ = process.communicate(timeout=LONGEST)
    assert process.returncode == 1, printed
    return printed


def wait_for_cases(run: Path, count: int, process: "subprocess.Popen[str]") -> None:
    """Wait until so many cases ended on nodes; canaries have folders too."""
    until = time.monotonic() + LONGEST
    while len(list(run.glob("cases/*/observation.json"))) < count:
        assert process.poll() is None, process.communicate(timeout=10)[0]
        assert time.monotonic() < until, f"{count} cases did not end within {LONGEST:g} s"
        time.sleep(0.1)


def journal(run: Path) -> Run:
    return read_run(run / "run.jsonl")


def outcomes(run: Path, count: int = 13) -> dict[str, tuple[str, str, str]]:
    """Return outcome, type of failure and digest by case; each case is in the journal once."""
    results: tuple[CaseResult, ...] = journal(run).results
    assert len({result.case_id for result in results}) == len(results) == count
    return {
        result.case_id: (result.outcome.label, result.failure_type, result.digest)
        for result in results
    }


def labels(run: Path) -> list[str]:
    return sorted(outcome for outcome, _, _ in outcomes(run).values())


def nodes(run: Path) -> set[str]:
    return {result.node["name"] for result in journal(run).results if result.node}
