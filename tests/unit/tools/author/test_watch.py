"""``watch``: what counts as a change, which specs depend on a file, what runs then, and what is
said.

The executor is a fake.
"""

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import GOOD
from tests.fakes import FakeExecutor, crashed, passes, use_executor
from torch_conformance.cli.parser import main, parse
from torch_conformance.execute.executor_protocol import Execution, Job
from torch_conformance.machine.installed_torch import torch_at
from torch_conformance.machine.signals import Interrupts
from torch_conformance.model.outcomes import ExitCode
from torch_conformance.report.reporters import Reporters
from torch_conformance.run import pipeline
from torch_conformance.tools.author.commands import watch as watching
from torch_conformance.tools.author.commands.watch import (
    AGAIN,
    ALL,
    FAILED,
    QUIT,
    KeptExecutor,
    Keys,
    Watch,
    WatchOptions,
)


def test_a_zygote_is_not_used_after_an_install_or_an_edit_of_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "version.py").write_text("__version__ = '2.13.0'\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(watching, "installed_torch", lambda: torch_at(tmp_path / "torch"))
    first = watching.installed_state()
    assert watching.installed_state() == first
    (tmp_path / "torch" / "edited.py").write_text("")  # a developer of torch
    edited = watching.installed_state()
    assert edited != first
    (tmp_path / "vendor.dist-info").mkdir()
    assert watching.installed_state() != edited


def test_each_run_reads_files_as_a_new_process_would() -> None:
    from torch_conformance.language.read import python_source

    assert python_source.is_installed("json")
    assert python_source._folders.cache_info().currsize > 0
    watching.forget_cached()
    assert python_source._folders.cache_info().currsize == 0


def answered(job: Job) -> Execution:
    """Answer as a worker would: the case passes, unless its spec is named for how it ends."""
    return crashed(job) if "crashes" in job.name else passes(job)


Act = Callable[[], object] | str


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch) -> FakeExecutor:
    executor = use_executor(monkeypatch, answered)
    monkeypatch.setattr(KeptExecutor, "of", lambda self, settings: pipeline.LocalExecutor(settings))
    return executor


Go = Callable[..., ExitCode]


@pytest.fixture
def go(here: Path, monkeypatch: pytest.MonkeyPatch, executor: FakeExecutor) -> Go:
    """Return a function that watches the folder ``specs`` while a script types keys and saves
    files.
    """
    (here / "specs").mkdir()
    monkeypatch.setattr(watching, "SETTLE_SECONDS", 0.001)

    def watch(*acts: Act, line: str = "watch specs") -> ExitCode:
        script = list(acts)

        def wait(seconds: float) -> str | None:
            act = script.pop(0) if script else QUIT
            if isinstance(act, str):
                return act
            act()
            return None

        _, options = parse(line.split())
        assert isinstance(options, WatchOptions)
        return Watch(options, partial(Reporters, "watch"), wait).run()

    return watch


def write(name: str, text: str = GOOD) -> Callable[[], object]:
    return lambda: Path("specs", name).write_text(text)


def ran(executor: FakeExecutor) -> list[str]:
    """Return the names of the specs of the last run."""
    return sorted({job.name.partition("[")[0] for job in executor.jobs})


def test_all_specs_run_first_and_then_what_is_saved(
    go: Go, executor: FakeExecutor, capsys: pytest.CaptureFixture[str]
) -> None:
    write("one.yaml")(), write("two.yaml")()
    assert go() is ExitCode.OK
    assert ran(executor) == ["one", "two"]
    assert "executed 2 of 2 selected" in capsys.readouterr().out
    assert go(write("two.yaml", GOOD + "\n")) is ExitCode.OK
    assert ran(executor) == ["two"]
    assert "changed: specs/two.yaml\n" in capsys.readouterr().err


def test_an_editor_that_writes_by_rename_saves(go: Go, executor: FakeExecutor) -> None:
    write("one.yaml")(), write("two.yaml")()
    status = os.stat("specs/one.yaml")

    def rename() -> None:
        Path("other").write_text(GOOD)
        os.utime("other", ns=(status.st_atime_ns, status.st_mtime_ns))
        os.replace("other", "specs/one.yaml")

    go(rename)
    assert ran(executor) == ["one"]


def test_saved_defaults_run_every_spec_that_inherits_them(go: Go, executor: FakeExecutor) -> None:
    Path("pyproject.toml").write_text("")
    Path("specs/area").mkdir()
    write("one.yaml")(), write("area/two.yaml")(), write("area/three.yaml")()
    go(
        lambda: executor.jobs.clear(),
        lambda: Path("specs/area/_defaults.yaml").write_text("tags: [y]\n"),
    )
    assert ran(executor) == ["area/three", "area/two"]


