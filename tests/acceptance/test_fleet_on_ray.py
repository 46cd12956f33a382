"""Runs on real Ray clusters of several nodes on this machine: the same report as a local run, also where nodes die or stand still."""

import signal
from pathlib import Path

from runner.model.outcomes import ExitCode
from tests.clusters import (
    EXPECTED,
    LONGEST,
    ON_RAY,
    Cluster,
    below,
    nodes,
    outcomes,
    printed_by,
    send_signal,
    start_run,
    wait_for_cases,
)
from tests.fakes import program

pytestmark = ON_RAY


def test_the_report_is_that_of_a_local_run_whatever_happens_to_nodes(cluster: Cluster, tmp_path: Path) -> None:
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


def test_a_node_that_stands_still_and_a_head_that_is_gone_end_in_bounded_time(cluster: Cluster, tmp_path: Path) -> None:
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
