"""The zygote that starts while the specs are read: which runs have one, and which environment takes it. It is real, and has no torch."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.cli.parser import parse
from runner.core.attempts import Policy
from runner.core.diagnostics import UsageError
from runner.core.options import RunOptions
from runner.execute.executors import EXECUTORS, LOCAL, RAY
from runner.execute.local import early
from runner.execute.local.early import EarlyZygote
from runner.execute.local.spawn import ProcessStarter
from runner.plan import schedule
from runner.plan.jobs import Environment
from runner.run import early_start
from runner.run.preparation import Checked

CPU = Environment(kinds=frozenset(["cpu"]))


class Plain(ProcessStarter):
    def _zygote_module(self, wanted: Environment) -> str:
        return "tests.plain_zygote"


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early, "ProcessStarter", Plain)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))


@pytest.fixture
def zygote() -> Iterator[EarlyZygote]:
    with EarlyZygote(CPU, 2, None) as made:
        yield made


@pytest.mark.parametrize("wanted", [CPU, Environment()], ids=["cpu", "host"])
def test_the_first_environment_that_it_serves_takes_it(zygote: EarlyZygote, wanted: Environment) -> None:
    process = zygote.take(wanted, 2)
    assert process is not None
    assert process.process.poll() is None
    assert zygote.take(wanted, 2) is None, "it was taken"


@pytest.mark.parametrize(
    ("wanted", "threads"),
    [
        (Environment(kinds=frozenset(["cuda"])), 2),
        (Environment(kinds=frozenset(["cpu", "cuda"])), 2),
        (Environment(variables={"CUDA_VISIBLE_DEVICES": "3"}, kinds=CPU.kinds), 2),
        (Environment(variables={"HOME": None}, kinds=CPU.kinds), 2),
        (CPU, 1),
    ],
    ids=["gpu", "both", "variable", "removed variable", "threads"],
)
def test_another_environment_does_not_take_it(zygote: EarlyZygote, wanted: Environment, threads: int) -> None:
    assert zygote.take(wanted, threads) is None
    assert zygote.take(CPU, 2) is not None


def test_one_that_has_ended_is_not_taken(zygote: EarlyZygote) -> None:
    zygote._process.process.kill()
    zygote._process.process.wait(30)
    assert zygote.take(CPU, 2) is None


def test_it_ends_with_its_run_and_leaves_no_folder() -> None:
    with EarlyZygote(CPU, 1, None) as other:
        process, folder = other._process.process, other._scratch.path
        assert folder.is_dir()
    assert process.poll() is not None
    assert not folder.exists()


def test_it_ends_where_reading_the_specs_fails() -> None:
    with contextlib.suppress(UsageError), EarlyZygote(CPU, 1, None) as other:
        process = other._process.process
        raise UsageError("no such folder")
    assert process.poll() is not None


def checked(folder: Path, *words: str) -> Checked:
    _, options = parse(["run", str(folder), "--no-kept", *words])
    assert isinstance(options, RunOptions)
    return Checked(options=options, workers=1, policy=Policy.of(retries=0, repeat=1, fail_fast=False), memory_limit=None)


def folder_of(tmp_path: Path, count: int) -> Path:
    area = tmp_path / "area"
    area.mkdir()
    for number in range(count):
        (area / f"spec-{number}.yaml").write_text("summary: s\n")
    return tmp_path


def test_a_run_of_many_specs_has_one(tmp_path: Path) -> None:
    with early_start.executors_of(checked(folder_of(tmp_path, early_start.LEAST_SPECS))) as made:
        assert made.keys() == EXECUTORS.keys()
        assert made[LOCAL] != EXECUTORS[LOCAL]
        assert {name for name in made if made[name] != EXECUTORS[name]} == {LOCAL}


@pytest.mark.parametrize("words", [("--isolation", "process"), ("--executor", RAY), ()], ids=["process", "ray", "no torch"])
def test_a_run_without_zygotes_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    if not words:
        monkeypatch.setattr(early_start, "installed_torch", lambda: None)
    with early_start.executors_of(checked(folder_of(tmp_path, early_start.LEAST_SPECS), *words)) as made:
        assert made is EXECUTORS


def test_a_run_of_few_specs_has_none(tmp_path: Path) -> None:
    with early_start.executors_of(checked(folder_of(tmp_path, early_start.LEAST_SPECS - 1))) as made:
        assert made is EXECUTORS


def test_the_cases_of_the_shipped_specs_are_served(zygote: EarlyZygote) -> None:
    from runner.language.load import load
    from runner.plan.selection import select

    suite = load([])
    cases = select(suite.cases, suite.backends, names=["cpu"])
    first = next(iter(schedule.environments(cases).values()))
    assert zygote.take(first, 2) is not None
