"""Faults of nodes, networks and runs on real Ray clusters: no case is lost, none is counted twice, and other runs get their nodes."""

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.core.exit_codes import ExitCode
from runner.system.installed_torch import installed_torch
from tests.clusters import (
    EXPECTED,
    LONGEST,
    SPEC,
    Cluster,
    below,
    cluster_in,
    journal,
    labels,
    nodes,
    outcomes,
    printed_by,
    send_signal,
    start_run,
    wait_for_cases,
)
from tests.fakes import environment, program

OTHER_PYTHON = "TORCH_CONFORMANCE_OTHER_PYTHON"
"""The variable that names the Python of an environment with another torch of the supported minor versions, and with the same Ray."""

pytestmark = [
    pytest.mark.timeout(2 * LONGEST),
    pytest.mark.torch,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed (the extra 'ray')"),
    pytest.mark.nightly(reason="a Ray cluster takes a minute to start; tests/unit/test_fleet.py has nodes that are fakes"),
]

GARBAGE = """\
import os, sys
if "runner.execute.ray.agent" in sys.orig_argv:
    written, write = [], os.write
    def lies(descriptor, data):
        written.append(descriptor)
        return write(descriptor, data if len(written) < 7 else b"<html>502 Bad Gateway</html>" * 100)
    os.write = lies
"""

AHEAD = """\
import sys, time
if "runner.execute.ray.agent" in sys.orig_argv:
    now = time.time
    time.time = lambda: now() + 3600
"""

