"""What the command line and the last run say of how cases are run, on its way to the jobs.

The executor is a fake: no worker is started.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import GOOD
from tests.fakes import FakeExecutor, crashed, use_executor, write_specs
from torch_conformance.cli.parser import main
from torch_conformance.model.case import Group
from torch_conformance.model.outcomes import ExitCode
from torch_conformance.plan import schedule

GIB = 1 << 30
SPECS = {
    "_defaults": "groups: {few: 2}\n",
    "short": GOOD + "group: few\n",
    "long": GOOD,
    "threads": GOOD + "config: {compile_threads: 3}\n",
    "alone": GOOD + "exclusive: true\n",
}


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch) -> FakeExecutor:
    """Let every case crash, each a second later than the one before it."""
    fake = use_executor(monkeypatch, lambda job: crashed(job, float(len(fake.jobs))))
    return fake


@pytest.fixture
def run(here: Path, executor: FakeExecutor) -> Callable[..., list[str]]:
    """Return a function that runs the program on a folder of specs and returns the names of the
    jobs in their order.
    """
    write_specs(here, SPECS)

    def go(*arguments: str) -> list[str]:
        assert main(["run", "specs", "--backend", "cpu", *arguments]) == ExitCode.FAILED
        return [job.name.partition("[")[0] for job in executor.jobs]

    return go


Run = Callable[..., list[str]]


def header() -> dict[str, Any]:
    return dict(json.loads(Path("reports/latest/run.jsonl").read_text().splitlines()[0]))


def reported() -> list[str]:
    from xml.etree import ElementTree

    return [
        str(case.get("classname")) + str(case.get("name"))
        for case in ElementTree.parse("reports/latest/junit.xml").iter("testcase")
    ]


def test_the_first_run_takes_what_runs_alone_last_and_the_next_the_longest_first(run: Run) -> None:
    assert run() == ["long", "short", "threads", "alone"]
    first = reported()
    # each case took a second more than the one before it
    assert run() == ["threads", "short", "long", "alone"]
    assert reported() == first  # in the order of the specs, whatever the order of the run


def test_a_seed_gives_an_order_and_stands_in_the_journal(run: Run) -> None:
    orders = {tuple(run("--shuffle", str(seed))) for seed in range(8)}
    assert len(orders) > 4
    assert run("--shuffle", "3") == run("--shuffle", "3")
    assert header()["shuffle"] == "3"
    run()
    assert header()["shuffle"] == ""


def test_each_job_knows_what_it_needs(
    run: Run, executor: FakeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "cores", lambda: 8.0)
    run("--memory-limit", "4GiB", "--group", "few=3")
    needs = {job.name.partition("[")[0]: job.needs for job in executor.jobs}
    assert (needs["short"].cores, needs["short"].exclusive) == (1, False)
    assert needs["threads"].cores == 3
    assert needs["alone"].exclusive
    assert needs["short"].group == Group(name="few", file="specs/_defaults.yaml", most=3)
    assert needs["threads"].group is None
    assert main(["run", "specs", "--group", "fww=3"]) == ExitCode.USAGE
    assert {job.memory_limit for job in executor.jobs} == {4 * GIB}


@pytest.mark.parametrize(
    ("arguments", "limit"), [((), 18 * GIB), (("--memory-limit", "none"), None)]
)
def test_the_limit_of_memory(
    arguments: tuple[str, ...],
    limit: int | None,
    run: Run,
    executor: FakeExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(schedule, "available_memory", lambda: 24 * GIB)
    run(*arguments)
    assert {job.memory_limit for job in executor.jobs} == {limit}
