"""A fleet without Ray and without processes: nodes that answer as agents do, and that fail in the
ways that a test names; and runs on it.
"""

import asyncio
import dataclasses
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import ENDED, FACTS, passes
from torch_conformance.cli.parser import main
from torch_conformance.execute.executor_protocol import Execution, Job
from torch_conformance.machine import capabilities
from torch_conformance.machine.installed_torch import facts_of_files, installed_torch, release
from torch_conformance.model.results import CaseResult
from torch_conformance.record.journal import read_run
from torch_conformance.tools.fleet import hooks, lab
from torch_conformance.tools.fleet.link import Lost, Node

Answer = Callable[[Job], Execution | None]


def all_graphs(count: int) -> Answer:
    """Return answers of a worker whose compiler captures so many graphs: with one, the canaries
    have their known verdicts.
    """

    def answer(job: Job) -> Execution | None:
        found = passes(job)
        found.observation["steps"][0]["counters"]["stats"] = {"unique_graphs": count}
        return found

    return answer


@dataclass
class FakeNode:
    """One node. ``answer`` makes the execution of a job; None means that it never ends."""

    name: str
    answer: Answer = passes
    facts: Mapping[str, Any] = field(default_factory=dict)
    dies_after: int = -1
    """The number of cases after which it is lost, with the jobs that it has."""
    clock: float = 0.0
    labels: Mapping[str, str] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)
    """The ids of the cases that it ended, without canaries."""
    torch: str = ""
    """The version of its torch, where that is not the one of this machine."""

    async def hold(self) -> None:
        pass

    async def begin(self, settings: Mapping[str, Any]) -> Any:
        packages = dict.fromkeys(settings["packages"], True)
        machine = replace(capabilities.inspect_files(installed_torch()), packages=packages)
        if self.torch:
            machine = replace(machine, torch=self.torch, release=release(self.torch))
        provenance = {
            "host": f"host-of-{self.name}",
            "image": f"image-of-{self.name}",
            "driver": "not what a worker says",
        }
        return {
            "machine": dataclasses.asdict(machine),
            "provenance": provenance,
            "files": facts_of_files(installed_torch()),
            "jobs": 2,
        }

    async def state(self) -> Any:
        return {"clock": time.time() + self.clock, "free": 1 << 40, "gpus": {}}

    async def run(self, text: str) -> Any:
        job = Job.from_json(text)
        if job.plan is None:
            installed = installed_torch()
            assert installed is not None
            facts = {
                **FACTS,
                "torch": self.torch or installed.version,
                "torch_git": installed.git,
                "torch_root": str(installed.root),
                **self.facts,
            }
            done: Execution | None = Execution(
                job=job, observation=facts, ending=ENDED, seconds=0.1, isolation="fork"
            )
        else:
            done = self.answer(job)
        if done is not None and job.plan is not None and not job.name.startswith("canaries/"):
            self.ran.append(str(job.plan["id"]))
        if 0 <= self.dies_after <= len(self.ran):
            raise Lost("its plug was pulled")
        if done is None:
            await asyncio.Event().wait()
        sent = dataclasses.asdict(done)
        del sent["job"]
        return {**sent, "files": []}


class FakeLink:
    """Calls nodes, in turn."""

    def __init__(self, nodes: Sequence[FakeNode]) -> None:
        self.fakes = {f"key-{node.name}": node for node in nodes}
        self.holds: list[tuple[str, str]] = []
        """The nodes that were asked whether they are free, and those that answered, in order."""
        self.held_by_others: set[str] = set()
        self.is_closed = False

    async def nodes(self) -> Sequence[Node]:
        return [
            Node(key=key, name=fake.name, labels=fake.labels)
            for key, fake in sorted(self.fakes.items())
        ]

    async def call(self, key: str, method: str, *arguments: Any, folder: str = "") -> Any:
        if method == "hold":
            self.holds.append((key, "asked"))
        await asyncio.sleep(0)
        if method == "hold":
            self.holds.append((key, "answered"))
            if key in self.held_by_others:
                raise Lost("another run held this node for 600 s")
        answer = await getattr(self.fakes[key], method)(*arguments)
        return json.loads(json.dumps(answer))

    def drop(self, key: str) -> None:
        pass

    async def close(self) -> None:
        self.is_closed = True


def use_fleet(monkeypatch: pytest.MonkeyPatch, *nodes: FakeNode) -> FakeLink:
    """Let runs with ``--executor ray`` of this process use these nodes."""
    link = FakeLink(nodes)
    installed = installed_torch()
    assert installed is not None
    monkeypatch.setitem(
        FACTS, "torch", installed.version
    )  # what a fake executor of this machine reports
    monkeypatch.setattr(lab, "require_ray", lambda: None)
    monkeypatch.setattr(lab, "require_head", lambda address: None)
    monkeypatch.setattr(hooks, "GatewayLink", lambda address: link)
    return link


RAY = ("--executor", "ray", "--address", "head:6379")


def spec_of(cases: int) -> str:
    """Return a spec with so many cases."""
    return f"""\
summary: A product of two matrices is right at every point
backends: [cpu]
matrix: {{size: {list(range(1, cases + 1))}}}
function: |
  def fn(x, y):
      return x @ y
inputs: [{{rand: [4, "{{{{ size }}}}"]}}, {{rand: ["{{{{ size }}}}", 4]}}]
expect: [{{close: {{to: eager}}}}]
"""


def run(*more: str, out: str = "out") -> int:
    """Run ``spec.yaml`` of the working folder; return the exit code."""
    return main(["run", "spec.yaml", *RAY, *([] if "--resume" in more else ["--out", out]), *more])


def results(out: str = "out") -> dict[str, CaseResult]:
    """Return the results of a run by the ids of its cases."""
    found = read_run(Path(out) / "run.jsonl").results
    assert len({result.case_id for result in found}) == len(found), "a case was counted twice"
    return {result.case_id: result for result in found}


def outcomes(out: str = "out") -> list[str]:
    """Return the outcomes of a run, as text."""
    return [result.outcome.label for result in results(out).values()]