TWICE = """\
import os, sys
if "runner.execute.ray.agent" in sys.orig_argv:
    written, write = [], os.write
    def twice(descriptor, data):
        written.append(descriptor)
        if len(written) > 6:
            write(descriptor, data)
        return write(descriptor, data)
    os.write = twice
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with cluster_in(tmp_path) as found:
        yield found


def gateways(run: "subprocess.Popen[str]") -> list[int]:
    """Return the gateway of a run."""
    return [pid for pid in below(run.pid) if b"runner.execute.ray.gateway" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_nodes_that_are_not_what_they_say_or_write_garbage_change_no_outcome(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "sitecustomize.py").write_text(GARBAGE)
    path = os.pathsep.join([str(tmp_path / "odd"), environment()["PYTHONPATH"]])
    (tmp_path / "lab.yaml").write_text("lab: faults\nnodes:\n  well: {}\n  garbage: {}\n  liar:\n    torch: '2.99.0'\n")
    cluster.join("well")
    cluster.join("garbage", PYTHONPATH=path)
    cluster.join_with_labels("liar", torch="2.99.0")
    cluster.join_with_labels("stranger", torch="2.99.0")
    printed = printed_by(start_run(cluster, tmp_path, "--out", "out", "--lab", "lab.yaml"))
    assert "node garbage was lost: no frame begins with b'<html>" in printed
    assert "node liar is quarantined: lab.yaml:6:12: torch is 2.99.0 there, and " in printed
    assert "node stranger is quarantined: it is not in lab.yaml" in printed
    assert labels(tmp_path / "out") == EXPECTED
    assert nodes(tmp_path / "out") == {"well"}


def test_a_clock_that_is_ahead_and_a_node_that_answers_twice_change_no_outcome(cluster: Cluster, tmp_path: Path) -> None:
    """Hello, facts, state and two canaries are the first messages of a node; then its executions come twice."""
    cluster.join("well")
    for name, text in (("ahead", AHEAD), ("twice", TWICE)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "sitecustomize.py").write_text(text)
        cluster.join(name, PYTHONPATH=os.pathsep.join([str(tmp_path / name), environment()["PYTHONPATH"]]))
    printed = printed_by(start_run(cluster, tmp_path, "--out", "out"))
    assert "node ahead is quarantined: health check: its clock differs by +3600 s from the runner's" in printed
    assert "node twice is quarantined: it sent 'ended' and was not asked for it" in printed
    assert labels(tmp_path / "out") == EXPECTED
    assert nodes(tmp_path / "out") == {"well"}


def test_a_gateway_and_a_raylet_that_stand_still_lose_no_case(cluster: Cluster, tmp_path: Path) -> None:
    cluster.join("one")
    cluster.join("two")
    run = start_run(cluster, tmp_path, "--out", "gateway")
    wait_for_cases(tmp_path / "gateway", 5, run)
    (gateway,) = gateways(run)
    send_signal(gateway, signal.SIGSTOP)
    printed = printed_by(run)
    assert "the connection to the head of the cluster was lost" in printed
    assert len(labels(tmp_path / "gateway")) == len(EXPECTED), "what was not run is NOT_RUN, and nothing is counted twice"
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


def test_two_runs_take_turns_and_a_killed_run_releases_its_nodes(cluster: Cluster, tmp_path: Path) -> None:
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
    words = [sys.executable, "-m", "runner", "run", "spec.yaml", "--out", "local"]
    local = subprocess.Popen(words, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wait_for_cases(tmp_path / "local", 4, local)
    local.kill()
    local.communicate(timeout=60)
    printed_by(start_run(cluster, tmp_path, "--resume", "local"))
    assert outcomes(tmp_path / "local") == outcomes(tmp_path / "waiting")
    assert nodes(tmp_path / "local") <= {"one", "two"} != set()


def other_torch() -> str:
    """Return the version of the other torch; skip the test without one."""
    python = os.environ.get(OTHER_PYTHON, "")
    if not python:
        pytest.skip(f"no environment with another torch is named by {OTHER_PYTHON}")
    code = "import torch; print(torch.__version__)"  # the metadata of a package may lack the build: 2.12.0 of 2.12.0+cu130
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True, timeout=120).stdout.strip()


def test_nodes_with_two_builds_of_torch_run_what_is_for_their_torch(cluster: Cluster, tmp_path: Path) -> None:
    other, mine = other_torch(), installed_torch()
    assert mine is not None
    minors = [".".join(version.split(".")[:2]) for version in (mine.version, other)]
    assert minors[0] != minors[1]
    points = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]"
    for name, low, high in zip(("mine", "theirs"), minors, (f"{minor}.99" for minor in minors), strict=True):
        text = SPEC.replace(points, "[1, 2]").replace("[2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]", "[2]")
        (tmp_path / f"{name}.yaml").write_text(f'requires: [{{torch: ">={low},<={high}"}}]\n{text}')
    (tmp_path / "nobodys.yaml").write_text(f'requires: [{{torch: "<2"}}]\n{SPEC}')
    (tmp_path / "lab.yaml").write_text(f"lab: two\nnodes:\n  one: {{torch: '{mine.version}'}}\n  two: {{torch: '{other}'}}\n")
    cluster.join("one", "--lab", str(tmp_path / "lab.yaml"))
    cluster.join("two", "--lab", str(tmp_path / "lab.yaml"), python=os.environ[OTHER_PYTHON])
    specs = ("spec.yaml", "mine.yaml", "theirs.yaml", "nobodys.yaml")
    printed_by(start_run(cluster, tmp_path, "--out", "out", "--lab", "lab.yaml", specs=specs))
    found = journal(tmp_path / "out").results
    assert len(found) == len({result.case_id for result in found}) == 13 + 3 + 3 + 13
    version_of = {"one": mine.version, "two": other}
    for result in found:
        if result.name == "nobodys":
            assert result.outcome.label == "UNAVAILABLE"
            assert other in result.reason
            assert mine.version in result.reason
            continue
        assert result.node["torch"] == version_of[result.node["name"]]
        assert result.node["name"] in {"mine": ("one",), "theirs": ("two",)}.get(result.name, ("one", "two"))
        assert result.outcome.label == ("FAIL" if "graphs=2" in result.case_id else "PASS")
    assert f"torch {other}" in (tmp_path / "out" / "junit.xml").read_text("utf-8")

    # what reads the run judges each result by the torch of its node
    for words in (["audit", "out"], ["report", "out"], ["submit", "out", "--out", "out.tgz"]):
        done = program(*words, cwd=tmp_path, timeout=LONGEST)
        assert done.returncode == ExitCode.OK, done.stdout + done.stderr
    done = program("verify", "out.tgz", cwd=tmp_path, timeout=LONGEST)
    assert done.stderr.endswith("verified\n"), done.stdout + done.stderr
    for version in version_of.values():
        assert f"that the observations were made by torch {version}, unmodified" in done.stdout
