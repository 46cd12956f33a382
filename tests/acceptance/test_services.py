"""Remote caches against servers, and against none where one was asked for."""

import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import ROOT, prestarted_program, program
from torch_conformance.model.outcomes import Outcome
from torch_conformance.model.results import CaseResult
from torch_conformance.record.journal import read_run

redis = pytest.importorskip("redis", reason="the client is not installed: pip install redis")

pytestmark = pytest.mark.torch

SPECS = ROOT / "tests" / "specs" / "services"


class Ran:
    """A run of the specs, with its results by the name of the spec."""

    def __init__(
        self,
        out: Path,
        *arguments: object,
        start: Callable[..., "subprocess.CompletedProcess[str]"] = program,
    ) -> None:
        self.out = out
        self.done = start("run", *arguments, "--jobs", "1", "--out", out, timeout=400)
        self.results: Mapping[str, CaseResult] = {
            result.name: result for result in read_run(out / "run.jsonl").results
        }

    def service(self, name: str) -> Any:
        (report,) = json.loads((self.out / self.results[name].folder / "services.json").read_text())
        return report


OUTCOMES = {
    "remote-cache-hit": (Outcome.PASS, ""),
    "custom-client-and-torch": (
        Outcome.ERROR,
        "service: expected traffic of the case with redis, observed redis answered 2 look-ups "
        "and 2 writes, and torch's",
    ),
    "custom-client-only": (
        Outcome.ERROR,
        "service: expected traffic of the case with redis, observed the case uses redis, but "
        "torch sent it no request",
    ),
    "connection-refused": (Outcome.ERROR, "service: expected traffic of the case with redis"),
    "remote-cache-off": (Outcome.ERROR, "service: expected traffic of the case with redis"),
    "server-killed": (Outcome.ERROR, "redis: its server ended before the case did"),
}

KILLED = "server-killed"
"""Its case looks for the server among the processes of its run, of which a prestarted zygote is
none.
"""

IN_CI = [name for name in OUTCOMES if name != KILLED]


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    specs = [SPECS / f"{name}.yaml" for name in IN_CI]
    return Ran(tmp_path_factory.mktemp("embedded") / "out", *specs, start=prestarted_program)


def test_every_spec_is_known(embedded: Ran) -> None:
    assert set(OUTCOMES) == {path.stem for path in SPECS.glob("[a-z]*.yaml")}
    assert set(IN_CI) == set(embedded.results), embedded.done.stderr


@pytest.mark.parametrize("name", IN_CI)
def test_what_the_server_saw_decides(embedded: Ran, name: str) -> None:
    outcome, reason = OUTCOMES[name]
    found = embedded.results[name]
    assert found.outcome is outcome, found.reason
    assert found.reason.startswith(reason)


def test_the_workers_own_facts_would_have_held(embedded: Ran) -> None:
    """A refused connection is a miss and a put in torch's statistics: they alone would have
    passed.
    """
    verdicts = embedded.results["connection-refused"].verdicts
    assert {
        verdict.status.value
        for verdict in verdicts
        if verdict.kind in ("remote_cache", "close", "proof")
    } == {"held"}


def test_no_password_is_recorded(embedded: Ran) -> None:
    texts = [
        path.read_text("utf-8", "replace") for path in embedded.out.rglob("*") if path.is_file()
    ]
    assert len(texts) > 10
    assert not any("redis://:" in text for text in texts)


def test_no_server_outlives_the_run(embedded: Ran) -> None:
    running = [
        entry for entry in Path("/proc").iterdir() if entry.name.isdigit() and _is_orphan(entry)
    ]
    assert running == []


def _is_orphan(entry: Path) -> bool:
    try:
        words = (entry / "cmdline").read_bytes().split(b"\0")
        parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return False
    return b"torch_conformance.execute.redis_service" in words and parent == 1
