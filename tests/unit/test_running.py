"""What the runner takes from a worker: its pipe, its control socket, its output files; each worker's end is held by the test."""

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.core.protocol import dumps
from runner.execute.base import Job
from runner.execute.local import running
from runner.execute.local.running import Inbox, LocalJob
from runner.execute.local.workers import Worker
from runner.plan.resources import Environment

# -- the pipe ---------------------------------------------------------------------------------------------------------

WORD = "only the worker knows it"


class Pipe:
    """An inbox and the end that a worker writes to."""

    def __init__(self) -> None:
        read, self.end = os.pipe()
        self.inbox = Inbox(read, WORD)

    def send(self, *data: bytes) -> Inbox:
        for one in data:
            os.write(self.end, one)
            self.inbox.read()
        return self.inbox

    def hang_up(self) -> None:
        if self.end >= 0:
            os.close(self.end)
            self.end = -1


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.hang_up()
    made.inbox.close()


ANSWER = dumps({"observation": {"format": 1}, "word": WORD})


def test_nothing_has_come_yet(pipe: Pipe) -> None:
    assert not pipe.inbox.read()
    assert (pipe.inbox.phase, pipe.inbox.has_answer, pipe.inbox.problem) == ("import", False, "")
    assert not pipe.inbox.is_at_end
    assert not pipe.inbox.is_cut_off


def test_phases_and_an_observation(pipe: Pipe) -> None:
    inbox = pipe.send(dumps({"phase": "inputs"}) + dumps({"phase": "trace"}), ANSWER)
    assert (inbox.phase, inbox.has_answer, inbox.observation, inbox.problem) == ("trace", True, {"format": 1}, "")
    pipe.hang_up()
    assert not inbox.read()
    assert inbox.is_at_end


def test_a_message_in_pieces(pipe: Pipe) -> None:
    pipe.send(ANSWER[:7])
    assert pipe.inbox.is_cut_off
    assert not pipe.inbox.has_answer
    pipe.send(ANSWER[7:-1])
    assert pipe.inbox.is_cut_off
    pipe.send(ANSWER[-1:])
    assert pipe.inbox.observation == {"format": 1}
    assert not pipe.inbox.is_cut_off


def test_an_observation_that_is_nothing_is_an_answer(pipe: Pipe) -> None:
    inbox = pipe.send(dumps({"observation": None, "word": WORD}))
    assert (inbox.has_answer, inbox.observation) == (True, None)


def test_a_phase_is_a_short_text(pipe: Pipe) -> None:
    assert len(pipe.send(dumps({"phase": "x" * 1000})).phase) == 100
    assert pipe.send(dumps({"phase": ["no", "text"]})).phase == "['no', 'text']"


def test_a_phase_after_the_answer_is_the_phase_it_died_in(pipe: Pipe) -> None:
    assert pipe.send(ANSWER, dumps({"phase": "compare"})).phase == "compare"


def test_a_message_with_both_is_a_phase(pipe: Pipe) -> None:
    inbox = pipe.send(dumps({"phase": "run", "observation": {}, "word": WORD}))
    assert (inbox.phase, inbox.has_answer) == ("run", False)


def test_other_messages_say_nothing(pipe: Pipe) -> None:
    inbox = pipe.send(dumps({"hello": 1}))
    assert (inbox.phase, inbox.has_answer, inbox.problem) == ("import", False, "")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"nonsense\n", "the worker sent a message that is not JSON"),
        (b"\n", "the worker sent a message that is not JSON"),
        (b"\xff\xfe\n", "the worker sent a message that is not JSON"),
        (b'{"phase": NaN}\n', "the worker sent a message that is not JSON"),
        (b'{"observation": 1e999}\n', "the worker sent a message that is not JSON"),
        (b"[" * 300 + b"]" * 300 + b"\n", "the worker sent a message that is nested too deep"),
        (b"[]\n", "the worker sent a message that is no map"),
        (b'"phase"\n', "the worker sent a message that is no map"),
        (ANSWER + ANSWER, "the worker answered twice"),
        (ANSWER + dumps({"observation": {"format": 2}, "word": WORD}), "the worker answered twice"),
    ],
)
def test_how_the_protocol_is_broken(data: bytes, problem: str, pipe: Pipe) -> None:
    assert pipe.send(data).problem == problem


def test_the_first_observation_stays(pipe: Pipe) -> None:
    assert pipe.send(ANSWER, dumps({"observation": "second", "word": WORD})).observation == {"format": 1}


def test_after_a_problem_nothing_is_believed(pipe: Pipe) -> None:
    inbox = pipe.send(b"nonsense\n" + ANSWER, ANSWER, dumps({"phase": "run"}))
    assert (inbox.has_answer, inbox.phase) == (False, "import")
    assert inbox.problem == "the worker sent a message that is not JSON"


def test_a_flood_is_one_even_of_good_messages(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "MAX_MESSAGE", 100)
    inbox = pipe.send(dumps({"phase": "a"}))
    assert not inbox.is_flooded
    for _ in range(10):
        inbox = pipe.send(dumps({"phase": "b"}))
    assert inbox.is_flooded
    assert inbox.problem.startswith("the worker sent more than")
    pipe.send(ANSWER)
    assert not inbox.has_answer


