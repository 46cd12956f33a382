"""Runs on real Ray clusters of several nodes on this machine: the same report as a local run,
whatever happens to nodes and networks.

No case is lost, none is counted twice, and other runs get their nodes.
"""

import signal
import subprocess
import sys
from pathlib import Path

from tests.clusters import (
    EXPECTED,
    LONGEST,
    ON_RAY,
    Cluster,
    below,
    labels,
    nodes,
    outcomes,
    printed_by,
    send_signal,
    start_run,
    wait_for_cases,
)
from tests.fakes import environment, program
from torch_conformance.model.outcomes import ExitCode

pytestmark = ON_RAY


def test_the_report_is_that_of_a_local_run_whatever_happens_to_nodes(
    cluster: Cluster, tmp_path: Path
) -> None:
    done = program("run", "spec.yaml", "--out", "local", cwd=tmp_path, timeout=LONGEST)
    assert done.returncode == ExitCode.FAILED, done.stderr
    expected = outcomes(tmp_path / "local")
    assert sorted(outcome for outcome, _, _ in expected.values()) == EXPECTED

    cluster.join("one")
    cluster.join("two")
    whole = start_run(cluster, tmp_path, "--out", "whole")
    printed_by(whole)
    assert outcomes(tmp_path / "whole") == expected
    assert nodes(tmp_path / "whole") == {"one", "two"}

    # a node that loses its power in the middle of a run
    killed = start_run(cluster, tmp_path, "--out", "killed")
    wait_for_cases(tmp_path / "killed", 6, killed)
    cluster.kill("two")
    printed = printed_by(killed)
    assert "node two was lost" in printed
    assert outcomes(tmp_path / "killed") == expected

    # the only node is lost: nothing is counted, and a local run goes on
    lost = start_run(cluster, tmp_path, "--out", "lost")
    wait_for_cases(tmp_path / "lost", 3, lost)
    cluster.kill("one")
    printed_by(lost)
    done = program("run", "spec.yaml", "--resume", "lost", cwd=tmp_path, timeout=LONGEST)
    assert done.returncode == ExitCode.FAILED, done.stderr
    assert outcomes(tmp_path / "lost") == expected


def test_a_node_that_stands_still_and_a_head_that_is_gone_end_in_bounded_time(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.join("one")
    cluster.join("two")
    stalled = start_run(cluster, tmp_path, "--out", "stalled")
    wait_for_cases(tmp_path / "stalled", 5, stalled)
    for pid in below(cluster.group("two")):
        send_signal(pid, signal.SIGSTOP)
    printed_by(stalled)
    for pid in below(cluster.group("two")):
        send_signal(pid, signal.SIGCONT)
    assert nodes(tmp_path / "stalled") == {"one"}
    assert len(outcomes(tmp_path / "stalled")) == 13

    headless = start_run(cluster, tmp_path, "--out", "headless")
    wait_for_cases(tmp_path / "headless", 3, headless)
    cluster.kill("head")
    printed_by(headless)
    assert len(outcomes(tmp_path / "headless")) == 13, "the journal is whole"


def gateways(run: "subprocess.Popen[str]") -> list[int]:
    """Return the gateway of a run."""
    return [
        pid
        for pid in below(run.pid)
        if b"torch_conformance.tools.fleet.gateway" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def test_a_gateway_and_a_raylet_that_stand_still_lose_no_case(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.join("one")
    cluster.join("two")
    run = start_run(cluster, tmp_path, "--out", "gateway")
    wait_for_cases(tmp_path / "gateway", 5, run)
    (gateway,) = gateways(run)
    send_signal(gateway, signal.SIGSTOP)
    printed = printed_by(run)
    assert "the connection to the head of the cluster was lost" in printed
    assert len(labels(tmp_path / "gateway")) == len(EXPECTED), (
        "what was not run is NOT_RUN, and nothing is counted twice"
    )
    assert not Path(f"/proc/{gateway}").exists()
    printed_by(start_run(cluster, tmp_path, "--resume", "gateway"))
    assert labels(tmp_path / "gateway") == EXPECTED

    run = start_run(cluster, tmp_path, "--out", "raylet")
    wait_for_cases(tmp_path / "raylet", 5, run)
    raylet = cluster.raylet("two")
    send_signal(raylet, signal.SIGSTOP)
    printed_by(run)
    send_signal(raylet, signal.SIGCONT)
    assert labels(tmp_path / "raylet") == EXPECTED


def test_two_runs_take_turns_and_a_killed_run_releases_its_nodes(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.join("one")
    cluster.join("two")
    runs = {name: start_run(cluster, tmp_path, "--out", name) for name in ("first", "second")}
    for name, run in runs.items():
        printed_by(run)
        assert labels(tmp_path / name) == EXPECTED
        assert nodes(tmp_path / name) == {"one", "two"}

    killed = start_run(cluster, tmp_path, "--out", "killed")
    wait_for_cases(tmp_path / "killed", 3, killed)
    waiting = start_run(cluster, tmp_path, "--out", "waiting")
    killed.kill()
    killed.communicate(timeout=60)
    printed_by(waiting)
    assert labels(tmp_path / "waiting") == EXPECTED

    # what was recorded of the killed run counts, also on this machine without the lab
    done = program("run", "spec.yaml", "--resume", "killed", cwd=tmp_path, timeout=LONGEST)
    assert done.returncode == ExitCode.FAILED, done.stderr
    assert outcomes(tmp_path / "killed") == outcomes(tmp_path / "waiting")

    # and a run of this machine that was killed is finished by the lab
    words = [sys.executable, "-m", "torch_conformance", "run", "spec.yaml", "--out", "local"]
    local = subprocess.Popen(
        words,
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    wait_for_cases(tmp_path / "local", 4, local)
    local.kill()
    local.communicate(timeout=60)
    printed_by(start_run(cluster, tmp_path, "--resume", "local"))
    assert outcomes(tmp_path / "local") == outcomes(tmp_path / "waiting")
    assert nodes(tmp_path / "local") <= {"one", "two"} != set()
