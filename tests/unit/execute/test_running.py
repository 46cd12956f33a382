"""What the runner takes from a worker: its pipe, its control socket, its output files; each
worker's end is held by the test.
"""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from torch_conformance.execute import workers
from torch_conformance.execute.executor_protocol import Job
from torch_conformance.execute.workers import Running, Worker
from torch_conformance.model.protocol import dumps
from torch_conformance.plan.schedule import Environment

# -- the pipe --------------------------------------------------------------------------------------

WORD = "only the worker knows it"
JOB = Job(name="a", plan={}, folder="", environment=Environment(), timeout=9)


class Pipe:
    """An inbox and the end that a worker writes to."""

    def __init__(self) -> None:
        read, self.end = os.pipe()
        self.inbox = Running(JOB, read, WORD)

    def send(self, *data: bytes) -> Running:
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


@pytest.mark.parametrize(
    ("data", "phase", "observation", "problem"),
    [
        ([], "import", None, ""),
        (
            [dumps({"phase": "inputs"}) + dumps({"phase": "trace"}), ANSWER],
            "trace",
            {"format": 1},
            "",
        ),
        ([ANSWER[:7], ANSWER[7:-1], ANSWER[-1:]], "import", {"format": 1}, ""),
        ([ANSWER, dumps({"phase": "compare"})], "compare", {"format": 1}, ""),
        ([dumps({"phase": "run", "observation": {}, "word": WORD})], "run", None, ""),
        ([dumps({"phase": "x" * 1000})], "x" * 100, None, ""),
        ([dumps({"hello": 1})], "import", None, ""),
        # what is no message refuses the case before its answer; after it, a child that holds the
        # pipe may write anything
        ([ANSWER, b"\n\n\nno message\n"], "import", {"format": 1}, ""),
        (
            [b"nonsense\n" + ANSWER, ANSWER, dumps({"phase": "run"})],
            "import",
            None,
            "the worker sent a message that is not JSON",
        ),
        ([b"\n"], "import", None, "the worker sent a message that is not JSON"),
        ([b'{"phase": NaN}\n'], "import", None, "the worker sent a message that is not JSON"),
        (
            [b"[" * 300 + b"]" * 300 + b"\n"],
            "import",
            None,
            "the worker sent a message that is nested too deep",
        ),
        ([b'"phase"\n'], "import", None, "the worker sent a message that is not a map"),
        ([ANSWER + ANSWER], "import", {"format": 1}, "the worker answered twice"),
        (
            [ANSWER, dumps({"observation": "second", "word": WORD})],
            "import",
            {"format": 1},
            "the worker answered twice",
        ),
        *(
            (
                [dumps({"observation": {}, **word})],
                "import",
                None,
                "an observation lacks the token of its worker",
            )
            for word in ({}, {"word": "another"}, {"word": None}, {"word": [WORD]})
        ),
    ],
)
def test_what_is_believed_of_the_messages_of_a_worker(
    pipe: Pipe, data: list[bytes], phase: str, observation: object, problem: str
) -> None:
    inbox = pipe.send(*data)
    assert (inbox.phase, inbox.observation, inbox.answered_at is not None) == (
        phase,
        observation,
        observation is not None,
    )
    assert inbox.problem.startswith(problem)
    assert bool(inbox.problem) is bool(problem)


@pytest.mark.parametrize(
    "data",
    [[dumps({"phase": "b"})] * 10, [b"x" * 40] * 10],
    ids=["good-messages", "no-end-of-a-line"],
)
def test_a_flood_is_refused(pipe: Pipe, monkeypatch: pytest.MonkeyPatch, data: list[bytes]) -> None:
    monkeypatch.setattr(workers, "MAX_MESSAGE", 100)
    inbox = pipe.send(*data, ANSWER)
    assert (inbox.is_flooded, inbox.answered_at) == (True, None)
    assert inbox.problem.startswith("the worker sent more than")
    assert len(inbox.rest) <= 100


def test_a_flood_after_the_answer_changes_nothing(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe.send(ANSWER)
    monkeypatch.setattr(workers, "MAX_MESSAGE", 100)
    inbox = pipe.send(b"\n" * 200)
    assert (inbox.observation, inbox.problem, inbox.is_flooded) == ({"format": 1}, "", True)


def test_draining_takes_what_is_there_and_does_not_wait(pipe: Pipe) -> None:
    os.write(pipe.end, dumps({"phase": "run"}) + ANSWER)
    pipe.inbox.drain()
    assert (pipe.inbox.phase, pipe.inbox.answered_at is None, pipe.inbox.is_at_end) == (
        "run",
        False,
        False,
    )
    os.write(pipe.end, ANSWER[:-3])
    pipe.hang_up()
    pipe.inbox.drain()
    assert (pipe.inbox.is_at_end, bool(pipe.inbox.rest)) == (True, True)


def test_a_pipe_at_its_end_keeps_its_number_until_it_is_closed_once(pipe: Pipe) -> None:
    pipe.hang_up()
    pipe.inbox.drain()
    os.fstat(pipe.inbox.descriptor)
    pipe.inbox.close()
    other = os.open(os.devnull, os.O_RDONLY)
    try:
        assert other == pipe.inbox.descriptor  # the number is another's now
        pipe.inbox.close()
        os.fstat(other)
        assert not pipe.inbox.read()
    finally:
        os.close(other)


# -- the control socket ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data", [b'{"done": ""}', b'{"warm": ["cpu"]}', b"7", b"\xff", b"{", b"[" * 60_000]
)
def test_what_our_own_code_would_not_say_makes_it_odd_and_ends_nothing(
    tmp_path: Path, data: bytes
) -> None:
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    worker = Worker(number=1, key="", control=mine, isolation="fork")
    worker.give(JOB, "plan.json", tmp_path)
    with theirs:
        theirs.send(data)
        assert worker.listen()
    assert worker.broke_protocol
    worker.close()


# -- output files ----------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(workers, "MOST", 1 << 20)
    monkeypatch.setattr(workers, "END", 1 << 16)
    descriptor = os.open(tmp_path / "stdout.txt", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    yield descriptor
    os.close(descriptor)


def content(descriptor: int) -> bytes:
    return os.pread(descriptor, 1 << 24, 0)


def test_of_a_flood_the_disk_is_given_back_and_no_byte_of_the_end_is_lost(file):
    os.write(file, b"first" * (1 << 20) + b"the end")
    os.fsync(file)
    assert workers.free_beginning(file)
    assert os.fstat(file).st_blocks * 512 < workers.MOST
    os.write(file, b", and more")
    assert content(file).endswith(b"firstthe end, and more")
    assert not workers.free_beginning(file)
    assert workers.cut(file)
    assert content(file).startswith(workers.LOST)
    assert b"\0" not in content(file)
    assert content(file).endswith(b"firstthe end, and more")
    assert len(content(file)) == len(workers.LOST) + workers.END
    assert not workers.cut(file)


def test_a_full_disk_is_no_error_of_ours(file, monkeypatch):
    os.write(file, b"x" * (2 << 20))

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    assert workers.cut(file)
    assert os.fstat(file).st_size == 0
