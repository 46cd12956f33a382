"""``watch``: what counts as a change, which specs depend on a file, what runs then, and what is said. The executor is a fake."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.cli.commands import watch as command
from runner.cli.commands.watch import TypedKeys
from runner.cli.parser import main, parse
from runner.core.exit_codes import ExitCode
from runner.core.observation import Ending
from runner.core.options import WatchOptions
from runner.core.outcomes import Outcome
from runner.core.results import CaseResult
from runner.execute.base import Execution, Job
from runner.execute.executors import EXECUTORS
from runner.execute.local.kept_zygotes import ZygoteStore
from runner.language.read.files import DefaultsReader, discover
from runner.run.watching import loop, machine_state, tries
from runner.run.watching.changes import Changes, snapshot
from runner.run.watching.loop import Key, Watch, Watched
from runner.run.watching.outcomes import Outcomes
from runner.run.watching.sources import files_of
from runner.system.installed_torch import torch_at
from runner.system.signals import Interrupts
from tests.conftest import GOOD
from tests.fakes import ENDED, FakeExecutor, case, close_facts, close_leaf, observation, seen, use_executor, verdict_of
from tests.results import as_outcome

# What counts as a change


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Disk:
    """A snapshot that a test edits."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[int, int, int]] = {"a": (1, 1, 1), "b": (1, 1, 1)}

    def __call__(self) -> dict[str, tuple[int, int, int]]:
        return dict(self.files)


def polls(changes: Changes, clock: Clock, *moments: float) -> list[set[str]]:
    found = []
    for moment in moments:
        clock.now = moment
        found.append(set(changes.poll()))
    return found


def test_a_change_is_reported_once_when_it_has_settled() -> None:
    clock, disk = Clock(), Disk()
    changes = Changes(disk, clock)
    assert polls(changes, clock, 0, 1) == [set(), set()]
    disk.files["a"] = (2, 1, 1)
    assert polls(changes, clock, 2, 2.02, 2.06, 2.2) == [set(), set(), {"a"}, set()]


def test_a_file_that_is_written_in_parts_is_reported_at_its_end() -> None:
    clock, disk = Clock(), Disk()
    changes = Changes(disk, clock)
    for number, moment in enumerate((1.0, 1.04, 1.08)):
        disk.files["a"] = (1, number + 2, 1)
        assert polls(changes, clock, moment) == [set()]
    assert polls(changes, clock, 1.14) == [{"a"}]


def test_a_file_that_changes_all_the_time_is_reported() -> None:
    clock, disk = Clock(), Disk()
    changes = Changes(disk, clock)
    found = []
    for number in range(30):
        disk.files["a"] = (number + 2, 1, 1)
        found += polls(changes, clock, 1 + number * 0.04)
    assert {"a"} in found


def test_new_and_deleted_files_and_those_written_by_rename_are_changes() -> None:
    clock, disk = Clock(), Disk()
    changes = Changes(disk, clock)
    disk.files = {"a": (1, 1, 9), "c": (1, 1, 1)}
    assert polls(changes, clock, 1, 2) == [set(), {"a", "b", "c"}]


