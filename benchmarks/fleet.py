"""What a fleet adds to the time of its cases, with cases that sleep: ``python -m benchmarks.fleet [--ray | --address HOST:PORT] [--json]``.

Three measures: the occupancy of three unlike nodes with 2,000 cases, the time that the fleet adds to a case, and time and memory until
the first of 100,000 cases is given to a node. The nodes are processes of this machine, which speak the same frames without Ray; with
``--ray`` those of a Ray cluster that is started on this machine, with ``--address`` those that joined a cluster. Exit 1 where a goal is
not met.
"""

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from runner.execute.base import ExecutorSettings, Job
from runner.execute.ray.executor import FleetExecutor
from runner.execute.ray.gateway_link import GatewayLink
from runner.execute.ray.link import Link, Node, ProcessLink
from runner.execute.ray.peers import FleetSettings
from runner.plan.jobs import Environment

MODULE = "runner.execute.ray.stand_in"
GOALS = {"occupancy": 0.90, "overhead_ms": 20.0, "start_seconds": 30.0, "start_mib": 1024.0}
SHARES = (1, 2, 4)
"""The shares of the unlike nodes. Without Ray one share of each runs: 8, 4 and 2 parallel cases; with it all do, with 8 on each node."""

SPEC = """\
summary: A product of two matrices is right at every point of a large matrix
backends: [cpu]
matrix: {{a: [{a}], b: [{b}]}}
function: |
  def fn(x, y):
      return x @ y
inputs: [{{rand: ["{{{{ a }}}}", 4]}}, {{rand: [4, "{{{{ b }}}}"]}}]
expect: [{{close: {{to: eager}}}}]
"""


def _link(address: str | None) -> Link:
    if address:
        return GatewayLink(address, lease_seconds=60, silence=60, module=MODULE)
    return ProcessLink([Node(key=f"key-{shares}", name=f"node-{shares}", shares=shares) for shares in SHARES], module=MODULE)


def _jobs(count: int, seconds: float) -> list[Job]:
    chance = random.Random(7)
    names = (f"case-{number}" for number in range(count))
    return [
        Job(name=name, plan={"sleep": seconds * chance.uniform(0.2, 1.8)}, folder="", environment=Environment(), timeout=60)
        for name in names
    ]


def run_jobs(address: str | None, count: int, seconds: float) -> dict[str, float]:
    """Run jobs that sleep; return occupancy, and the seconds beyond an ideal schedule for each case of one worker."""
    fleet = FleetSettings(
        isolation="case", timeout_factor=1.0, jobs="8", memory_limit="none", servers={}, object_cache=False, caches=False, packages=()
    )
    with tempfile.TemporaryDirectory() as folder:
        executor = FleetExecutor(ExecutorSettings(folder=Path(folder), workers=1, threads=1), fleet, _link(address))
        try:
            executor.connect()
            parallel = sum(peer.jobs for peer in executor.roster)
            began, jobs = time.monotonic(), _jobs(count, seconds)
            ended = [execution.seconds for execution in executor.run(jobs) if not execution.unrun]
            wall = time.monotonic() - began
        finally:
            executor.close()
    assert len(ended) == count, f"{len(ended)} of {count} cases ended"
    return {"occupancy": sum(ended) / (wall * parallel), "wall": wall, "overhead_ms": 1000 * (wall * parallel - sum(ended)) / count}


@contextmanager
def ray_cluster() -> Iterator[str]:
    """Start a cluster of three unlike nodes on this machine; yield its address."""
    from tests.clusters import cluster_in

    with tempfile.TemporaryDirectory() as folder, cluster_in(Path(folder)) as cluster:
        for shares in SHARES:
            cluster.join_with_labels(f"node-{shares}", shares)
        yield cluster.address


def start(cases: int) -> dict[str, float]:
    """Return the seconds and the MiB of a runner until the first of so many cases is given to a node."""
    with tempfile.TemporaryDirectory() as folder:
        axis = ", ".join(map(str, range(1, 101)))
        for number in range(cases // 10_000):  # the most cases of one spec
            (Path(folder) / f"spec-{number}.yaml").write_text(SPEC.format(a=axis, b=axis))
        environ = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.fleet", "--child"],
            cwd=folder,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=1800,
        )
    assert done.returncode == 0, done.stderr
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def child() -> None:
    """Start a run on nodes that are fakes, and print time and memory when the first case arrives."""
    began = time.monotonic()
    import pytest

    from runner.cli.parser import main
    from runner.execute.base import Execution
    from tests.fleet import RAY, FakeNode, passes, use_fleet

    def first(job: Job) -> Execution | None:
        if job.name.startswith("canary"):
            return passes(job)
        mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        cpu = time.process_time()
        sys.__stdout__.write(json.dumps({"start_seconds": time.monotonic() - began, "start_cpu": cpu, "start_mib": mib}) + "\n")
        sys.__stdout__.flush()
        os._exit(0)

    with pytest.MonkeyPatch.context() as patch:
        use_fleet(patch, *(FakeNode(name, answer=first) for name in ("one", "two", "three")))
        main(["run", ".", *RAY, "--out", "out"])


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; return 1 where a goal is not met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--address", help="the head of a Ray cluster")
    parser.add_argument("--ray", action="store_true", help="start a Ray cluster of three nodes on this machine")
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=0.25, help="the mean duration of a case")
    parser.add_argument("--planned", type=int, default=100_000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.child:
        child()
        return 3
    with ray_cluster() if options.ray else nullcontext(options.address) as address:
        found = run_jobs(address, options.cases, options.seconds) if options.cases else {}
    found.update(start(options.planned) if options.planned else {})
    met = {name: found[name] >= goal if name == "occupancy" else found[name] <= goal for name, goal in GOALS.items() if name in found}
    if options.json:
        print(json.dumps({"measured": found, "goals": GOALS, "met": met}, indent=1))
    else:
        for name, value in found.items():
            goal = f"  goal {GOALS[name]:g}: {'met' if met[name] else 'not met'}" if name in GOALS else ""
            print(f"{name:16}{value:10.3f}{goal}")
    return 0 if all(met.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
