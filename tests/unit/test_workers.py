"""The runner's end of a worker: what it believes of what a worker says of itself, and where it stops to read."""

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.execute.base import Job
from runner.execute.local.inbox import Inbox
from runner.execute.local.running import LocalJob
from runner.execute.local.workers import Worker
from runner.plan.jobs import Environment


@pytest.fixture
def ends() -> Iterator[tuple[Worker, socket.socket]]:
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    worker = Worker(number=1, key="", control=mine, isolation="fork")
    yield worker, theirs
    theirs.close()
    worker.close()


def given(worker: Worker, theirs: socket.socket, folder: Path) -> str:
    """Give it a case; return the word that came with it."""
    job = Job(name="a", plan={}, folder="", environment=Environment(), timeout=9)
    worker.give(LocalJob(job=job, plan="plan.json", folder=folder))
    data, descriptors, _, _ = socket.recv_fds(theirs, 1 << 16, 3)
    for descriptor in descriptors:
        os.close(descriptor)
    return str(json.loads(data)["word"])


@pytest.mark.parametrize(
    "data",
    [
        b'{"done": ""}',
        b'{"warm": ["cpu"]}',
        b"[]",
        b"7",
        b"\xff",
        b"{",
        b"[" * 60_000,
        b"{}",
    ],
)
def test_what_our_own_code_would_not_say_makes_it_odd_and_ends_nothing(ends, tmp_path, data):
    worker, theirs = ends
    given(worker, theirs, tmp_path)
    theirs.send(data)
    assert worker.listen()
    assert worker.broke_protocol


def test_it_is_warm_when_it_was_told_to_be(ends):
    worker, theirs = ends
    worker.warm_up(["cuda"], until=1.0)
    theirs.send(b'{"warm": ["cuda"]}')
    assert worker.listen()
    assert worker.is_warm
    assert not worker.broke_protocol


def test_it_has_hung_up(ends):
    worker, theirs = ends
    theirs.close()
    assert not worker.listen()


def test_the_time_of_a_case_begins_with_its_process(ends, tmp_path, monkeypatch):
    worker, theirs = ends
    given(worker, theirs, tmp_path)
    assert worker.running is not None
    begun = worker.running.begun
    monkeypatch.setattr("runner.execute.local.running.time.monotonic", lambda: begun + 100)
    worker.running.restart_clock()
    assert (worker.running.begun, worker.running.deadline) == (begun + 100, begun + 109)


def test_a_pipe_that_never_ends_is_not_read_for_ever(monkeypatch):
    monkeypatch.setattr("runner.execute.local.inbox.MAX_MESSAGE", 1 << 16)
    read, write = os.pipe()
    inbox = Inbox(read, "word")
    endless = iter([b"x" * 1000] * 1000)
    monkeypatch.setattr("runner.execute.local.inbox.os.read", lambda *_: next(endless))
    inbox.drain()
    assert inbox.is_flooded
    monkeypatch.undo()
    inbox.close()
    os.close(write)