def test_a_snapshot_has_the_files_that_may_be_specs(tmp_path: Path) -> None:
    for name in ("one.yaml", "in/two.yml", "in/_defaults.yaml", ".hidden/three.yaml", "text.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "in" / "loop").symlink_to(tmp_path)
    names = {str(Path(name).relative_to(tmp_path)) for name in snapshot([tmp_path], [tmp_path / "text.txt", tmp_path / "absent"])}
    assert names == {"one.yaml", "in/two.yml", "in/_defaults.yaml", "text.txt"}
    assert snapshot([tmp_path / "absent.yaml"]) == {}


def test_a_rename_onto_a_file_changes_its_stamp(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("one")
    os.utime(tmp_path / "a.yaml", ns=(5, 5))
    before = snapshot([tmp_path])
    (tmp_path / "other").write_text("two")
    os.utime(tmp_path / "other", ns=(5, 5))
    os.replace(tmp_path / "other", tmp_path / "a.yaml")
    assert snapshot([tmp_path]) != before


# Which files a spec depends on


def test_a_spec_depends_on_defaults_and_modules_that_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    area = tmp_path / "specs" / "area"
    area.mkdir(parents=True)
    (tmp_path / "specs" / "common.yaml").write_text("tags: [x]\n")
    (area / "_defaults.yaml").write_text("extends: ../common.yaml\n")
    (area / "one.yaml").write_text(GOOD + "prelude: |\n  from helpers import thing\n  import mine.deep\n")
    modules = tmp_path / "modules"
    (modules / "mine").mkdir(parents=True)
    for name in ("helpers.py", "mine/deep.py", "unnamed.py"):
        (modules / name).write_text("")
    monkeypatch.syspath_prepend(modules)
    (spec,) = discover([area], [])
    names = {str(path.relative_to(tmp_path)) for path in files_of(spec, DefaultsReader()) if path.is_relative_to(tmp_path)}
    assert names == {
        "_defaults.yaml",  # it does not exist: when it appears, it applies
        "specs/_defaults.yaml",
        "specs/area/_defaults.yaml",
        "specs/area/one.yaml",
        "specs/common.yaml",
        "modules/helpers.py",
        "modules/mine/deep.py",
    }


def test_the_state_of_the_machine_is_packages_variables_and_backends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backends = tmp_path / "mine.yaml"
    backends.write_text("x: 1\n")
    variables = {"ONE": "1"}
    first = machine_state.state([backends], variables)
    assert machine_state.state([backends], variables) == first
    assert machine_state.state([backends], {"ONE": "2"}) != first
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "torch").mkdir()
    (packages / "torch" / "version.py").write_text("__version__ = '2.13.0'\n")
    monkeypatch.syspath_prepend(packages)
    monkeypatch.setattr(machine_state, "installed_torch", lambda: torch_at(packages / "torch"))
    other = machine_state.state([backends], variables)
    assert other != first
    (packages / "torch" / "edited.py").write_text("")  # a developer of torch
    edited = machine_state.state([backends], variables)
    assert edited != other
    (packages / "vendor.dist-info").mkdir()
    installed = machine_state.state([backends], variables)
    assert installed != edited
    backends.write_text("x: 2\n")
    assert machine_state.state([backends], variables) != installed


def test_each_run_reads_files_as_a_new_process_would() -> None:
    from runner.language.read import python

    assert python.is_installed("json")
    assert python._folders.cache_info().currsize > 0
    machine_state.forget_cached()
    assert python._folders.cache_info().currsize == 0


# What runs, and what is said


def answered(job: Job) -> Execution:
    """Answer as a worker would: the case passes, unless its spec is named for how it ends."""
    if "crashes" in job.name:
        return Execution(job=job, observation=None, ending=Ending(exit_code=1, phase="import"), seconds=0.1, isolation="fork")
    return passes(job)


def passes(job: Job) -> Execution:
    case_id = job.name.rpartition(" (")[0]
    step = seen(measured={"0": close_facts(close_leaf())})
    return Execution(job=job, observation=observation(step, id=case_id), ending=ENDED, seconds=0.1, isolation="fork")


class Script:
    """A keyboard: each wait does what comes next, and a change is polled without a pause."""

    def __init__(self, *acts: Callable[[], object] | Key) -> None:
        self.acts = list(acts)

    def wait(self, seconds: float) -> Key | None:
        if not self.acts:
            return Key.QUIT
        act = self.acts.pop(0)
        if isinstance(act, Key):
            return act
        act()
        return None


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch) -> FakeExecutor:
    return use_executor(monkeypatch, answered)


