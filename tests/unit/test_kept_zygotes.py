"""Zygotes that outlive a run: which are used again, and which end. They are real, and have no torch."""

import os
import select
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.execute.base import ExecutorSettings
from runner.execute.local import kept_zygotes
from runner.execute.local.kept_zygotes import MOST_KEPT, BorrowingStarter, KeptZygote, ZygoteStore
from runner.plan.resources import Environment

SECONDS = 30.0

held: list[socket.socket] = []
"""The runner's ends of workers."""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ZygoteStore]:
    monkeypatch.setattr(BorrowingStarter, "module", "tests.plain_zygote")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
    made = ZygoteStore(tmp_path / "kept")
    yield made
    made.close()
    while held:
        held.pop().close()


def new(store: ZygoteStore, folder: Path, threads: int = 1) -> KeptZygote:
    starter = BorrowingStarter(store, ExecutorSettings(folder=folder, workers=1, threads=threads), folder)
    zygote = starter.zygote(Environment())
    assert isinstance(zygote, KeptZygote)
    return zygote


def started(store: ZygoteStore, folder: Path, threads: int = 1) -> KeptZygote:
    """Start a zygote, and wait until it is ready."""
    zygote = new(store, folder, threads)
    assert "ready" in next_message(zygote)
    zygote.is_ready = True
    return zygote


def next_message(zygote: KeptZygote) -> dict[str, object]:
    assert select.select([zygote.control], [], [], SECONDS)[0], "the zygote sent nothing"
    return dict(zygote.receive() or {"gone": True})


def given_back(zygote: KeptZygote) -> None:
    zygote.release()
    zygote.close()


def forked(zygote: KeptZygote, number: int) -> int:
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    assert zygote.fork(number, theirs.fileno())
    theirs.close()
    message = next_message(zygote)
    assert message["started"] == number
    held.append(mine)  # so that only a signal ends the worker
    pid = int(str(message["pid"]))
    until = time.monotonic() + SECONDS
    while os.getsid(pid) != pid:  # it leads no group yet
        assert time.monotonic() < until
        time.sleep(0.001)
    return pid


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def wait_until_gone(pid: int) -> None:
    until = time.monotonic() + SECONDS
    while not is_gone(pid):
        assert time.monotonic() < until, f"{pid} is still there"
        time.sleep(0.01)


def test_the_next_run_gets_the_same_process(store: ZygoteStore, tmp_path: Path) -> None:
    zygote = started(store, tmp_path)
    given_back(zygote)
    assert store.pids() == [zygote.process.pid]
    assert store.lend(zygote.key) is zygote
    assert store.pids() == []
    assert zygote.is_ready
    zygote.end()


def test_a_worker_that_was_killed_is_reaped_before_the_next_run(store: ZygoteStore, tmp_path: Path) -> None:
    zygote = started(store, tmp_path)
    pid = forked(zygote, 1)
    os.killpg(pid, signal.SIGKILL)
    given_back(zygote)
    assert is_gone(pid)
    assert store.lend(zygote.key) is zygote
    assert forked(zygote, 1) != pid  # the next run counts its workers from one again
    zygote.end()


def test_a_worker_of_which_the_run_does_not_know_ends_its_zygote(store: ZygoteStore, tmp_path: Path) -> None:
    zygote = started(store, tmp_path)
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    assert zygote.fork(7, theirs.fileno())  # its 'started' was not read
    theirs.close()
    given_back(zygote)
    assert store.pids() == []
    wait_until_gone(zygote.process.pid)
    mine.close()


def test_a_worker_that_cannot_be_reaped_ends_its_zygote(store: ZygoteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_zygotes, "_DRAIN_SECONDS", 0.1)
    zygote = started(store, tmp_path)
    pid = forked(zygote, 1)  # nobody kills it
    given_back(zygote)
    assert store.lend(zygote.key) is None
    wait_until_gone(zygote.process.pid)
    wait_until_gone(pid)


@pytest.mark.parametrize("when", ["after the run", "during the run", "before it is warm"])
def test_a_zygote_that_another_run_cannot_use_is_not_lent(store: ZygoteStore, tmp_path: Path, when: str) -> None:
    zygote = new(store, tmp_path) if when == "before it is warm" else started(store, tmp_path)
    if when == "during the run":
        zygote.process.kill()
        assert "gone" in next_message(zygote)
    given_back(zygote)
    if when == "after the run":
        zygote.process.kill()
    wait_until_gone(zygote.process.pid)
    assert store.lend(zygote.key) is None
    assert store.pids() == []


def test_another_state_of_the_machine_ends_all(store: ZygoteStore, tmp_path: Path) -> None:
    assert not store.require("torch 1")
    zygote = started(store, tmp_path)
    given_back(zygote)
    assert not store.require("torch 1")
    assert store.require("torch 2")
    assert store.pids() == []
    assert not store.require("torch 2")
    assert zygote.process.poll() is not None


def test_only_a_few_are_kept(store: ZygoteStore, tmp_path: Path) -> None:
    made = [started(store, tmp_path, number) for number in range(MOST_KEPT + 1)]
    for zygote in made:
        given_back(zygote)
    assert store.pids() == [zygote.process.pid for zygote in made[1:]]
    assert store.lend(made[0].key) is None
