"""Runs on real Ray clusters of several nodes on this machine: the same report as a local run, also where nodes die or stand still."""

import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from runner.core.exit_codes import ExitCode
from runner.core.results import CaseResult
from runner.record.journal import read_run
from tests.fakes import environment, program

pytestmark = [
    pytest.mark.timeout(3000),  # four runs, and a cluster that starts for each test
    pytest.mark.torch,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed (the extra 'ray')"),
    pytest.mark.nightly(
        reason="a Ray cluster takes a minute to start; tests/unit/test_fleet.py has the same faults with nodes that are fakes"
    ),
]

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
"""
_RAY = "from ray.scripts.scripts import main; main()"


class Cluster:
    """A head, and nodes that joined with the command; each is a process group of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._short = tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True)  # the path of a socket has 107 bytes at most
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.head()

    def head(self) -> None:
        words = ["--head", "--port", str(self.port), "--num-cpus", "0", "--include-dashboard", "false", "--disable-usage-stats", "--block"]
        words += ["--temp-dir", self._short.name]
        self._start("head", [sys.executable, "-P", "-c", _RAY, "start", *words], "Ray runtime started")

    def join(self, name: str, *more: str) -> None:
        words = ["node", "join", "--address", self.address, "--as", name, "--once", *more]
        self._start(name, [sys.executable, "-m", "runner", *words], "Ray runtime started")

    def group(self, name: str) -> int:
        return self._processes[name].pid

    def raylet(self, name: str) -> int:
        """Return the process of the node's raylet, a child of what 'ray start' is."""
        (found,) = [pid for pid in _below(self.group(name)) if Path(f"/proc/{pid}/comm").read_text("utf-8").startswith("raylet")]
        return found

    def kill(self, name: str) -> None:
        """Kill everything of a node at once, as a power cut does."""
        for pid in _below(self.group(name)):
            _signal(pid, signal.SIGKILL)

    def close(self) -> None:
        for name in reversed(list(self._processes)):
            process = self._processes.pop(name)
            for pid in _below(process.pid):
                _signal(pid, signal.SIGKILL)
            process.wait(30)
        self._short.cleanup()

    def _start(self, name: str, command: list[str], words: str) -> None:
        log = self._folder / f"{name}-{len(list(self._folder.glob('*.log')))}.log"
        with log.open("wb") as stream:
            process = subprocess.Popen(
                command, stdout=stream, stderr=stream, env=environment(RAY_worker_niceness="0"), start_new_session=True, cwd=self._folder
            )
        self._processes[name] = process
        until = time.monotonic() + 240
        while words not in log.read_text("utf-8", "replace"):
            assert process.poll() is None, log.read_text("utf-8", "replace")
            assert time.monotonic() < until, log.read_text("utf-8", "replace")
            time.sleep(0.2)


def _below(root: int) -> list[int]:
    """Return a process and its descendants, the youngest first."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parent = int((entry / "stat").read_text("ascii", "replace").rpartition(")")[2].split()[1])
            except OSError:
                continue
            parents.setdefault(parent, []).append(int(entry.name))
    found = [root]
    for pid in found:
        found += parents.get(pid, [])
    return found[::-1]


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it ended by itself
        os.kill(pid, number)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    (tmp_path / "spec.yaml").write_text(SPEC)
    folder = tmp_path / "c"
    folder.mkdir()
    with ExitStack() as stack:
        found = Cluster(folder)
        stack.callback(found.close)
        yield found


def outcomes(run: Path) -> dict[str, tuple[str, str, str]]:
    results: tuple[CaseResult, ...] = read_run(run / "run.jsonl").results
    assert len({result.case_id for result in results}) == len(results) == 13
    return {result.case_id: (result.outcome.label, result.failure_type, result.digest) for result in results}


def nodes(run: Path) -> set[str]:
    return {result.node["name"] for result in read_run(run / "run.jsonl").results if result.node}


def start_run(cluster: Cluster, folder: Path, *more: str) -> "subprocess.Popen[str]":
    words = ["run", "spec.yaml", "--executor", "ray", "--address", cluster.address, *more]
    command = [sys.executable, "-m", "runner", *words]
    return subprocess.Popen(command, cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_for_cases(run: Path, count: int, process: "subprocess.Popen[str]") -> None:
    """Wait until so many cases were given to nodes; canaries have folders too."""
    until = time.monotonic() + 300
    while len(list(run.glob("cases/*/observation.json"))) < count:
        assert process.poll() is None, process.communicate(timeout=10)[0]
        assert time.monotonic() < until
        time.sleep(0.1)


def test_the_report_is_that_of_a_local_run_whatever_happens_to_nodes(cluster: Cluster, tmp_path: Path) -> None:
    done = program("run", "spec.yaml", "--out", "local", cwd=tmp_path, timeout=400)
    assert done.returncode == ExitCode.FAILED, done.stderr
    expected = outcomes(tmp_path / "local")
    assert sorted(outcome for outcome, _, _ in expected.values()) == ["FAIL"] + 12 * ["PASS"]

    cluster.join("one")
    cluster.join("two")
    whole = start_run(cluster, tmp_path, "--out", "whole")
    printed, _ = whole.communicate(timeout=500)
    assert whole.returncode == ExitCode.FAILED, printed
    assert outcomes(tmp_path / "whole") == expected
    assert nodes(tmp_path / "whole") == {"one", "two"}

    # a node that loses its power in the middle of a run
    killed = start_run(cluster, tmp_path, "--out", "killed")
    wait_for_cases(tmp_path / "killed", 6, killed)
    cluster.kill("two")
    printed, _ = killed.communicate(timeout=500)
    assert killed.returncode == ExitCode.FAILED, printed
    assert "node two was lost" in printed
    assert outcomes(tmp_path / "killed") == expected

    # the only node is lost: nothing is counted, and a local run goes on
    lost = start_run(cluster, tmp_path, "--out", "lost")
    wait_for_cases(tmp_path / "lost", 3, lost)
    cluster.kill("one")
    printed, _ = lost.communicate(timeout=500)
    assert lost.returncode == ExitCode.FAILED, printed
    done = program("run", "spec.yaml", "--resume", "lost", cwd=tmp_path, timeout=400)
    assert done.returncode == ExitCode.FAILED, done.stderr
    assert outcomes(tmp_path / "lost") == expected


def test_a_node_that_stands_still_and_a_head_that_is_gone_end_in_bounded_time(cluster: Cluster, tmp_path: Path) -> None:
    cluster.join("one")
    cluster.join("two")
    stalled = start_run(cluster, tmp_path, "--out", "stalled")
    wait_for_cases(tmp_path / "stalled", 5, stalled)
    for pid in _below(cluster.group("two")):
        _signal(pid, signal.SIGSTOP)
    printed, _ = stalled.communicate(timeout=500)
    for pid in _below(cluster.group("two")):
        _signal(pid, signal.SIGCONT)
    assert stalled.returncode == ExitCode.FAILED, printed
    assert nodes(tmp_path / "stalled") == {"one"}
    assert len(outcomes(tmp_path / "stalled")) == 13

    headless = start_run(cluster, tmp_path, "--out", "headless")
    wait_for_cases(tmp_path / "headless", 3, headless)
    cluster.kill("head")
    printed, _ = headless.communicate(timeout=900)
    assert headless.returncode == ExitCode.FAILED, printed
    assert len(outcomes(tmp_path / "headless")) == 13, "the journal is whole"