def test_a_line_without_an_end_is_a_flood(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "MAX_MESSAGE", 1000)
    for _ in range(20):
        pipe.send(b"x" * 100)
    assert pipe.inbox.is_flooded
    assert len(pipe.inbox._buffer) <= 1000


def test_draining_takes_what_is_there_and_does_not_wait(pipe: Pipe) -> None:
    os.write(pipe.end, dumps({"phase": "run"}) + ANSWER)
    pipe.inbox.drain()
    assert (pipe.inbox.phase, pipe.inbox.has_answer, pipe.inbox.is_at_end) == ("run", True, False)
    pipe.hang_up()
    pipe.inbox.drain()
    assert pipe.inbox.is_at_end
    pipe.inbox.drain()


def test_what_was_cut_off_when_the_worker_died(pipe: Pipe) -> None:
    os.write(pipe.end, ANSWER[:-3])
    pipe.hang_up()
    pipe.inbox.drain()
    assert pipe.inbox.is_cut_off
    assert not pipe.inbox.has_answer


def test_a_pipe_at_its_end_keeps_its_number_until_it_is_closed(pipe: Pipe) -> None:
    pipe.hang_up()
    pipe.inbox.drain()
    assert pipe.inbox.is_at_end
    os.fstat(pipe.inbox.descriptor)
    pipe.inbox.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(pipe.inbox.descriptor)
    assert not pipe.inbox.read()


def test_a_pipe_is_closed_once(pipe: Pipe) -> None:
    descriptor = pipe.inbox.descriptor
    pipe.inbox.close()
    other = os.open(os.devnull, os.O_RDONLY)
    try:
        assert other == descriptor  # the number is another's now
        pipe.inbox.close()
        os.fstat(other)
    finally:
        os.close(other)


def test_a_pipe_that_cannot_be_read_is_at_its_end(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(running.os, "read", refuse)
        assert not pipe.inbox.read()
    assert pipe.inbox.is_at_end


@pytest.mark.parametrize("word", [{}, {"word": "another"}, {"word": None}, {"word": [WORD]}])
def test_an_observation_without_the_word_of_its_worker_is_refused(pipe: Pipe, word: dict[str, object]) -> None:
    inbox = pipe.send(dumps({"observation": {"format": 1}, **word}))
    assert (inbox.has_answer, inbox.observation) == (False, None)
    assert inbox.problem.startswith("an observation came without the word that its worker was given")


def test_what_is_no_message_after_the_answer_changes_nothing(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child of the case may hold the pipe: how much of what it writes is read before it is killed is chance."""
    inbox = pipe.send(ANSWER, b"\n\n\nno message\n")
    assert (inbox.observation, inbox.problem) == ({"format": 1}, "")
    monkeypatch.setattr(running, "MAX_MESSAGE", 100)
    inbox = pipe.send(b"\n" * 200)
    assert (inbox.observation, inbox.problem, inbox.is_flooded) == ({"format": 1}, "", True)


def test_what_is_no_message_before_the_answer_refuses_the_case(pipe: Pipe) -> None:
    assert "the worker sent a message that is" in pipe.send(b"no message\n", ANSWER).problem


# -- the control socket -----------------------------------------------------------------------------------------------


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
    monkeypatch.setattr(running.time, "monotonic", lambda: begun + 100)
    worker.running.restart_clock()
    assert (worker.running.begun, worker.running.deadline) == (begun + 100, begun + 109)


# -- output files -----------------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(running, "MOST", 1 << 20)
    monkeypatch.setattr(running, "END", 1 << 16)
    descriptor = os.open(tmp_path / "stdout.txt", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    yield descriptor
    os.close(descriptor)


def content(descriptor: int) -> bytes:
    return os.pread(descriptor, 1 << 24, 0)


def test_what_is_short_stays_whole(file):
    text = b"x" * running.MOST
    os.write(file, text)
    assert not running.bound(file)
    assert not running.cut(file)
    assert content(file) == text


def test_of_a_flood_the_disk_is_given_back_and_no_byte_of_the_end_is_lost(file):
    os.write(file, b"first" * (1 << 20) + b"the end")
    os.fsync(file)
    assert running.bound(file)
    assert os.fstat(file).st_blocks * 512 < running.MOST
    os.write(file, b", and more")
    assert content(file).endswith(b"firstthe end, and more")
    assert not running.bound(file)
    assert running.cut(file)
    assert content(file).startswith(running.LOST)
    assert b"\0" not in content(file)
    assert content(file).endswith(b"firstthe end, and more")
    assert len(content(file)) == len(running.LOST) + running.END
    assert not running.cut(file)


def test_a_file_system_without_holes_keeps_the_end_too(file, monkeypatch):
    class NoHoles:
        def fallocate(self, *_: object) -> int:
            return -1

    monkeypatch.setattr(running, "_libc", NoHoles())
    os.write(file, b"first" * (1 << 20) + b"the end")
    os.fsync(file)
    assert running.bound(file)
    os.write(file, b", and more")
    assert content(file).startswith(running.LOST)
    assert content(file).endswith(b"firstthe end, and more")


def test_a_full_disk_is_no_error_of_ours(file, monkeypatch):
    os.write(file, b"x" * (2 << 20))

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    assert running.cut(file)
    assert os.fstat(file).st_size == 0
