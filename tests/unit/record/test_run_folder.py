"""The folder of a run and the files of its reports: one writer, named to the second; links, pipes,
and what is no folder or no journal.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.fakes import ROOT
from tests.recorded import footer_of
from tests.unit.report.test_junit import HEADER, write_junit
from torch_conformance.cli.parser import main
from torch_conformance.model.diagnostics import UsageError
from torch_conformance.model.events import ResultsCompleted, RunStarted
from torch_conformance.optional.options import RunOptions
from torch_conformance.record.run_folder import (
    JOURNAL,
    LOCK,
    FolderInUse,
    RunFolder,
    RunLock,
    find_run,
    holder_of,
    open_run,
    require_free_reports,
    require_still,
)
from torch_conformance.report import ReportSetup
from torch_conformance.report.junit import JUnitReporter

pytestmark = pytest.mark.usefixtures("here")

HOLD = """
import sys, time
from pathlib import Path
from torch_conformance.record.run_folder import open_run
folder = open_run(Path("first"))
folder.claim_reports({"--junit": Path(name) for name in sys.argv[1:]})
print(1, flush=True)
time.sleep(600)
"""
Process: TypeAlias = "subprocess.Popen[bytes]"
Start: TypeAlias = Callable[..., Process]


def killed(process: Process) -> None:
    process.kill()
    process.wait(timeout=60)


@pytest.fixture
def live() -> Iterator[Start]:
    """Start a run in the folder ``first`` that writes these reports until the test ends."""
    started: list[Process] = []

    def start(*reports: str) -> Process:
        variables = {**os.environ, "PYTHONPATH": str(ROOT)}
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", HOLD, *reports], env=variables, stdout=subprocess.PIPE
            )
        )
        assert started[-1].stdout is not None
        started[-1].stdout.readline()
        return started[-1]

    yield start
    for process in started:
        killed(process)
        assert process.stdout is not None
        process.stdout.close()


def claim(path: str) -> None:
    require_free_reports({"--junit": Path(path)})
    RunFolder(path=Path("run"), run_id="run").claim_reports({"--junit": Path(path)})


# -- the folder ------------------------------------------------------------------------------------


def test_a_second_writer_and_a_reader_are_told_folder_and_process(live: Start) -> None:
    process, folder = live(), Path("first")
    with pytest.raises(FolderInUse, match=f"first: process {process.pid} is writing a run there"):
        open_run(folder)
    assert not (folder / JOURNAL).exists()
    with pytest.raises(
        UsageError, match=f"latest: process {process.pid} is still writing this run"
    ):
        require_still("latest", folder)


def test_a_killed_writer_locks_nothing(live: Start) -> None:
    process, folder = live("same.xml"), Path("first")
    killed(process)
    assert (folder / LOCK).exists()
    assert holder_of(folder) is None
    second = open_run(folder)
    assert (folder / LOCK).read_text().startswith(f"{os.getpid()} ")
    second.claim_reports({"--junit": Path("same.xml")})
    second.release()
    second.release()
    assert list(folder.iterdir()) == []
    assert not list(Path().glob(".*.lock"))


@pytest.mark.parametrize("text", ["", "nonsense", "-1 x", "9" * 50, "\x00\xff"])
def test_whatever_stands_in_the_file_a_lock_is_a_lock(tmp_path: Path, text: str) -> None:
    lock = RunLock(tmp_path)
    (tmp_path / LOCK).write_text(text)
    with pytest.raises(FolderInUse, match="another process"):
        RunLock(tmp_path)
    lock.release()


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    Path("victim").write_text("mine")
    (tmp_path / LOCK).symlink_to("victim")
    with pytest.raises(UsageError, match="cannot write"):
        open_run(tmp_path)
    assert Path("victim").read_text() == "mine"


def test_a_lock_that_was_removed_is_not_the_folders(tmp_path: Path) -> None:
    first = RunLock(tmp_path)
    (tmp_path / LOCK).unlink()
    second = RunLock(tmp_path)
    first.release()
    assert holder_of(tmp_path) is not None, "the first removes no file of the second"
    second.release()


def test_a_journal_that_is_no_file_is_named() -> None:
    for name, words in (
        ("pipe", "a named pipe"),
        ("folder", "a folder"),
        ("link", "a link that leads nowhere"),
    ):
        Path(name).mkdir()
        journal = Path(name) / JOURNAL
        {"pipe": os.mkfifo, "folder": os.mkdir, "link": lambda path: path.symlink_to("none")}[name](
            journal
        )
        with pytest.raises(UsageError, match=f"{name}/run.jsonl is {words}"):
            find_run(name)


# -- reports ---------------------------------------------------------------------------------------


def test_a_report_goes_to_the_target_of_a_link_and_the_link_stays() -> None:
    Path("real").mkdir()
    Path("real/a.xml").write_text("old")
    for name, target in (("link.xml", "real/a.xml"), ("missing.xml", "real/b.xml")):
        Path(name).symlink_to(target)
        claim(name)
        write_junit(Path(name), HEADER, ())
        assert Path(name).is_symlink()
        assert Path(target).read_text().startswith("<?xml")


def test_a_report_is_written_once_into_a_named_pipe() -> None:
    os.mkfifo("pipe")
    claim("pipe")
    reader = subprocess.Popen(
        [sys.executable, "-c", "print(open('pipe').read())"], stdout=subprocess.PIPE, text=True
    )
    reporter = JUnitReporter(
        ReportSetup(
            folder=RunFolder(path=Path("folder"), run_id="1"),
            options=RunOptions(junit=Path("pipe")),
        )
    )
    for event in (
        RunStarted(header=HEADER, total=0, is_resumed=False),
        ResultsCompleted(header=HEADER, results=(), footer=footer_of(())),
    ):
        reporter.on_event(event)
    read = reader.communicate(timeout=60)[0]
    assert (read.count("<?xml"), read.count("<testsuites")) == (1, 1)
    assert Path("pipe").is_fifo()


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("folder", "this is a folder"),
        ("self", "this link leads to itself"),
        ("file/report.xml", r"cannot write to .*file"),
    ],
)
def test_a_path_at_which_no_report_can_be(path: str, words: str) -> None:
    Path("folder").mkdir()
    Path("file").write_text("")
    Path("self").symlink_to("self")
    with pytest.raises(UsageError, match=words):
        claim(path)


@pytest.mark.parametrize("name", ["same.xml", "link.xml", "first/junit.xml", "x" * 250 + ".xml"])
def test_a_report_that_a_live_run_writes_is_refused_before_anything_is_made(
    live: Start, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    Path("link.xml").symlink_to("same.xml")
    process = live("same.xml" if name in ("link.xml", "first/junit.xml") else name)
    assert main(["run", str(ROOT / "tests/specs/judged/host-pass.yaml"), "--junit", name]) == 2
    message = capsys.readouterr().err
    assert f"--junit {name}: process {process.pid} writes the report" in message
    assert "/" in name or f"of its run in {Path('first').absolute()} to this file" in message
    assert not Path("reports").exists()
