"""Runs on a fleet whose nodes are fakes: placement, tokens, losses, health checks, resume.

Real nodes: test_fleet_on_ray.
"""

import asyncio
import errno
import time
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import FACTS, interrupted, passes, use_executor
from tests.fleet import RAY, FakeNode, all_graphs, outcomes, results, run, spec_of, use_fleet
from torch_conformance.cli.parser import main
from torch_conformance.execute.executor_protocol import Execution, Job
from torch_conformance.model.diagnostics import InvalidSpecs
from torch_conformance.model.outcomes import ExitCode
from torch_conformance.tools.fleet import hooks, lab
from torch_conformance.tools.fleet.health import problem_of_state
from torch_conformance.tools.fleet.lab import read_lab
from torch_conformance.tools.fleet.link import GatewayLink

SPEC = spec_of(8)


@pytest.fixture
def here(here: Path) -> Path:
    (here / "spec.yaml").write_text(SPEC)
    return here


def test_each_result_names_its_node_and_what_the_node_is(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = FakeNode("one", facts={"driver": "570.1"}), FakeNode("two")
    link = use_fleet(monkeypatch, one, two)
    assert run() == ExitCode.OK
    assert outcomes() == ["PASS"] * 8
    by_node = {result.node["name"]: result.node for result in results().values()}
    assert set(by_node) == {"one", "two"}
    assert (by_node["one"]["image"], by_node["one"]["host"], by_node["one"]["driver"]) == (
        "image-of-one",
        "host-of-one",
        "570.1",
    )
    assert sorted(one.ran + two.ran) == sorted(results())
    line = "node: name one, host host-of-one, image image-of-one"
    assert line in Path("out/junit.xml").read_text("utf-8")
    assert any(line in path.read_text("utf-8") for path in Path("out/report").rglob("*.js"))
    assert link.is_closed


def test_the_jobs_of_a_lost_node_run_elsewhere_and_none_is_counted_twice(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    link = use_fleet(monkeypatch, FakeNode("doomed", dies_after=2), FakeNode("well"))
    assert run() == ExitCode.OK
    assert outcomes() == ["PASS"] * 8
    assert {result.node["name"] for result in results().values()} == {"well"}, (
        "no check of the lost node followed its results"
    )
    assert "node doomed was lost: its plug was pulled" in capsys.readouterr().err
    assert set(link.fakes["key-well"].ran) == set(results())


def test_cases_without_a_node_are_not_run_with_the_reason_and_a_local_run_resumes_them(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_fleet(monkeypatch, FakeNode("only", dies_after=3))
    assert run() == ExitCode.FAILED
    assert set(outcomes()) == {"NOT_RUN"}
    assert all(
        "no node is left that can run it (only: its plug was pulled)" in result.reason
        for result in results().values()
    )
    use_executor(monkeypatch, passes)
    assert main(["run", "spec.yaml", "--resume", "out"]) == ExitCode.OK
    assert outcomes() == ["PASS"] * 8
    assert {len(result.node) for result in results().values()} == {0}


def test_a_local_run_that_was_interrupted_is_resumed_on_nodes_like_its_machine(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = FakeNode("one"), FakeNode("other", facts={"driver": "999"})
    use_fleet(monkeypatch, one, other)
    use_executor(monkeypatch, interrupted)
    assert main(["run", "spec.yaml", "--out", "out"]) == ExitCode.INTERRUPTED
    (done,) = [case for case, result in results().items() if result.outcome.label == "PASS"]
    assert run("--resume", "out") == ExitCode.OK
    assert outcomes() == ["PASS"] * 8
    assert set(one.ran) == set(results()) - {done}
    assert other.ran == []
    printed = capsys.readouterr().err
    assert (
        "node other is quarantined: it is like no machine of the run that is resumed: the "
        "machine's driver is '999' on the node" in printed
    )


def test_sick_nodes_get_no_case(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sick = {
        "late": (FakeNode("late", clock=3600.0), "its clock differs by +3600 s"),
        "wrong": (
            FakeNode("wrong", answer=all_graphs(2)),
            "the canary 'canaries/passes[backend=cpu]' must be PASS, and it was FAIL",
        ),
        "blind": (
            FakeNode("blind", answer=all_graphs(0)),
            "the canary 'canaries/passes[backend=cpu]' must be PASS",
        ),
        "other": (
            FakeNode("other", facts={"torch": "2.12.0"}),
            "the workers import torch 2.12.0 from",
        ),
        "odd": (FakeNode("odd", facts={"gpus": "many"}), "its facts cannot be read"),
    }
    use_fleet(monkeypatch, *(node for node, _ in sick.values()), FakeNode("well"))
    assert run() == ExitCode.OK
    assert outcomes() == ["PASS"] * 8
    lines = capsys.readouterr().err.splitlines()
    for name, (node, why) in sick.items():
        assert node.ran == []
        assert any(f"node {name} is quarantined: " in line and why in line for line in lines), name


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, ""),
        ({"clock": 1031.0}, "its clock differs by +31 s from the runner's"),
        ({"free": 255 << 20}, "255 MiB are free for files"),
        ({"gpus": {"A": 3 << 30}}, "the GPU B is gone"),
        ({"gpus": {"A": None, "B": 0}}, ""),
        (
            {"gpus": {"A": 4 << 30, "B": None}},
            "3072 MiB more of the memory of GPU A are used than at the first check",
        ),
    ],
)
def test_what_a_health_check_compares(changes: dict[str, Any], problem: str) -> None:
    first = {"clock": 1000.0, "free": 1 << 40, "gpus": {"A": 1 << 30, "B": None}}
    assert problem_of_state({**first, **changes}, first, 0.5, 1000.0) == problem


def test_a_full_disk_of_the_runner_ends_a_run_with_its_message(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*arguments: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device", "out/cases/00001/x.json")

    use_fleet(monkeypatch, FakeNode("one"))
    monkeypatch.setattr(hooks.FleetRunner, "result", full)
    assert run() == ExitCode.FAILED
    printed = capsys.readouterr().err
    assert "cannot write out/cases/00001/x.json: No space left on device" in printed
    assert "Traceback" not in printed


def test_a_gateway_whose_line_is_read_after_the_run_was_stopped_is_not_lost() -> None:
    async def line() -> Any:
        link, stdout = GatewayLink("head:6379"), asyncio.StreamReader()
        link._stdout = stdout
        answer = asyncio.create_task(link._line(0.1))
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.2, stdout.feed_data, b"[1]\n")
        time.sleep(0.15)
        found = await answer
        await link.close()
        return found

    assert asyncio.run(line()) == [1]


def test_results_before_a_failed_check_are_executed_again_elsewhere(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node says PASS of everything after its first check, and its last check finds that it does
    so of false claims too.
    """
    first: list[str] = []

    def rots(job: Job) -> Execution | None:
        if job.name.startswith("canaries/"):
            first.append(job.name)
        return all_graphs(1 if len(first) <= 2 else 2)(job)

    link = use_fleet(monkeypatch, FakeNode("rotten", answer=rots), FakeNode("well"))
    assert run() == ExitCode.OK
    assert link.fakes["key-rotten"].ran, "it ran nothing: the test shows nothing"
    assert outcomes() == ["PASS"] * 8
    assert {result.node["name"] for result in results().values()} == {"well"}


def test_a_case_goes_to_the_node_that_has_what_it_requires_or_is_unavailable(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "spec.yaml").write_text(f"requires: [{{mkldnn: float16}}]\n{SPEC}")
    (here / "none.yaml").write_text(f"requires: [{{gpus: '>=2'}}]\n{SPEC}")
    use_fleet(
        monkeypatch,
        FakeNode("old", facts={"mkldnn": "float32"}),
        FakeNode("new", facts={"mkldnn": "float32 float16"}),
    )
    assert main(["run", "spec.yaml", "none.yaml", *RAY, "--out", "out"]) == ExitCode.OK
    assert {result.node.get("name") for result in results().values() if result.name == "spec"} == {
        "new"
    }
    unavailable = {
        (result.outcome.label, result.reason)
        for result in results().values()
        if result.name == "none"
    }
    assert unavailable == {("UNAVAILABLE", "0 GPUs visible, >=2 required")}


LAB = """\
lab: two
nodes:
  one:
    torch: "2.99.0"
  two:
    count: 2
    vendor: cpu
"""


def test_nodes_that_are_not_what_the_lab_says_are_not_used(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "lab.yaml").write_text(LAB)
    nodes = [
        FakeNode(name, labels={"torch-conformance/name": name}) for name in ("one", "two", "three")
    ]
    use_fleet(monkeypatch, *nodes)
    assert run("--lab", "lab.yaml") == ExitCode.OK
    assert {result.node["name"] for result in results().values()} == {"two"}
    printed = capsys.readouterr().err
    assert "node one is quarantined: lab.yaml:4:12: torch is 2.99.0 there, and 2." in printed
    why = "'three' is not in lab.yaml (nodes there: one, two)"
    assert f"node three is quarantined: {why}" in printed
    assert "lab.yaml:5:3: the lab has 2 of two, and 1 can be used" in printed


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("lab: a\nnodes: {b: {cont: 2}}\n", "lab.yaml:2:13: unknown key 'cont' in node"),
        ("lab: a\nnodes: {b: {torch: '>=x'}}\n", "lab.yaml:2:20: "),
        ("lab: a\n", "lab.yaml:1:1: "),
        (
            "lab: a\nnodez: {b: {}}\n",
            "lab.yaml:2:1: unknown key 'nodez' in lab (did you mean 'nodes'?)",
        ),
        (
            "lab: a\nnodes: {b: {torch: 2.13}}\n",
            "lab.yaml:2:20: expected text, found the number 2.13 (put it in quotes: it is text)",
        ),
        (
            "lab: a\nnodes: {b: {gpus: true}}\n",
            'lab.yaml:2:19: expected text, found true (for example ">=1"',
        ),
    ],
)
def test_problems_of_a_lab_have_positions(here: Path, text: str, problem: str) -> None:
    (here / "lab.yaml").write_text(text)
    with pytest.raises(InvalidSpecs) as found:
        read_lab(Path("lab.yaml"))
    assert any(str(one).startswith(problem) for one in found.value.diagnostics), (
        found.value.diagnostics
    )


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--executor", "ray"], "--executor ray: which cluster?"),
        (["--address", "a:1"], "--address has no effect with --executor local"),
        (["--lab", "lab.yaml"], "--lab has no effect with --executor local"),
    ],
)
def test_options_of_a_fleet_that_contradict_each_other(
    here: Path, capsys: pytest.CaptureFixture[str], words: list[str], problem: str
) -> None:
    assert main(["run", "spec.yaml", *words]) == ExitCode.USAGE
    assert problem in capsys.readouterr().err


ONE_GRAPH = SPEC.replace(
    "expect: [{close: {to: eager}}]",
    "expect: [{close: {to: eager}}, {counter: {stats.unique_graphs: 1}}]",
)


@pytest.mark.parametrize(
    "more",
    [
        ("--retries", "1", "--flaky", "pass"),
        pytest.param(
            ("--repeat", "2", "--flaky", "pass"),
            marks=pytest.mark.nightly(reason="retries are always tested"),
        ),
    ],
    ids=["retries", "repeat"],
)
def test_attempts_of_a_case_run_on_nodes_that_are_alike(
    here: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
) -> None:
    """A case that fails with one driver and passes with another is not flaky, and is not let pass
    as such.
    """

    def bad(job: Job) -> Execution | None:
        assert job.plan is not None
        return all_graphs(1 if job.name.startswith("canaries/") else 2)(job)

    (here / "spec.yaml").write_text(ONE_GRAPH)
    use_fleet(
        monkeypatch,
        FakeNode("bad", answer=bad, facts={"driver": "1"}),
        FakeNode("good", facts={"driver": "2"}),
    )
    assert run(*more) == ExitCode.FAILED
    found = results()
    assert {result.outcome.label for result in found.values()} == {"PASS", "FAIL"}
    for result in found.values():
        assert {part.node["name"] for part in (result, *result.attempts)} == {
            "bad" if result.outcome.label == "FAIL" else "good"
        }


def test_a_case_whose_node_is_lost_before_its_second_attempt_ends(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Further attempts run where the first one ran: with that node gone the run began rounds of
    attempts without an end.
    """
    only = FakeNode("only", answer=lambda job: bad(job))

    def bad(job: Job) -> Execution | None:
        if job.name.startswith("canaries/"):
            return passes(job)
        only.dies_after = 0 if len(only.ran) == 8 else -1
        return all_graphs(2)(job)

    (here / "spec.yaml").write_text(ONE_GRAPH)
    use_fleet(monkeypatch, only)
    assert run("--retries", "1") == ExitCode.FAILED
    assert outcomes() == ["FAIL"] * 8
    assert all("no node is left" in result.reason for result in results().values())


def test_an_audit_judges_each_result_by_the_torch_of_its_node(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The header names one torch, and a claim that depends on the version is another one on the
    node with the other torch.
    """
    other = 12 if FACTS["torch"].startswith("2.13") else 13
    claim = f"[{{when: {{torch: '>=2.{other},<2.{other + 1}'}}, value: 2}}, {{value: 1}}]"
    (here / "spec.yaml").write_text(
        ONE_GRAPH.replace("unique_graphs: 1", f"unique_graphs: {claim}")
    )

    def two_graphs(job: Job) -> Execution | None:
        return all_graphs(1 if job.name.startswith("canaries/") else 2)(job)

    use_fleet(
        monkeypatch, FakeNode("now"), FakeNode("other", answer=two_graphs, torch=f"2.{other}.0")
    )
    assert run() == ExitCode.OK
    assert {result.node["torch"] for result in results().values()} == {
        FACTS["torch"],
        f"2.{other}.0",
    }
    assert main(["audit", "out"]) == ExitCode.OK


def test_a_run_asks_for_further_nodes_when_it_has_the_first(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs that each held a part of a lab would wait for each other.

    A first node that is lost is followed by the next one.
    """
    link = use_fleet(monkeypatch, *(FakeNode(name) for name in ("c", "a", "d", "b")))
    link.held_by_others.add("key-a")
    assert run() == ExitCode.OK
    assert link.holds[:6] == [
        ("key-a", "asked"),
        ("key-a", "answered"),
        ("key-b", "asked"),
        ("key-b", "answered"),
        ("key-c", "asked"),
        ("key-d", "asked"),
    ]
    assert outcomes() == ["PASS"] * 8


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("head", "--address head: no host and port"),
        (":6379", "--address :6379: no host and port"),
        ("head:", "--address head:: no host and port"),
        ("head:65536", "--address head:65536: no host and port"),
        ("head:\u0663", "--address head:\u0663: no host and port"),
        ("http://user:hunter2@head:8265", "--address http://head:8265: no host and port"),
        (
            "no-such-host.invalid:6379",
            "--address no-such-host.invalid:6379: no Ray cluster answers",
        ),
        ("127.0.0.1:1", "--address 127.0.0.1:1: no Ray cluster answers (Connection refused)"),
    ],
)
def test_an_address_without_a_head_is_refused_before_a_folder_is_made(
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    address: str,
    problem: str,
) -> None:
    monkeypatch.setattr(lab, "require_ray", lambda: None)
    assert (
        main(["run", "spec.yaml", "--executor", "ray", "--address", address, "--out", "out"])
        == ExitCode.USAGE
    )
    printed = capsys.readouterr().err
    assert problem in printed
    assert "hunter2" not in printed
    assert not (here / "out").exists()


@pytest.mark.nightly(reason="the loss of a node is always tested")
def test_a_case_that_takes_two_nodes_with_it_takes_no_third(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "spec.yaml").write_text(
        SPEC.replace("[1, 2, 3, 4, 5, 6, 7, 8]", "[1]").replace('"{{ size }}"', '"{{ size }}"')
    )
    nodes = [FakeNode(name, dies_after=0) for name in ("a", "b", "c")]
    use_fleet(monkeypatch, *nodes)
    # canaries are jobs too: the nodes live until they have a case
    for node in nodes:
        node.dies_after = -1
        node.answer = _dies_with_a_case(node)
    assert run() == ExitCode.FAILED
    (result,) = results().values()
    assert result.outcome.label == "NOT_RUN"
    assert "the nodes that had it were lost before it ended (a: " in result.reason
    assert sum(node.dies_after == 0 for node in nodes) == 2


def _dies_with_a_case(node: FakeNode) -> Any:
    def answer(job: Job) -> Execution | None:
        if not job.name.startswith("canaries/"):
            node.dies_after = 0
            return None
        return passes(job)

    return answer
