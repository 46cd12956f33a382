"""The lock of a run's folder: one writer, named to the second; a killed one locks nothing."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from runner.model.diagnostics import UsageError
from runner.record.run_folder import JOURNAL, LOCK, FolderInUse, RunLock, holder_of, open_run, require_still
from tests.fakes import ROOT

HOLD = """
import sys, time
from pathlib import Path
from runner.record.run_folder import RunLock
lock = RunLock(Path(sys.argv[1]))
print(1, flush=True)
time.sleep(60)
"""


@pytest.fixture
def live(tmp_path: Path):
    """Return the folder and the process of a run that goes on."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    yield tmp_path, process
    process.kill()
    process.wait(timeout=60)
    process.stdout.close()


def test_a_second_writer_is_told_folder_and_process(live) -> None:
    folder, process = live
    with pytest.raises(FolderInUse, match=f"{folder}: process {process.pid} is writing a run there"):
        RunLock(folder)
    with pytest.raises(UsageError, match=f"process {process.pid}"):
        open_run(folder)
    assert not (folder / JOURNAL).exists()
    with pytest.raises(UsageError, match=f"latest: process {process.pid} is still writing this run"):
        require_still("latest", folder)


def test_a_killed_writer_locks_nothing(live) -> None:
    folder, process = live
    os.kill(process.pid, signal.SIGKILL)
    process.wait(timeout=60)
    assert (folder / LOCK).exists()
    assert holder_of(folder) is None
    lock = RunLock(folder)
    assert (folder / LOCK).read_text().startswith(f"{os.getpid()} ")
    lock.release()
    lock.release()
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("text", ["", "nonsense", "-1 x", "9" * 50, "\x00\xff"])
def test_whatever_stands_in_the_file_a_lock_is_a_lock(tmp_path: Path, text: str) -> None:
    lock = RunLock(tmp_path)
    (tmp_path / LOCK).write_text(text)
    with pytest.raises(FolderInUse, match="another process"):
        RunLock(tmp_path)
    lock.release()


def test_a_link_in_the_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / LOCK).symlink_to(victim)
    with pytest.raises(UsageError, match="cannot write"):
        open_run(tmp_path)
    assert victim.read_text() == "mine"


def test_a_lock_that_was_removed_is_not_the_folders(tmp_path: Path) -> None:
    first = RunLock(tmp_path)
    (tmp_path / LOCK).unlink()
    second = RunLock(tmp_path)
    first.release()
    assert holder_of(tmp_path) is not None, "the first removes no file of the second"
    second.release()