def test_saved_backends_run_everything(go: Go, executor: FakeExecutor) -> None:
    write("one.yaml")(), write("two.yaml")()
    mine = "mine: {summary: My own backend, device: cpu, proof: {graphs: {min: 1}}}\n"
    Path("mine.yaml").write_text(mine)
    go(
        lambda: executor.jobs.clear(),
        lambda: Path("mine.yaml").write_text(mine + "\n"),
        line="watch specs --backends mine.yaml",
    )
    assert ran(executor) == ["one", "two"]


def test_an_invalid_spec_is_shown_and_waits(
    go: Go, executor: FakeExecutor, capsys: pytest.CaptureFixture[str]
) -> None:
    write("one.yaml")(), write("two.yaml")()
    invalid = write("one.yaml", GOOD.replace("close", "clsoe"))
    assert go(invalid, write("two.yaml", GOOD + "\n")) is ExitCode.FAILED
    assert ran(executor) == ["two"]
    out = capsys.readouterr()
    assert "specs/one.yaml:7:" in out.out
    assert "did you mean 'close'" in out.out
    assert "1 problem; nothing was run; waiting for a change" in out.err
    assert go(write("one.yaml")) is ExitCode.OK
    assert ran(executor) == ["one", "two"]  # the run of all specs could not begin before


def test_a_new_spec_runs_and_a_deleted_one_is_forgotten(
    go: Go, capsys: pytest.CaptureFixture[str]
) -> None:
    write("one.yaml")(), write("crashes.yaml")()
    assert go(write("new.yaml"), lambda: Path("specs/crashes.yaml").unlink()) is ExitCode.OK
    said = capsys.readouterr().err
    assert "changed: specs/new.yaml\n" in said
    assert "changed: specs/crashes.yaml is gone\n" in said
    go(lambda: shutil.rmtree("specs"))
    assert "no such file or folder: specs" in capsys.readouterr().err


def test_a_failure_is_remembered_until_it_is_fixed(
    go: Go, executor: FakeExecutor, capsys: pytest.CaptureFixture[str]
) -> None:
    write("crashes.yaml")(), write("one.yaml")()
    assert go(write("one.yaml", GOOD + "\n")) is ExitCode.FAILED
    assert "still failing: crashes[backend=cpu]" in capsys.readouterr().out

    def mend() -> None:
        executor.answer = passes

    assert go(mend, FAILED) is ExitCode.OK
    assert ran(executor) == ["crashes"]
    assert "fixed: crashes[backend=cpu]\n" in capsys.readouterr().out


def test_keys(go: Go, executor: FakeExecutor) -> None:
    write("crashes.yaml")(), write("one.yaml")()
    seen_runs: list[list[str]] = []
    note = lambda: seen_runs.append(ran(executor))  # noqa: E731 - a step of the script
    go(note, FAILED, note, ALL, note, write("one.yaml", GOOD + "\n"), note, AGAIN, note)
    assert seen_runs == [["crashes", "one"], ["crashes"], ["crashes", "one"], ["one"], ["one"]]


def test_old_runs_of_a_watch_are_removed(go: Go, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "MOST_RUNS", 2)
    write("one.yaml")()
    Path("reports/of-someone-else").mkdir(parents=True)
    go(ALL, ALL, ALL)
    runs = [
        path.name for path in Path("reports").iterdir() if path.is_dir() and not path.is_symlink()
    ]
    assert len(runs) == 3
    assert "of-someone-else" in runs
    assert Path("reports/latest/junit.xml").is_file()


def test_a_bug_of_the_program_does_not_end_the_watch(
    go: Go, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write("one.yaml")()
    whole = watching.prepare
    failures = [ZeroDivisionError("planted")]

    def fails_once(*arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return whole(*arguments)

    monkeypatch.setattr(watching, "prepare", fails_once)
    assert go(ALL) is ExitCode.OK
    assert "planted" in capsys.readouterr().err


def test_nothing_that_can_be_executed_is_no_success(go: Go, tmp_path: Path) -> None:
    write("one.yaml", GOOD + "requires: [{gpus: '>=99'}]\n")()
    assert go() is ExitCode.NOTHING
    assert main(["watch", str(tmp_path / "absent")]) == ExitCode.USAGE


def test_lines_are_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write_end = os.pipe()
    with os.fdopen(read) as stdin, Interrupts() as interrupts:
        monkeypatch.setattr("sys.stdin", stdin)
        keys = Keys(interrupts)
        os.write(write_end, b"f\n\nall\n")
        assert [keys.wait(0.01) for _ in range(3)] == [FAILED, AGAIN, ALL]
        assert keys.wait(0.01) is None
        os.close(write_end)
        assert keys.wait(0.01) is None  # closed: no key will come, and the watch goes on
        assert keys.wait(0.01) is None