Go = Callable[..., ExitCode]


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executor: FakeExecutor) -> Iterator[Go]:
    """Return a function that watches the folder ``specs`` while a script runs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "specs").mkdir()
    monkeypatch.setattr("runner.run.watching.changes.SETTLE_SECONDS", 0.0)
    store = ZygoteStore(tmp_path / "kept")

    def watch(*acts: Callable[[], object] | Key, line: str = "watch specs", **more: Any) -> ExitCode:
        _, options = parse(line.split())
        assert isinstance(options, WatchOptions)
        from runner.report import table

        made = tries.Tries(command.run_options(options), table.of_watch, dict(EXECUTORS))
        return Watch(Watched(paths=options.paths, backends=options.backends), made, store, Script(*acts), **more).run()

    yield watch
    store.close()


def write(name: str, text: str = GOOD) -> Callable[[], object]:
    return lambda: Path("specs", name).write_text(text)


def ran(executor: FakeExecutor) -> list[str]:
    """Return the names of the specs of the last run."""
    return sorted({job.name.partition("[")[0] for job in executor.jobs})


def test_the_first_run_has_all_specs(go: Go, executor: FakeExecutor, capsys: pytest.CaptureFixture[str]) -> None:
    write("one.yaml")(), write("two.yaml")()
    assert go() is ExitCode.OK
    assert ran(executor) == ["one", "two"]
    out = capsys.readouterr()
    assert "2  PASS\nexecuted 2 of 2 selected" in out.out
    assert "waiting for a change" in out.err


def test_a_saved_spec_runs_alone(go: Go, executor: FakeExecutor, capsys: pytest.CaptureFixture[str]) -> None:
    write("one.yaml")(), write("two.yaml")()
    assert go(write("two.yaml", GOOD + "\n"), lambda: None) is ExitCode.OK
    assert ran(executor) == ["two"]
    assert "changed: specs/two.yaml\n" in capsys.readouterr().err


def test_saved_defaults_run_every_spec_that_inherits_them(go: Go, executor: FakeExecutor) -> None:
    write("one.yaml")()
    Path("specs/area").mkdir()
    write("area/two.yaml")(), write("area/three.yaml")()
    go(write("area/_defaults.yaml", "tags: [x]\n"), lambda: None)
    assert ran(executor) == ["area/three", "area/two"]


def test_saved_backends_run_everything(go: Go, executor: FakeExecutor) -> None:
    write("one.yaml")(), write("two.yaml")()
    mine = "mine: {summary: My own backend, device: cpu, proof: {graphs: {min: 1}}}\n"
    Path("mine.yaml").write_text(mine)
    executor.jobs = []
    go(
        lambda: executor.jobs.clear(),
        lambda: Path("mine.yaml").write_text(mine + "\n"),
        lambda: None,
        line="watch specs --backends mine.yaml",
    )
    assert ran(executor) == ["one", "two"]


def test_an_invalid_spec_is_shown_and_waits(go: Go, executor: FakeExecutor, capsys: pytest.CaptureFixture[str]) -> None:
    write("one.yaml")()
    invalid, good = write("one.yaml", GOOD.replace("backends", "backend")), write("one.yaml", GOOD + "\n")
    assert go(invalid, lambda: capsys.readouterr(), lambda: executor.jobs.clear(), good, lambda: None) is ExitCode.OK
    assert ran(executor) == ["one"]


def test_problems_have_positions(go: Go, capsys: pytest.CaptureFixture[str]) -> None:
    write("one.yaml", GOOD.replace("close", "clsoe"))()
    assert go() is ExitCode.FAILED
    out = capsys.readouterr()
    assert "specs/one.yaml:7:" in out.out
    assert "did you mean 'close'" in out.out
    assert "1 problem; nothing was run; waiting for a change" in out.err


def test_a_new_spec_runs_and_a_deleted_one_is_forgotten(go: Go, executor: FakeExecutor, capsys: pytest.CaptureFixture[str]) -> None:
    write("one.yaml")(), write("crashes.yaml")()
    code = go(write("new.yaml"), lambda: None, lambda: Path("specs/crashes.yaml").unlink(), lambda: None)
    assert code is ExitCode.OK
    said = capsys.readouterr()
    assert "changed: specs/new.yaml\n" in said.err
    assert "changed: specs/crashes.yaml is gone\n" in said.err


def test_a_folder_without_specs_is_a_message(go: Go, capsys: pytest.CaptureFixture[str]) -> None:
    write("one.yaml")()
    go(lambda: shutil.rmtree("specs"), lambda: None)
    assert "no such file or folder: specs" in capsys.readouterr().err


def test_a_failure_is_remembered_until_it_is_fixed(go: Go, executor: FakeExecutor, capsys: pytest.CaptureFixture[str]) -> None:
    write("crashes.yaml")(), write("one.yaml")()
    assert go(write("one.yaml", GOOD + "\n"), lambda: None) is ExitCode.FAILED
    assert "still failing: crashes[backend=cpu]" in capsys.readouterr().out


def test_a_case_that_passes_again_is_fixed(go: Go, executor: FakeExecutor, capsys: pytest.CaptureFixture[str]) -> None:
    write("crashes.yaml")(), write("one.yaml")()

    def mend() -> None:
        executor.answer = passes

    assert go(mend, Key.FAILED) is ExitCode.OK
    assert ran(executor) == ["crashes"]
    assert "fixed: crashes[backend=cpu]\n" in capsys.readouterr().out


def test_keys(go: Go, executor: FakeExecutor, capsys: pytest.CaptureFixture[str]) -> None:
    write("crashes.yaml")(), write("one.yaml")()
    seen_runs: list[list[str]] = []
    note = lambda: seen_runs.append(ran(executor))  # noqa: E731 - a step of the script
    go(note, Key.FAILED, note, Key.ALL, note, write("one.yaml", GOOD + "\n"), lambda: None, note, Key.AGAIN, note)
    assert seen_runs == [["crashes", "one"], ["crashes"], ["crashes", "one"], ["one"], ["one"]]


def result(outcome: Outcome, *, id: str) -> CaseResult:
    return as_outcome(verdict_of(case(id=id), observation(id=id)), outcome)


def test_only_a_case_that_was_executed_is_fixed() -> None:
    outcomes = Outcomes()
    assert outcomes.take([result(Outcome.FAIL, id="a"), result(Outcome.CRASH, id="b"), result(Outcome.FAIL, id="c")]) == ()
    later = [result(Outcome.PASS, id="a"), result(Outcome.UNAVAILABLE, id="b"), result(Outcome.NOT_RUN, id="c")]
    assert outcomes.take(later) == ("a",)
    assert outcomes.failing == ("c",)


def test_old_runs_of_a_watch_are_removed(go: Go, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "MOST_RUNS", 2)
    write("one.yaml")()
    Path("reports/of-someone-else").mkdir(parents=True)
    go(Key.ALL, Key.ALL, Key.ALL)
    runs = [path.name for path in Path("reports").iterdir() if path.is_dir() and not path.is_symlink()]
    assert len(runs) == 3
    assert "of-someone-else" in runs
    assert Path("reports/latest/junit.xml").is_file()


def test_a_bug_of_the_program_does_not_end_the_watch(go: Go, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    write("one.yaml")()
    whole = tries.prepare
    failures = [ZeroDivisionError("planted")]

    def fails_once(*given: Any) -> Any:
        if failures:
            raise failures.pop()
        return whole(*given)

    monkeypatch.setattr(tries, "prepare", fails_once)
    assert go(Key.ALL) is ExitCode.OK
    assert "planted" in capsys.readouterr().err


def test_nothing_that_can_be_executed_is_no_success(go: Go) -> None:
    write("one.yaml", GOOD + "requires: [{gpus: '>=99'}]\n")()
    assert go() is ExitCode.NOTHING


def test_a_path_without_specs_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(tmp_path / "absent")]) == ExitCode.USAGE
    assert "no such file or folder" in capsys.readouterr().err


# Keys


def test_lines_are_keys_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write_end = os.pipe()
    with os.fdopen(read) as stdin, Interrupts() as interrupts:
        monkeypatch.setattr("sys.stdin", stdin)
        keys = TypedKeys(interrupts).__enter__()
        os.write(write_end, b"f\n\nall\nx\n")
        assert [keys.wait(0.01) for _ in range(3)] == [Key.FAILED, Key.AGAIN, Key.ALL]
        assert keys.wait(0.01) is None
        os.close(write_end)
        assert keys.wait(0.01) is None  # closed: no key will come, and the watch goes on
        assert keys.wait(0.01) is None
