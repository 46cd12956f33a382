"""A fleet without Ray and without processes: nodes that answer as agents do, and that fail in the
ways that a test names.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.fakes import ENDED, FACTS, passes
from torch_conformance.execute.executor_protocol import Execution, Job
from torch_conformance.machine import capabilities
from torch_conformance.machine.installed_torch import installed_torch, release
from torch_conformance.tools.fleet import hooks, lab, messages
from torch_conformance.tools.fleet.link import Event, Node
from torch_conformance.tools.fleet.messages import FrameReader, Message, pack

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
    source: str = ""
    hello: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)
    """The ids of the cases that it ended, without canaries."""
    speaks_after_death: bool = False
    torch: str = ""
    """The version of its torch, where that is not the one of this machine."""
    adds: Mapping[str, str] = field(default_factory=dict)
    """What it sends besides, unasked: the kind of a further answer, by the kind of what it was
    sent.
    """

    def take(self, message: Message) -> list[bytes]:
        answers = self._answers(message)
        match self.adds.get(message["kind"]):
            case "hello":
                return [*answers, pack({**self._hello({"packages": []}), **self.hello})]
            case "checked":
                return [*answers, pack({"kind": "checked", **self._state()})]
            case "ended":
                return answers * 2
        return answers

    def _answers(self, message: Message) -> list[bytes]:
        match message["kind"]:
            case "begin":
                return [pack({**self._hello(message), **self.hello})]
            case "check":
                return [pack({"kind": "checked", **self._state()})]
            case "job":
                return self._run(message)
        return []

    def _hello(self, message: Message) -> dict[str, Any]:
        packages = dict.fromkeys(message["packages"], True)
        machine = replace(capabilities.inspect_files(installed_torch()), packages=packages)
        if self.torch:
            machine = replace(machine, torch=self.torch, release=release(self.torch))
        provenance = {"host": f"host-of-{self.name}", "image": f"image-of-{self.name}"}
        source = self.source or messages.digest()
        return {
            "kind": "hello",
            "machine": dataclasses.asdict(machine),
            "provenance": provenance,
            "source": source,
            "jobs": 2,
        }

    def _state(self) -> dict[str, Any]:
        return {"clock": time.time() + self.clock, "free": 1 << 40, "gpus": []}

    def _run(self, message: Mapping[str, Any]) -> list[bytes]:
        job = Job.from_json(message["job"])
        if job.plan is None:
            installed = installed_torch()
            assert installed is not None
            version = self.torch or installed.version
            facts = {
                **FACTS,
                "torch": version,
                "torch_git": installed.git,
                "torch_root": str(installed.root),
                **self.facts,
            }
            done: Execution | None = Execution(
                job=job, observation=facts, ending=ENDED, seconds=0.1, isolation="fork"
            )
        else:
            done = self.answer(job)
        if done is None:
            return []
        if job.plan is not None and not job.name.startswith("canary"):
            self.ran.append(str(job.plan["id"]))
        sent = dataclasses.asdict(done)
        del sent["job"]
        return [
            pack(
                {
                    "kind": "ended",
                    "token": message["token"],
                    "execution": {**sent, "files": []},
                    "files": {},
                }
            )
        ]


class FakeLink:
    """Delivers what nodes answer, in turn."""

    def __init__(self, nodes: Sequence[FakeNode]) -> None:
        self.fakes = {node.name: node for node in nodes}
        self._readers: dict[str, FrameReader] = {}
        self._events: list[Event] = []
        self._dead: set[str] = set()
        self.is_closed = False

    def nodes(self) -> Sequence[Node]:
        return [
            Node(key=f"key-{name}", name=name, labels=fake.labels)
            for name, fake in self.fakes.items()
        ]

    def open(self, key: str) -> None:
        self._readers[key] = FrameReader()
        self._events.append(Event(key))

    def send(self, key: str, data: bytes) -> None:
        if key not in self._readers:
            return
        fake = self.fakes[key.removeprefix("key-")]
        for message in self._readers[key].feed(data):
            if key in self._dead and not fake.speaks_after_death:
                return
            events: list[Event] = [
                Event(key, answered)
                for answer in fake.take(message)
                for answered in FrameReader().feed(answer)
            ]
            if (
                key not in self._dead
                and fake.dies_after >= 0
                and len(fake.ran) >= fake.dies_after
                and message["kind"] == "job"
            ):
                self._dead.add(key)
                events = [
                    Event(key, lost="its plug was pulled"),
                    *(events if fake.speaks_after_death else []),
                ]
            self._events += events

    def wait(self, seconds: float, wake: int | None) -> Sequence[Event]:
        assert self._events or not seconds, (
            "nothing comes any more: a real run would wait for a time limit"
        )
        events, self._events = self._events, []
        return events

    def lose(self, key: str, why: str) -> None:
        """Lose a node that was opened, in place of what it would say."""
        self._events = [event for event in self._events if event.key != key]
        self._events.append(Event(key, lost=why))

    def close_node(self, key: str) -> None:
        self._readers.pop(key, None)

    def close(self) -> None:
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
