"""Nodes that join while a run goes on, as fakes: their facts, their health check, the cases that they get. Real ones: test_fleet_on_ray."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.cli.parser import main
from runner.core.exit_codes import ExitCode
from runner.execute.base import Execution, Job
from runner.execute.ray.labels import NAME
from runner.execute.ray.link import Node
from runner.execute.ray.node_names import NodeNames
from runner.execute.ray.peers import State
from runner.execute.ray.roster import Roster
from runner.execute.ray.source import PinnedSource
from tests.fleet import RAY, FakeLink, FakeNode, all_graphs, passes, use_fleet
from tests.fleet_runs import FLEET, outcomes, results, run, spec_of

SPEC = spec_of(20)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spec.yaml").write_text(SPEC)
    return tmp_path


def slowly(job: Job) -> Execution | None:
    """Answer like a node that takes seconds for a case: it has few cases waiting, and others remain for a node that joins."""
    found = passes(job)
    assert found is not None
    return replace(found, seconds=9.0)


def early(name: str = "old", **more: Any) -> FakeNode:
    return FakeNode(name, answer=slowly, hello={"jobs": 1}, **more)


def test_a_node_that_joins_while_a_run_goes_on_gets_cases_after_its_check(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was UNAVAILABLE for want of it stays so: each case has one result, and this one is in the journal already."""
    (here / "need.yaml").write_text(f"requires: [{{mkldnn: float16}}]\n{SPEC}")
    before: list[str] = []

    def first_checked(job: Job) -> Execution | None:
        before.append(job.name.split(" ")[0])
        return passes(job)

    old, late = early(), FakeNode("late", answer=first_checked, joins_after=2, facts={"mkldnn": "float32 float16", "driver": "7"})
    old.facts = {"mkldnn": "float32"}
    use_fleet(monkeypatch, old, late)
    assert main(["run", "spec.yaml", "need.yaml", *RAY, "--out", "out"]) == ExitCode.OK
    assert sorted(outcomes()) == ["PASS"] * 20 + ["UNAVAILABLE"] * 20
    assert {result.name for result in results().values() if result.outcome.label == "UNAVAILABLE"} == {"need"}
    assert late.ran
    assert before[:2] == ["canary", "canary"]
    (found,) = {
        (node["name"], node["host"], node["driver"]) for result in results().values() if (node := result.node).get("name") == "late"
    }
    assert found == ("late", "host-of-late", "7")
    printed = capsys.readouterr()
    stay = "20 cases that it can run stay UNAVAILABLE (begin a new run for them)"
    assert f"node late joined while the run went on; {stay}" in printed.out + printed.err


def sick(job: Job) -> Execution | None:
    return all_graphs(2)(job)


@pytest.mark.parametrize(
    ("late", "problem"),
    [
        (FakeNode("late", joins_after=2, answer=sick), "health check: the canary"),
        (FakeNode("late", joins_after=2, clock=3600), "health check: its clock differs by +3600 s from the runner's"),
        (FakeNode("late", joins_after=2, hello={"source": "0"}), "it runs another source of this program than the runner"),
        (FakeNode("late", joins_after=2, labels={"torch-conformance/name": "late"}), "it is not in lab.yaml (nodes there: old)"),
    ],
    ids=["canary", "clock", "source", "lab"],
)
def test_a_node_that_joins_late_and_is_not_as_it_should_be_gets_no_case(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], late: FakeNode, problem: str
) -> None:
    (here / "lab.yaml").write_text("lab: one\nnodes: {old: {}, late: {}}\n" if not late.labels else "lab: one\nnodes: {old: {}}\n")
    late.labels = {"torch-conformance/name": "late"}
    use_fleet(monkeypatch, early(labels={"torch-conformance/name": "old"}), late)
    assert run("--lab", "lab.yaml") == ExitCode.OK
    assert outcomes() == ["PASS"] * 20
    assert late.ran == []
    assert f"node late is quarantined: {problem}" in capsys.readouterr().err


def test_a_node_that_joins_takes_over_from_one_that_is_lost(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_fleet(monkeypatch, early("doomed", dies_after=3), FakeNode("late", joins_after=1))
    assert run() == ExitCode.OK
    assert outcomes() == ["PASS"] * 20
    assert {result.node["name"] for result in results().values()} == {"late"}
    assert "node doomed was lost: its plug was pulled" in capsys.readouterr().err


def test_a_node_that_joins_and_is_lost_before_it_has_a_case_changes_nothing(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_fleet(monkeypatch, early(), FakeNode("late", joins_after=1, dies_after=0))
    assert run() == ExitCode.OK
    assert outcomes() == ["PASS"] * 20
    assert {result.node["name"] for result in results().values()} == {"old"}
    assert "node late was lost: its plug was pulled" in capsys.readouterr().err


def test_a_further_attempt_runs_on_a_node_that_joined_only_if_that_is_like_the_first(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [FakeNode(name, joins_after=1, facts={"driver": driver}) for name, driver in (("other", "9"), ("like", "1"))]
    use_fleet(monkeypatch, early(facts={"driver": "1"}), *nodes)
    assert run("--repeat", "2") == ExitCode.OK
    attempts = [part.node["name"] for result in results().values() for part in (result, *result.attempts)]
    assert set(attempts) == {"old", "like"}


def test_nodes_have_names_of_their_own_whenever_they_join() -> None:
    def listed(**labels: str) -> list[dict[str, Any]]:
        return [{"node": key, "labels": {"torch-conformance/name": label}, "shares": 1} for key, label in labels.items()]

    names = NodeNames()
    assert [node.name for node in names.nodes_of(listed(a="x", b="x", c="y", d="x-2"))] == ["x-1", "x-2", "x-2-2", "y"]
    # c is gone, and two further ones came: a name is not used twice, for the journal names nodes
    later = {node.key: node.name for node in names.nodes_of(listed(a="x", b="x", e="y", f="x"))}
    assert later == {"a.0": "x-1", "b.0": "x-2", "e.0": "y-2", "f.0": "x-3"}
    # a connection that was lost to the same cluster, and a cluster that was started again
    assert [node.name for node in names.of_cluster(listed(b="x", e="y"))] == ["x-2", "y-2"]
    assert [node.name for node in names.of_cluster(listed(g="x", h="y"))] == ["x", "y"]


def test_a_name_whose_nodes_are_lost_again_and_again_is_not_used_any_more() -> None:
    """Cases whose results were held would run again without an end."""
    roster = Roster(FLEET, FakeLink([FakeNode(f"x-{number}", labels={NAME: "x"}, joins_after=number) for number in range(10)]))
    roster.open()
    for number in range(1, 10):
        for peer in (peer for peer in roster if peer.state is State.OPENING):
            roster.begin(peer)
            roster.give_up(peer, State.LOST, "it is gone", PinnedSource({}))
        roster.join([Node(key=f"key-x-{number}", name=f"x-{number}", labels={NAME: "x"})])
    assert [peer.name for peer in roster] == ["x-0", "x-1", "x-2", "x-3", "x-4"]
